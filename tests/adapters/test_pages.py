"""The pages of the adapters, where the frameworks that they need are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.step_page import HEAD, TITLES
from tests.code_blocks.blocks import blocks_of
from tests.code_blocks.commands import commands
from tests.code_blocks.reader import Reader

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path_of_commands(tmp_path_factory: pytest.TempPathFactory, starts_programs: None) -> Iterator[Path]:
    with commands(tmp_path_factory.mktemp("commands"), sys.executable) as folder:
        yield folder


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs" / "adapters").glob("*.md")))
def test_every_code_block_of_the_page_works(name: str, path_of_commands: Path, tmp_path: Path) -> None:
    page = ROOT / "docs" / "adapters" / name
    blocks = blocks_of(page.read_text(encoding="utf-8"), f"docs/adapters/{name}")
    if missing := sorted({module for block in blocks for module in block.missing}):
        pytest.skip(f"not installed: {', '.join(missing)}")

    Reader(tmp_path, path_of_commands).follow(blocks)


def test_no_step_takes_longer_than_with_the_frameworks_own_client() -> None:
    """The table of `step_page`, in milliseconds."""
    page = (ROOT / "docs" / "adapters" / "index.md").read_text(encoding="utf-8")
    table = page.split(HEAD, 1)[1].split("\n\n", 1)[0].strip().splitlines()[1:]
    rows = {cells[1]: cells[2:-1] for line in table if (cells := [cell.strip() for cell in line.split("|")])}

    assert list(rows) == list(TITLES.values())
    for framework, (own, _first, further, _agents) in rows.items():
        assert float(further.removesuffix(" ms")) <= float(own.removesuffix(" ms") or 0.25), framework
