"""Requests that are answered by callbacks pass the same checks as those through ASGI, over real sockets."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast
from unittest.mock import Mock

import pytest
import uvicorn
from hypothesis import given, strategies
from uvicorn.server import ServerState

from gaia.serving.connections import Phase
from gaia.serving.guards import Cors, Guard, Refused
from gaia.serving.http_protocol import HttpProtocol, http_protocol
from gaia.serving.options import HttpOptions
from gaia.serving.responses import UNCHECKED_BYTES, HttpRequest, Responder
from tests.waiting import PATIENCE

Answer = Callable[["Handler", Responder, bytes], None]


class Handler:
    """Answers with the body of the request, or as `answers` says by path."""

    def __init__(self, **answers: Answer) -> None:
        self._answers = answers
        self.seen: list[tuple[str, str, bytes]] = []
        self.addresses: list[str | None] = []
        self.gone = asyncio.Event()
        self.arrived = asyncio.Event()
        self.waiting: list[Responder] = []
        self.held = 0

    def release(self) -> None:
        self.held -= 1

    def takes(self, path: str) -> bool:
        return path.startswith("/mcp")

    def is_probe(self, path: str) -> bool:
        return path == "/mcp/probe"

    def refusal(self, head: HttpRequest, held: list[Callable[[], None]]) -> Refused | None:
        self.held += 1
        held.append(self.release)
        is_known = head.path != "/mcp/known"
        return None if is_known else Refused(401, "who are you?", ((b"www-authenticate", b"Bearer"),))

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        self.addresses.append(request.address)
        self.seen.append((request.method, request.path, request.body))
        responder.on_gone = self.gone.set
        answer = self._answers.get(request.path.removeprefix("/mcp/"))
        if answer is None:
            responder.finish(200, [(b"content-type", b"application/json")], request.body)
        else:
            answer(self, responder, request.body)
        self.arrived.set()


def later(handler: Handler, responder: Responder, _body: bytes) -> None:
    handler.waiting.append(responder)


def stream(_handler: Handler, responder: Responder, body: bytes) -> None:
    responder.open_stream([(b"content-type", b"text/event-stream")])
    responder.send(b"one")
    responder.send(b"")
    responder.send(body)
    responder.end()
    responder.send(b"too late")
    responder.end()


async def usual(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application."""
    if scope["type"] == "lifespan":
        return
    body = (await receive())["body"]
    if scope["path"] == "/other/late":
        while (await receive())["type"] != "http.disconnect":
            pass
    if scope["path"] == "/other/address":
        body = scope["client"][0].encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (5 + len(body)))]}
    )
    await send({"type": "http.response.body", "body": b"ASGI " + body})


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def post(self, path: str, body: bytes = b"{}", *headers: str, method: str = "POST") -> None:
        given = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
        for header in headers:
            name, _, value = header.partition(": ")
            given[name] = value
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def ask(self, *request: Any, **more: str) -> tuple[int, dict[str, str], bytes]:
        self.post(*request, **more)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True


@contextlib.asynccontextmanager
async def served(handler: Handler, **options: Any) -> AsyncIterator[Callable[[], Any]]:
    """What makes a client of a server with this handler."""
    given = HttpOptions(**options)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        guard = Guard(given)
        config = uvicorn.Config(
            Cors(given.allow_origins).around(usual),
            http=http_protocol(given, guard, handler),
            lifespan="off",
            log_config=None,
            ws="none",
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        writers: list[asyncio.StreamWriter] = []

        async def connect() -> Client:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writers.append(writer)
            return Client(reader, writer)

        try:
            yield connect
        finally:
            for writer in writers:
                writer.close()
            server.should_exit = True
            await asyncio.wait_for(serving, PATIENCE)


@contextlib.asynccontextmanager
async def client_of(handler: Handler, **options: Any) -> AsyncIterator[Client]:
    async with served(handler, **options) as connect:
        yield await connect()


async def test_one_connection_carries_both_kinds_of_requests() -> None:
    handler = Handler()
    async with client_of(handler) as client:
        for path, expected in (("/mcp?x=1", b"a"), ("/other", b"ASGI a"), ("/mcp", b"a"), ("/other", b"ASGI a")):
            status, _, body = await client.ask(path, b"a")
            assert (status, body) == (200, expected)
        assert handler.seen == [("POST", "/mcp", b"a")] * 2
        assert handler.addresses == ["127.0.0.1"] * 2


async def test_a_body_may_come_in_pieces() -> None:
    async with client_of(Handler()) as client:
        assert await client.ask("/mcp", b"", "Content-Length: 9", "Expect: 100-continue") == (100, {}, b"")
        for piece in (b"abc", b"def", b"ghi"):
            client.writer.write(piece)
            await client.writer.drain()
        assert (await client.answer())[2] == b"abcdefghi"


async def test_a_stream_is_sent_in_chunks() -> None:
    async with client_of(Handler(stream=stream)) as client:
        for _ in range(2):
            status, headers, body = await client.ask("/mcp/stream", b"two")
            assert (status, headers["content-type"], body) == (200, "text/event-stream", b"onetwo")


async def test_answers_come_in_the_order_of_the_requests() -> None:
    handler = Handler(later=later)
    async with client_of(handler) as client:
        client.post("/mcp/later", b"1")
        for number in range(2, 40):
            client.post("/mcp", b"%d" % number)
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        assert len(handler.seen) == 1, "the others wait"
        handler.waiting[0].finish(200, [], b"1")
        assert [int((await client.answer())[2]) for _ in range(39)] == list(range(1, 40))


async def test_many_requests_may_wait_for_the_answer_to_one() -> None:
    handler = Handler(later=later)
    async with client_of(handler) as client:
        request = (
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        # In one write, so that they are read together: further ones would not be read.
        client.writer.write(request % b"/mcp/later" + request % b"/mcp" * 500)
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        handler.waiting[0].finish(200, [], b"first")
        assert (await client.answer())[2] == b"first"
        for _ in range(500):
            assert (await client.answer())[2] == b"{}"


def test_a_client_is_answered_no_further_while_it_does_not_read() -> None:
    unsent: list[int] = []

    def large(_handler: Handler, responder: Responder, _body: bytes) -> None:
        unsent.append(responder.unsent)
        responder.finish(200, [], b"x" * 1_000_000)

    async def use() -> None:
        async with served(Handler(large=large)) as connect:
            client, other = await connect(), await connect()
            for _ in range(40):
                client.post("/mcp/large")
            assert (await other.ask("/mcp", b"other"))[2] == b"other"
            for _ in range(40):
                assert len((await client.answer())[2]) == 1_000_000

    asyncio.run(use())
    # What asyncio takes before it says that the buffer is full.
    assert max(unsent) <= 64 * 1024


async def test_a_client_that_leaves_is_told_of() -> None:
    handler = Handler(later=later)
    async with client_of(handler) as client:
        client.post("/mcp/later")
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        client.writer.close()
        await asyncio.wait_for(handler.gone.wait(), PATIENCE)
        handler.waiting[0].finish(200, [], b"nothing takes it")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: evil.example"], 421),
        (["Origin: https://evil.example"], 403),
        (["Content-Type: text/plain"], 415),
        (["Content-Length: 1000"], 413),
        (["Authorization: Bearer wrong"], 401),
        (["X-Long: " + "x" * 40_000], 431),
    ],
)
async def test_the_guard_refuses_before_the_body_is_there(headers: list[str], status: int) -> None:
    handler = Handler()
    async with client_of(handler, token="right", max_body=100) as client:
        assert (await client.ask("/mcp", b"{}", "Authorization: Bearer right"))[0] == 200
        assert (await client.ask("/mcp", b"{}", "Authorization: Bearer right", *headers))[0] == status
        assert await client.is_closed()
        assert len(handler.seen) == 1


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (["Authorization: https://evil.example"], ["Origin: https://evil.example"], 403),
        (["Authorization: text/plain"], ["Content-Type: text/plain", "Authorization: application/json"], 415),
        (["Authorization: evil.example"], ["Host: evil.example", "Authorization: localhost"], 421),
        (["X-Long: " + "x" * 32_650], ["X-Long: " + "x" * 32_750], 431),
    ],
)
async def test_a_value_counts_for_the_header_that_it_came_in(first: list[str], second: list[str], status: int) -> None:
    """Whatever the guard has let pass before on the same connection."""
    async with client_of(Handler()) as client:
        assert (await client.ask("/mcp", b"{}", *first))[0] == 200
        assert (await client.ask("/mcp", b"{}", *second))[0] == status


def _heads() -> strategies.SearchStrategy[list[tuple[bytes, bytes]]]:
    values = ["localhost", "evil.example", "http://localhost", "application/json", "text/plain", "Bearer right", "7"]
    value = strategies.sampled_from([text.encode() for text in values]) | strategies.binary(max_size=3)
    names = [b"host", b"origin", b"authorization", b"content-type", b"mcp-name", b"x-host", b"gaia-deadline"]
    header = strategies.tuples(strategies.sampled_from(names), value)
    length = strategies.tuples(strategies.just(b"content-length"), strategies.sampled_from([b"2", b"101"]))
    long = strategies.tuples(
        strategies.just(b"x-long"), strategies.integers(32_000, 33_000).map(lambda size: b"x" * size)
    )
    usual = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", b"Bearer right")]
    changed = strategies.lists(header | length | long, max_size=4).map(lambda added: [*usual, *added])
    return strategies.lists(header | length | long, max_size=6) | changed | strategies.permutations(usual)


async def test_the_guard_is_not_asked_again_because_of_another_deadline() -> None:
    guard = Mock(spec=Guard)
    guard.refusal.return_value = None
    config = uvicorn.Config(usual, log_config=None)
    config.load()
    connection: Any = http_protocol(HttpOptions(), guard, Handler())(
        config=config, server_state=ServerState(), app_state={}
    )
    for value in (b"id 10", b"id 11", b"id 12"):
        connection._head = [(b"host", b"localhost"), (b"gaia-deadline", value)]
        assert connection._refusal("POST", "/mcp") is None
    assert guard.refusal.call_count == 1
    connection._head = [(b"host", b"other"), (b"gaia-deadline", b"id 10")]
    assert connection._refusal("POST", "/mcp") is None
    assert guard.refusal.call_count == 2


@given(strategies.lists(strategies.tuples(strategies.sampled_from(["GET", "POST"]), _heads()), max_size=4))
def test_what_is_remembered_of_a_connection_changes_no_answer_of_the_guard(
    requests: list[tuple[str, list[tuple[bytes, bytes]]]],
) -> None:
    options = HttpOptions(token="right", max_body=100)
    config = uvicorn.Config(usual, log_config=None)
    config.load()
    connection = http_protocol(options, Guard(options), Handler())(
        config=config, server_state=ServerState(), app_state={}, _loop=Mock()
    )
    assert isinstance(connection, HttpProtocol)
    for method, head in requests:
        connection._head = head
        assert connection._refusal(method, "/mcp") == Guard(options).refusal(method, "/mcp", head)


@pytest.mark.parametrize("path", ["/mcp", "/other"])
async def test_a_body_that_grows_too_large_is_refused(path: str) -> None:
    handler = Handler()
    async with client_of(handler, max_body=100) as client:
        client.post(path, b"80\r\n" + b"x" * 128 + b"\r\n0\r\n\r\n", "Content-Length: ", "Transfer-Encoding: chunked")
        assert (await client.answer())[0] == 413
        assert handler.seen == []
        assert await client.is_closed()


@pytest.mark.parametrize("extra", ["early", "late"])
async def test_an_application_answers_a_body_that_grows_too_large_once_at_most(extra: str) -> None:
    async with client_of(Handler(), max_body=100) as client:
        head = b"POST /other/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % extra.encode()
        client.writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        if extra == "early":
            assert (await client.answer())[0] == 200
        client.writer.write(b"80\r\n" + b"x" * 128 + b"\r\n")
        rest = await client.reader.read()
        assert rest.count(b"HTTP/1.1") == (extra == "late")
        assert b" 413 " in rest or extra == "early"


@pytest.mark.parametrize("name", ["Host", "Mcp-Name"])
async def test_a_header_that_counts_may_not_be_there_twice(name: str) -> None:
    """Not even after a request with as many headers that was let pass."""
    handler = Handler()
    async with client_of(handler) as client:
        assert (await client.ask("/mcp", b"{}", "Mcp-Name: one", "X-Name: two"))[0] == 200
        assert (await client.ask("/mcp", b"{}", "Mcp-Name: one", f"{name.lower()}: localhost"))[0] == 400
        assert len(handler.seen) == 1


async def test_a_large_body_is_read_of_clients_only_that_the_handler_knows() -> None:
    large = b"x" * (UNCHECKED_BYTES + 1)
    handler = Handler()
    async with client_of(handler) as client:
        assert (await client.ask("/mcp/known", large[:-1]))[0] == 200, "the handler judges it as a whole"
        assert (await client.ask("/mcp/other", large))[2] == large
        # The rest does not come.
        status, headers, _ = await client.ask("/mcp/known", large, f"Content-Length: {len(large) * 10}")
        assert (status, headers["www-authenticate"], len(handler.seen)) == (401, "bearer", 2)


async def test_a_connection_is_closed_after_the_answer_if_the_client_wants_that() -> None:
    async with client_of(Handler()) as client:
        status, headers, _body = await client.ask("/mcp", b"{}", "Connection: close")
        assert (status, headers["connection"]) == (200, "close")
        assert await client.is_closed()


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost:", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_client_that_is_too_slow_is_dropped(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.serving.connections._SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("gaia.serving.connections._IDLE_SECONDS", 0.05)
    async with client_of(Handler(), head_timeout=0.05, body_timeout=0.05) as client:
        client.writer.write(sent)
        if sent:
            assert (await client.answer())[0] == 408
        assert await client.is_closed()


async def test_so_is_one_that_does_not_send_the_body_of_a_request_on_the_usual_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gaia.serving.connections._SWEEP_SECONDS", 0.01)
    async with client_of(Handler(), body_timeout=0.05) as client:
        client.post("/other", b"x", "Content-Length: 9")
        async with asyncio.timeout(PATIENCE):
            # Until the end.
            await client.reader.read()


async def test_the_number_of_connections_is_bounded() -> None:
    handler = Handler(later=later)
    async with served(handler, max_connections=2) as connect:
        busy = await connect()
        busy.post("/mcp/later")
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        idle = await connect()
        await idle.ask("/mcp")
        third = await connect()
        assert (await third.ask("/mcp"))[0] == 200, "the idle one makes room"
        assert await idle.is_closed()
        handler.waiting[0].finish(200, [], b"busy")
        assert (await busy.answer())[2] == b"busy"


@pytest.mark.parametrize("sent", [b"no HTTP\r\n\r\n", b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_junk_and_tunnels_are_refused(sent: bytes) -> None:
    async with client_of(Handler()) as client:
        client.writer.write(sent)
        assert (await client.answer())[0] == 400


async def test_a_body_in_many_small_parts_is_not_copied_with_each() -> None:
    handler = Handler()
    async with client_of(handler) as client:
        parts = 200_000
        # Copying all with each part would take 20 GB.
        body = b"1\r\nx\r\n" * parts + b"0\r\n\r\n"
        assert (await client.ask("/mcp", body, "Content-Length: ", "Transfer-Encoding: chunked"))[2] == b"x" * parts
        assert type(handler.seen[0][2]) is bytes


@pytest.mark.parametrize(
    "begun",
    [
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /mcp?",
        (
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nTrailer: "
        ),
    ],
)
async def test_a_head_without_end_is_refused(begun: bytes) -> None:
    handler = Handler()
    async with client_of(handler) as client:
        client.writer.write(begun)
        # More than the server reads at once.
        client.writer.write(b"x" * 1_000_000)
        # The server may reset the connection, as not all is read, so that there is not always an answer.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            assert (await client.answer())[0] == 431
        assert await client.is_closed()
        assert handler.seen == []


async def test_many_requests_are_no_long_head() -> None:
    async with client_of(Handler()) as client:
        for _number in range(20):
            client.post("/mcp", b"x" * 50_000)
        for _number in range(20):
            assert len((await client.answer())[2]) == 50_000


async def test_trailers_are_no_headers() -> None:
    given: list[dict[bytes, bytes]] = []

    class Noting(Handler):
        def handle(self, request: HttpRequest, responder: Responder) -> None:
            given.append(request.headers)
            super().handle(request, responder)

    async with client_of(Noting()) as client:
        body = b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\nHost: evil\r\n\r\n"
        assert (await client.ask("/mcp", body, "Content-Length: ", "Transfer-Encoding: chunked"))[2] == b"{}"
        assert (given[0][b"host"], b"authorization" in given[0]) == (b"localhost", False)


@pytest.mark.parametrize("path", ["/mcp", "/other"])
async def test_the_offer_of_another_protocol_is_ignored(path: str) -> None:
    handler = Handler()
    async with client_of(handler) as client:
        smuggled = b"POST /mcp/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        client.post(path, smuggled, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
        assert (await client.ask("/mcp", b"next"))[2].endswith(smuggled)
        assert (await client.answer())[2] == b"next"
        assert [body for _, _, body in handler.seen][-1] == b"next"
        assert "/mcp/smuggled" not in [path for _, path, _ in handler.seen]


REQUEST = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\n%b\r\n%b"


EVIL = REQUEST % (b"/mcp", b"Origin: http://evil.example\r\n", b"x")


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (
            REQUEST % (b"/other", b"", b"1") + REQUEST % (b"/mcp", b"", b"2") + REQUEST % (b"/other", b"", b"3"),
            [b"ASGI 1", b"2"],
        ),
        (REQUEST % (b"/other", b"", b"1") + EVIL, [b"ASGI 1"]),
        (REQUEST % (b"/other", b"", b"1") + b"junk\r\n\r\n", [b"ASGI 1"]),
    ],
)
async def test_no_answer_overtakes_that_to_an_earlier_request(sent: bytes, answers: list[bytes]) -> None:
    async with client_of(Handler()) as client:
        client.writer.write(sent)
        # Then the connection is closed.
        assert [(await client.answer())[2] for _ in answers] == answers
        assert await client.is_closed()


@pytest.mark.parametrize("last", [EVIL, REQUEST % (b"/other", b"", b"2"), b"junk\r\n\r\n"])
@pytest.mark.parametrize("queued", [False, True])
async def test_a_call_is_answered_whatever_comes_behind_it(last: bytes, queued: bool) -> None:
    handler = Handler(later=later)
    async with served(handler) as connect:
        client = await connect()
        client.post("/mcp/later", b"1")
        if queued:
            client.post("/mcp", b"2")
        client.writer.write(last + REQUEST % (b"/mcp/never", b"", b"3"))
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        # What is behind it was read by now.
        other = await connect()
        await other.ask("/mcp", b"other")
        handler.waiting[0].finish(200, [], b"first")
        assert (await client.answer())[2] == b"first"
        if queued:
            assert (await client.answer())[2] == b"2"
        assert await client.is_closed()
        assert not handler.gone.is_set()
        assert "/mcp/never" not in [path for _, path, _ in handler.seen]


async def test_nothing_behind_a_request_that_ends_the_connection_is_done() -> None:
    handler = Handler()
    async with client_of(handler) as client:
        client.writer.write(EVIL + REQUEST % (b"/mcp", b"", b"2"))
        assert (await client.answer())[0] == 403
        assert await client.is_closed()
        assert handler.seen == []


async def test_an_answer_to_head_has_no_body() -> None:
    async with client_of(Handler(one=lambda _, responder, _body: responder.finish(200, [], b"one"))) as client:
        client.post("/mcp", b"", "Content-Type: ", "Content-Length: ", method="HEAD")
        async with asyncio.timeout(PATIENCE):
            assert b"content-length: 0" in await client.reader.readuntil(b"\r\n\r\n")
        client.post("/mcp/one", b"", "Content-Type: ", "Content-Length: ", method="HEAD")
        async with asyncio.timeout(PATIENCE):
            assert b"content-length: 3" in await client.reader.readuntil(b"\r\n\r\n")
        assert (await client.ask("/mcp", b"next"))[2] == b"next"


PAGE = "https://app.example"


class TestWebPages:
    @pytest.mark.parametrize(("path", "status"), [("/mcp", 200), ("/mcp/stream", 200), ("/mcp/known", 401)])
    async def test_pages_that_may_call_may_read_the_response(self, path: str, status: int) -> None:
        async with client_of(Handler(stream=stream), allow_origins=(PAGE,)) as client:
            found, headers, _ = await client.ask(path, b"x" * (UNCHECKED_BYTES + 1), f"Origin: {PAGE}")
            assert found == status
            assert headers["access-control-allow-origin"] == PAGE
            assert headers["access-control-expose-headers"] == "mcp-session-id, mcp-protocol-version"
            assert headers["vary"] == "origin"

    async def test_they_may_ask_before(self) -> None:
        async with client_of(Handler(), allow_origins=(PAGE,)) as client:
            asked = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: mcp-session-id")
            client.post("/mcp", b"", f"Origin: {PAGE}", *asked, "Content-Type: ", method="OPTIONS")
            status, headers, _ = await client.answer()
            assert (status, headers["access-control-allow-headers"]) == (200, "mcp-session-id")
            assert (await client.ask("/mcp", b"then", f"Origin: {PAGE}"))[2] == b"then"

    @pytest.mark.parametrize("origin", ["http://localhost:8000", "https://other.example", ""])
    async def test_no_other_page_is_told_anything(self, origin: str) -> None:
        async with client_of(Handler(), allow_origins=(PAGE,)) as client:
            assert "access-control-allow-origin" not in (await client.ask("/mcp", b"1", f"Origin: {origin}"))[1]

    async def test_the_front_is_the_same_one(self) -> None:
        handler = Handler()
        async with client_of(handler, allow_origins=(PAGE,)) as client:
            assert (await client.ask("/mcp", b"0\r\n\r\n", f"Origin: {PAGE}", "Transfer-Encoding: chunked"))[0] == 400
            assert await client.is_closed()
            assert handler.seen == []


class TestBehindAProxy:
    @pytest.mark.parametrize(
        ("trusted", "address"), [((), "127.0.0.1"), (("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.1",), "203.0.113.7")]
    )
    async def test_the_address_is_the_clients_if_the_proxy_is_trusted(
        self, trusted: tuple[str, ...], address: str
    ) -> None:
        handler = Handler(later=later)
        async with client_of(handler, trusted_proxies=trusted) as client:
            client.post("/mcp/later", b"1", "X-Forwarded-For: 203.0.113.7")
            client.post("/mcp", b"2", "X-Forwarded-For: 203.0.113.8")
            client.post("/mcp", b"3")
            await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
            handler.waiting[0].finish(200, [], b"1")
            for _ in range(3):
                await client.answer()
            second = "203.0.113.8" if address == "203.0.113.7" else "127.0.0.1"
            assert handler.addresses == [address, second, "127.0.0.1"]

    async def test_so_it_is_on_the_usual_way(self) -> None:
        async with client_of(Handler(), trusted_proxies=("127.0.0.0/8",)) as client:
            assert (await client.ask("/other/address", b"", "X-Forwarded-For: 203.0.113.7"))[2] == b"ASGI 203.0.113.7"


class Transport(asyncio.Transport):
    """One whose client takes as much as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.is_aborted = self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class TestSlowReaders:
    @pytest.fixture
    def connection(self) -> Iterator[HttpProtocol]:
        """With a stream whose response does not fit the buffers."""
        loop = asyncio.new_event_loop()
        given = HttpOptions()
        make: Any = http_protocol(given, Guard(given), Handler(stream=lambda _, responder, _b: None))
        config = uvicorn.Config(usual, lifespan="off", log_config=None, ws="none")
        connection = make(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        connection.connection_made(Transport())
        connection.data_received(REQUEST % (b"/mcp/stream", b"", b"x"))
        connection.responder.open_stream([])
        connection.responder.send(b"x" * 1_000_000)
        connection.pause_writing()
        try:
            yield connection
        finally:
            connection.connection_lost(None)
            loop.close()

    @pytest.mark.parametrize("sent", [0, 100, 1_000])
    def test_one_that_reads_is_not_dropped_however_slow_it_is(self, connection: HttpProtocol, sent: int) -> None:
        begun, transport = connection.loop.time(), cast("Transport", connection.transport)
        for second in range(600):
            transport.unsent -= 100
            if connection.responder is not None:
                connection.responder.send(b"y" * sent)
            connection.look(begun + second, None)
        assert not transport.is_aborted

    def test_half_a_request_behind_a_call_does_not_end_the_call(self, connection: HttpProtocol) -> None:
        begun, transport = connection.loop.time(), cast("Transport", connection.transport)
        connection.resume_writing()
        connection.data_received(b"POST /mcp HTTP/1.1\r\nHost: ")
        for second in range(1, 100):
            connection.look(begun + second, 10.0 if connection.phase is Phase.HEAD else None)
        assert not transport.is_closed
        assert not transport.is_aborted
        assert connection.responder is not None
        connection.responder.end()
        assert transport.is_closed

    def test_one_that_reads_nothing_is_dropped_however_much_is_sent(self, connection: HttpProtocol) -> None:
        begun, transport = connection.loop.time(), cast("Transport", connection.transport)
        transport.unsent -= 100
        for second in range(1, 31):
            assert connection.responder is not None
            connection.responder.send(b"y")
            connection.look(begun + second, None)
        assert not transport.is_aborted
        connection.look(begun + 32, None)
        assert transport.is_aborted


async def test_a_handler_that_raises_is_answered_for_and_harms_no_other_request() -> None:
    def fail(_handler: Handler, _responder: Responder, _body: bytes) -> None:
        raise RecursionError

    handler = Handler(later=later, fail=fail)
    async with client_of(handler) as client:
        client.post("/mcp/later")
        client.post("/mcp/fail")
        client.post("/mcp", b"last")
        await asyncio.wait_for(handler.arrived.wait(), PATIENCE)
        handler.waiting[0].finish(200, [], b"first")
        answers = [await client.answer() for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 500, 200]
        assert answers[2][2] == b"last"


async def test_a_probe_is_answered_when_there_are_too_many_connections() -> None:
    handler = Handler(later=later)
    async with served(handler, max_connections=2) as connect:
        for _ in range(2):
            client = await connect()
            client.post("/mcp/later")
            await handler.arrived.wait()
            handler.arrived.clear()
        refused = await connect()
        refused.post("/mcp")
        status, headers, _ = await refused.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert await refused.is_closed()
        probe = await connect()
        probe.post("/mcp/probe", b"are you well?")
        assert (await probe.answer())[::2] == (200, b"are you well?")
        assert await probe.is_closed()
        handler.waiting[0].finish(200, [], b"")
        again = await connect()
        again.post("/mcp", b"x")
        assert (await again.answer())[0] == 200


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("end", ["answered", "queued", "refused", "lost"])
async def test_what_is_held_for_a_large_body_is_released(end: str) -> None:
    large = b"x" * (UNCHECKED_BYTES + 1)
    handler = Handler(later=later)
    async with client_of(handler) as client:
        if end == "answered":
            await client.ask("/mcp", large)
        elif end == "refused":
            await client.ask("/mcp/known", large)
        elif end == "lost":
            client.post("/mcp", large, f"Content-Length: {len(large) * 2}")
            await wait_for(lambda: handler.held == 1)
            client.writer.close()
        else:
            client.post("/mcp/later")
            await handler.arrived.wait()
            client.post("/mcp", large)
            await wait_for(lambda: handler.held == 1)
            handler.waiting[0].finish(200, [], b"")
        await wait_for(lambda: handler.held == 0)


async def test_one_turn_of_the_loop_answers_some_of_many_requests_that_came_together() -> None:
    handler = Handler()
    async with client_of(handler) as client:
        for number in range(100):
            client.post("/mcp", b"%d" % number)
        counts = [0]
        async with asyncio.timeout(PATIENCE):
            while len(handler.seen) < 100:
                await asyncio.sleep(0)
                counts.append(len(handler.seen))
        assert max(after - before for before, after in itertools.pairwise(counts)) <= 4
        assert [(await client.answer())[2] for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_of_many_requests_that_came_together_few_are_parsed_before_they_can_be_answered() -> None:
    given, handler = HttpOptions(), Handler(later=later)
    loop = asyncio.new_event_loop()
    make: Any = http_protocol(given, Guard(given), handler)
    config = uvicorn.Config(usual, lifespan="off", log_config=None, ws="none")
    connection = make(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    connection.connection_made(Transport())
    sent = [REQUEST % (b"/mcp/later", b"", b"x"), *[REQUEST % (b"/mcp", b"", b"y")] * 3000]
    connection.data_received(b"".join(sent))
    assert len(connection._queue) < 100
    connection.look(loop.time() + 1000.0, 10.0)

    async def wait() -> None:
        handler.waiting[0].finish(200, [], b"")
        async with asyncio.timeout(PATIENCE):
            while len(handler.seen) < len(sent):
                await asyncio.sleep(0)

    try:
        loop.run_until_complete(wait())
        assert not connection.transport.is_closed
    finally:
        connection.connection_lost(None)
        loop.close()
