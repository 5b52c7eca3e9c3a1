"""What servers say unasked, as typed values."""

from typing import Any

import pytest

from gaia.mcp.protocol.messages import Notification
from gaia.mcp.protocol.notifications import (
    ElicitationComplete,
    LogMessage,
    PromptListChanged,
    RequestCancelled,
    ResourceListChanged,
    ResourceUpdated,
    ServerNotification,
    SubscriptionAcknowledged,
    ToolListChanged,
    parse_notification,
    progress_of,
)


def parse(method: str, **params: Any) -> ServerNotification | None:
    return parse_notification(Notification(f"notifications/{method}", params))


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("tools/list_changed", ToolListChanged),
        ("resources/list_changed", ResourceListChanged),
        ("prompts/list_changed", PromptListChanged),
        ("subscriptions/acknowledged", SubscriptionAcknowledged),
    ],
)
def test_some_need_no_params(method: str, kind: type[ServerNotification]) -> None:
    assert type(parse(method)) is kind


def test_others_carry_what_they_are_about() -> None:
    updated = parse("resources/updated", uri="file:///a")
    assert isinstance(updated, ResourceUpdated)
    assert updated.uri == "file:///a"
    completed = parse("elicitation/complete", elicitationId="e-1")
    assert isinstance(completed, ElicitationComplete)
    assert completed.elicitation_id == "e-1"
    for identifier in (7, "7"):
        cancelled = parse("cancelled", requestId=identifier, reason="late")
        assert isinstance(cancelled, RequestCancelled)
        assert cancelled.request_id == identifier


@pytest.mark.parametrize("value", [None, 1.5, [], {}])
def test_without_that_they_are_nothing(value: Any) -> None:
    assert parse("resources/updated", uri=value) is None
    assert parse("elicitation/complete", elicitationId=value) is None
    assert parse("cancelled", requestId=value) is None
    assert parse("cancelled") is None


def test_a_log_message_may_hold_anything() -> None:
    message = parse("message", data=["x"], level=3)
    assert isinstance(message, LogMessage)
    assert (message.level, message.logger, message.data) == (3, None, ["x"])
    bare = parse("message")
    assert isinstance(bare, LogMessage)
    assert (bare.level, bare.logger, bare.data) == ("info", None, None)


@pytest.mark.parametrize(
    ("meta", "subscription"),
    [({"io.modelcontextprotocol/subscriptionId": 4}, 4), ({}, None), (None, None), ("x", None)],
)
def test_each_may_belong_to_a_subscription(meta: Any, subscription: Any) -> None:
    parsed = parse("tools/list_changed", _meta=meta)
    assert parsed is not None
    assert parsed.subscription == subscription


@pytest.mark.parametrize("method", ["progress", "unheard/of", ""])
def test_unknown_ones_are_nothing(method: str) -> None:
    assert parse(method) is None


def test_progress_has_a_beginning_and_perhaps_an_end_and_a_message() -> None:
    assert progress_of({"progressToken": 1}) == (0, None, None)
    assert progress_of({"progress": 1, "total": 2, "message": "half"}) == (1, 2, "half")
