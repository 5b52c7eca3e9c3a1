"""docs/api.md lists every public module, and everything in it, exactly once."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.repository.test_public_names import PUBLIC_NAMES, PUBLIC_PATHS

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
MODULES = [name for name, _ in SECTIONS]
DIRECTIVES = [
    (module, kind, target)
    for module, text in SECTIONS
    for kind, target in re.findall(r"^\.\. auto(\w+):: (\S+)", text, re.MULTILINE)
]


def resolved(target: str) -> Any:
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError:
        module, _, name = target.rpartition(".")
        return getattr(importlib.import_module(module), name)


def documented() -> list[Any]:
    """The objects of all directives; those of a module's `__all__` where it is listed with its members."""
    found: list[Any] = []
    for _, _, target in DIRECTIVES:
        one = resolved(target)
        members = re.search(rf":: {re.escape(target)}\n   :members:(.*)", PAGE)
        if not isinstance(one, ModuleType):
            found.append(one)
        elif members is not None:
            found += [getattr(one, name) for name in members[1].replace(",", " ").split() or one.__all__]
    return [one for one in found if isinstance(one, type) or callable(one)]


def test_no_module_is_listed_twice() -> None:
    assert len(set(MODULES)) == len(MODULES)


def test_every_public_module_is_listed() -> None:
    # A module whose names a public package exports may be named in the package's section instead.
    paths = {path.rpartition(".")[0] for path in PUBLIC_PATHS}
    missing = {name for name in PUBLIC_NAMES.keys() | paths if name not in MODULES and f"`{name}`" not in PAGE}
    assert not missing, f"add to docs/api.md: {missing}"


def test_each_object_stands_in_the_section_of_its_module() -> None:
    assert DIRECTIVES
    for module, _, target in DIRECTIVES:
        assert target == module or target.rpartition(".")[0] == module, target


def test_no_object_is_documented_twice() -> None:
    twice = [one for one in documented() if sum(one is other for other in documented()) > 1]
    assert not twice


def test_every_public_class_and_function_is_documented() -> None:
    public = [
        getattr(importlib.import_module(package), name) for package in PUBLIC_NAMES for name in PUBLIC_NAMES[package]
    ]
    known = documented()
    missing = [one for one in public if (isinstance(one, type) or callable(one)) and not any(one is x for x in known)]
    assert not missing, f"add to docs/api.md: {missing}"
