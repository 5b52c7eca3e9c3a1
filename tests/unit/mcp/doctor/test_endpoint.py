"""The way to a server with a URL, step by step."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gaia.mcp.doctor import Verdict, diagnose
from gaia.mcp.doctor.endpoint import check_endpoint
from gaia.mcp.doctor.examination import URL_CHECKS
from tests.servers.http_server import LEGACY, MODERN, ScriptedServer

Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Start an HTTP server that answers every GET with a status; returns its address."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(status: int, **headers: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            do_POST = do_GET  # noqa: N815 - the names that the base class looks for

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/mcp"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "verdict", "remedy"),
    [
        (200, Verdict.OK, None),
        (405, Verdict.OK, None),
        (401, Verdict.OK, None),
        (404, Verdict.WARN, "Is the path right?"),
        (500, Verdict.FAIL, "Tell the operators of the server."),
    ],
)
def test_the_status_of_an_answer_is_judged(
    status: int, verdict: Verdict, remedy: str | None, answering: Answering
) -> None:
    *_, check = check_endpoint(answering(status), {})
    assert (check.name, check.verdict) == ("http", verdict)
    assert check.detail.startswith(str(status))
    assert (check.remedy or "").startswith(remedy or "")


def test_a_redirection_names_its_target(answering: Answering) -> None:
    *_, check = check_endpoint(answering(308, Location="https://example.com/mcp"), {})
    assert "https://example.com/mcp" in check.detail


def test_nobody_listening_and_tls_with_a_server_that_has_none_are_failures_of_the_connection(
    answering: Answering,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    *_, refused = check_endpoint(f"http://127.0.0.1:{port}/", {})
    assert "refused" in refused.detail.lower()
    *_, plain = check_endpoint(answering(200).replace("http:", "https:"), {})
    assert "http://" in (plain.remedy or "")
    assert {(check.name, check.verdict) for check in (refused, plain)} == {("connection", Verdict.FAIL)}


def test_a_name_without_an_address_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (check,) = check_endpoint("https://no-such-host.invalid/mcp", {})

    assert (check.name, check.verdict) == ("address", Verdict.FAIL)
    assert "no-such-host.invalid has no address: Name or service not known" in check.detail


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://", "http://example.com:99999/"])
def test_what_is_no_http_address_is_a_failure(url: str) -> None:
    (check,) = check_endpoint(url, {})
    assert (check.name, check.verdict) == ("address", Verdict.FAIL)


class TestEnvironment:
    """It is read as the client reads it."""

    @pytest.mark.parametrize("variable", ["https_proxy", "all_proxy"])
    def test_behind_a_proxy_the_network_is_the_proxy_s(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, "http://proxy.invalid:3128")
        (check,) = check_endpoint("https://example.invalid/mcp", {})
        assert check.verdict is Verdict.SKIPPED

    def test_a_network_that_needs_no_proxy_is_reached_without_one(
        self, answering: Answering, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
        monkeypatch.setenv("no_proxy", "127.0.0.0/8")
        checks = list(check_endpoint(answering(200), {}))
        assert [check.verdict for check in checks] == [Verdict.OK] * 3

    @pytest.mark.parametrize(
        ("variable", "value", "named"),
        [
            ("https_proxy", "socks5://user:open-sesame@proxy.invalid", "HTTPS_PROXY"),
            ("SSL_CERT_FILE", "empty.pem", "SSL_CERT_FILE"),
            (None, "", "httptools"),
        ],
        ids=["a proxy that cannot be used", "the certificates of the client", "a missing extra"],
    )
    def test_what_keeps_the_client_from_asking_is_a_failure(
        self, variable: str | None, value: str, named: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("empty.pem").touch()
        if variable is None:
            monkeypatch.setitem(sys.modules, "httptools", None)
        else:
            monkeypatch.setenv(variable, value)
        (check,) = check_endpoint("https://example.invalid/mcp", {})
        assert check.verdict is Verdict.FAIL
        assert named in (check.remedy or "")
        assert "open-sesame" not in repr(check)


def test_configured_headers_are_sent_and_never_shown(answering: Answering) -> None:
    entry = {"url": answering(401), "headers": {"Authorization": "Bearer open-sesame"}, "timeout": 2}
    diagnosis = diagnose("web", entry)

    assert tuple(check.name for check in diagnosis.checks) == URL_CHECKS
    assert "open-sesame" not in repr(diagnosis)
    handshake = diagnosis.check("handshake")
    assert handshake is not None
    assert handshake.verdict is Verdict.FAIL
    assert "gaia mcp login web" in (handshake.remedy or "")


@pytest.mark.parametrize(("era", "word"), [(LEGACY, "handshake"), (MODERN, "stateless")])
def test_a_server_that_works_passes_every_check(era: str, word: str) -> None:
    tool = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}
    with ScriptedServer(era=era, tools=[tool]).serving() as server:
        diagnosis = diagnose("web", {"url": server.url})
    assert {check.name: check.verdict for check in diagnosis.checks} == dict.fromkeys(URL_CHECKS, Verdict.OK)
    assert f"protocol revision {era} ({word} era)" in next(
        check.detail for check in diagnosis.checks if check.name == "handshake"
    )


def test_a_server_that_never_gets_to_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.doctor.endpoint._SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def go_on() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                for _ in range(1000):
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    pause.wait(0.02)

        pause = threading.Event()
        thread = threading.Thread(target=go_on)
        thread.start()
        *_, check = check_endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/", {})
        pause.set()
        thread.join()
    assert (check.name, check.verdict) == ("http", Verdict.FAIL)
    assert check.detail == "no answer within 0.2 s"
