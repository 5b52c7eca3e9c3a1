"""Messages find their handlers; sessions open; servers are discovered."""

import json
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.messages import ClientMessage, RequestRefused, decode_message
from gaia.mcp.gateway.methods.dispatch import require_unused, take_message
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, Lines, asking


@pytest.mark.parametrize(
    ("stateless", "methods"),
    [
        (True, ["ping", "resources/subscribe", "logging/setLevel", "initialize", "no/such"]),
        (False, ["server/discover", "subscriptions/listen", "no/such"]),
    ],
)
async def test_the_methods_of_the_other_era_are_not_found(stateless: bool, methods: list[str]) -> None:
    async with asking({}, stateless=stateless) as lines:
        for method in methods:
            error = await lines.ask(method)
            assert error["code"] in (-32601, -32600), method


async def test_lists_count_for_the_limits_of_their_client(tmp_path: Path) -> None:
    file = tmp_path / "clients.json"
    limits = {"perClient": {"perSecond": 0.001, "burst": 2}, "perServer": {"*": {"perSecond": 0.001}}, "maxWait": 0.01}
    file.write_text(json.dumps({"limits": limits}))

    async with asking(Gateway({}, clients=file), stateless=True) as lines:
        answers = [await lines.ask(method) for method in ("tools/list", "prompts/list", "resources/list")]
        assert ["tools" in answers[0], "prompts" in answers[1]] == [True, True]
        assert "because of a limit: client 'anonymous': 0.001 per second" in answers[2]["message"]


class Request:
    def __init__(self, method: str) -> None:
        self.method = method
        self.is_cancelled = False

    def cancel(self, _reason: str) -> None:
        self.is_cancelled = True


@pytest.fixture
def session() -> Session:
    return Session("id", None, None)  # type: ignore[arg-type]  # no view is looked at


def take(session: Session, body: bytes) -> None:
    take_message(session, decode_message(body))


def test_a_request_is_cancelled_by_its_id_but_not_the_first_one(session: Session) -> None:
    session.requests[1] = opening = Request("initialize")
    session.requests["1"] = call = Request("tools/call")
    take(session, b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    take(session, b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}')
    take(session, b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
    assert not call.is_cancelled
    take(session, b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}')
    assert (opening.is_cancelled, call.is_cancelled) == (False, True)


def test_answers_reach_who_asked(session: Session) -> None:
    answers: list[object] = []
    asked: list[bytes] = []
    for _ in range(3):
        session.ask("roots/list", {}, lambda result, refusal: answers.append(result or str(refusal)), asked.append)
    first, second, third = (json.dumps(json.loads(question)["id"]).encode() for question in asked)
    take(session, b'{"jsonrpc":"2.0","id":%b,"result":{"roots":[]}}' % first)
    take(session, b'{"jsonrpc":"2.0","id":%b,"error":{"code":-1,"message":"no"}}' % second)
    take(session, b'{"jsonrpc":"2.0","id":%b,"error":{"code":"x"}}' % third)
    for unknown in (b'"unknown"', first, b"7"):
        take(session, b'{"jsonrpc":"2.0","id":%b,"result":{}}' % unknown)
    assert answers == [{"roots": []}, "no", "refused"]
    with pytest.raises(RequestRefused):
        take(session, b'{"jsonrpc":"2.0","id":%b,"result":[]}' % first)


def test_the_answer_to_a_question_of_another_gateway_is_refused_and_answers_none_of_this_one(session: Session) -> None:
    answers: list[object] = []
    asked: list[bytes] = []
    for one in (session, Session("id", None, None)):  # type: ignore[arg-type]
        one.ask("roots/list", {}, lambda *answer: answers.append(answer), asked.append)
    with pytest.raises(RequestRefused, match="another gateway has asked this") as refused:
        take(session, json.dumps({"jsonrpc": "2.0", "id": json.loads(asked[1])["id"], "result": {}}).encode())
    assert refused.value.status == 409
    assert answers == []


def test_an_id_is_used_once_at_a_time_and_an_answer_that_is_nested_too_deep_refused(session: Session) -> None:
    message = decode_message(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    require_unused(message, session.requests)
    session.requests[1] = Request("ping")
    with pytest.raises(RequestRefused):
        require_unused(message, session.requests)
    nested = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    with pytest.raises(RequestRefused, match="no response"):
        take_message(Mock(), ClientMessage("2.0", 1, result=msgspec.Raw(nested)))


async def test_a_client_of_the_handshake_era_gets_the_revision_that_it_asks_for() -> None:
    async with Gateway({}) as gateway:
        for asked, answered in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
            lines = Lines(gateway, stateless=False)
            result = await lines.ask("initialize", {**OPENING, "protocolVersion": asked})
            assert result["protocolVersion"] == answered


async def test_discovery_names_the_revisions_of_both_eras() -> None:
    async with asking({"a": FakeServer("a", instructions="Be kind.")}) as lines:
        result = await lines.ask("server/discover")
        assert {"2026-07-28", "2025-11-25"} <= set(result["supportedVersions"])
        assert result["instructions"] == "## a\n\nBe kind."
        assert result["capabilities"]["tools"] == {"listChanged": True}


async def test_a_server_that_was_never_ready_may_have_prompts_and_resources() -> None:
    broken = FakeServer("broken")
    broken.fail_starts(times=1_000)

    async with asking({"broken": broken}) as lines:
        assert {"prompts", "resources"} <= set((await lines.ask("server/discover"))["capabilities"])
    async with asking({}) as lines:
        assert set((await lines.ask("server/discover"))["capabilities"]) == {"tools"}


@pytest.mark.parametrize("key", ["capabilities", "clientInfo"])
async def test_what_a_client_says_of_itself_has_a_bound_and_the_beginning_of_its_program_is_kept(key: str) -> None:
    async with Gateway({}) as gateway:
        error = await Lines(gateway, stateless=False).ask("initialize", {**OPENING, key: {"x": "x" * 70_000}})
        assert error["message"] == f"{key}: longer than 65536 bytes"
        info = {"name": "x" * 60_000, "version": 1, "title": "y"}
        await Lines(gateway, stateless=False).ask("initialize", {**OPENING, "clientInfo": info})
        (session,) = gateway.status().sessions
        assert session.program == "x" * 100


async def test_a_session_whose_opening_has_failed_is_none() -> None:
    async with Gateway({}) as gateway:
        lines = Lines(gateway, stateless=False)
        assert (await lines.ask("initialize", {**OPENING, "capabilities": 1}))["code"] == -32602
        assert gateway.status().session_count == 0
        assert (await lines.open())["protocolVersion"] == "2025-11-25", "the client may try again"


async def test_only_the_words_of_the_protocol_are_levels() -> None:
    async with asking({}, stateless=False) as lines:
        assert await lines.ask("logging/setLevel", {"level": "warning"}) == {}
        assert (await lines.ask("logging/setLevel", {"level": "loud"}))["code"] == -32602
