"""What messages and pages say about installing is true today, and after a release on an index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from gaia.runtime.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_messages_name_the_requirements_of_the_extras() -> None:
    assert {name: list(requirements) for name, requirements in EXTRAS.items()} == {
        name: requirements for name, requirements in OPTIONAL.items() if name != "all"
    }


def test_all_is_the_union_of_the_other_extras() -> None:
    """But for Ray, which is large, and of use only to those who have a cluster."""
    (requirement,) = OPTIONAL["all"]
    found = re.fullmatch(r"gaia-mcp\[([a-z,]+)\]", requirement)
    assert found is not None
    assert sorted(found[1].split(",")) == sorted(set(OPTIONAL) - {"all", "kubernetes", "ray"})


def test_what_agent_frameworks_pin_is_required_by_extras_of_its_own() -> None:
    """With these in the core or in `http`, pip installs no framework beside it, or a very old version of one."""
    pinned = {"anyio", "httpx", "httpx2", "mcp", "openai", "opentelemetry-sdk", "pydantic", "starlette", "uvicorn"}
    required = {re.split(r"[\[<>=]", requirement)[0] for requirement in PROJECT["dependencies"] + OPTIONAL["http"]}
    assert required & pinned == set()


def test_only_one_module_makes_install_commands() -> None:
    # Adapters name the framework that they are for.
    sources = [file for file in (ROOT / "src").rglob("*.py") if file.parent.name != "adapters"]
    naming = {file.name for file in sources if re.search(r"pip install|-m pip\b|uv add|pipx", file.read_text())}
    # The other one describes folders.
    assert naming <= {"extras.py", "places.py"}


def test_only_the_install_page_names_the_package_on_an_index() -> None:
    """Until there is a release, `pip install gaia-mcp` fails."""
    asking = re.compile(r"(pip|uv|uvx|pipx)\b[^\n`]*\s'?gaia-mcp\b")
    assert {page.name for page in PAGES if asking.search(page.read_text())} <= {"install.md"}


def test_the_install_page_has_every_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in OPTIONAL if f"| `{name}` |" not in page] == []


def test_uv_builds_a_checkout_anew_when_a_file_of_the_wheel_changes() -> None:
    """The version stays the same between releases: without these keys, uv installs the wheel of an older checkout."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = [key["file"] for key in document.get("tool", {}).get("uv", {}).get("cache-keys", [])]
    watched = {file.relative_to(ROOT).as_posix() for pattern in patterns for file in ROOT.glob(pattern)}
    packaged = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    }
    assert {"pyproject.toml", PROJECT["readme"], *packaged} - watched == set()
