"""`gaia mcp list` and `gaia mcp watch` with the URL of a gateway that runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gaia.cli.main import app
from gaia.mcp.gateway.access.clients_file import add_client
from tests.gateway.gateway_process import SOURCE, Answer, GatewayProcess, ask, gateway_process
from tests.waiting import wait_until

FaultServer = Callable[..., dict[str, Any]]


def run(*words: str, token: str | None = None) -> Result:
    return CliRunner().invoke(app, ["mcp", *words], env={"GAIA_GATEWAY_TOKEN": token})


def is_settled(gateway: GatewayProcess) -> bool:
    servers = gateway.ask("GET", "/status").json["servers"]
    return [server["state"] for server in servers] == ["ready", "failed"]


def test_both_show_the_servers_of_the_gateway(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    config, clients = tmp_path / "c.json", tmp_path / "clients.json"
    config.write_text(json.dumps({"mcpServers": {"it": fault_server(), "bad": {"command": "no-such-program"}}}))
    token = add_client(clients, "me")
    with gateway_process("--config", str(config), "--clients", str(clients), "--name", "gw1") as gateway:
        gateway.token = token
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        assert wait_until(lambda: is_settled(gateway))
        assert gateway.open_session().headers["mcp-session-id"].startswith("gw1.")

        refused = run("list", url, token="wrong")
        listed = run("list", url, token=token)
        watched = run("watch", url, token=token)
        document = json.loads(run("watch", url, "--once", "--json", token=token).stdout)

    assert refused.exit_code == 1
    assert "does not let this client in" in refused.stderr
    assert listed.exit_code == watched.exit_code == 0
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:3]] == [["it", "ready"], ["bad", "failed"]]
    assert [line.split()[:2] for line in watched.stdout.splitlines()[1:3]] == [["it", "ready"], ["bad", "failed"]]
    assert "Gateway gw1: 1 of at most 1000 sessions" in watched.stdout
    (session,) = document["sessions"]
    assert (session["client"], session["program"], session["path"]) == ("me", "test 1", "/mcp")


@pytest.mark.process
def test_the_dashboard_shows_a_running_gateway(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    config, clients = tmp_path / "c.json", tmp_path / "clients.json"
    config.write_text(json.dumps({"mcpServers": {"it": fault_server()}}))
    token = add_client(clients, "me")
    with gateway_process("--config", str(config), "--clients", str(clients)) as gateway:
        gateway.token = token
        assert wait_until(lambda: gateway.ask("GET", "/ready/it").status == 200)
        assert gateway.open_session().status == 200
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        with subprocess.Popen(
            [sys.executable, "-m", "gaia.cli.main", "mcp", "dashboard", url, "--port", "0", "--token", "page"],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "GAIA_GATEWAY_TOKEN": token},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as page:
            try:
                assert page.stderr is not None
                address = next(line for line in page.stderr if line.startswith("Dashboard: "))
                port = int(address.partition("127.0.0.1:")[2].partition("/")[0])
                headers = {"Authorization": "Bearer page", "Content-Type": "application/json"}

                def post(path: str, body: Any) -> Answer:
                    return ask(port, "POST", path, body, headers)

                state = ask(port, "GET", "/api/state", None, headers).json
                called = {"server": "it", "tool": "echo", "arguments": {"text": "through the gateway"}}
                assert wait_until(lambda: post("/api/try", called).status == 200)
                tried = post("/api/try", called)
                restarted = post("/api/restart", {"server": "it"})
            finally:
                page.terminate()

    assert [session["client"] for session in state["gateway"]["sessions"]] == ["me"]
    assert [(row["name"], row["is_remote"]) for row in state["servers"]] == [("it", True)]
    assert "through the gateway" in tried.body.decode()
    assert restarted.status in (404, 405)
