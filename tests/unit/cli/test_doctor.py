"""`gaia mcp doctor`: verdicts and remedies for people and programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_working_server_has_a_line_for_each_check(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server, other={"command": "nonono"})
    result = invoke("doctor", "demo")

    assert result.exit_code == 0
    assert result.stdout.startswith("demo works.\n")
    assert result.stdout.count("✓") == 10


def test_a_failure_comes_with_its_remedy_and_exit_status_1(
    configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(time={"command": "uvx", "args": ["mcp-server-time"], "env": {"PATH": "/nowhere"}})
    result = invoke("doctor", "time")

    assert result.exit_code == 1
    assert "time does not work." in result.stdout
    assert "→ uvx comes with uv" in result.stdout
    assert result.stdout.splitlines()[-1].split(maxsplit=2) == ["-", "versions", "this and what follows: not reached"]


def test_warnings_do_not_fail(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server | {"colour": "red"})
    result = invoke("doctor", "demo")

    assert result.exit_code == 0
    assert "demo works, with warnings." in result.stdout


def test_without_a_name_all_are_examined(
    configure: Callable[..., Path], invoke: Callable[..., Any], invoke_json: Callable[..., Any], demo_server: Any
) -> None:
    configure(demo=demo_server, bad={"command": "nonono"})
    document = invoke_json("doctor")

    assert document["ok"] is False
    assert [(server["server"], server["verdict"]) for server in document["servers"]] == [
        ("demo", "ok"),
        ("bad", "fail"),
    ]
    assert document["servers"][1]["checks"][1]["name"] == "command"
    assert invoke("doctor").exit_code == 1


def test_no_servers_is_no_error(invoke: Callable[..., Any], invoke_json: Callable[..., Any]) -> None:
    assert "No servers are configured" in invoke("doctor").stdout
    assert invoke_json("doctor") == {"ok": True, "servers": []}


def test_an_unknown_name_is_a_wrong_command_line(configure: Callable[..., Path], invoke: Callable[..., Any]) -> None:
    configure(demo={"command": "x"})
    result = invoke("doctor", "dmo")

    assert result.exit_code == 2
    assert "did you mean 'demo'?" in result.stderr
