"""What a request of the page has to contain. That its work ends with the page is in `test_tool_runner`."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.dashboard.page_requests import Fields


def test_what_is_there_is_given_back() -> None:
    fields = Fields(b'{"server": "it", "arguments": {"a": "1"}, "timeout": 2.5}')

    assert fields.name("server") == "it"
    assert fields.mapping("arguments") == fields.texts("arguments") == {"a": "1"}
    assert fields.seconds("timeout") == 2.5


def test_what_may_be_left_out_may_be_left_out() -> None:
    fields = Fields(b"{}")

    assert fields.mapping("arguments") == fields.texts("arguments") == {}
    assert fields.seconds("timeout") is None


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        Fields(body)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not an object"):
        Fields(b"[]")


@pytest.mark.parametrize(
    ("body", "read", "message"),
    [
        (b"{}", lambda fields: fields.name("server"), "server: expected a name"),
        (b'{"server": ""}', lambda fields: fields.name("server"), "server: expected a name"),
        (b'{"a": []}', lambda fields: fields.mapping("a"), "a: expected an object"),
        (b'{"a": {"x": 1}}', lambda fields: fields.texts("a"), "a: expected a text for 'x'"),
        (b'{"t": true}', lambda fields: fields.seconds("t"), "t: expected seconds"),
        (b'{"t": 0}', lambda fields: fields.seconds("t"), "t: expected seconds"),
        (b'{"t": 3601}', lambda fields: fields.seconds("t"), "t: expected seconds"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, read: Callable[[Fields], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(Fields(body))
