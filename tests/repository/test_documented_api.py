"""The API reference, as Sphinx builds it, shows everything that users may call, once and with a text; no internals."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.repository.test_public_names import PUBLIC_NAMES, PUBLIC_PATHS
from tests.waiting import PATIENCE

# The first test builds the reference.

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "api"

SHOWN_WHOLE = {
    "gaia.SilentConsole",
    "gaia.mcp.AudioContent",
    "gaia.mcp.EmbeddedResource",
    "gaia.mcp.ImageContent",
    "gaia.mcp.ResourceContents",
    "gaia.mcp.ResourceLink",
    "gaia.mcp.TextContent",
    "gaia.mcp.client.transports.ChannelTransport",
    "gaia.mcp.mcp_bridge.MCPBridge",
}
"""Classes whose own text says all: their members are those of another class, keys of a dictionary, or for gaia only."""

INTERNAL = {
    "gaia.agents.base.LLMSettings.resolved",
    "gaia.agents.base.registry.ToolRegistry.items",
    "gaia.agents.base.registry.ToolRegistry.keys",
    "gaia.agents.base.registry.ToolRegistry.values",
    "gaia.mcp.MCPError.mask",
    "gaia.mcp.client.client_options.ClientOptions.features",
    "gaia.mcp.client.client_options.ClientOptions.or_else",
    "gaia.testing.FakeServer.KEY",
    "gaia.mcp.StdioTransport.authorization",
    "gaia.mcp.StdioTransport.network",
    "gaia.mcp.StdioTransport.network_transport",
    "gaia.mcp.StdioTransport.open",
    "gaia.mcp.StdioTransport.stderr_tail",
    "gaia.mcp.StdioTransport.tracer",
    "gaia.mcp.UrlElicitationRequired.CODE",
    "gaia.mcp.client.transports.http.HttpTransport.authorization",
    "gaia.mcp.client.transports.http.HttpTransport.network",
    "gaia.mcp.client.transports.http.HttpTransport.network_transport",
    "gaia.mcp.client.transports.http.HttpTransport.open",
}
"""What other modules of gaia call, and applications do not."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, starts_programs: None) -> dict[str, dict[str, str]]:
    """The text of each entry of each page, by its full name."""
    program = [sys.executable, ROOT / "tests" / "built_reference.py", tmp_path_factory.mktemp("reference")]
    built = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    assert built.returncode == 0, built.stderr
    found: dict[str, dict[str, str]] = json.loads(built.stdout)
    return found


@pytest.fixture(scope="module")
def entries(pages: dict[str, dict[str, str]]) -> dict[str, str]:
    """Those of all pages."""
    return reduce(lambda one, other: one | other, pages.values())


def resolved(name: str) -> Any:
    """The object of a full name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], found)
    raise AssertionError(f"no module of {name} can be imported")


def is_class(name: str) -> bool:
    try:
        return isinstance(resolved(name), type)
    except AttributeError:
        return False  # An attribute that only instances have.


def own_members(cls: type) -> set[str]:
    """Names without an underscore that a class itself defines."""
    return {name for name in (*vars(cls), *inspect.get_annotations(cls)) if not name.startswith("_")}


def test_every_public_class_and_function_is_documented_once(entries: dict[str, str]) -> None:
    public = {f"{package}.{name}" for package, names in PUBLIC_NAMES.items() for name in names} | set(PUBLIC_PATHS)
    documented = [resolved(name) for name in entries if name.rpartition(".")[0] not in entries]
    wrong = {}
    for name in public:
        one = resolved(name)
        if isinstance(one, type) or inspect.isroutine(one):
            times = sum(one is other for other in documented)
            if times != 1:
                wrong[name] = times

    assert not wrong, f"documented this many times in docs/api: {wrong}"


def test_what_can_be_imported_from_gaia_mcp_is_documented_under_that_name(entries: dict[str, str]) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    missing = {
        name
        for name in PUBLIC_NAMES["gaia.mcp"]
        # A name of a type alone is explained beside what has this type.
        if f"gaia.mcp.{name}" not in entries and f"`{name}`" not in text and f"`gaia.mcp.{name}`" not in text
    }

    assert not missing


def test_every_public_member_of_every_documented_class_is_shown(entries: dict[str, str]) -> None:
    classes = {name: resolved(name) for name in entries if is_class(name)}
    documented = set(classes.values())
    missing = set()
    for name, cls in classes.items():
        # What a documented base shows is not repeated.
        bases = [one for one in cls.__mro__ if one.__module__.startswith("gaia.") and one not in documented - {cls}]
        shown = {f"{name}.{member}" for base in bases for member in own_members(base)}
        if name not in SHOWN_WHOLE:
            missing |= shown - entries.keys() - INTERNAL

    assert not missing, f"show these in docs/api, or list them as internal here: {sorted(missing)}"


def test_no_internals_are_shown(entries: dict[str, str]) -> None:
    shown = entries.keys() & INTERNAL

    assert not shown


def test_the_lists_of_exceptions_name_what_exists() -> None:
    for name in INTERNAL | SHOWN_WHOLE:
        resolved(name)


def test_every_entry_has_a_text(entries: dict[str, str]) -> None:
    silent = {name for name, text in entries.items() if not text.strip()}

    assert not silent, f"these need a docstring: {sorted(silent)}"


def test_the_index_leads_to_every_page(pages: dict[str, dict[str, str]]) -> None:
    index = (REFERENCE / "index.md").read_text(encoding="utf-8")
    tasks, _, contents = index.partition("```{toctree}")

    others = pages.keys() - {"index"}
    assert set(re.findall(r"\]\((\w+)\.md\)", tasks)) == others
    assert set(re.findall(r"^(\w+)$", contents, re.MULTILINE)) == others
