"""Two gateways with the same key, over HTTP without an HTTP server: what one began goes on at the other."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.handles import HANDLE_KEY
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, STATELESS
from tests.unit.mcp.gateway.front.test_endpoint import ACCEPT, CALL_HEADERS, Http, Response, request
from tests.waiting import PATIENCE

Headers = dict[bytes, bytes]
KEY, OLD = b"k" * 32, "2025-06-18"


def echo(text: str) -> str:
    """Say it again."""
    return text


def hello(context: MCPContext) -> str:
    """Ask a person."""
    return str(context.elicit("Who?", {"type": "object", "properties": {}})["action"])


class Member(Http):
    """One of the gateways, and its server."""

    def __init__(self, gateway: Gateway, server: FakeServer) -> None:
        super().__init__(gateway)
        self.server = server


@contextlib.asynccontextmanager
async def two(key: bytes | None = KEY, **entry: Any) -> AsyncIterator[tuple[Member, Member]]:
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for name in ("gw1", "gw2"):
            resources = {f"x:{number}": "" for number in (1, 2, 3)}
            server = FakeServer("a", tools=[echo, hello], resources=resources, protocol="2025-11-25")
            gateway = Gateway({"a": {**server, **entry}}, name=name, state_key=key)
            found.append(Member(await stack.enter_async_context(gateway), server))
        yield found[0], found[1]


def of_session(tool: str = "a_echo", identifier: int = 1) -> dict[str, Any]:
    arguments = {"text": "hi"} if tool == "a_echo" else {}
    return {"id": identifier, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def text_of(response: Response) -> str:
    return str(response.json["result"]["content"][0]["text"])


async def test_a_session_goes_on_and_ends_where_its_client_ends_it() -> None:
    async with two() as (first, second):
        session = await first.open()
        for gateway in (second, first, second):
            assert text_of(await gateway.post(of_session(), session)) == "hi"
        assert [len(one.gateway._sessions) for one in (first, second)] == [1, 1]
        (status,) = second.gateway.status().sessions
        assert (status.program, status.protocol_version, status.path) == ("test 1", "2025-11-25", "/mcp")
        assert (await second.send("DELETE", session)).status == 200
        assert (await second.post(of_session(), session)).status == 404
        assert (await first.post(of_session(), session)).status == 200
        assert (await second.post(of_session(), {b"mcp-session-id": b"gw1.forged"})).status == 404
        assert (await second.send("GET", {**ACCEPT, b"mcp-session-id": b"gw1.forged"})).status == 404


async def test_without_a_key_it_does_not() -> None:
    async with two(None) as (first, second):
        session = await first.open()
        assert (await second.post(of_session(), session)).status == 404
        assert (await first.post(of_session(), session)).status == 200


async def test_changes_come_on_the_stream_that_the_client_opens_there() -> None:
    async with two() as (first, second):
        session = await first.open()
        stream = opened_stream(second, session)
        (there,) = second.gateway._sessions
        there.list_changed("tools")
        assert b"notifications/tools/list_changed" in stream.body


def opened_stream(http: Http, session: Headers, event_id: str | None = None) -> Response:
    stream, last = Response(), {} if event_id is None else {b"last-event-id": event_id.encode()}
    http.gateway.endpoint.handle(request("GET", {**ACCEPT, **session, **last}), stream)
    assert stream.status == 200
    return stream


def last_id(stream: Response) -> str:
    return [line for line in stream.body.decode().splitlines() if line.startswith("id: ")][-1].removeprefix("id: ")


async def ask(http: Http, session: Headers, method: str, params: dict[str, Any]) -> Any:
    return (await http.post({"id": 5, "method": method, "params": params}, session)).json["result"]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_a_client_wants_to_be_told_of_is_in_the_ids_of_events() -> None:
    async with two() as (first, second):
        session = await first.open()
        assert opened_stream(first, session).body == b"", "there is nothing to remember"
        stream = opened_stream(first, session)
        for uri in ("x:1", "x:2", "x:3"):
            await ask(first, session, "resources/subscribe", {"uri": uri})
        await ask(first, session, "resources/unsubscribe", {"uri": "x:2"})
        await ask(first, session, "logging/setLevel", {"level": "warning"})
        assert stream.body.count(b"\ndata:\n\n") == 5

        assert text_of(await second.post(of_session(), session)) == "hi"
        there, (known,) = opened_stream(second, session, last_id(stream)), second.gateway._sessions
        await until(lambda: list(known._watched) == ["x:1", "x:3"])
        assert known.log_level == "warning"
        for uri in ("x:2", "x:3"):
            second.server.resources.update(uri, "new")
        await until(lambda: b"resources/updated" in there.body)
        assert b"x:2" not in there.body
        # It goes on from there, also back to the first gateway.
        await ask(second, session, "resources/subscribe", {"uri": "x:2"})
        opened_stream(first, session, last_id(there))
        await until(lambda: sorted(next(iter(first.gateway._sessions))._watched) == ["x:1", "x:2", "x:3"])


async def test_another_id_of_an_event_tells_nothing() -> None:
    async with two() as (first, second):
        session, other = await first.open(), await first.open()
        stream = opened_stream(first, session)
        await ask(first, session, "resources/subscribe", {"uri": "x:1"})
        event_id = last_id(stream)
        for given in (event_id[:-3], "x", "", "é", event_id * 20, session[b"mcp-session-id"].decode()):
            opened_stream(second, session, given)
        opened_stream(second, other, event_id)
        assert [known._watched for known in second.gateway._sessions] == [{}, {}]


@pytest.mark.parametrize("instances", ["per-session", "per-client"])
async def test_a_resource_is_watched_again_in_a_process_that_others_share(instances: str) -> None:
    async with two(instances=instances) as (first, second):
        session = await first.open()
        stream = opened_stream(first, session)
        await ask(first, session, "resources/subscribe", {"uri": "x:1"})
        opened_stream(second, session, last_id(stream))
        (known,) = second.gateway._sessions
        if instances == "per-client":
            await until(lambda: list(known._watched) == ["x:1"])
        assert is_lost(await second.post(of_session(), session)) == (instances == "per-session")


async def test_the_id_of_an_event_fits_into_a_header_and_an_old_client_gets_none() -> None:
    async with two() as (first, _):
        opened = await first.post({"id": 0, "method": "initialize", "params": {**OPENING, "protocolVersion": OLD}})
        for session in (await first.open(), {b"mcp-session-id": opened.headers[b"mcp-session-id"]}):
            stream = opened_stream(first, session)
            known = next(iter(reversed(list(first.gateway._sessions))))
            known.log_level = "emergency"
            for number in range(300):
                known.watched(f"x:{number}-{'y' * 100}" if number % 2 else f"{number}é" * 9_000, is_watched=True)
            if known.revision == OLD:
                assert stream.body == b""
            else:
                assert 3_600 < len(last_id(stream)) <= 4_096
                wishes = Session.wishes_of(Session(known.id, known.view, None, seal=known._seal), last_id(stream))
                assert wishes is not None
                assert len(wishes.uris) == 26, "the long ones are left out"


async def test_a_gateway_without_room_says_so_and_does_not_send_the_client_to_initialize() -> None:
    async with two() as (first, second):
        session = await first.open()
        second.gateway._sessions.most = 0
        for method in ("GET", "DELETE"):
            assert (await second.send(method, {**ACCEPT, **session})).status == 503
        refused = await second.post(of_session(), session)
        assert (refused.status, refused.json["error"]["code"]) == (503, -31001)


async def asked(http: Http, session: Headers) -> tuple[Response, Any]:
    """A call of a tool that asks the client: its response, and the question's id."""
    response = Response()
    body = json.dumps({"jsonrpc": "2.0", **of_session("a_hello")}).encode()
    http.gateway.endpoint.handle(request("POST", {**ACCEPT, **session}, body), response)
    async with asyncio.timeout(PATIENCE):
        while b"elicitation/create" not in response.body:
            await asyncio.sleep(0.001)
    return response, json.loads(response.body.partition(b"data: ")[2].partition(b"\n")[0])["id"]


async def test_a_question_is_answered_at_the_gateway_that_has_asked() -> None:
    async with two() as (first, second):
        params = {**OPENING, "capabilities": {"elicitation": {}}}
        opened = await first.post({"id": 0, "method": "initialize", "params": params})
        session = {b"mcp-session-id": opened.headers[b"mcp-session-id"]}
        calls = [await asked(gateway, session) for gateway in (first, second)]
        assert calls[0][1] != calls[1][1]
        for (_, question), astray in zip(calls, (second, first), strict=True):
            refused = await astray.post({"id": question, "result": {"action": "cancel"}}, session)
            assert (refused.status, "another gateway" in refused.json["error"]["message"]) == (409, True)
        for (response, question), gateway in zip(calls, (first, second), strict=True):
            assert (await gateway.post({"id": question, "result": {"action": "decline"}}, session)).status == 202
            await asyncio.wait_for(response.over.wait(), PATIENCE)
            assert b"decline" in response.body


def is_lost(response: Response) -> bool:
    """Whether the client is told, and the call was not made."""
    error = response.json.get("error")
    if error is None:
        assert text_of(response) == "hi"
        return False
    assert error["data"] == {"server": "a", "errorType": "session_lost", "delivery": "not_sent"}
    assert "another gateway, or has ended; the next call begins with a new process" in error["message"]
    return True


async def test_the_process_of_a_session_is_not_there_and_the_client_is_told_once() -> None:
    async with two(instances="per-session") as (first, second):
        session = await first.open()
        found = [is_lost(await one.post(of_session(), session)) for one in (first, first, second, second, first)]
        assert found == [False, False, True, False, False]


async def test_a_session_that_was_idle_finds_another_process_and_its_client_is_told() -> None:
    async with two(instances="per-session") as (first, _):
        session = await first.open()
        assert not is_lost(await first.post(of_session(), session))
        first.gateway._sessions.end(next(iter(first.gateway._sessions)))
        assert [is_lost(await first.post(of_session(), session)) for _ in range(2)] == [True, False]


def with_handle(handle: str) -> dict[str, Any]:
    params = {"name": "a_echo", "arguments": {"text": "hi"}, "_meta": {**STATELESS, HANDLE_KEY: handle}}
    return {"id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("key", [KEY, None])
async def test_a_handle_is_accepted_and_its_process_is_not_there(key: bytes | None) -> None:
    async with two(key, instances="per-session") as (first, second):
        given = await first.post(with_handle("new"), CALL_HEADERS)
        handle = given.json["result"]["_meta"][HANDLE_KEY]
        if key is None:
            refused = await second.post(with_handle(handle), CALL_HEADERS)
            assert "no such handle" in refused.json["error"]["message"]
        else:
            asking = [await one.post(with_handle(handle), CALL_HEADERS) for one in (second, second, first)]
            assert [is_lost(one) for one in asking] == [True, False, False]


async def test_a_round_whose_call_waits_at_the_other_gateway_says_that_the_server_may_have_acted() -> None:
    async with two() as (first, second):
        meta = {**STATELESS, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params = {"name": "a_hello", "arguments": {}, "_meta": meta}
        headers = {**CALL_HEADERS, b"mcp-name": b"a_hello"}
        question = (await first.post({"id": 1, "method": "tools/call", "params": params}, headers)).json["result"]
        answers = {name: {"action": "decline"} for name in question["inputRequests"]}
        params |= {"inputResponses": answers, "requestState": question["requestState"]}
        refused = await second.post({"id": 2, "method": "tools/call", "params": params}, headers)
        assert "not at this gateway; the server may have acted on it" in refused.json["error"]["message"]
        assert text_of(await first.post({"id": 2, "method": "tools/call", "params": params}, headers)) == "decline"
