"""Contents of resources as text; `tests/unit/cli/test_calling.py` has the blocks of tools."""

from typing import Any

import pytest

from gaia.cli.content import readable, readable_resource


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"uri": "a:b", "text": "inside"}, "inside"),
        ({"uri": "a:b", "blob": "AAAA", "mimeType": "image/png"}, "[data, image/png, 3 bytes]"),
        ({"uri": "a:b", "blob": "AA=="}, "[data, of unknown type, 1 bytes]"),
        ({"uri": "a:b"}, '{"uri": "a:b"}'),
        (5, "5"),
    ],
)
def test_contents_of_resources_are_text_or_named(content: Any, shown: str) -> None:
    assert readable_resource(content) == shown


def test_bytes_of_blocks_are_counted() -> None:
    assert readable({"type": "image", "data": "AAA=", "mimeType": "image/png"}) == "[image, image/png, 2 bytes]"
