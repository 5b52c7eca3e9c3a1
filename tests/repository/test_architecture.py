"""The map of the code is short, and what it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_file_and_room_that_the_map_names_exists() -> None:
    files = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", PAGE)
    rooms = re.findall(r"`(gaia(?:\.[a-z_]+)+)`", PAGE)
    places = [ROOT / "src" / "gaia" / file for file in files if not file.startswith("tests/")]
    places += [ROOT / "src" / room.replace(".", "/") for room in rooms]
    assert len(places) > 60
    assert [place for place in places if not place.exists() and not place.with_suffix(".py").exists()] == []


def test_it_is_a_map_and_no_book() -> None:
    assert len(PAGE.split()) <= 4_000
    words = PAGE.split("\n## Words\n")[1].count("\n| ") - 1
    assert words <= 40
