"""What a host is told at its start travels as one line of JSON."""

import msgspec

from gaia.mcp.placement.engine import Launch


def test_it_travels_as_one_line() -> None:
    launch = Launch(name="it", entry={"command": "a\nb"}, token="secret", lease=30.0, is_shared=True)
    line = msgspec.json.encode(launch)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Launch) == launch
