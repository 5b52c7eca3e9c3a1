"""`HttpTransport` by itself, and what is between it and a server: TLS, proxies, the environment."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import MCPClient
from gaia.mcp.errors import AnswerLost, CallTimeout, ConfigError, HttpError, NotConnected, ServerCrashed
from gaia.mcp.transports.http import HttpTransport
from gaia.runtime.extras import install_command
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.transports.http.conftest import Connect, Serve
from tests.waiting import PATIENCE, wait_until

HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class TestAlone:
    """The four methods."""

    def test_requests_are_answered_after_initialize(self, serve: Serve) -> None:
        server = serve()
        transport = HttpTransport(server.url, {"X-Team": "a"}, timeout=5)
        assert transport.connect() is True
        assert transport.is_connected()
        assert transport.send_request("initialize", HELLO)["result"]["protocolVersion"] == LEGACY
        listed = transport.send_request("tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo", "read"]
        assert transport.send_request("no/such/method")["error"]["code"] == -32601
        transport.disconnect()
        assert not transport.is_connected()
        (call,) = server.of("tools/list")
        assert (call.headers["mcp-session-id"], call.headers["mcp-protocol-version"]) == ("session-1", LEGACY)
        assert call.headers["x-team"] == "a"
        assert server.methods()[:2] == ["initialize", "notifications/initialized"]
        assert server.methods()[-1] == "DELETE"

    def test_it_can_be_connected_again(self, serve: Serve) -> None:
        server = serve()
        transport = HttpTransport(server.url, timeout=5)
        for _ in range(2):
            assert transport.connect()
            assert "result" in transport.send_request("initialize", HELLO)
            transport.disconnect()
        assert server.open_sessions == set()

    def test_what_goes_wrong_raises_what_the_interface_promises(self, serve: Serve) -> None:
        server = serve()
        transport = HttpTransport(server.url, timeout=0.3)
        with pytest.raises(NotConnected, match="connect"):
            transport.send_request("tools/list")
        transport.connect()
        server.on["tools/list"] = lambda exchange: exchange.wait_for_client_to_leave()
        with pytest.raises(CallTimeout):
            transport.send_request("tools/list")
        server.on["tools/list"] = lambda exchange: exchange.drop()
        with pytest.raises(AnswerLost, match="the connection broke"):
            transport.send_request("tools/list")
        transport.disconnect()

    def test_a_server_that_is_not_there(self) -> None:
        transport = HttpTransport("http://127.0.0.1:9/", timeout=5)
        assert transport.connect()
        with pytest.raises(ServerCrashed, match="cannot be reached") as caught:
            transport.send_request("initialize", HELLO)
        assert caught.value.delivery == "not_sent"
        assert not transport.is_connected()
        transport.disconnect()

    @pytest.mark.parametrize("url", ["", "example.com", "file:///etc/passwd", "http://:80/"])
    def test_a_url_that_is_none_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="url: must begin with http"):
            HttpTransport(url)

    def test_telemetry_is_told_where_the_server_is_and_nothing_else(self) -> None:
        transport = HttpTransport("https://me:secret@example.com/path?key=secret")
        assert transport.network == {
            "network.transport": "tcp",
            "network.protocol.name": "http",
            "server.address": "example.com",
            "server.port": 443,
        }
        assert repr(transport) == "HttpTransport('https://example.com', connected=False)"

    def test_without_the_extra_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gaia.http.connection", None)
        with pytest.raises(ConfigError, match=re.escape(install_command("http"))):
            HttpTransport("http://127.0.0.1:9/").connect()


class TestConfiguration:
    def test_headers_and_variables_of_the_configuration(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN", "secret-token\n")
        server = serve()
        client = connect(server, headers={"Authorization": "Bearer ${TOKEN}", "X-Team": "a", "Accept": "text/html"})
        assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer secret-token"}
        assert server.seen[0].headers["accept"] == "application/json, text/event-stream"
        assert "secret-token" not in repr(client.transport)

    def test_a_user_and_a_password_in_the_url_become_a_header(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serve()
        server.url = server.url.replace("http://", "http://me:hunter22@")
        with caplog.at_level("DEBUG"):
            client = connect(server)
            server.on["tools/call"] = lambda exchange: exchange.body(b"no hunter22", "text/plain", 400)
            assert "hunter22" not in client.call_tool("echo", {})["error"]
        assert server.seen[0].headers["authorization"] == "Basic bWU6aHVudGVyMjI="
        assert "hunter22" not in caplog.text + repr(client.transport)

    def test_no_form_of_what_is_secret_in_a_url_is_repeated(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A server that repeats the header it got, and addresses as a proxy would write them."""
        server = serve()
        server.url = server.url.replace("http://", "http://me:hunter%2F22@") + "?key=s3cr3t%2Bvalue"
        secrets = [
            b"bWU6aHVudGVyLzIy",
            b"hunter/22",
            b"hunter%2F22",
            b"hunter%2f22",
            b"s3cr3t+value",
            b"s3cr3t%2Bvalue",
        ]
        with caplog.at_level("DEBUG"):
            client = connect(server)
            assert server.seen[0].headers["authorization"].encode() == b"Basic " + secrets[0]
            server.on["tools/call"] = lambda exchange: exchange.body(b"no: " + b", ".join(secrets), "text/plain", 400)
            with pytest.raises(HttpError, match=r"no: \*\*\*, ") as caught:
                client.request("tools/call", {"name": "echo"})
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
        assert not [secret for secret in secrets if secret.decode() in shown]

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"url": "ftp://example.com"}, "url: must begin with http:// or https:// and name a host"),
            ({"url": "https://"}, "url: must begin with http:// or https:// and name a host"),
            ({"url": "https://example.com:port/"}, "url: the port is not a number"),
            ({"url": "http://127.0.0.1:9", "headers": {"a b": "c"}}, "headers: 'a b' is not the name of a header"),
            ({"url": "http://127.0.0.1:9", "headers": {"a": "secret\r\nb: c"}}, "headers.a: the value has characters"),
            ({"url": "http://\u2488.com/"}, "url: the host is not a name"),
            ({"url": "http://127.0.0.1:9/${NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not set"),
        ],
    )
    def test_a_configuration_that_cannot_be_used_says_why(self, config: Any, said: str) -> None:
        client = MCPClient.from_config("web", config)
        assert client.connect() is False
        assert client.last_error is not None
        assert said in client.last_error
        assert "secret" not in client.last_error
        client.disconnect()


@pytest.mark.process
def test_what_is_loaded(serve: Serve) -> None:
    """The parser when a server is opened. With the extra `http` alone a server works; a login names the other extra."""
    script = """
import sys
sys.modules.update(dict.fromkeys(["httpx2", "httpcore2", "mcp", "anyio", "pydantic"]))
from gaia.runtime.extras import install_command
from gaia.mcp import MCPClient

client = MCPClient.from_config("open", {"url": sys.argv[1]})
assert "httptools" not in sys.modules
assert client.connect(), client.last_error
assert "httptools" in sys.modules
assert client.call_tool("echo", {"text": "hi"})["content"][0]["text"] == "hi"
client.disconnect()
login = {"type": "client_credentials", "clientId": "robot", "clientSecret": "hunter22", "issuer": "https://a.invalid"}
client = MCPClient.from_config("closed", {"url": sys.argv[2], "auth": login})
assert not client.connect()
assert install_command("oauth") in client.last_error, client.last_error
client.disconnect()
"""
    refusing = {method: lambda exchange: exchange.body(b"", status=401) for method in ("initialize", "GET")}
    urls = [serve().url, serve(on=refusing | {"server/discover": refusing["GET"]}).url]
    done = subprocess.run([sys.executable, "-c", script, *urls], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_after_a_fork_the_connection_is_the_parents(serve: Serve) -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from gaia.mcp import MCPClient
for url in sys.argv[1:]:
    client = MCPClient.from_config("web", {"url": url})
    assert client.connect(), client.last_error
    assert client.call_tool("echo", {"text": "before"})["content"]
    child = os.fork()
    if child == 0:
        assert not client.is_connected()
        client.disconnect()
        assert client.connect(), client.last_error
        assert client.call_tool("echo", {"text": "child"})["content"]
        client.disconnect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert client.call_tool("echo", {"text": "parent"})["content"]
    assert client.status.generation == 1
    client.disconnect()
"""
    servers = [serve(era=era) for era in (LEGACY, MODERN)]
    line = [sys.executable, "-c", script, *(server.url for server in servers)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    # On a busy machine it may say that threads end late.
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    for server in servers:
        texts = [seen.body["params"]["arguments"]["text"] for seen in server.of("tools/call")]
        assert texts == ["before", "child", "parent"]


class TestProxies:
    def test_they_are_taken_from_the_environment(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = serve()
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        target = ScriptedServer()
        target.url = "http://mcp.invalid/mcp"
        client = connect(target)
        assert not client.call_tool("echo", {"text": "hi"}).is_error
        assert {seen.path for seen in proxy.seen} == {"http://mcp.invalid/mcp"}

    def test_and_so_is_what_needs_none(self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert connect(serve()).is_connected()

    def test_one_that_makes_no_tunnel_has_sent_nothing(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", serve().url)
        transport = HttpTransport("https://mcp.invalid/mcp", timeout=5)
        transport.connect()
        with pytest.raises(ServerCrashed, match="cannot be reached") as caught:
            transport.send_request("initialize", HELLO)
        assert caught.value.delivery == "not_sent"
        transport.disconnect()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SSL_CERT_FILE", "/no/such/file"),
        ("HTTP_PROXY", "ftp://127.0.0.1:9"),
        ("ALL_PROXY", "socks5://127.0.0.1:9"),
        ("HTTPS_PROXY", "http://127.0.0.1:port"),
    ],
)
def test_an_environment_that_cannot_be_used_is_a_failure_to_connect_that_says_where_to_look(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable == "ALL_PROXY" and importlib.util.find_spec("socksio"):
        pytest.skip("what SOCKS needs is installed here")
    monkeypatch.setenv(variable, value)
    client = MCPClient.from_config("web", {"url": "http://127.0.0.1:9/"})
    assert not client.connect()
    assert client.last_error is not None
    assert "what the environment says of proxies and certificates" in client.last_error
    client.disconnect()


class TestTls:
    """With a certificate that nobody knows but the variable SSL_CERT_FILE."""

    def test_a_certificate_that_is_not_trusted_is_refused(self, secure: ScriptedServer) -> None:
        client = MCPClient.from_config("web", {"url": secure.url})
        assert not client.connect()
        assert client.last_error is not None
        assert "cannot be reached" in client.last_error
        assert "certificate" in client.last_error.lower()
        assert secure.seen == []
        client.disconnect()

    def test_the_environment_says_what_is_trusted(
        self, secure: ScriptedServer, certificate: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = connect(secure)
        left: list[bool] = []

        def hang(exchange: Exchange) -> None:
            left.append(exchange.wait_for_client_to_leave())

        assert not client.call_tool("echo", {"text": "hi"}).is_error
        secure.on["tools/call"] = hang
        assert client.call_tool("echo", {}, timeout=0.2)["error_type"] == "timeout"
        assert wait_until(lambda: left == [True])
        client.disconnect()
        assert not [thread.name for thread in threading.enumerate() if "-http-" in thread.name]


@pytest.fixture
def secure(no_leaks: None, server_side: ssl.SSLContext) -> Iterator[ScriptedServer]:
    with ScriptedServer(era=MODERN, tls=server_side).serving() as server:
        yield server


def test_a_server_may_say_cookies_of_a_balancer(serve: Serve, connect: Connect) -> None:
    server = serve()

    def set_cookie(exchange: Exchange) -> None:
        exchange.json(
            exchange.answer({"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {}}),
            headers={"Set-Cookie": "node=7"},
        )

    server.on["initialize"] = set_cookie
    client = connect(server)
    futures = [client.submit_tool("echo", {"text": json.dumps(number)}) for number in range(4)]
    assert all(future.result(PATIENCE) for future in futures)
    assert {seen.headers.get("cookie") for seen in server.of("tools/call")} == {"node=7"}
