"""The limits and the audit."""

from gaia.mcp.gateway.access.checks import Checks


def test_there_are_none_by_default() -> None:
    assert (Checks().limits, Checks().audit) == (None, None)
