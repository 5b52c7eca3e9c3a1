"""Severities of log messages."""

import pytest

from gaia.mcp.gateway.messages import is_wanted


@pytest.mark.parametrize(
    ("level", "least", "expected"),
    [
        ("warning", "info", True),
        ("info", "info", True),
        ("debug", "info", False),
        ("emergency", None, False),
        ("no such word", "info", True),
        (17, "warning", False),
    ],
)
def test_a_client_gets_what_is_as_severe_as_it_wants(level: object, least: str | None, expected: bool) -> None:
    assert is_wanted(level, least) is expected
