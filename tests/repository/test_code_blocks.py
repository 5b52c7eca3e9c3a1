"""Every code block of README.md and docs runs, or says why it does not; CONTRIBUTING.md describes the comments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_blocks.blocks import blocks_of, pages
from tests.code_blocks.reader import Reader, stand_ins

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in pages(ROOT)}


@pytest.fixture(scope="module")
def path_of_commands(tmp_path_factory: pytest.TempPathFactory, starts_programs: None) -> Iterator[Path]:
    """A folder with `gaia`, and stand-ins for what the pages start."""
    with stand_ins(tmp_path_factory.mktemp("stand-ins"), sys.executable) as folder:
        yield folder


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_of_the_page_works(page: str, path_of_commands: Path, tmp_path: Path) -> None:
    blocks = blocks_of(PAGES[page].read_text(encoding="utf-8"), page)

    Reader(tmp_path, path_of_commands).follow(blocks)
