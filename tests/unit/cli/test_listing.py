"""`gaia mcp list` and `gaia mcp tools`."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_no_servers_is_no_error(invoke: Callable[..., Any], home: Path) -> None:
    result = invoke("list")

    assert result.exit_code == 0
    assert str(home / ".gaia" / "mcp_servers.json") in result.stdout


def test_each_server_is_shown_with_state_tools_and_source(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    demo_server: dict[str, Any],
    fault_server: Callable[..., dict[str, Any]],
) -> None:
    file = configure(
        good=demo_server,
        bad=fault_server(exit_at_start={"code": 3, "stderr": "no licence found"}),
        off={"command": "x", "disabled": True},
        wrong={"args": []},
    )
    document = invoke("list", "--json")
    rows = {row["name"]: row for row in json.loads(document.stdout)["servers"]}

    assert document.exit_code == 0
    assert [row["state"] for row in rows.values()] == ["ready", "failed", "disabled", "failed"]
    assert (rows["good"]["tools"], rows["good"]["source"], rows["good"]["error"]) == (6, str(file), None)
    assert "no licence found" in rows["bad"]["error"]
    assert "command: missing" in rows["wrong"]["error"]


def test_without_connecting_no_server_is_started(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    configure(one=fault_server(state_file=tmp_path / "state"), off={"command": "x", "disabled": True}, wrong={})
    shown = invoke("list", "--no-connect").stdout.splitlines()

    assert [line.split()[:2] for line in shown[1:4]] == [["one", "enabled"], ["off", "disabled"], ["wrong", "invalid"]]
    assert not (tmp_path / "state").exists()


def test_each_server_comes_from_the_file_that_counts(
    configure: Callable[..., Path], invoke_json: Callable[..., Any], tmp_path: Path
) -> None:
    of_user = configure(time={"command": "x"}, git={"command": "x"}, text="x")  # type: ignore[arg-type]
    of_project = tmp_path / "mcp_servers.json"
    of_project.write_text(json.dumps({"mcpServers": {"git": {"command": "y"}, "yes": {"disabled": "yes"}}}))
    rows = invoke_json("list", "--no-connect")["servers"]

    assert [(row["name"], row["state"], row["source"]) for row in rows] == [
        ("time", "enabled", str(of_user)),
        ("git", "enabled", str(of_project)),
        ("text", "invalid", str(of_user)),
        ("yes", "invalid", str(of_project)),
    ]


def test_a_sandbox_is_shown(configure: Callable[..., Path], invoke: Callable[..., Any]) -> None:
    configure(one={"command": "x", "sandbox": {"network": True}}, two={"command": "x"})

    assert "enabled, in a sandbox" in invoke("list", "--no-connect").stdout
    rows = json.loads(invoke("list", "--no-connect", "--json").stdout)["servers"]
    assert [row["sandbox"] for row in rows] == [{"network": True}, False]


def test_servers_start_side_by_side_and_are_stopped(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    configure(
        **{f"slow{number}": fault_server(start_delay=0.5, state_file=tmp_path / f"s{number}") for number in range(8)}
    )
    result = invoke("list")

    assert result.stdout.count("ready") == 8
    assert processes_of() == []


def test_tools_are_listed_with_description_and_parameters(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server)
    lines = {line.split()[0]: line for line in invoke("tools", "demo").stdout.splitlines()}

    assert "Add two numbers." in lines["add"]
    assert lines["add"].endswith("a: number, b: number")
    assert lines["crash"].endswith("[exit_code: integer]")


def test_denied_tools_are_not_shown(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server | {"disabledTools": ["crash", "f*"]})
    names = [tool["name"] for tool in json.loads(invoke("tools", "demo", "--json").stdout)["tools"]]

    assert names == ["add", "echo", "sleep", "counter"]


def test_json_has_the_tools_in_the_words_of_the_protocol(
    configure: Callable[..., Path], invoke_json: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server)
    document = invoke_json("tools", "demo")
    add = document["tools"][0]

    assert document["server"] == "demo"
    assert add["inputSchema"]["required"] == ["a", "b"]
    assert add["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize("command", [["tools", "evil"], ["list"], ["call", "evil", "nothing"], ["test-client", "evil"]])
def test_a_server_cannot_write_to_the_terminal(
    command: list[str],
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
) -> None:
    tools = [
        {"name": "e\x1b[2Jvil", "description": "\x1b]0;owned\x07[red]First[/red]\rline\nsecond"},
        {"name": "\u202eright", "description": 5, "inputSchema": {"properties": {"\x9b31m[/]": {"type": "\x1b[1m"}}}},
    ]
    configure(evil=fault_server(tools=tools, only_tools=True, instructions="\x1b[5m"))
    result = invoke(*command)
    written = result.stdout + result.stderr

    assert not {char for char in written if not char.isprintable() and char != "\n"}
    if command[0] == "tools":
        assert "[red]First[/red]" in written
        assert "second" not in written


def test_neither_can_it_through_spans(
    configure: Callable[..., Path], run: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
    name = "e\x1b[2Jvil"
    error = {"code": -32000, "message": "\x1b]0;owned\x07 \x9b31m"}
    server = fault_server(tools=[{"name": name}], only_tools=True, faults=[{"tool": name, "error": error}])
    configure(evil=server)
    written = run("call", "evil", name, "--trace", "console").stderr

    assert "span tools/call e\\u{001b}[2Jvil CLIENT" in written
    assert not {char for char in written if not char.isprintable() and char != "\n"}


@pytest.mark.parametrize("name", ["$(touch owned)", "a b; touch owned", "it's"])
def test_commands_to_type_are_quoted_for_the_shell(
    name: str, invoke: Callable[..., Any], configure: Callable[..., Path], fault_server: Callable[..., dict[str, Any]]
) -> None:
    configure(**{name: {**fault_server(exit_at_start={"code": 1})}})
    assert f"gaia mcp test-client {shlex.quote(name)}`" in invoke("tools", name).stderr
    tool = {"name": "t"}
    configure(**{name: {**fault_server(tools=[tool], only_tools=True), "pinTools": "block"}})
    assert invoke("tools", name).exit_code == 0
    configure(**{name: {**fault_server(tools=[{**tool, "title": "T"}], only_tools=True), "pinTools": "block"}})
    for command in (["tools", name], ["call", name, "t"], ["test-client", name]):
        result = invoke(*command)
        assert f"gaia mcp approve {shlex.quote(name)}" in " ".join((result.stdout + result.stderr).split())


def test_a_server_that_cannot_be_started_says_why(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
    configure(bad=fault_server(exit_at_start={"code": 7, "stderr": "no licence found"}))
    result = invoke("tools", "bad")

    assert result.exit_code == 1
    assert "exited with code 7" in result.stderr
    assert "no licence found" in result.stderr
    assert "gaia mcp test-client bad" in result.stderr


def test_a_server_without_tools_is_no_error(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
    configure(it=fault_server(capabilities={}))
    result = invoke("tools", "it")

    assert (result.exit_code, result.stdout) == (0, "it offers no tools\n")
