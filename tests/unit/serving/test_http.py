"""Servers in this process: in the main thread until a signal, or on a thread of their own."""

import asyncio
import http.client
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gaia.serving.guards import disconnected
from gaia.serving.http import BackgroundServer, run_http
from gaia.serving.options import HttpOptions, UnsafeOptions
from tests.waiting import PATIENCE

FREE = HttpOptions(port=0)


@pytest.fixture(autouse=True)
def no_exit_for_event_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what sse_starlette notes for the process when a server exits: later event streams would end at once."""
    monkeypatch.setattr("sse_starlette.sse.AppStatus.should_exit", False)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An application that greets."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def got(url: str, method: str = "GET", **headers: str) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    try:
        connection.request(method, "/", headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@contextmanager
def background(options: HttpOptions = FREE, app: Any = hello) -> Iterator[BackgroundServer]:
    server = BackgroundServer(app, options, lambda: None, name="test-server")
    try:
        yield server
    finally:
        server.stop()


class TestInTheBackground:
    def test_it_answers_what_passes_the_guard_from_the_beginning_until_it_is_stopped(self) -> None:
        with background(HttpOptions(port=0, token="secret")) as server:
            assert got(server.url)[0] == 401
            assert got(server.url, Authorization="Bearer secret")[:2] == (200, b"hello")
            assert "test-server" in [thread.name for thread in threading.enumerate()]
            url = server.url
        with pytest.raises(ConnectionRefusedError):
            got(url)

    def test_requests_without_an_end_are_ended(self) -> None:
        loop_of: list[Any] = []
        waiting, released = threading.Event(), asyncio.Event()

        async def endless(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await hello(scope, receive, send)
                return
            loop_of.append(asyncio.get_running_loop())
            waiting.set()
            await released.wait()
            await hello(scope, receive, send)

        def stopping() -> None:
            loop_of[0].call_soon_threadsafe(released.set)

        answers: list[Any] = []
        server = BackgroundServer(endless, FREE, stopping, name="test-server")
        client = threading.Thread(target=lambda: answers.append(got(server.url)[:2]))
        client.start()
        assert waiting.wait(PATIENCE)
        server.stop()
        client.join(PATIENCE)
        assert answers == [(200, b"hello")]

    @pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
    def test_an_ipv6_address_is_written_as_urls_have_it(self) -> None:
        with background(HttpOptions(host="[::1]", port=0)) as server:
            assert server.url.startswith("http://[::1]:")

    def test_what_is_unsafe_or_taken_is_refused_without_a_thread(self, no_leaks: None) -> None:
        with pytest.raises(UnsafeOptions):
            BackgroundServer(hello, HttpOptions(host="0.0.0.0", port=0), lambda: None, name="test-server")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            taken = HttpOptions(port=listener.getsockname()[1])
            with pytest.raises(OSError, match="in use"):
                BackgroundServer(hello, taken, lambda: None, name="test-server")


def test_pages_that_may_call_may_read_the_response_and_no_other_page_is_told_anything() -> None:
    allowed = HttpOptions(port=0, token="secret", allow_origins=("https://app.example",))
    with background(allowed) as server:
        status, _, headers = got(server.url, Origin="https://app.example", Authorization="Bearer secret")
        assert (status, headers["access-control-allow-origin"]) == (200, "https://app.example")
        asked = {"Origin": "https://app.example", "Access_Control_Request_Method": "POST"}
        status, _, headers = got(server.url, "OPTIONS", **asked)
        assert status == 200, "they are told so before they have a token"
        assert "POST" in headers["access-control-allow-methods"]
    with background(FREE) as server:
        assert "access-control-allow-origin" not in got(server.url, Origin="http://localhost:3000")[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_main_thread_it_serves_until_a_signal_and_returns(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    heard: list[Any] = []

    def started(url: str) -> None:
        heard.append(url)
        os.kill(os.getpid(), number)

    run_http(hello, FREE, started, lambda: heard.append("stopping"))
    assert heard[0].startswith("http://127.0.0.1:")
    assert heard[1:] == ["stopping"]
    assert signal.getsignal(number) == before


def test_an_application_that_does_not_start_ends_the_program() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(SystemExit) as raised:
        run_http(broken, FREE)
    assert raised.value.code not in (0, None)


def test_nothing_is_served_where_every_machine_could_call() -> None:
    with pytest.raises(UnsafeOptions):
        run_http(hello, HttpOptions(host="0.0.0.0", port=0))


def test_a_client_that_has_gone_is_noticed_after_what_it_still_sent() -> None:
    messages = [{"type": "http.request"}, {"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    asyncio.run(disconnected(receive))
    assert messages == []
