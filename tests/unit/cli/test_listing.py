"""`gaia mcp list` and `gaia mcp tools`."""

import json
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClientManager
from tests.unit.cli.fixture_types import Configure, FaultServer, Invoke, Json, ProcessesOf, Told


def test_no_servers_is_no_error_and_a_time_to_wait_needs_something_to_wait_for(
    output: Told, refused: Told, home: Path
) -> None:
    assert str(home / ".gaia" / "mcp_servers.json") in output("list")
    assert "--timeout" in refused("list", "--no-connect", "--timeout", "1")


def test_each_server_is_shown_with_state_tools_and_source(
    configure: Configure, invoke: Invoke, demo_server: Json, fault_server: FaultServer
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


def test_without_connecting_no_server_is_started_and_a_sandbox_is_shown(
    configure: Configure, invoke: Invoke, invoke_json: Invoke, fault_server: FaultServer, tmp_path: Path
) -> None:
    one = {**fault_server(state_file=tmp_path / "state"), "sandbox": {"network": True}}
    configure(one=one, off={"command": "x", "disabled": True}, wrong={})
    shown = invoke("list", "--no-connect").stdout
    rows = [line.split()[:2] for line in shown.splitlines()[1:4]]
    assert rows == [["one", "enabled,"], ["off", "disabled"], ["wrong", "invalid"]]
    assert "enabled, in a sandbox" in shown
    rows = invoke_json("list", "--no-connect")["servers"][:2]
    assert [row["sandbox"] for row in rows] == [{"network": True}, False]
    assert not (tmp_path / "state").exists()


def test_each_server_comes_from_the_file_that_counts(configure: Configure, invoke_json: Invoke, tmp_path: Path) -> None:
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
    assert rows[3]["error"] == f"{of_project}: disabled: expected a boolean, got a string"


def test_servers_start_side_by_side_and_are_stopped(
    configure: Configure, invoke: Invoke, fault_server: FaultServer, processes_of: ProcessesOf, tmp_path: Path
) -> None:
    configure(
        **{f"slow{number}": fault_server(start_delay=0.5, state_file=tmp_path / f"s{number}") for number in range(4)}
    )
    result = invoke("list")
    assert result.stdout.count("ready") == 4
    assert processes_of() == []


class TestServersThatDoNotAnswer:
    """A server that hangs at its start does not keep the others from being shown."""

    @pytest.fixture(autouse=True)
    def configured(self, configure: Configure, fault_server: FaultServer) -> None:
        configure(
            bad={"command": "no-such-program-anywhere"},
            hung=fault_server(start_delay=60),
            mute=fault_server(faults=[{"on": "*", "hang": True}]),
        )

    def test_are_shown_as_starting_after_the_time(self, invoke: Invoke) -> None:
        result = invoke("list", "--timeout", "0.8")
        assert result.exit_code == 0
        rows = {line.split()[0]: line for line in result.stdout.splitlines()}
        assert all("starting after 0.8 s" in rows[name] for name in ("hung", "mute"))
        assert re.search("gaia mcp doctor (bad|hung) finds out more", result.stdout)

    def test_are_starting_for_programs_too_and_stopped_only_after_the_answer(
        self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = []
        stop = MCPClientManager.disconnect_all

        def note_answer(manager: MCPClientManager) -> None:
            answers.append(sys.stdout.buffer.getvalue())  # type: ignore[attr-defined]  # the runner's
            stop(manager)

        monkeypatch.setattr(MCPClientManager, "disconnect_all", note_answer)
        result = invoke("list", "--timeout", "0.8", "--json")

        assert answers[0] == result.stdout_bytes
        rows = {row["name"]: row for row in json.loads(result.stdout)["servers"]}
        assert (rows["hung"]["state"], rows["hung"]["waited"], rows["hung"]["tools"]) == ("starting", 0.8, None)

    def test_are_seen_starting_on_a_terminal(self, at_terminal: Invoke) -> None:
        screen = at_terminal("list", "--timeout", "2", columns=40)

        assert screen.exit_code == 0
        # The table was drawn, and drawn again over itself.
        assert screen.text.count("hung") > 1
        assert "\x1b[2K" in screen.drawn
        last = screen.text[screen.text.rindex("name ") :]
        assert "after 2 s" in last
        assert max(map(len, re.split(r"[\r\n]", last))) <= 40


def test_nothing_is_redrawn_or_coloured_for_a_pipe(configure: Configure, invoke: Invoke, demo_server: Json) -> None:
    configure(demo=demo_server)
    result = invoke("list", "--timeout", "30")

    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["name", "state", "tools"],
        ["demo", "ready", "6"],
    ]
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_tools_are_listed_with_description_and_parameters(
    configure: Configure, invoke: Invoke, invoke_json: Invoke, refused: Told, demo_server: Json
) -> None:
    configure(demo=demo_server)
    sections = {section.split()[0]: section.splitlines() for section in invoke("tools", "demo").stdout.split("\n\n")}
    assert sections["add"] == ["add", "  Add two numbers.", "    a  number  required", "    b  number  required"]
    assert sections["crash"][2] == "    exit_code  integer  default 1"
    assert "did you mean 'add'?" in refused("tools", "demo", "ad")

    document = invoke_json("tools", "demo")
    add = document["tools"][0]
    assert document["server"] == "demo"
    assert add["inputSchema"]["required"] == ["a", "b"]
    assert add["annotations"]["readOnlyHint"] is True


LONG_TOOL = {
    "name": "long",
    "title": "A long one",
    "description": f"{'word ' * 100}end.\n\nA second paragraph.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", "slow"], "default": "slow", "description": f"{'more ' * 100}end."},
            "other": {"type": "string"},
        },
    },
    "annotations": {"readOnlyHint": True},
}


def test_an_overview_has_the_beginning_of_long_texts_and_a_named_tool_all_of_them(
    configure: Configure, invoke: Invoke, fault_server: FaultServer
) -> None:
    configure(it=fault_server(tools=[LONG_TOOL, {"name": "short"}], only_tools=True))
    overview, details = invoke("tools", "it").stdout, invoke("tools", "it", "long").stdout

    assert "word word …" in overview
    assert "second paragraph" not in overview
    assert 'mode   string  default "slow"  more' in overview
    assert 'one of "fast", "slow"' in overview
    assert "other  string  optional" in overview
    assert details.count("word") == details.count("more") == 100
    assert "A second paragraph." in details
    assert "readOnlyHint: true" in details
    assert "short" not in details


def test_long_texts_are_folded_on_a_terminal(
    configure: Configure, at_terminal: Invoke, fault_server: FaultServer
) -> None:
    configure(it=fault_server(tools=[LONG_TOOL], only_tools=True))
    screen = at_terminal("tools", "it", "long", columns=40, NO_COLOR="1")
    shown = screen.text[screen.text.index("long") :].splitlines()
    assert max(map(len, shown)) <= 40
    assert " ".join(screen.text.split()).count("word") == 100
    assert "\x1b[1m" not in screen.drawn


def test_denied_tools_are_not_shown(configure: Configure, invoke: Invoke, demo_server: Json) -> None:
    configure(demo=demo_server | {"disabledTools": ["crash", "f*"]})
    names = [tool["name"] for tool in json.loads(invoke("tools", "demo", "--json").stdout)["tools"]]
    assert names == ["add", "echo", "sleep", "counter"]


@pytest.mark.parametrize("command", [["tools", "evil"], ["list"], ["call", "evil", "nothing"], ["test-client", "evil"]])
def test_a_server_cannot_write_to_the_terminal(
    command: list[str], configure: Configure, invoke: Invoke, fault_server: FaultServer
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
        assert "  [red]First[/red]line second\n" in written


def test_neither_can_it_through_spans(configure: Configure, run: Invoke, fault_server: FaultServer) -> None:
    name = "e\x1b[2Jvil"
    error = {"code": -32000, "message": "\x1b]0;owned\x07 \x9b31m"}
    server = fault_server(tools=[{"name": name}], only_tools=True, faults=[{"tool": name, "error": error}])
    configure(evil=server)
    written = run("call", "evil", name, "--trace", "console").stderr
    assert "span tools/call e\\u{001b}[2Jvil CLIENT" in written
    assert not {char for char in written if not char.isprintable() and char != "\n"}


def test_commands_to_type_are_quoted_for_the_shell(
    invoke: Invoke, configure: Configure, fault_server: FaultServer
) -> None:
    name = "a b; touch $(it's)"
    configure(**{name: {**fault_server(exit_at_start={"code": 1})}})
    assert f"gaia mcp test-client {shlex.quote(name)}`" in invoke("tools", name).stderr
    tool = {"name": "t"}
    configure(**{name: {**fault_server(tools=[tool], only_tools=True), "pinTools": "block"}})
    assert invoke("tools", name).exit_code == 0
    configure(**{name: {**fault_server(tools=[{**tool, "title": "T"}], only_tools=True), "pinTools": "block"}})
    for command in (["tools", name], ["call", name, "t"], ["test-client", name]):
        result = invoke(*command)
        assert f"gaia mcp approve {shlex.quote(name)}" in " ".join((result.stdout + result.stderr).split())


def test_a_server_that_cannot_be_started_says_why_and_one_without_tools_is_no_error(
    configure: Configure, failed: Told, output: Told, fault_server: FaultServer
) -> None:
    configure(
        bad=fault_server(exit_at_start={"code": 7, "stderr": "no licence found"}), it=fault_server(capabilities={})
    )
    error = failed("tools", "bad")
    for said in ("exited with code 7", "no licence found", "gaia mcp test-client bad"):
        assert said in error
    assert output("tools", "it") == "it offers no tools\n"


def test_a_profile_that_sees_no_server_of_a_gateway_is_told(output: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.cli.listing.fetch_status", lambda *_: Mock(servers=[]))
    shown = output("list", "http://127.0.0.1:9/mcp")
    assert "the profile of this client sees none" in " ".join(shown.split())
    assert "state" not in shown
