from typing import Any

import pytest

from gaia.mcp.protocol.messages import says_safe_to_repeat


@pytest.mark.parametrize(
    ("annotations", "is_safe"),
    [
        ({}, False),
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True, "readOnlyHint": False}, True),
        ({"readOnlyHint": "false"}, False),
        ({"idempotentHint": 1}, False),
    ],
)
def test_only_a_plain_true_is_a_promise(annotations: dict[str, Any], is_safe: bool) -> None:
    assert says_safe_to_repeat(annotations) is is_safe
