from __future__ import annotations

from typing import Any

import pytest

from gaia.agents.base.confirmation import (
    ConfirmationGate,
    ConfirmationRequest,
    is_marked_destructive,
    requires_confirmation,
)

NATIVE: dict[str, Any] = {"name": "t", "description": "Does it."}


def of_server(annotations: Any = None) -> dict[str, Any]:
    entry = {**NATIVE, "_mcp_server": "s", "_mcp_tool_name": "t"}
    return entry if annotations is None else {**entry, "_mcp_annotations": annotations}


@pytest.mark.parametrize(
    ("entry", "required"),
    [
        (NATIVE, False),
        ({**NATIVE, "requires_confirmation": True}, True),
        (of_server(), True),
        (of_server({}), True),
        (of_server("readOnlyHint"), True),
        (of_server({"readOnlyHint": True}), False),
        (of_server({"readOnlyHint": "true"}), True),
        (of_server({"readOnlyHint": 1}), True),
        (of_server({"readOnlyHint": False}), True),
        (of_server({"destructiveHint": False, "idempotentHint": True}), True),
        ({**of_server({"readOnlyHint": True}), "requires_confirmation": True}, True),
        ({**of_server(), "requires_confirmation": False}, True),
    ],
)
def test_only_what_a_server_calls_read_only_is_exempt(entry: dict[str, Any], required: bool) -> None:
    assert requires_confirmation(entry) is required


@pytest.mark.parametrize(
    ("entry", "marked"),
    [
        (NATIVE, False),
        ({**NATIVE, "requires_confirmation": True}, True),
        # A server that says nothing of what its tool does has not marked it.
        (of_server(), False),
        (of_server({}), False),
        (of_server({"title": "T"}), False),
        (of_server("destructiveHint"), False),
        (of_server({"destructiveHint": True}), True),
        (of_server({"destructiveHint": "no"}), True),
        (of_server({"destructiveHint": False}), False),
        # Where a server says that its tool writes, the protocol's default counts.
        (of_server({"readOnlyHint": False}), True),
        (of_server({"readOnlyHint": "true"}), True),
        (of_server({"readOnlyHint": False, "destructiveHint": False}), False),
        (of_server({"readOnlyHint": True}), False),
        # The protocol gives this hint no meaning beside the other one.
        (of_server({"readOnlyHint": True, "destructiveHint": True}), False),
        ({**of_server({"readOnlyHint": True}), "requires_confirmation": True}, True),
    ],
)
def test_what_counts_as_marked_destructive(entry: dict[str, Any], marked: bool) -> None:
    assert is_marked_destructive(entry) is marked
    # What is refused without a person is shown where there is one.
    assert requires_confirmation(entry) or not marked


@pytest.mark.parametrize(
    ("policy", "unmarked", "marked"),
    [("never", False, False), ("marked", False, True), ("destructive", True, True), ("always", True, True)],
)
def test_the_policy_says_which_calls_need_a_person(policy: Any, unmarked: bool, marked: bool) -> None:
    gate = ConfirmationGate(policy, None)
    assert (gate.refusal("t", of_server(), {}) is not None) is unmarked
    assert (gate.refusal("t", of_server({"destructiveHint": True}), {}) is not None) is marked
    assert (gate.refusal("t", of_server({"readOnlyHint": True}), {}) is not None) is (policy == "always")


@pytest.mark.parametrize(
    ("policy", "why"),
    [("marked", "marked destructive"), ("destructive", "not marked read-only"), ("always", "every call")],
)
def test_a_call_that_no_person_can_see_is_refused_with_what_to_set(
    policy: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = str(ConfirmationGate(policy, None).refusal("mcp_s_t", of_server({"destructiveHint": True}), {}))
    for part in ("'mcp_s_t'", "was not made", why, "on_confirmation", 'confirm="never"'):
        assert part in refusal
    assert "confirmation_impossible" in caplog.text


@pytest.mark.parametrize(("answer", "made"), [(True, True), (False, False), (None, False), ("no", False), (1, False)])
def test_only_true_is_consent(answer: Any, made: bool) -> None:
    refusal = ConfirmationGate("always", lambda request: answer).refusal("t", NATIVE, {})
    assert (refusal is None) is made


def test_a_callback_that_fails_is_no_consent() -> None:
    def fail(request: ConfirmationRequest) -> bool:
        raise LookupError

    assert "could not be confirmed" in str(ConfirmationGate("always", fail).refusal("t", NATIVE, {}))


def test_the_request_tells_what_is_known_about_the_call() -> None:
    seen: list[ConfirmationRequest] = []
    ConfirmationGate("destructive", seen.append).refusal("mcp_s_t", of_server({"title": "T"}), {"a": 1})  # type: ignore[arg-type]
    (request,) = seen
    assert (request.tool, request.server, request.description) == ("mcp_s_t", "s", "Does it.")
    assert (request.arguments, request.annotations) == ({"a": 1}, {"title": "T"})


def test_an_unknown_policy_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="never, marked, destructive, always"):
        ConfirmationGate("sometimes", None)  # type: ignore[arg-type]
