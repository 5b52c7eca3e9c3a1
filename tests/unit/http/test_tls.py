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
from tests.unit.http.conftest import PATIENCE, Connected, RawServer, Scripted, Tls, answering, ok
from tests.unit.http.test_connection import post, soon
from tests.waiting import wait_until


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
    def test_over_one_connection(self, tls: Tls) -> None:
        body = os.urandom(1_000_000)
        server, connection = tls.serve([ok(), ok(body)]), tls.connection()
        assert post(connection, server.url, deadline=soon()) == b"hello"
        server.received.get(timeout=PATIENCE)
        assert post(connection, server.url, body, soon()) == body
        assert server.received.get(timeout=PATIENCE).endswith(body)
        assert server.connections == 1

    def test_an_end_without_that_of_tls_is_an_end(self, tls: Tls) -> None:
        server = tls.serve([b"HTTP/1.1 200 OK\r\n\r\nhello"])
        assert post(tls.connection(), server.url, deadline=soon()) == b"hello"

    def test_the_server_may_end_the_connection_while_it_is_idle(self, tls: Tls) -> None:
        server, connection = tls.serve([ok()], [ok(b"again")]), tls.connection(idle_seconds=1000)
        assert post(connection, server.url, deadline=soon()) == b"hello"
        # The script has ended when the next connection is accepted; until then this one may look open.
        assert wait_until(lambda: not connection.is_connected)
        assert post(connection, server.url, deadline=soon()) == b"again"


class TestRefused:
    def test_a_certificate_that_is_not_trusted(self, tls: Tls, connected: Connected) -> None:
        server = tls.serve([ok()])
        said = r"its certificate is not trusted: self.signed certificate; .*SSL_CERT_FILE"
        with pytest.raises(ConnectFailed, match=said):
            post(connected(tls=ssl.create_default_context()), server.url, deadline=soon())
        assert server.received.empty()

    def test_one_of_another_host(self, tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
        look_up = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: look_up("127.0.0.1", *rest, **named))
        server = tls.serve([ok()])
        with pytest.raises(ConnectFailed, match="Hostname mismatch"):
            post(tls.connection(), server.url.join(f"https://other.example:{server.url.port}/"), deadline=soon())
        server = tls.serve([ok()])
        url = server.url.join(f"https://localhost:{server.url.port}/")
        assert post(tls.connection(), url, deadline=soon()) == b"hello"

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "TLS fails"),
            (b"", r"cannot connect to 127\.0\.0\.1"),
        ],
        ids=["a server without TLS", "one that hangs up"],
    )
    def test_a_server_that_shakes_no_hands(self, said: bytes, problem: str, tls: Tls, scripted: Scripted) -> None:
        def plain(server: RawServer, peer: socket.socket) -> None:
            peer.recv(1000)
            peer.sendall(said)

        with pytest.raises(ConnectFailed, match=problem):
            post(tls.connection(), scripted(plain, scheme="https").url, deadline=soon())

    def test_https_without_certificates(self, scripted: Scripted, connected: Connected) -> None:
        with pytest.raises(ConnectFailed, match="no certificates"):
            post(connected(), scripted(answering(ok()), scheme="https").url, deadline=soon())


def test_the_handshake_is_part_of_connecting_and_has_the_deadline_of_the_request(tls: Tls, scripted: Scripted) -> None:
    done = threading.Event()
    server = scripted(lambda server, peer: done.wait(PATIENCE) and None, scheme="https")
    with pytest.raises(TimedOut):
        post(tls.connection(), server.url, deadline=time.monotonic() + 0.1)
    with pytest.raises(ConnectFailed, match=r"within 0.1 s"):
        post(tls.connection(connect_seconds=0.1), server.url, deadline=soon())
    done.set()
