"""From a name to a connection: addresses, proxies, and what may go wrong on the way."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.http.errors import ConnectFailed, TimedOut
from gaia.http.url import Proxies, Proxy, Url
from tests.unit.http.conftest import PATIENCE, Connected, RawServer, Scripted, Tls, answering, ok, secured
from tests.unit.http.test_connection import post, soon

BASIC = base64.b64encode(b"me:secret")


def proxies(server: RawServer, scheme: str = "http") -> Proxies:
    return Proxies({"all": Proxy.parse(f"{scheme}://me:secret@127.0.0.1:{server.url.port}")})


def tunnel(to: RawServer, context: ssl.SSLContext | None = None) -> Any:
    """A script: a proxy that makes a tunnel to a server, and is itself reached over TLS if there is a context."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def script(server: RawServer, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE)
        client = peer if context is None else context.wrap_socket(peer, server_side=True)
        server.request_of(client)
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
        with socket.create_connection(("127.0.0.1", to.url.port)) as upstream:
            back = threading.Thread(target=pump, args=(upstream, client))
            back.start()
            pump(client, upstream)
            back.join(PATIENCE)
        if client is not peer:
            client.close()

    return script


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What every name leads to."""
    found: list[tuple[str, int]] = []

    def look_up(host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return found


class TestAddresses:
    def test_all_of_a_name_are_tried_and_one_that_does_not_answer_leaves_time_for_the_others(
        self, scripted: Scripted, connected: Connected, addresses: list[tuple[str, int]], silent: Url
    ) -> None:
        server = scripted(answering(ok()))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            refusing = closed.getsockname()[1]
        addresses += [("127.0.0.1", port) for port in (refusing, silent.port, server.url.port)]
        connection = connected(connect_seconds=0.9)
        assert post(connection, Url.parse("http://example.com/"), deadline=soon()) == b"hello"

    def test_an_address_of_version_6(self, connected: Connected) -> None:
        try:
            listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError:
            pytest.skip("there is no IPv6 here")
        with listener:
            port = listener.getsockname()[1]

            def serve() -> None:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(ok())

            thread = threading.Thread(target=serve)
            thread.start()
            assert post(connected(), Url.parse(f"http://[::1]:{port}/"), deadline=soon()) == b"hello"
            thread.join(PATIENCE)

    def test_a_name_without_any(self, connected: Connected, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ConnectFailed, match="cannot look up"):
            post(connected(), Url.parse(f"http://{'a' * 70}/"))
        error = socket.gaierror(-2, "Name or service not known")
        monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=error))
        with pytest.raises(ConnectFailed, match=r"cannot look up mcp\.invalid: Name or service not known"):
            post(connected(), Url.parse("http://mcp.invalid/secret"))


def test_connecting_has_a_limit_and_the_deadline_of_the_request(connected: Connected, silent: Url) -> None:
    with pytest.raises(ConnectFailed, match=r"127.0.0.1:\d+ within 0.1 s"):
        post(connected(connect_seconds=0.1), silent, deadline=soon())
    with pytest.raises(TimedOut):
        post(connected(), silent, deadline=time.monotonic() + 0.1)


class TestProxy:
    def test_one_for_http_passes_the_request_on(self, scripted: Scripted, connected: Connected) -> None:
        proxy = scripted(answering(ok()))
        assert post(connected(proxies=proxies(proxy)), Url.parse("http://mcp.invalid/mcp?a=1")) == b"hello"
        head = proxy.received.get(timeout=PATIENCE)
        assert head.startswith(b"POST http://mcp.invalid/mcp?a=1 HTTP/1.1\r\nHost: mcp.invalid\r\n")
        assert b"\r\nProxy-Authorization: Basic " + BASIC in head

    def test_one_for_https_makes_a_tunnel(self, tls: Tls, scripted: Scripted) -> None:
        server = tls.serve([ok()])
        proxy = scripted(tunnel(server))
        connection = tls.connection(proxies=proxies(proxy))
        asked: list[bytes] = []

        def note() -> None:
            asked.append(proxy.received.get(timeout=PATIENCE))

        with connection.request("POST", server.url, {"X": "1"}, b"{}", deadline=soon(), on_sending=note) as response:
            assert response.read() == b"hello"
        (head,) = asked
        assert head.startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:" % server.url.port)
        assert b"\r\nProxy-Authorization: Basic " + BASIC in head
        inner = server.received.get(timeout=PATIENCE)
        assert inner.startswith(b"POST /mcp HTTP/1.1\r\n")
        assert b"Proxy-Authorization" not in inner

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_the_proxy_itself_may_be_reached_over_tls(self, scheme: str, tls: Tls, scripted: Scripted) -> None:
        if scheme == "https":
            server = tls.serve([ok(bytes(100_000))])
            proxy, url = scripted(tunnel(server, tls.server_side)), server.url
        else:
            proxy, url = scripted(secured(tls.server_side, ok(bytes(100_000)))), Url.parse("http://mcp.invalid/")
        connection = tls.connection(proxies=proxies(proxy, "https"))
        assert post(connection, url, bytes(200_000), soon()) == bytes(100_000)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 3\r\n\r\nno!", "status 407"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes", "says more"),
            (b"SSH-2.0\r\n", "not HTTP/1.1"),
            (b"", "without a response"),
        ],
    )
    def test_one_that_makes_no_tunnel_has_got_nothing_else(
        self, answer: bytes, said: str, tls: Tls, scripted: Scripted
    ) -> None:
        connection = tls.connection(proxies=proxies(scripted(answering(answer))))
        url, unsent = Url.parse("https://mcp.invalid/path"), Mock(side_effect=AssertionError)
        with pytest.raises(ConnectFailed, match=said) as caught:
            connection.request("POST", url, {}, b"{}", deadline=soon(), on_sending=unsent)
        assert "secret" not in str(caught.value)
        assert "path" not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_one_that_cannot_be_reached_is_named(self, scheme: str, tls: Tls) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        nowhere = Proxies({"all": Proxy.parse(f"http://user:secret@127.0.0.1:{port}")})
        with pytest.raises(ConnectFailed, match=rf"cannot connect to the proxy 127.0.0.1:{port}: ") as caught:
            post(tls.connection(proxies=nowhere), Url.parse(f"{scheme}://mcp.invalid/"), deadline=soon())
        assert "secret" not in str(caught.value)

    def test_a_host_that_needs_none_gets_none(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok()))
        nowhere = Proxies({"all": Proxy.parse("http://127.0.0.1:9")}, ("127.0.0.1",))
        assert post(connected(proxies=nowhere), server.url, deadline=soon()) == b"hello"
