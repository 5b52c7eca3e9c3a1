"""One request of a client until its answer."""

import json
from typing import Any, cast

import msgspec
import orjson
import pytest

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.messages import Refusal
from tests.gateway.lines import META, STATELESS


class Replies:
    accepts_messages = True

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.status = 0
        self.ends: list[str] = []

    def send(self, message: bytes) -> None:
        self.messages.append(json.loads(message))

    def answer(self, message: bytes, status: int) -> None:
        self.send(message)
        self.status = status

    def abandon(self) -> None:
        self.ends.append("abandoned")

    def forget(self) -> None:
        self.ends.append("forgotten")


@pytest.fixture
def replies() -> Replies:
    return Replies()


def pending(
    replies: Replies, meta: dict[str, Any] | None = None, *, method: str = "tools/call", **params: Any
) -> PendingRequest:
    encoded = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in params.items()}
    view = cast("View", object())
    return PendingRequest(1, method, encoded, {**STATELESS, **(meta or {})}, replies, view, None, Principal("ada"))


def test_it_is_answered_once(replies: Replies) -> None:
    request, ends = pending(replies), []
    request.after_end(lambda: ends.append("ended"))
    request.succeed(b'{"a":1}')
    request.succeed(b"{}")
    request.fail(-32602, "late")
    request.cancel("late")
    request.notify("late", {})
    assert replies.messages == [{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "a": 1}}]
    assert (ends, replies.ends) == (["ended"], [])


@pytest.mark.parametrize(("is_gone", "end"), [(False, "abandoned"), (True, "forgotten")])
def test_cancelling_it_cancels_the_call(replies: Replies, is_gone: bool, end: str) -> None:
    request, reasons = pending(replies), []
    request.on_cancelled = lambda reason: reasons.append((reason, list(replies.ends)))
    request.cancel("enough", is_gone=is_gone)
    request.cancel("twice")
    assert (reasons, replies.ends, replies.messages) == ([("enough", [])], [end], [])


def test_a_server_gets_the_params_without_what_is_the_protocols(replies: Replies) -> None:
    request = pending(
        replies, {"progressToken": 5, "vendor/x": 1, f"{META}logLevel": "info"}, name="a_b", arguments={"c": 1}
    )
    forwarded = orjson.loads(orjson.dumps(request.forwarded(name="b")))
    assert forwarded == {"name": "b", "arguments": {"c": 1}, "_meta": {"vendor/x": 1}}
    assert request.identity == "ada"
    assert request.log_level == "info"


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("tools/call", ("name", "arguments")),
        ("prompts/get", ("name", "arguments")),
        ("resources/read", ("uri",)),
        ("completion/complete", ("ref", "argument", "context")),
    ],
)
def test_a_server_gets_the_known_params_only_and_those_in_no_other_capitals(
    replies: Replies, method: str, known: tuple[str, ...]
) -> None:
    """A server in Go would take ``Name`` for ``name``, and the Kelvin sign for a k."""
    known = (*known, "inputResponses", "requestState")
    names = [variant for name in known for variant in (name, name.upper(), name.title(), name.replace("s", "\u017f"))]
    request = pending(replies, method=method, **{key: {} for key in ["_Meta", "_META", "other", *names]})
    assert set(request.forwarded()) == set(known)


def test_a_server_gets_no_key_of_the_protocol_in_other_capitals(replies: Replies) -> None:
    passed = {"vendor/X": 1, "Vendor": 2, "traceparent": "00-1", "other.io/progressToken": 3}
    stopped = ["ProgressToken", "progressto\u212aen", "IO.modelcontextprotocol/logLevel", "TraceParent", "Baggage"]
    request = pending(replies, {**passed, **dict.fromkeys([*stopped, "GAIA.mcp/instances"], 1)}, name="a")
    assert request.forwarded(name="b")["_meta"] == passed


def test_progress_has_the_token_of_the_client(replies: Replies) -> None:
    request = pending(replies, {"progressToken": "mine"})
    assert request.wants_progress
    request.progress({"progress": 1, "progressToken": 99})
    assert replies.messages[0]["params"] == {"progress": 1, "progressToken": "mine"}
    pending(replies).progress({"progress": 1})
    assert len(replies.messages) == 1


def test_a_client_of_the_stateless_era_is_not_asked(replies: Replies) -> None:
    with pytest.raises(Refusal):
        pending(replies).ask("roots/list", {}, lambda *_: None)


def test_what_goes_wrong_later_is_answered(replies: Replies) -> None:
    def refused() -> None:
        raise RequestRefused(-32602, "no", {"x": 1}, status=400)

    later(pending(replies), refused)()
    assert (replies.messages[0]["error"], replies.status) == ({"code": -32602, "message": "no", "data": {"x": 1}}, 400)

    def broken() -> None:
        raise ZeroDivisionError

    request = pending(replies)
    later(request, broken)()
    assert replies.messages[1]["error"]["code"] == -32603
    later(request, broken)()
    assert len(replies.messages) == 2


def test_members_that_must_be_there(replies: Replies) -> None:
    assert pending(replies, name="x").text("name") == "x"
    with pytest.raises(RequestRefused, match="name: missing"):
        pending(replies).text("name")
