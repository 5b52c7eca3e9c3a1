"""The rules of Streamable HTTP, without an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import add_client
from gaia.mcp.gateway.views.view import View
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, STATELESS
from tests.waiting import PATIENCE

ACCEPT = {b"accept": b"application/json, text/event-stream"}
CALL_HEADERS = {
    **ACCEPT,
    b"mcp-protocol-version": b"2026-07-28",
    b"mcp-method": b"tools/call",
    b"mcp-name": b"a_echo",
}


class Response:
    """What the client gets, with what has come so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.unsent = 0
        self.over = asyncio.Event()

    def finish(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body
        self.over.set()

    def open_stream(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status, self.headers = 200, dict(headers)

    def send(self, event: bytes) -> None:
        self.body += event

    def end(self) -> None:
        self.over.set()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Http:
    """Sends requests to a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def send(self, method: str, headers: dict[bytes, bytes], body: Any = b"", path: str = "/mcp") -> Response:
        response = Response()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.gateway.endpoint.handle(method, path, headers, content, response)
        await asyncio.wait_for(response.over.wait(), PATIENCE)
        return response

    async def post(self, message: dict[str, Any], headers: dict[bytes, bytes] | None = None) -> Response:
        return await self.send("POST", {**ACCEPT, **(headers or {})}, {"jsonrpc": "2.0", **message})

    async def open(self) -> dict[bytes, bytes]:
        """The header of a new session."""
        opened = await self.post({"id": 0, "method": "initialize", "params": OPENING})
        assert opened.json["result"]["protocolVersion"] == "2025-11-25"
        return {b"mcp-session-id": opened.headers[b"mcp-session-id"]}


def echo(text: str) -> str:
    """Say it again."""
    return text


@contextlib.asynccontextmanager
async def http() -> AsyncIterator[Http]:
    async with Gateway({"a": FakeServer("a", tools=[echo])}) as gateway:
        yield Http(gateway)


def call(text: str = "hi") -> dict[str, Any]:
    params = {"name": "a_echo", "arguments": {"text": text}, "_meta": STATELESS}
    return {"id": 1, "method": "tools/call", "params": params}


def test_a_call_of_the_stateless_era() -> None:
    async def use() -> None:
        async with http() as client:
            response = await client.post(call(), CALL_HEADERS)
            assert response.status == 200
            assert response.headers[b"content-type"] == b"application/json"
            assert response.json["result"]["resultType"] == "complete"
            assert b"mcp-session-id" not in response.headers

    asyncio.run(use())


@pytest.mark.parametrize(
    ("header", "value", "status", "code"),
    [
        (b"mcp-method", b"tools/list", 400, -32020),
        (b"mcp-name", b"echo", 400, -32020),
        (b"mcp-protocol-version", b"2025-11-25", 400, -32020),
        (b"accept", b"text/html", 406, -32600),
    ],
)
def test_headers_of_the_stateless_era_agree_with_the_body(header: bytes, value: bytes, status: int, code: int) -> None:
    async def use() -> None:
        async with http() as client:
            response = await client.post(call(), {**CALL_HEADERS, header: value})
            assert (response.status, response.json["error"]["code"]) == (status, code)
            assert response.json["id"] == (None if status == 406 else 1)

    asyncio.run(use())


def test_statuses_of_errors_in_the_stateless_era() -> None:
    async def use() -> None:
        async with http() as client:
            unknown = {"id": 1, "method": "no/such", "params": {"_meta": STATELESS}}
            headers = {**CALL_HEADERS, b"mcp-method": b"no/such"}
            assert (await client.post(unknown, headers)).status == 404
            future = {b"mcp-protocol-version": b"2099-01-01"}
            response = await client.post(call(), future)
            assert (response.status, response.json["error"]["code"]) == (400, -32020)
            response = await client.post({"id": 1, "method": "tools/list"}, future)
            assert (response.status, response.json["error"]["code"]) == (400, -32022)
            assert (await client.send("POST", ACCEPT, b"{")).json["error"]["code"] == -32700
            answer = {"id": 1, "result": {}}
            assert (await client.post(answer, {b"mcp-protocol-version": b"2026-07-28"})).status == 400

    asyncio.run(use())


def test_a_session_is_needed_in_the_handshake_era_and_ends_with_delete() -> None:
    async def use() -> None:
        async with http() as client:
            request = {"id": 1, "method": "tools/list"}
            assert (await client.post(request)).status == 400
            assert (await client.post(request, {b"mcp-session-id": b"unknown"})).status == 404
            session = await client.open()
            assert (await client.post({"method": "notifications/initialized"}, session)).status == 202
            assert [tool["name"] for tool in (await client.post(request, session)).json["result"]["tools"]] == [
                "a_echo"
            ]
            assert (await client.send("POST", {**ACCEPT, **session}, {}, "/mcp/a")).status == 400
            assert (await client.send("DELETE", session)).status == 200
            assert (await client.post(request, session)).status == 404
            assert (await client.send("DELETE", session)).status == 404

    asyncio.run(use())


def test_a_session_belongs_to_its_path() -> None:
    async def use() -> None:
        async with http() as client:
            session = await client.open()
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await client.send("POST", {**ACCEPT, **session}, body, "/mcp/a")).status == 404

    asyncio.run(use())


def test_other_methods_and_paths() -> None:
    async def use() -> None:
        async with http() as client:
            assert (await client.send("GET", ACCEPT)).status == 405
            assert (await client.send("DELETE", ACCEPT)).status == 405
            assert (await client.send("PUT", ACCEPT)).status == 405
            assert (await client.send("POST", ACCEPT, {}, "/mcp/no-such-server")).status == 404
            assert (await client.send("POST", ACCEPT, {}, "/other")).status == 404

    asyncio.run(use())


def test_a_get_opens_the_stream_of_a_session() -> None:
    async def use() -> None:
        async with http() as client:
            session = await client.open()
            assert (await client.send("GET", {**session, b"accept": b"application/json"})).status == 406
            response = Response()
            exchange = client.gateway.endpoint.handle("GET", "/mcp", {**ACCEPT, **session}, b"", response)
            assert response.headers[b"content-type"] == b"text/event-stream"
            exchange.client_gone()
            await client.send("DELETE", session)
            assert not response.over.is_set(), "its client has closed it"

    asyncio.run(use())


def test_a_client_that_goes_away_cancels_its_call() -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")

    async def use() -> None:
        async with Gateway({"a": server}) as gateway:
            body = json.dumps({"jsonrpc": "2.0", **call()}).encode()
            exchange = gateway.endpoint.handle("POST", "/mcp", CALL_HEADERS, body, Response())
            reached = await asyncio.to_thread(server.wait_for_call)
            exchange.client_gone()
            async with asyncio.timeout(PATIENCE):
                while not reached.cancelled:
                    await asyncio.sleep(0.005)

    asyncio.run(use())


def test_an_opening_that_fails_leaves_no_session() -> None:
    async def use() -> None:
        async with http() as client:
            failed = await client.post({"id": 0, "method": "initialize", "params": {}})
            assert failed.json["error"]["code"] == -32602
            assert b"mcp-session-id" not in failed.headers
            assert client.gateway.status().session_count == 0

    asyncio.run(use())


def test_a_client_that_has_gone_before_its_session_was_open_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its servers are being started.
    monkeypatch.setattr(View, "when_opening", lambda *_: None)

    async def use() -> None:
        async with Gateway({}) as gateway:
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPENING}
            body = json.dumps(opening).encode()
            exchange = gateway.endpoint.handle("POST", "/mcp", ACCEPT, body, Response())
            assert gateway.status().session_count == 1
            exchange.client_gone()
            assert gateway.status().session_count == 0

    asyncio.run(use())


def test_wrong_tokens_and_foreign_sessions_leave_a_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = {name: add_client(tmp_path / "clients.json", name) for name in ("ann", "ben")}
    audit = tmp_path / "audit.jsonl"

    async def use() -> None:
        gateway = Gateway({"a": FakeServer("a")}, clients=tmp_path / "clients.json", audit=audit, name="gw1")
        async with gateway:
            http = Http(gateway)
            ann, ben = ({b"authorization": f"Bearer {token}".encode()} for token in tokens.values())
            opened = await http.post({"id": 0, "method": "initialize", "params": OPENING}, ann)
            session = {b"mcp-session-id": opened.headers[b"mcp-session-id"]}
            listing = {"id": 1, "method": "tools/list"}
            assert (await http.post(listing, {**ben, **session})).status == 404
            assert (await http.send("DELETE", {**ben, **session})).status == 404
            assert (await http.post(listing, {**ben, b"mcp-session-id": b"guessed"})).status == 404
            for path in ("/mcp", "/mcp", "/status"):
                assert (await http.send("GET", {b"authorization": b"Bearer gaia_guessed"}, path=path)).status == 401
            assert gateway.endpoint.refusal("POST", "/mcp", {b"authorization": b"Bearer gaia_guessed"}) is not None
            assert (await http.send("GET", {})).status == 401
            assert (await http.post(listing, {**ann, **session})).status == 200
            counts = gateway._servers.checks.refusals.counts
            assert counts == {"foreign_session": 2, "unknown_session": 1, "wrong_token": 4, "no_token": 1}

    asyncio.run(use())
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [(line["outcome"], line["client"], line["method"]) for line in lines]
    assert found == [("foreign_session", "ben", "POST"), ("wrong_token", "unknown", "GET /mcp")]
    assert caplog.text.count("gateway_access_refused") == 2
    for secret in ("guessed", *tokens.values()):
        assert secret not in audit.read_text() + caplog.text
