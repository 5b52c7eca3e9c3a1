"""A client may be asked what it has declared."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.gateway.upstream.client_side import offers

FORM = {"message": "Who?", "requestedSchema": {}}
URL = {"mode": "url", "url": "https://example.com"}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "expected"),
    [
        ({}, "roots/list", {}, False),
        ({"roots": {}}, "roots/list", {}, True),
        ({"elicitation": {}}, "elicitation/create", FORM, True),
        ({"elicitation": {}}, "elicitation/create", URL, False),
        ({"elicitation": {"url": {}}}, "elicitation/create", URL, True),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, False),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation/create", {**FORM, "mode": "form"}, True),
        ({"elicitation": {"form": {}}}, "elicitation/create", {**FORM, "mode": ["form"]}, False),
        ({"elicitation": True}, "elicitation/create", FORM, False),
        ({}, "elicitation/create", FORM, False),
        ({"sampling": {}}, "sampling/createMessage", {}, True),
        ({"sampling": {}}, "sampling/createMessage", {"tools": [{}]}, False),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": [{}]}, True),
        ({}, "sampling/createMessage", {}, False),
        ({"roots": {}, "sampling": {}, "elicitation": {}}, "tools/list", {}, False),
    ],
)
def test_offers(capabilities: dict[str, Any], method: str, params: dict[str, Any], expected: bool) -> None:
    assert offers(capabilities, method, params) is expected
