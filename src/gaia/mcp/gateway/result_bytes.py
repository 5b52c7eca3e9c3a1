"""Results of servers as bytes: whether one has to be decoded, and members that are put into it without that."""

from __future__ import annotations

_LONG = 8 * 1024
"""Bytes."""


def may_have(encoded: bytes, name: bytes) -> bool:
    """Whether JSON may have a member of this name, which is given in quotation marks. It may be written in escapes."""
    # A long one is decoded in less time than it is searched.
    return len(encoded) >= _LONG or name in encoded or b"\\u00" in encoded


def with_members(result: bytes, members: bytes) -> bytes:
    """An object of JSON with more members, which it does not have, in front."""
    rest = result.lstrip()[1:].lstrip()
    return b"{%b%b%b" % (members, b"" if rest[:1] == b"}" else b",", rest)
