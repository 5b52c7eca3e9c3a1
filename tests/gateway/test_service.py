"""A gateway as a service: signals, the service manager, probes, clients, and files that change while it runs."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.gateway.access.clients_file import add_client
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from tests.gateway.gateway_process import ACCEPT, GatewayProcess, call_headers, gateway_process, tool_call
from tests.servers.state_file import read_state
from tests.serving.served import command, environment
from tests.waiting import PATIENCE, wait_until

FaultServer = Callable[..., dict[str, Any]]


def write_config(file: Path, **servers: Any) -> Path:
    # As editors do: another file takes the place of the old one.
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": servers}))
    new.replace(file)
    return file


def text_of(answer: Any) -> str:
    assert "result" in answer.json, answer.json
    found: str = answer.json["result"]["content"][0]["text"]
    return found


def is_called(state: Path) -> bool:
    return state.exists() and bool(read_state(state).calls)


def states_of(gateway: GatewayProcess) -> dict[str, str]:
    return {server["name"]: server["state"] for server in gateway.ask("GET", "/status").json["servers"]}


def test_a_gateway_that_is_told_to_end_finishes_its_calls_and_begins_no_session(
    home: Path, tmp_path: Path, fault_server: FaultServer
) -> None:
    state = tmp_path / "state"
    config = write_config(tmp_path / "c.json", it=fault_server(state_file=state))
    with gateway_process("--config", str(config)) as gateway, ThreadPoolExecutor(1) as pool:
        session = gateway.open_session().headers["mcp-session-id"]
        assert session
        call = pool.submit(gateway.call, "it_sleep", {"seconds": 1})
        assert wait_until(lambda: is_called(state))
        gateway.signal(signal.SIGTERM)
        answer = call.result(PATIENCE)
        gateway.process.wait(PATIENCE)

    assert answer.status == 200
    assert "result" in answer.json
    assert gateway.process.returncode == 0
    assert read_state(state).starts == 1
    assert not psutil.pid_exists(read_state(state).pids[0])


def test_sessions_are_answered_until_the_calls_that_were_under_way_have_ended(
    home: Path, tmp_path: Path, fault_server: FaultServer
) -> None:
    state = tmp_path / "state"
    config = write_config(tmp_path / "c.json", it=fault_server(state_file=state))
    with gateway_process("--config", str(config), "--grace", str(PATIENCE)) as gateway:
        session = gateway.open_session().headers["mcp-session-id"]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)) as caller:
            call = json.dumps(tool_call("it_sleep", {"seconds": 3600}))
            caller.request("POST", "/mcp", call, call_headers("it_sleep"))
            assert wait_until(lambda: is_called(state))
            gateway.signal(signal.SIGTERM)
            # On other connections, as clients open them that have a call under way.
            assert wait_until(lambda: gateway.ask("GET", "/ready").status == 503)
            headers = {**ACCEPT, "Mcp-Session-Id": session}
            listed = gateway.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers)
            assert listed.json["result"]["tools"]
            assert gateway.open_session().status == 503
        # The call is cancelled, and nothing else that was under way at the signal.
        assert gateway.process.wait(PATIENCE) == 0


def test_a_call_that_does_not_end_within_the_grace_is_given_up(
    home: Path, tmp_path: Path, fault_server: FaultServer
) -> None:
    state = tmp_path / "state"
    config = write_config(tmp_path / "c.json", it=fault_server(state_file=state))
    with gateway_process("--config", str(config), "--grace", "1") as gateway, ThreadPoolExecutor(1) as pool:
        call = pool.submit(gateway.call, "it_sleep", {"seconds": 3600})
        assert wait_until(lambda: is_called(state))
        gateway.signal(signal.SIGTERM)
        assert gateway.process.wait(PATIENCE) == 0
        result = call.result(PATIENCE).json["result"]
    assert (result["isError"], result["_meta"][FAILURE_KEY]["delivery"]) == (True, "unknown")
    assert not psutil.pid_exists(read_state(state).pids[0])


def test_the_configuration_is_watched(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    kept, changed = tmp_path / "kept", tmp_path / "changed"
    file = tmp_path / "c.json"
    first = {"kept": fault_server(state_file=kept), "old": fault_server()}
    write_config(file, **first)
    with gateway_process("--config", str(file)) as gateway:
        assert text_of(gateway.call("old_echo", {"text": "a"})) == "a"
        assert text_of(gateway.call("kept_echo", {"text": "a"})) == "a"
        write_config(file, kept=first["kept"], new=fault_server(state_file=changed))
        assert wait_until(lambda: states_of(gateway) == {"kept": "ready", "new": "ready"})
        assert text_of(gateway.call("new_echo", {"text": "b"})) == "b"
        assert gateway.call("old_echo", {"text": "c"}).json["error"]["code"] == -32602
        assert read_state(kept).starts == 1


def test_an_invalid_file_changes_nothing_and_says_why(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    state, file = tmp_path / "state", tmp_path / "c.json"
    write_config(file, it=fault_server(state_file=state))
    with gateway_process("--config", str(file)) as gateway:
        assert text_of(gateway.call("it_echo", {"text": "a"})) == "a"
        for content in ("{", '{"mcpServers": {"it": {"command": 3}}}'):
            file.write_text(content)
            gateway.signal(signal.SIGHUP)
            line = gateway.wait_for_line("gateway_reload_refused")
            assert str(file) in line
            assert text_of(gateway.call("it_echo", {"text": "b"})) == "b"
            assert wait_until(lambda: gateway.ask("GET", "/status").json["reload"] is not None)
            assert str(file) in gateway.ask("GET", "/status").json["reload"]["error"]
        assert read_state(state).starts == 1


def test_a_gateway_beyond_this_machine_needs_clients_that_may_change_meanwhile(
    home: Path, tmp_path: Path, fault_server: FaultServer
) -> None:
    config, clients = write_config(tmp_path / "c.json", it=fault_server(), other=fault_server()), tmp_path / "k.json"
    clients.write_text(json.dumps({"clients": {}, "profiles": {"small": {"servers": ["it"]}}}))
    words = ("--config", str(config), "--clients", str(clients), "--host", "0.0.0.0")
    with gateway_process(*words) as gateway:
        assert gateway.call("it_echo", {"text": "a"}).status == 401
        assert gateway.ask("GET", "/status").status == gateway.ask("GET", "/metrics").status == 401
        assert gateway.ask("GET", "/health").status == 200
        assert wait_until(lambda: gateway.ask("GET", "/ready").status == 200)

        gateway.token = add_client(clients, "ci", "small")
        assert wait_until(lambda: gateway.ask("GET", "/status").status == 200)
        assert text_of(gateway.call("it_echo", {"text": "a"})) == "a"
        assert gateway.call("other_echo", {"text": "a"}).json["error"]["code"] == -32602
        assert list(states_of(gateway)) == ["it"]
        assert gateway.ask("GET", "/ready/other").status == 404
        assert gateway.ask("GET", "/metrics").status == 403

        gateway.token = add_client(clients, "operator")
        assert wait_until(lambda: gateway.ask("GET", "/metrics").status == 200)
        page = gateway.ask("GET", "/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=")
        lines = page.body.decode().splitlines()
        assert 'gaia_gateway_server_up{server="it"} 1.0' in lines
        assert 'gaia_gateway_calls_total{client="ci",outcome="ok",server="it"} 1.0' in lines
        assert {one["name"]: one["profile"] for one in gateway.ask("GET", "/status").json["clients"]} == {
            "ci": "small",
            "operator": "everything",
        }
        assert text_of(gateway.call("other_echo", {"text": "a"})) == "a"
        assert gateway.call("other_echo", {"text": "a"}, path="/mcp/@small").json["error"]["code"] == -32602


def test_the_service_manager_is_told(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    config = write_config(tmp_path / "c.json", it=fault_server())
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(address))
        told.settimeout(PATIENCE)

        def next_message() -> str:
            return told.recv(4096).decode()

        variables = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000"}
        with gateway_process("--config", str(config), **variables) as gateway:
            assert next_message() == "READY=1\nSTATUS=1 server"
            assert next_message() == next_message() == "WATCHDOG=1"
            gateway.signal(signal.SIGHUP)
            while (message := next_message()) == "WATCHDOG=1":
                pass
            assert message.startswith("RELOADING=1\nMONOTONIC_USEC=")
            while (message := next_message()) == "WATCHDOG=1":
                pass
            assert message == "READY=1\nSTATUS=1 server"
            environment = psutil.Process(read_pid(gateway)).environ()
            assert "NOTIFY_SOCKET" not in environment
            gateway.signal(signal.SIGTERM)
            while (message := next_message()) == "WATCHDOG=1":
                pass
            assert message == "STOPPING=1\nSTATUS=finishing calls"
            assert gateway.process.wait(PATIENCE) == 0


def read_pid(gateway: GatewayProcess) -> int:
    """The process of its server."""
    assert wait_until(lambda: gateway.ask("GET", "/ready/it").status == 200)
    (server,) = gateway.ask("GET", "/status").json["servers"]
    pid: int = server["pid"]
    assert pid != os.getpid()
    return pid


@pytest.mark.process
def test_a_gateway_whose_audit_another_one_writes_says_so_and_no_url(home: Path, tmp_path: Path) -> None:
    config, audit = write_config(tmp_path / "servers.json"), tmp_path / "audit.jsonl"
    words = ("--config", str(config), "--audit", str(audit))
    with gateway_process(*words):
        line = command("mcp", "gateway", "--port", "0", *words)
        other = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert other.returncode == 2
    assert "another program writes to it" in other.stderr
    assert "MCP gateway: " not in other.stderr
