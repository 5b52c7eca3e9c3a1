"""The names of log events are documented, and what is documented exists."""

import functools
import re
from pathlib import Path

import gaia

SOURCE = Path(gaia.__file__).parent
TABLES = Path(__file__).parents[2] / "docs" / "log-events.md"

EVENT = re.compile(r'\blogger\.(debug|info|warning|error)\(\s*"(\w+)"')


@functools.cache
def emitted() -> dict[str, set[str]]:
    """The levels of each event in the code."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for level, name in EVENT.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(level)
    return found


def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", TABLES.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: set(levels.split(", ")) for name, levels in rows}


def test_every_event_stands_in_the_tables_with_its_level() -> None:
    missing = {name: levels for name, levels in emitted().items() if documented().get(name) != levels}
    assert not missing, f"add to {TABLES.name}: {missing}"


def test_what_stands_in_the_tables_is_emitted() -> None:
    assert documented().keys() - emitted().keys() == set()


def test_names_are_all_of_one_form() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in emitted())
