"""`LazyGroup`: a group whose commands are imported when they are run, or listed with their help.

Each command needs modules of its own, and a server that is started with one of them would keep those of all.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from gaia.cli.options import add_command


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is, and examples of it for its help."""

    module: str
    function: str
    examples: tuple[str, ...]
    cls: str | None = None
    """The class of the command, in the same module, if it has one of its own."""

    def load(self, name: str) -> Any:
        module = importlib.import_module(self.module)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        cls = None if self.cls is None else getattr(module, self.cls)
        add_command(alone, name, getattr(module, self.function), *self.examples, cls=cls)
        return typer.main.get_command(alone)


@dataclass(frozen=True)
class LazySubgroup:
    """Where a group within a group is: the `app` of a module, without completion of its own."""

    module: str

    def load(self, name: str) -> Any:
        group = typer.main.get_command(importlib.import_module(self.module).app)
        group.name = name
        return group


Offers = Mapping[str, LazyCommand | LazySubgroup]


class LazyGroup(TyperGroup):
    """The subclass says what commands there are."""

    offers: ClassVar[Offers]

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.commands = _Commands(self.offers)  # type: ignore[assignment]  # a dict to which nothing is added


class _Commands(Mapping[str, Any]):
    """The commands of one group by their names. Each is loaded once."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._offers[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._offers)

    def __len__(self) -> int:
        return len(self._offers)
