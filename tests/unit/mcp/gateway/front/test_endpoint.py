"""The rules of Streamable HTTP, without an HTTP server."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile, add_client
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.access.settings import GatewayLimits, Limit
from gaia.mcp.gateway.methods import relaying
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.remote_deadlines import RemoteClock
from gaia.serving.responses import HttpRequest, ignore
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, STATELESS
from tests.waiting import PATIENCE

ACCEPT = {b"accept": b"application/json, text/event-stream"}
CALL_HEADERS = {**ACCEPT, b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"a_echo"}


class Response:
    """What the client gets, with what has come so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.unsent = 0
        self.unread = 0
        self.connections: int | None = None
        """How many the client has, if they are too many."""
        self.identified: list[tuple[str, int | None]] = []
        self.over = asyncio.Event()
        self.on_gone = ignore

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def finish(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body
        self.over.set()

    def open_stream(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status, self.headers = 200, dict(headers)

    def send(self, event: bytes) -> None:
        self.body += event

    def end(self) -> None:
        self.over.set()

    def identify(self, client: str, most: int | None) -> int | None:
        self.identified.append((client, most))
        return self.connections

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(method: str, headers: dict[bytes, bytes], body: bytes = b"", path: str = "/mcp") -> HttpRequest:
    return HttpRequest(method, path, headers, body, None)


class Http:
    """Sends requests to a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def send(self, method: str, headers: dict[bytes, bytes], body: Any = b"", path: str = "/mcp") -> Response:
        response = Response()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.gateway.endpoint.handle(HttpRequest(method, path, headers, content, None), response)
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


async def test_a_call_of_the_stateless_era() -> None:
    async with http() as client:
        response = await client.post(call(), CALL_HEADERS)
        assert response.status == 200
        assert response.headers[b"content-type"] == b"application/json"
        assert response.json["result"]["resultType"] == "complete"
        assert b"mcp-session-id" not in response.headers


@pytest.mark.parametrize(
    ("header", "value", "status", "code"),
    [
        (b"mcp-method", b"tools/list", 400, -32020),
        (b"mcp-name", b"echo", 400, -32020),
        (b"mcp-protocol-version", b"2025-11-25", 400, -32020),
        (b"accept", b"text/html", 406, -32600),
    ],
)
async def test_headers_of_the_stateless_era_agree_with_the_body(
    header: bytes, value: bytes, status: int, code: int
) -> None:
    async with http() as client:
        response = await client.post(call(), {**CALL_HEADERS, header: value})
        assert (response.status, response.json["error"]["code"]) == (status, code)
        assert response.json["id"] == (None if status == 406 else 1)


async def test_statuses_of_errors_in_the_stateless_era() -> None:
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


async def test_a_session_is_needed_in_the_handshake_era_and_ends_with_delete() -> None:
    async with http() as client:
        request = {"id": 1, "method": "tools/list"}
        assert (await client.post(request)).status == 400
        assert (await client.post(request, {b"mcp-session-id": b"unknown"})).status == 404
        session = await client.open()
        assert (await client.post({"method": "notifications/initialized"}, session)).status == 202
        assert [tool["name"] for tool in (await client.post(request, session)).json["result"]["tools"]] == ["a_echo"]
        assert (await client.send("POST", {**ACCEPT, **session}, {}, "/mcp/a")).status == 400
        assert (await client.send("DELETE", session)).status == 200
        assert (await client.post(request, session)).status == 404
        assert (await client.send("DELETE", session)).status == 404


async def test_a_session_belongs_to_its_path() -> None:
    async with http() as client:
        session = await client.open()
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await client.send("POST", {**ACCEPT, **session}, body, "/mcp/a")).status == 404


async def test_other_methods_and_paths() -> None:
    async with http() as client:
        assert (await client.send("GET", ACCEPT)).status == 405
        assert (await client.send("DELETE", ACCEPT)).status == 405
        assert (await client.send("PUT", ACCEPT)).status == 405
        assert (await client.send("POST", ACCEPT, {}, "/mcp/no-such-server")).status == 404
        assert (await client.send("POST", ACCEPT, {}, "/other")).status == 404


async def test_a_get_opens_the_stream_of_a_session() -> None:
    async with http() as client:
        session = await client.open()
        assert (await client.send("GET", {**session, b"accept": b"application/json"})).status == 406
        response = Response()
        client.gateway.endpoint.handle(request("GET", {**ACCEPT, **session}), response)
        assert response.headers[b"content-type"] == b"text/event-stream"
        response.on_gone()
        await client.send("DELETE", session)
        assert not response.over.is_set(), "its client has closed it"


async def test_a_client_that_goes_away_cancels_its_call() -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")
    async with Gateway({"a": server}) as gateway:
        body = json.dumps({"jsonrpc": "2.0", **call()}).encode()
        response = Response()
        gateway.endpoint.handle(request("POST", CALL_HEADERS, body), response)
        reached = await asyncio.to_thread(server.wait_for_call)
        response.on_gone()
        async with asyncio.timeout(PATIENCE):
            while not reached.cancelled:
                await asyncio.sleep(0.005)


async def test_an_opening_that_fails_leaves_no_session() -> None:
    async with http() as client:
        failed = await client.post({"id": 0, "method": "initialize", "params": {}})
        assert failed.json["error"]["code"] == -32602
        assert b"mcp-session-id" not in failed.headers
        assert client.gateway.status().session_count == 0


async def test_a_client_that_has_gone_before_its_session_was_open_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its servers are being started.
    monkeypatch.setattr(View, "when_opening", lambda *_: None)
    async with Gateway({}) as gateway:
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPENING}
        body = json.dumps(opening).encode()
        response = Response()
        gateway.endpoint.handle(request("POST", ACCEPT, body), response)
        assert gateway.status().session_count == 1
        response.on_gone()
        assert gateway.status().session_count == 0


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
            for path in ("/mcp", "/ready/a", "/status", "/metrics"):
                refused = await http.send("GET", {b"authorization": b"Bearer gaia_guessed"}, path=path)
                assert refused.status == 401
                assert b"www-authenticate" in refused.headers
            assert (await http.send("GET", {}, path="/health")).status == 200
            assert (await http.send("POST", {}, path="/status")).status == 405
            assert gateway.endpoint.refusal(request("POST", {b"authorization": b"Bearer gaia_guessed"}), []) is not None
            assert (await http.send("GET", {})).status == 401
            assert (await http.post(listing, {**ann, **session})).status == 200
            counts = gateway._servers.checks.refusals.counts
            assert counts == {"foreign_session": 2, "unknown_session": 1, "wrong_token": 5, "no_token": 1}

    asyncio.run(use())
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [(line["outcome"], line["client"], line["method"]) for line in lines]
    assert found == [("foreign_session", "ben", "POST"), ("wrong_token", "unknown", "GET /mcp")]
    assert caplog.text.count("gateway_access_refused") == 2
    for secret in ("guessed", *tokens.values()):
        assert secret not in audit.read_text() + caplog.text


@contextlib.asynccontextmanager
async def limited(tmp_path: Path, **limits: int) -> AsyncIterator[tuple[Gateway, dict[bytes, bytes]]]:
    """A gateway with one client, ann, and these limits; and her headers."""
    file = tmp_path / "clients.json"
    token = add_client(file, "ann")
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "limits": limits}))
    async with Gateway({"a": FakeServer("a", tools=[echo])}, clients=file) as gateway:
        yield gateway, {**ACCEPT, b"authorization": f"Bearer {token}".encode()}


def ask(gateway: Gateway, response: Response, method: str, headers: dict[bytes, bytes], message: Any = None) -> None:
    body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
    gateway.endpoint.handle(request(method, headers, body), response)


async def test_a_client_with_too_many_connections_or_unread_bytes_is_told_the_limit(tmp_path: Path) -> None:
    async with limited(tmp_path, connectionsPerClient=7, unreadBytesPerClient=100) as (gateway, headers):
        crowded, full, good = Response(), Response(), Response()
        crowded.connections, full.unread, good.unread = 7, 101, 100
        for response in (crowded, full, good):
            ask(gateway, response, "POST", headers, {"id": 0, "method": "initialize", "params": OPENING})
        assert crowded.identified == [("ann", 7)]
        await asyncio.wait_for(good.over.wait(), PATIENCE)
        assert [one.status for one in (crowded, full, good)] == [429, 429, 200]
        assert crowded.headers[b"retry-after"] == b"1"
        assert "'connectionsPerClient'" in crowded.json["error"]["message"]
        assert "'unreadBytesPerClient'" in full.json["error"]["message"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_client_has_as_many_streams_as_it_may_have(tmp_path: Path, era: str) -> None:
    async with limited(tmp_path, streamsPerClient=2) as (gateway, headers):
        opened = Response()
        ask(gateway, opened, "POST", headers, {"id": 0, "method": "initialize", "params": OPENING})
        await asyncio.wait_for(opened.over.wait(), PATIENCE)
        session = {**headers, b"mcp-session-id": opened.headers[b"mcp-session-id"]}
        listening = {**headers, b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"subscriptions/listen"}
        message = {
            "id": 1,
            "method": "subscriptions/listen",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": STATELESS},
        }

        def begin() -> Response:
            response = Response()
            if era == "handshake":
                ask(gateway, response, "GET", session)
            else:
                ask(gateway, response, "POST", listening, message)
            return response

        streams = [begin() for _ in range(3)]
        assert [response.status for response in streams] == [200, 200, 429]
        streams[0].on_gone()
        assert begin().status == 200
        assert begin().status == 429
        gateway.drain()
        assert gateway._servers.checks.shares._used["ann", "streams"] == 0


async def test_large_bodies_of_a_client_are_bounded_together(tmp_path: Path) -> None:
    async with limited(tmp_path, bodyBytesPerClient=1000) as (gateway, headers):
        held: list[Any] = []
        refusal, large = gateway.endpoint.refusal, {**headers, b"content-length": b"600"}
        assert refusal(request("POST", large), held) is None
        refused = refusal(request("POST", large), held)
        assert refused is not None
        assert (refused.status, refused.headers) == (429, ((b"retry-after", b"1"),))
        assert len(held) == 1
        held.pop()()
        assert refusal(request("POST", large), held) is None
        too_large = refusal(request("POST", {**headers, b"content-length": b"1001"}), held)
        assert too_large is not None
        assert (too_large.status, too_large.headers) == (413, ()), "trying again would not help"
        # Without a length, it may become as large as is allowed.
        without_length = refusal(request("POST", headers), held)
        assert without_length is not None
        assert without_length.status == 413
        unknown = refusal(request("POST", ACCEPT), held)
        assert unknown is not None
        assert unknown.status == 401
        page = refusal(request("POST", large, path="/health"), held)
        assert page is not None
        assert page.status == 413, "no token is needed there"


async def test_a_call_that_comes_after_its_deadline_is_refused_before_anything_is_done_with_it(tmp_path: Path) -> None:
    """The audit has a line of it."""
    server, file = FakeServer("a", tools=[echo]), tmp_path / "audit.jsonl"
    limits = GatewayLimits(per_tool={"echo": Limit(per_second=0.001, burst=2)}, max_wait=0.01)
    async with Gateway({"a": server}, clients=ClientsFile(anonymous=EVERYTHING, limits=limits), audit=file) as gateway:
        client = Http(gateway)
        remote = RemoteClock()
        remote.note((await client.post(call("first"), CALL_HEADERS)).headers, time.monotonic())
        _, _, value = remote.header(time.monotonic()).strip().partition(b": ")
        late = await client.post(call("late"), {**CALL_HEADERS, b"gaia-deadline": value})
        error = late.json["error"]
        assert (error["data"]["errorType"], error["data"]["delivery"]) == ("timeout", "not_sent")
        assert "after its deadline" in error["message"]
        assert "result" in (await client.post(call("last"), CALL_HEADERS)).json
        assert [taken.arguments for taken in server.calls] == [{"text": "first"}, {"text": "last"}]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["outcome"], line["delivery"]) for line in lines] == [
        ("ok", "answered"),
        ("timeout", "not_sent"),
        ("ok", "answered"),
    ]


async def test_a_call_whose_deadline_passes_while_it_waits_for_a_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo", times=1)
    limits = GatewayLimits(per_tool={"echo": Limit(concurrent=1)})
    async with Gateway({"a": server}, clients=ClientsFile(anonymous=EVERYTHING, limits=limits)) as gateway:
        client, remote = Http(gateway), RemoteClock()
        remote.note(
            (
                await client.post(
                    {"id": 1, "method": "tools/list", "params": {"_meta": STATELESS}},
                    {**CALL_HEADERS, b"mcp-method": b"tools/list"},
                )
            ).headers,
            time.monotonic(),
        )
        deadline = time.monotonic() + PATIENCE
        _, _, value = remote.header(deadline).strip().partition(b": ")
        holds = Response()
        gateway.endpoint.handle(
            request("POST", CALL_HEADERS, json.dumps({"jsonrpc": "2.0", **call("first")}).encode()), holds
        )
        await asyncio.to_thread(server.wait_for_call)
        waits = asyncio.create_task(client.post(call("late"), {**CALL_HEADERS, b"gaia-deadline": value}))
        await asyncio.sleep(0)
        assert not waits.done()
        monkeypatch.setattr(relaying, "time", SimpleNamespace(monotonic=lambda: deadline, time=time.time))
        holds.on_gone()
        late = await waits
        assert late.json["error"]["data"]["errorType"] == "timeout"
        assert [taken.arguments for taken in server.calls] == [{"text": "first"}]
