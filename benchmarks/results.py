"""What a run found: for each row and each contender one figure a round, and what could not be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.contenders import Contender

Unit = Literal["seconds", "calls/s", "bytes", "count"]

_VERSION = 1


class UnusableResults(ValueError):
    """A file is not the JSON of a run."""


class Row(msgspec.Struct):
    """One thing that was measured, of all contenders: a column of the tables that people see."""

    section: str
    """The measure: "latency", "throughput", …"""
    table: str
    """What is shown together: "64 B, two cores"."""
    column: str
    """What distinguishes it there: "p50"."""
    unit: Unit
    values: dict[str, list[float]] = {}
    """By contender, one figure a round."""
    more_is_better: bool = False

    @property
    def key(self) -> str:
        return f"{self.section}: {self.table}: {self.column}"

    def add(self, contender: Contender, figure: float) -> None:
        self.values.setdefault(contender.key, []).append(figure)


class Run(msgspec.Struct):
    """All rows, in the order in which they are shown."""

    command: str
    date: str
    machine: dict[str, str]
    versions: dict[str, str] = {}
    """By contender, what is installed."""
    absent: dict[str, str] = {}
    """Contenders that could not be measured at all, and why."""
    failures: dict[str, dict[str, str]] = {}
    """By section and contender, what it could not do, and why."""
    rows: list[Row] = []
    seconds: float = 0.0
    version: int = _VERSION

    def row(self, section: str, table: str, column: str, unit: Unit, *, more_is_better: bool = False) -> Row:
        """The row of this name, made if it is new."""
        row = self.find(f"{section}: {table}: {column}")
        if row is None:
            row = Row(section, table, column, unit, more_is_better=more_is_better)
            self.rows.append(row)
        return row

    def find(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def tables(self) -> dict[tuple[str, str], list[Row]]:
        """The rows by section and table, in the order in which these first come in the run."""
        sections = list(dict.fromkeys(row.section for row in self.rows))
        tables: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: sections.index(row.section)):
            tables.setdefault((row.section, row.table), []).append(row)
        return tables

    def save(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def load(cls, file: Path) -> Run:
        """Raises UnusableResults, which says what is wrong with the file."""
        try:
            run = msgspec.json.decode(file.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise UnusableResults(f"{file} does not have the results of a run: {error}") from error
        if run.version != _VERSION:
            raise UnusableResults(f"{file} is of format {run.version}; this program writes and reads {_VERSION}")
        return run
