"""`gaia mcp call`, against real servers."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import require
from tests.servers.state_file import read_state


@pytest.fixture
def demo(configure: Callable[..., Path], demo_server: dict[str, Any]) -> None:
    """The demo server is configured as ``demo``."""
    configure(demo=demo_server)


@pytest.mark.parametrize("words", [["a=1", "b=2.5"], ['{"a": 1, "b": 2.5}']])
def test_arguments_are_assignments_or_one_object(words: list[str], demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "add", *words)

    assert (result.exit_code, result.stdout, result.stderr) == (0, '{"sum": 3.5}\n', "")


def test_the_schema_decides_what_is_a_string(demo: None, invoke: Callable[..., Any]) -> None:
    assert invoke("call", "demo", "echo", "text=5").stdout == "5\n"


def test_json_is_the_result_as_the_server_sent_it(demo: None, invoke_json: Callable[..., Any]) -> None:
    assert invoke_json("call", "demo", "add", "a=1", "b=2") == {
        "content": [{"type": "text", "text": '{"sum": 3}'}],
        "isError": False,
        "structuredContent": {"sum": 3},
    }


def test_an_error_of_the_tool_is_printed_apart_and_fails(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "fail", "message=out of paper")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "out of paper" in result.stderr


def test_an_error_of_a_tool_in_a_sandbox_says_that_it_is_in_one(
    configure: Callable[..., Path], demo_server: dict[str, Any], invoke: Callable[..., Any]
) -> None:
    require("bubblewrap")
    configure(demo={**demo_server, "sandbox": {"read": [sys.prefix, str(Path(__file__).parents[3])]}})
    result = invoke("call", "demo", "fail", "message=out of paper")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "out of paper" in result.stderr
    assert "It runs in a sandbox" in result.stderr


def test_arguments_that_the_server_refuses_are_explained(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "add", "a=1")

    assert result.exit_code == 1
    assert "missing argument 'b'" in result.stderr
    assert '"required"' in result.stderr


def test_a_crash_says_that_the_server_may_have_acted(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "crash")

    assert result.exit_code == 1
    assert "exited with code 1" in result.stderr
    assert "The server may have acted" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failed_call_is_json_too(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "crash", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["error_type"] == "server_crashed"


def test_the_timeout_ends_the_call(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "sleep", "seconds=60", "--timeout", "0.2", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["error_type"] == "timeout"


def test_an_unknown_tool_is_a_usage_error_that_lists_the_known_ones(demo: None, invoke: Callable[..., Any]) -> None:
    result = invoke("call", "demo", "ad", "a=1", "b=2")

    assert result.exit_code == 2
    assert "did you mean 'add'?" in result.stderr


def test_a_denied_tool_never_reaches_the_server(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state") | {"disabledTools": ["echo"]})
    result = invoke("call", "it", "echo", "text=hello")

    assert result.exit_code == 1
    assert """is denied by "echo" in "disabledTools" of its entry""" in result.stderr
    assert "mcp_servers.json" in result.stderr
    assert read_state(tmp_path / "state").calls == ()


def test_a_server_that_cannot_list_its_tools_can_still_be_called(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
    broken = {"on": "tools/list", "error": {"code": -32603, "message": "no list today"}}
    configure(it=fault_server(faults=[broken]))

    assert invoke("call", "it", "echo", "text=hello").stdout == "hello\n"


def test_wrong_arguments_start_no_server(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state"))

    assert invoke("call", "it", "echo", "{oops").exit_code == 2
    assert read_state(tmp_path / "state").starts == 0


def test_a_disabled_server_that_is_named_is_called(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server | {"disabled": True})

    assert invoke("call", "demo", "echo", "text=hello").stdout == "hello\n"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "a\x1b[2Jb\nc"}, "ab\nc\n"),
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "[image, image/png, 3 bytes]\n"),
        ({"type": "audio", "data": "AAAA"}, "[audio, of unknown type, 3 bytes]\n"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "[resource file:///a]\n"),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}, "inside\n"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}}, "[resource a:b]\n"),
        ({"type": "hologram", "x": 1}, '{"type": "hologram", "x": 1}\n'),
        ("no block", '"no block"\n'),
    ],
)
def test_each_kind_of_content_is_readable(
    block: Any,
    shown: str,
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    fault_server: Callable[..., dict[str, Any]],
) -> None:
    configure(it=fault_server(faults=[{"tool": "echo", "result": {"content": [block]}}]))

    assert invoke("call", "it", "echo", "text=x").stdout == shown


def test_structured_content_stands_in_for_text(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
    result = {"content": [], "structuredContent": {"answer": 42}}
    configure(it=fault_server(faults=[{"tool": "echo", "result": result}]))

    assert json.loads(invoke("call", "it", "echo", "text=x").stdout) == {"answer": 42}


def test_progress_is_a_bar_for_who_looks_and_nothing_for_a_pipe(
    demo: None, gaia_argv: list[str], environment: dict[str, str], run: Callable[..., Any]
) -> None:
    words = ["call", "demo", "sleep", "seconds=0.5"]
    controller, terminal = pty.openpty()
    with open(controller, "rb", buffering=0) as screen:
        ran = subprocess.run(
            [*gaia_argv, "mcp", *words],
            env=environment | {"TERM": "xterm-256color"},
            stdout=subprocess.PIPE,
            stderr=terminal,
            encoding="utf-8",
        )
        os.close(terminal)
        drawn = screen.read(1 << 20).decode()

    assert ran.stdout == run(*words).stdout == "slept 0.5 s\n"
    assert "sleep" in drawn
    assert "━" in drawn
    assert run(*words).stderr == ""


@pytest.mark.parametrize("words", [["@arguments.json"], ["text=@note.md"]])
def test_arguments_may_come_from_a_file(
    words: list[str], demo: None, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "arguments.json").write_text('{"text": "# A note"}')
    (tmp_path / "note.md").write_text("# A note")

    assert invoke("call", "demo", "echo", *words).stdout == "# A note\n"


FORM = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "count": {"type": "integer", "minimum": 1},
        "note": {"type": "string", "default": "none"},
    },
    "required": ["size", "count"],
}


class TestQuestionsOfTheServer:
    @pytest.fixture(autouse=True)
    def configured(self, configure: Callable[..., Path], fault_server: Callable[..., dict[str, Any]]) -> None:
        """Its tool asks for a form, and returns the answer."""
        question = {
            "method": "elicitation/create",
            "params": {"message": "Which\none?", "requestedSchema": FORM},
        }
        faults = [{"tool": "client_answers", "server_requests": [question]}]
        # In the stateless era, servers do not send requests.
        configure(it=fault_server(faults=faults) | {"protocol": "handshake"})

    def test_are_answered_at_the_terminal(self, at_terminal: Callable[..., Any]) -> None:
        screen = at_terminal(
            "call",
            "it",
            "client_answers",
            answers=[("[y/N]", "y\r"), ("size", "Large\r"), ("size", "medium\r"), ("count", "2\r"), ("note", "\r")],
        )

        assert screen.exit_code == 0
        assert "The server 'it' asks:\n    Which\n    one?\n" in screen.text
        assert "2. Medium" in screen.text
        assert "'Large' is not one of the choices" in screen.text
        (answer,) = json.loads(screen.text[screen.text.rindex("[{") :].replace("\n", ""))
        assert answer["result"]["content"] == {"size": "m", "count": 2, "note": "none"}

    def test_are_left_by_ctrl_c_with_the_server_stopped(self, at_terminal: Callable[..., Any]) -> None:
        screen = at_terminal("call", "it", "client_answers", answers=[("[y/N]", "y\r"), ("size", "\x03")])

        assert screen.exit_code == 130
        assert "Traceback" not in screen.text

    def test_are_declined_without_a_terminal(self, invoke: Callable[..., Any]) -> None:
        result = invoke("call", "it", "client_answers")

        assert result.exit_code == 0
        assert '"action": "decline"' in result.stdout
        assert "asked a question, which was declined" in " ".join(result.stderr.split())

    def test_are_declined_for_programs(self, invoke: Callable[..., Any]) -> None:
        result = invoke("call", "it", "client_answers", "--json")

        assert "decline" in json.loads(result.stdout)["content"][0]["text"]
        assert "asked a question, which was declined" in " ".join(result.stderr.split())
