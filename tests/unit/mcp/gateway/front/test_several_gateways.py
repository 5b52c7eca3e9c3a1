"""Two gateways with the same key, over HTTP without an HTTP server: what one began goes on at the other."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.instances.handles import HANDLE_KEY
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, STATELESS
from tests.unit.mcp.gateway.front.test_endpoint import ACCEPT, CALL_HEADERS, Http, Response, request
from tests.waiting import PATIENCE

Headers = dict[bytes, bytes]
KEY = b"k" * 32


def echo(text: str) -> str:
    """Say it again."""
    return text


def hello(context: MCPContext) -> str:
    """Ask a person."""
    return str(context.elicit("Who?", {"type": "object", "properties": {}})["action"])


@contextlib.asynccontextmanager
async def two(key: bytes | None = KEY, **entry: Any) -> AsyncIterator[tuple[Http, Http]]:
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for name in ("gw1", "gw2"):
            server = {**FakeServer("a", tools=[echo, hello], protocol="2025-11-25"), **entry}
            found.append(Http(await stack.enter_async_context(Gateway({"a": server}, name=name, state_key=key))))
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
        session, stream = await first.open(), Response()
        second.gateway.endpoint.handle(request("GET", {**ACCEPT, **session}), stream)
        assert stream.status == 200
        (there,) = second.gateway._sessions
        there.list_changed("tools")
        assert b"notifications/tools/list_changed" in stream.body


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
