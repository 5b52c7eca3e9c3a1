"""Packages whose names are loaded on first use."""

from __future__ import annotations

import pytest

import gaia


def test_a_name_is_loaded_on_first_use_and_kept() -> None:
    assert gaia.CancelScope is vars(gaia)["CancelScope"]
    assert {"CancelScope", "AgentConsole", "__version__"} <= set(dir(gaia))


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gaia' has no attribute 'CancelScop'"):
        gaia.CancelScop  # type: ignore[attr-defined]  # noqa: B018 - it raises
