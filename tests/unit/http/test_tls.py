"""TLS over a stream, and what certificates are trusted."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from gaia.http.errors import ConnectFailed, TimedOut
from gaia.http.streams import tls_context
from tests.unit.http.conftest import PATIENCE, Connected, RawServer, Scripted, answering, ok
from tests.unit.http.test_connection import post, soon


def secured(context: ssl.SSLContext, *answers: bytes) -> object:
    """A script: as `answering`, over TLS."""

    def script(server: RawServer, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE)
        with context.wrap_socket(peer, server_side=True) as secure:
            answering(*answers)(server, secure)

    return script


class TestContext:
    def test_the_certificates_of_the_system_are_trusted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.delenv("SSL_CERT_DIR", raising=False)
        context = tls_context()
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname

    def test_the_environment_names_others(self, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert len(tls_context().get_ca_certs()) == 1

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_a_file_without_any_is_an_error(
        self, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "file.pem"
        if content is not None:
            file.write_text(content)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with pytest.raises(OSError, match=rf"{file}: .*(No such file|no certificate)"):
            tls_context()

    def test_a_python_that_looks_elsewhere_finds_those_of_the_system(
        self, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.delenv("SSL_CERT_DIR", raising=False)
        nowhere = ssl.DefaultVerifyPaths(None, None, "A", "/nowhere", "B", "/nowhere")
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
        monkeypatch.setattr("gaia.http.streams._CA_FILES", ("/no/such/file", str(certificate)))
        assert len(tls_context().get_ca_certs()) == 1


class TestExchange:
    def test_over_one_connection(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext
    ) -> None:
        server = scripted(secured(server_side, ok(), ok()), scheme="https")
        connection = connected(tls=client_side)
        for _ in range(2):
            assert post(connection, server.url, deadline=soon()) == b"hello"
        assert server.connections <= 2

    def test_bodies_of_any_length(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext
    ) -> None:
        body = os.urandom(1_000_000)
        server = scripted(secured(server_side, ok(body)), scheme="https")
        assert post(connected(tls=client_side), server.url, body, soon()) == body
        assert server.received.get(timeout=PATIENCE).endswith(body)

    def test_an_end_without_that_of_tls_is_an_end(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext
    ) -> None:
        server = scripted(secured(server_side, b"HTTP/1.1 200 OK\r\n\r\nhello"), scheme="https")
        assert post(connected(tls=client_side), server.url, deadline=soon()) == b"hello"

    def test_the_server_may_end_the_connection_while_it_is_idle(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext
    ) -> None:
        server = scripted(secured(server_side, ok()), secured(server_side, ok(b"again")), scheme="https")
        connection = connected(tls=client_side, idle_seconds=1000)
        assert post(connection, server.url, deadline=soon()) == b"hello"
        # The script has ended when the next connection is accepted; until then this one may look open.
        deadline = soon()
        while connection.is_connected and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        assert post(connection, server.url, deadline=soon()) == b"again"


class TestRefused:
    def test_a_certificate_that_is_not_trusted(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext
    ) -> None:
        server = scripted(secured(server_side, ok()), scheme="https")
        said = r"its certificate is not trusted: self.signed certificate; .*SSL_CERT_FILE"
        with pytest.raises(ConnectFailed, match=said):
            post(connected(tls=ssl.create_default_context()), server.url, deadline=soon())
        assert server.received.empty()

    def test_one_of_another_host(
        self,
        scripted: Scripted,
        connected: Connected,
        server_side: ssl.SSLContext,
        client_side: ssl.SSLContext,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        server = scripted(secured(server_side, ok()), scheme="https")
        look_up = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: look_up("127.0.0.1", *rest, **named))
        url = server.url.join(f"https://other.example:{server.url.port}/")
        with pytest.raises(ConnectFailed, match="Hostname mismatch"):
            post(connected(tls=client_side), url, deadline=soon())
        url = server.url.join(f"https://localhost:{server.url.port}/")
        server = scripted(secured(server_side, ok()), scheme="https")
        url = server.url.join(f"https://localhost:{server.url.port}/")
        assert post(connected(tls=client_side), url, deadline=soon()) == b"hello"

    def test_a_server_without_tls(self, scripted: Scripted, connected: Connected, client_side: ssl.SSLContext) -> None:
        def plain(server: RawServer, peer: socket.socket) -> None:
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with pytest.raises(ConnectFailed, match="TLS fails"):
            post(connected(tls=client_side), scripted(plain, scheme="https").url, deadline=soon())

    def test_one_that_hangs_up(self, scripted: Scripted, connected: Connected, client_side: ssl.SSLContext) -> None:
        def leave(server: RawServer, peer: socket.socket) -> None:
            peer.recv(1000)

        with pytest.raises(ConnectFailed, match=r"cannot connect to 127\.0\.0\.1"):
            post(connected(tls=client_side), scripted(leave, scheme="https").url, deadline=soon())

    def test_https_without_certificates(self, scripted: Scripted, connected: Connected) -> None:
        with pytest.raises(ConnectFailed, match="no certificates"):
            post(connected(), scripted(answering(ok()), scheme="https").url, deadline=soon())


class TestHandshake:
    def test_it_has_the_deadline_of_the_request(
        self, scripted: Scripted, connected: Connected, client_side: ssl.SSLContext
    ) -> None:
        done = threading.Event()
        server = scripted(lambda server, peer: done.wait(PATIENCE) and None, scheme="https")
        with pytest.raises(TimedOut):
            post(connected(tls=client_side), server.url, deadline=time.monotonic() + 0.1)
        done.set()

    def test_it_is_part_of_connecting(
        self, scripted: Scripted, connected: Connected, client_side: ssl.SSLContext
    ) -> None:
        done = threading.Event()
        server = scripted(lambda server, peer: done.wait(PATIENCE) and None, scheme="https")
        with pytest.raises(ConnectFailed, match=r"within 0.1 s"):
            post(connected(tls=client_side, connect_seconds=0.1), server.url, deadline=soon())
        done.set()
