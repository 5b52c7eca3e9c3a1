"""What goes wrong around a gateway that runs: its servers, its clients, and its own end."""

import contextlib
import http.client
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.gateway.access.clients_file import add_client
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from tests.gateway.gateway_process import ACCEPT, INITIALIZE, GatewayProcess, call_headers, gateway_process, tool_call
from tests.servers.processes import wait_for_end
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

FaultServer = Callable[..., dict[str, Any]]

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[GatewayProcess]]:
    """Run a gateway before these servers; the keywords are options of the command."""

    @contextlib.contextmanager
    def run(servers: Mapping[str, Any], *words: str) -> Iterator[GatewayProcess]:
        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        with gateway_process("--config", str(config), *words) as gateway:
            yield gateway

    return run


Run = Callable[..., contextlib.AbstractContextManager[GatewayProcess]]


class KeptConnection(contextlib.AbstractContextManager["KeptConnection"]):
    """A client of the handshake era with one connection."""

    def __init__(self, gateway: GatewayProcess, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        self._headers = {**ACCEPT, "Authorization": f"Bearer {token}"}
        self._session = ""

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def open_session(self) -> None:
        response, _ = self._ask(INITIALIZE, self._headers)
        self._session = response.headers["mcp-session-id"]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The message that answers."""
        request = tool_call(tool, arguments)
        del request["params"]["_meta"]
        _, message = self._ask(request, {**self._headers, "Mcp-Session-Id": self._session})
        return message

    def _ask(self, message: Any, headers: Mapping[str, str]) -> tuple[http.client.HTTPResponse, Any]:
        self._connection.request("POST", "/mcp", json.dumps(message), dict(headers))
        response = self._connection.getresponse()
        return response, json.loads(response.read())


def text_of(message: Any) -> str:
    assert "result" in message, message
    found: str = message["result"]["content"][0]["text"]
    return found


def test_a_gateway_that_is_killed_leaves_no_server(run: Run, tmp_path: Path, fault_server: FaultServer) -> None:
    state = tmp_path / "state"
    servers = {
        # The one has a grandchild, and neither looks at the end of its input.
        "family": fault_server(state_file=state, child="own_session", ignore_eof=True),
        "other": fault_server(ignore_eof=True),
    }
    with run(servers) as gateway:
        pids = [int(text_of(gateway.call(f"{name}_pid", {}).json)) for name in servers]
        pids += json.loads(text_of(gateway.call("family_children", {}).json))
        family = [child.pid for child in psutil.Process(gateway.process.pid).children(recursive=True)]
        assert {*pids[:2]} <= {*family}
        gateway.signal(signal.SIGKILL)
        gateway.process.wait(PATIENCE)

        assert [pid for pid in {*pids, *family} if not wait_for_end(pid)] == []


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_call_is_cancelled_on_the_server_when_its_client_vanishes(
    run: Run, tmp_path: Path, fault_server: FaultServer, era: str
) -> None:
    state = tmp_path / "state"
    server = fault_server(state_file=state, faults=[{"tool": "echo", "await_cancel": True}])
    with run({"it": server}) as gateway:
        request, headers = tool_call("it_echo", {"text": "x"}), call_headers("it_echo")
        if era == "handshake":
            del request["params"]["_meta"]
            session = gateway.open_session().headers["mcp-session-id"]
            headers = {**ACCEPT, "Mcp-Session-Id": session}
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        client.request("POST", "/mcp", json.dumps(request), headers)
        assert wait_until(lambda: state.exists() and bool(read_state(state).calls))
        client.close()

        def is_cancelled() -> bool:
            return "notifications/cancelled" in text_of(gateway.call("it_received", {}).json)

        assert wait_until(is_cancelled)
        servers = gateway.ask("GET", "/status").json["servers"]
        assert servers[0]["in_flight"] == 0
        assert servers[0]["generation"] == 1


def test_faulty_servers_harm_no_other(run: Run, fault_server: FaultServer) -> None:
    junk = [{"text": "Listening"}, {"hex": "ff fe 00"}, {"json": [1]}, {"text": '{"jsonrpc": "2.0", "id": 1, "resu'}]
    servers = {
        "good": fault_server(),
        "hung": {**fault_server(faults=[{"tool": "echo", "hang": True}]), "timeout": 1},
        "deaf": {**fault_server(faults=[{"tool": "echo", "stop_reading": True, "hang": True}]), "timeout": 1},
        "silent": fault_server(
            faults=[{"on": "initialize", "freeze": True}, {"on": "server/discover", "freeze": True}]
        ),
        "noisy": fault_server(faults=[{"on": "*", "junk": junk, "stderr_flood": 100_000}]),
        "missing": {"command": "/nowhere/to/be/found"},
    }
    with run(servers) as gateway, ThreadPoolExecutor(2) as pool:
        assert wait_until(lambda: _states(gateway)["good"] == _states(gateway)["noisy"] == "ready")
        lost = [pool.submit(gateway.call, f"{name}_echo", {"text": "x"}) for name in ("hung", "deaf")]
        for text in ("a", "b"):
            for name in ("good", "noisy"):
                assert text_of(gateway.call(f"{name}_echo", {"text": text}).json) == text
        for call in lost:
            result = call.result(PATIENCE).json["result"]
            assert result["isError"]
            assert result["_meta"][FAILURE_KEY]["delivery"] == "unknown"
            assert result["_meta"][FAILURE_KEY]["errorType"] == "timeout"
        # Neither has taken the others with it.
        assert text_of(gateway.call("good_echo", {"text": "c"}).json) == "c"
        assert text_of(gateway.call("hung_pid", {}).json)
        assert _states(gateway)["silent"] != "ready"
        refused = gateway.call("missing_echo", {"text": "x"}).json["error"]
        assert "cannot be started" in refused["message"]
        assert refused["data"] == {"server": "missing", "errorType": "server_unavailable", "delivery": "not_sent"}


_FLOOD = """
import json, os, sys, threading
line = (sys.argv[1] + "\\n").encode() * 500
writing = threading.Lock()

def flood():
    while True:
        with writing:
            os.write(1, line)

for line_in in sys.stdin:
    message = json.loads(line_in)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
                       "serverInfo": {"name": "flood", "version": "1"}},
        "tools/list": {"tools": [{"name": "begin", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "it begins"}]},
    }
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        found = results.get(message["method"])
        answer |= {"error": {"code": -32601, "message": "no"}} if found is None else {"result": found}
        with writing:
            os.write(1, json.dumps(answer).encode() + b"\\n")
        if message["method"] == "tools/call":
            threading.Thread(target=flood, daemon=True).start()
"""


@pytest.mark.parametrize(
    "line",
    ["x", '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"something"}}'],
    ids=["junk", "log messages"],
)
def test_a_server_that_writes_without_a_pause_holds_up_no_other(run: Run, fault_server: FaultServer, line: str) -> None:
    servers = {"flood": {"command": sys.executable, "args": ["-c", _FLOOD, line]}, "good": fault_server()}
    with run(servers) as gateway:
        # A client that wants all log messages, and reads none of them.
        session = {**ACCEPT, "Mcp-Session-Id": gateway.open_session().headers["mcp-session-id"]}
        level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "debug"}}
        assert gateway.ask("POST", "/mcp", level, session).status == 200
        stream = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        stream.request("GET", "/mcp", headers=session)
        assert text_of(gateway.call("flood_begin", {}).json) == "it begins"
        for number in range(20):
            assert text_of(gateway.call("good_echo", {"text": str(number)}).json) == str(number)
        assert gateway.ask("GET", "/health").status == 200
        assert _states(gateway) == {"flood": "ready", "good": "ready"}
        stream.close()


def test_clients_that_do_not_read_hold_up_no_other(run: Run, fault_server: FaultServer) -> None:
    large = {"content": [{"type": "text", "text": "x" * 100_000}]}
    clients, requests = 8, 500
    with (
        run({"it": fault_server(faults=[{"tool": "sleep", "result": large}])}) as gateway,
        contextlib.ExitStack() as stack,
    ):
        process = psutil.Process(gateway.process.pid)
        assert text_of(gateway.call("it_sleep", {}).json) == large["content"][0]["text"]
        before = process.memory_info().rss
        body = json.dumps(tool_call("it_sleep", {})).encode()
        headers = {**call_headers("it_sleep"), "Host": "localhost", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body
        for _ in range(clients):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", gateway.port))
            # As much as the gateway takes, and nothing of what it answers.
            reader.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                reader.sendall(request * requests)
        for number in range(50):
            assert text_of(gateway.call("it_echo", {"text": str(number)}).json) == str(number)
        grown = process.memory_info().rss - before
    # A few answers of each, and not all that they have asked for.
    assert grown < clients * requests * 100_000 / 10


def test_a_client_that_opens_sessions_without_end_ends_none_of_another(
    run: Run, tmp_path: Path, fault_server: FaultServer
) -> None:
    clients = tmp_path / "clients.json"
    tokens = [add_client(clients, name) for name in ("quiet", "busy")]
    with run({"it": fault_server()}, "--max-sessions", "20", "--clients", str(clients)) as gateway:
        quiet, busy = (KeptConnection(gateway, token) for token in tokens)
        with quiet, busy:
            quiet.open_session()
            for _ in range(500):
                busy.open_session()
            assert text_of(quiet.call("it_echo", {"text": "x"})) == "x"
            assert text_of(busy.call("it_echo", {"text": "x"})) == "x"


def _states(gateway: GatewayProcess) -> dict[str, str]:
    return {server["name"]: server["state"] for server in gateway.ask("GET", "/status").json["servers"]}
