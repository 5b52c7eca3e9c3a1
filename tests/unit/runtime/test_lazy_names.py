"""Packages whose names are loaded on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gaia
from tests.waiting import PATIENCE


def test_a_name_is_loaded_on_first_use_and_kept() -> None:
    assert gaia.CancelScope is vars(gaia)["CancelScope"]
    assert {"CancelScope", "AgentConsole", "__version__"} <= set(dir(gaia))


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gaia' has no attribute 'CancelScop'"):
        gaia.CancelScop  # type: ignore[attr-defined]  # noqa: B018 - it raises


@pytest.mark.process
def test_importing_the_package_loads_none_of_its_modules() -> None:
    program = "import sys, gaia.mcp; print(*(name for name in sys.modules if name.startswith('gaia')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert set(done.stdout.split()) == {"gaia", "gaia.mcp", "gaia.runtime", "gaia.runtime.lazy_names"}
