"""`gaia mcp call`, `resources`, `read`, `prompts` and `prompt`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import require
from tests.servers.state_file import read_state
from tests.unit.cli.fixture_types import Configure, FaultServer, Invoke, Json, Told


@pytest.fixture
def demo(configure: Configure, demo_server: Json) -> None:
    """The demo server is configured as ``demo``."""
    configure(demo=demo_server)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["add", "a=1", "b=2.5"], '{"sum": 3.5}\n'),
        (["add", '{"a": 1, "b": 2.5}'], '{"sum": 3.5}\n'),
        (["echo", "text=5"], "5\n"),
        (["echo", "@arguments.json"], "# A note\n"),
        (["echo", "text=@note.md"], "# A note\n"),
    ],
    ids=["assignments", "one object", "a string by the schema", "a file with the object", "a file with a text"],
)
def test_arguments(words: list[str], printed: str, demo: None, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_text('{"text": "# A note"}')
    (tmp_path / "note.md").write_text("# A note")
    result = invoke("call", "demo", *words)
    assert (result.exit_code, result.stdout, result.stderr) == (0, printed, "")


def test_json_is_the_result_as_the_server_sent_it(demo: None, invoke_json: Invoke) -> None:
    assert invoke_json("call", "demo", "add", "a=1", "b=2") == {
        "content": [{"type": "text", "text": '{"sum": 3}'}],
        "isError": False,
        "structuredContent": {"sum": 3},
    }


@pytest.mark.parametrize("sandboxed", [False, True])
def test_an_error_of_the_tool_is_printed_apart_and_says_that_it_is_in_a_sandbox(
    sandboxed: bool, configure: Configure, demo_server: Json, invoke: Invoke
) -> None:
    if sandboxed:
        require("bubblewrap")
        demo_server["sandbox"] = {"read": [sys.prefix, str(Path(__file__).parents[3])]}
    configure(demo=demo_server)
    result = invoke("call", "demo", "fail", "message=out of paper")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "out of paper" in result.stderr
    assert ("It runs in a sandbox" in result.stderr) is sandboxed


def test_arguments_that_the_server_refuses_are_explained(demo: None, failed: Told) -> None:
    error = failed("call", "demo", "add", "a=1")
    assert "missing argument 'b'" in error
    assert '"required"' in error


def test_a_crash_says_that_the_server_may_have_acted(demo: None, failed: Told) -> None:
    error = failed("call", "demo", "crash")
    assert "exited with code 1" in error
    assert "The server may have acted" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "error_type"),
    [(["crash"], "server_crashed"), (["sleep", "seconds=60", "--timeout", "0.2"], "timeout")],
    ids=["a crash", "the timeout, which ends the call"],
)
def test_a_failed_call_is_json_too(words: list[str], error_type: str, demo: None, invoke: Invoke) -> None:
    result = invoke("call", "demo", *words, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_type"]) == (1, error_type)


def test_an_unknown_tool_is_a_usage_error_that_lists_the_known_ones(demo: None, refused: Told) -> None:
    assert "did you mean 'add'?" in refused("call", "demo", "ad", "a=1", "b=2")


def test_a_denied_tool_never_reaches_the_server(
    configure: Configure, failed: Told, fault_server: FaultServer, tmp_path: Path
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state") | {"disabledTools": ["echo"]})
    error = failed("call", "it", "echo", "text=hello")
    assert """is denied by "echo" in "disabledTools" of its entry""" in error
    assert "mcp_servers.json" in error
    assert read_state(tmp_path / "state").calls == ()


def test_a_server_that_cannot_list_its_tools_can_still_be_called(
    configure: Configure, invoke: Invoke, fault_server: FaultServer
) -> None:
    broken = {"on": "tools/list", "error": {"code": -32603, "message": "no list today"}}
    configure(it=fault_server(faults=[broken]))
    assert invoke("call", "it", "echo", "text=hello").stdout == "hello\n"


def test_wrong_arguments_start_no_server(
    configure: Configure, invoke: Invoke, fault_server: FaultServer, tmp_path: Path
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state"))
    assert invoke("call", "it", "echo", "{oops").exit_code == 2
    assert read_state(tmp_path / "state").starts == 0


def test_a_disabled_server_that_is_named_is_called(configure: Configure, invoke: Invoke, demo_server: Json) -> None:
    configure(demo=demo_server | {"disabled": True})
    assert invoke("call", "demo", "echo", "text=hello").stdout == "hello\n"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            {
                "content": [
                    {"type": "text", "text": "a\x1b[2Jb\nc"},
                    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                    {"type": "audio", "data": "AAAA"},
                    {"type": "resource_link", "uri": "file:///a", "name": "a"},
                    {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
                    {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}},
                    {"type": "hologram", "x": 1},
                    "no block",
                ]
            },
            (
                "ab\nc\n[image, image/png, 3 bytes]\n[audio, of unknown type, 3 bytes]\n[resource file:///a]\n"
                'inside\n[resource a:b]\n{"type": "hologram", "x": 1}\n"no block"\n'
            ),
        ),
        ({"content": [], "structuredContent": {"answer": 42}}, '{\n  "answer": 42\n}\n'),
    ],
    ids=["each kind of content", "structured content stands in for text"],
)
def test_a_result_is_readable(
    result: Json, shown: str, configure: Configure, invoke: Invoke, fault_server: FaultServer
) -> None:
    configure(it=fault_server(faults=[{"tool": "echo", "result": result}]))
    assert invoke("call", "it", "echo", "text=x").stdout == shown


def test_progress_is_a_bar_for_who_looks_and_nothing_for_a_pipe(
    demo: None, at_terminal: Invoke, invoke: Invoke
) -> None:
    words = ["call", "demo", "sleep", "seconds=0.3"]
    screen, piped = at_terminal(*words), invoke(*words)
    assert "━" in screen.text
    assert screen.text.endswith("slept 0.3 s\n")
    assert (piped.stdout, piped.stderr) == ("slept 0.3 s\n", "")


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
    def configured(self, configure: Configure, fault_server: FaultServer) -> None:
        """Its tool asks for a form, and returns the answer."""
        question = {"method": "elicitation/create", "params": {"message": "Which\none?", "requestedSchema": FORM}}
        faults = [{"tool": "client_answers", "server_requests": [question]}]
        # In the stateless era, servers do not send requests.
        configure(it=fault_server(faults=faults) | {"protocol": "handshake"})

    def test_are_answered_at_the_terminal(self, at_terminal: Invoke) -> None:
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

    def test_are_left_by_ctrl_c_with_the_server_stopped(self, at_terminal: Invoke) -> None:
        screen = at_terminal("call", "it", "client_answers", answers=[("[y/N]", "y\r"), ("size", "\x03")])
        assert screen.exit_code == 130
        assert "Traceback" not in screen.text

    @pytest.mark.parametrize("options", [[], ["--json"]], ids=["without a terminal", "for programs"])
    def test_are_declined(self, options: list[str], invoke: Invoke) -> None:
        result = invoke("call", "it", "client_answers", *options)
        text = json.loads(result.stdout)["content"][0]["text"] if options else result.stdout
        assert (result.exit_code, '"action": "decline"' in text) == (0, True)
        assert "asked a question, which was declined" in " ".join(result.stderr.split())


Read = Callable[..., Any]


@pytest.fixture
def feature(configure: Configure, feature_server: Json) -> None:
    """The server with resources and prompts is configured as ``feature``."""
    configure(feature=feature_server)


@pytest.fixture
def read(configure: Configure, invoke: Invoke, fault_server: FaultServer) -> Read:
    """Read a resource that has these contents."""

    def read_contents(contents: Any, *words: object) -> Any:
        faults = [{"on": "resources/read", "result": {"contents": contents}}]
        configure(it=fault_server(capabilities={"resources": {}}, faults=faults))
        return invoke("read", "it", "a:b", *words)

    return read_contents


def test_resources_are_listed_with_a_command_to_read_one(feature: None, invoke: Invoke) -> None:
    result = invoke("resources", "feature")
    header, greeting, about, hint = result.stdout.splitlines()
    assert header.split() == ["uri", "name", "type", "description"]
    assert greeting.split() == ["demo://greeting", "greeting", "text/plain", "-"]
    assert about.startswith("demo://about")
    assert hint == "Read one: gaia mcp read feature demo://greeting"


def test_programs_get_resources_and_prompts_in_the_words_of_the_protocol(feature: None, invoke_json: Invoke) -> None:
    document = invoke_json("resources", "feature")
    assert (document["resources"][0]["mimeType"], document["resourceTemplates"]) == ("text/plain", [])
    assert invoke_json("read", "feature", "demo://greeting")["contents"][0]["text"].startswith("Hello")
    (prompt,) = invoke_json("prompts", "feature")["prompts"]
    assert prompt["arguments"][0]["required"] is True
    assert invoke_json("prompt", "feature", "greet", "name=Ann")["messages"][0]["role"] == "user"


def test_a_server_may_know_no_templates(configure: Configure, invoke: Invoke, fault_server: FaultServer) -> None:
    hostile = {"uri": "a:$(touch owned)\x1b[2J", "name": "n"}
    faults = [
        {"on": "resources/list", "result": {"resources": [hostile]}},
        {"on": "resources/templates/list", "error": {"code": -32601, "message": "unknown"}},
    ]
    configure(it=fault_server(capabilities={"resources": {}}, faults=faults))
    result = invoke("resources", "it")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "Read one: gaia mcp read it 'a:$(touch owned)'"
    assert "\x1b" not in result.stdout


def test_a_text_is_printed_without_what_a_terminal_acts_on(read: Read) -> None:
    contents = [{"uri": "a:b", "text": "a\x1b[2Jb"}, {"uri": "a:c", "blob": "AAAA"}]
    assert read(contents).stdout == "ab\n[data, of unknown type, 3 bytes]\n"


@pytest.mark.parametrize(
    ("content", "saved"), [({"text": "a\x1b[2Jb"}, b"a\x1b[2Jb"), ({"blob": "AAH/"}, b"\x00\x01\xff")]
)
def test_output_saves_it_byte_for_byte(content: dict[str, str], saved: bytes, read: Read, tmp_path: Path) -> None:
    result = read([{"uri": "a:b", **content}], "--output", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == saved
    assert result.stdout == f"Saved {len(saved)} bytes in {tmp_path / 'file'}\n"


@pytest.mark.parametrize(
    ("contents", "file", "exit_code", "said"),
    [
        ([], "file", 1, "a:b has 0 contents"),
        ([{}, {}], "file", 1, "a:b has 2 contents"),
        ([{"blob": "?"}], "file", 1, "no Base64"),
        ([{"uri": "a:b"}], "file", 1, "neither text nor bytes"),
        ([{"text": ""}], "no/such/folder", 2, "No such file"),
    ],
)
def test_what_cannot_be_saved_is_told(
    contents: Any, file: str, exit_code: int, said: str, read: Read, tmp_path: Path
) -> None:
    result = read(contents, "-o", tmp_path / file)
    assert result.exit_code == exit_code
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / file).exists()


def test_a_resource_that_does_not_exist_is_an_error(feature: None, failed: Told) -> None:
    assert "resource not found" in failed("read", "feature", "demo://nowhere")


def test_prompts_are_listed_with_their_arguments(feature: None, invoke: Invoke) -> None:
    assert invoke("prompts", "feature").stdout.splitlines() == [
        "greet",
        "  Ask for a greeting of a person, in a language.",
        "    name      required  Who is greeted",
        "    language  optional  Language of the greeting; English by default",
    ]


def test_a_prompt_is_filled_in_with_text(feature: None, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "name.txt").write_text("5")
    result = invoke("prompt", "feature", "greet", "name=@name.txt", "language=german")
    assert (result.exit_code, result.stdout) == (0, "user:\n  Greet 5, beginning with 'Hallo'.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gret"], "did you mean 'greet'?"),
        (["greet"], "the prompt 'greet' requires 'name'"),
        (["greet", "name"], "'name' is neither key=value"),
        (["greet", '{"name": "Ann"}'], "neither key=value"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], said: str, feature: None, refused: Told) -> None:
    assert said in refused("prompt", "feature", *words)


def test_messages_are_shown_without_what_a_terminal_acts_on(
    configure: Configure, invoke: Invoke, fault_server: FaultServer
) -> None:
    messages = [
        {"role": "as\x1b[2J\nuser", "content": {"type": "text", "text": "a\x1b[2Jb\nuser:"}},
        {"content": {"type": "image", "data": "AAAA"}},
        "nonsense",
    ]
    faults = [
        {"on": "prompts/list", "result": {"prompts": []}},
        {"on": "prompts/get", "result": {"messages": messages}},
    ]
    configure(it=fault_server(capabilities={"prompts": {}}, faults=faults))

    assert invoke("prompt", "it", "unlisted").stdout == (
        'as user:\n  ab\n  user:\nunknown:\n  [image, of unknown type, 3 bytes]\nunknown:\n  "nonsense"\n'
    )


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["resources", "demo"], (0, "demo offers no resources\n", "")),
        (["read", "demo", "a:b"], (1, "", "Error: demo offers no resources\n")),
        (["prompts", "demo"], (0, "demo offers no prompts\n", "")),
        (["prompt", "demo", "greet"], (1, "", "Error: demo offers no prompts\n")),
    ],
)
def test_a_server_that_has_none_says_so(
    words: list[str], written: tuple[int, str, str], configure: Configure, invoke: Invoke, demo_server: Json
) -> None:
    configure(demo=demo_server)
    result = invoke(*words)
    assert (result.exit_code, result.stdout, result.stderr) == written
