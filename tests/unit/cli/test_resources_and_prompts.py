"""`gaia mcp resources`, `read`, `prompts` and `prompt`, against real servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Read = Callable[..., Any]


@pytest.fixture
def feature(configure: Callable[..., Path], feature_server: dict[str, Any]) -> None:
    """The server with resources and prompts is configured as ``feature``."""
    configure(feature=feature_server)


@pytest.fixture
def read(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> Read:
    """Read a resource that has these contents."""

    def read_contents(contents: Any, *words: object) -> Any:
        faults = [{"on": "resources/read", "result": {"contents": contents}}]
        configure(it=fault_server(capabilities={"resources": {}}, faults=faults))
        return invoke("read", "it", "a:b", *words)

    return read_contents


def test_resources_are_listed_with_a_command_to_read_one(feature: None, invoke: Callable[..., Any]) -> None:
    result = invoke("resources", "feature")
    header, greeting, about, hint = result.stdout.splitlines()

    assert header.split() == ["uri", "name", "type", "description"]
    assert greeting.split() == ["demo://greeting", "greeting", "text/plain", "-"]
    assert about.startswith("demo://about")
    assert hint == "Read one: gaia mcp read feature demo://greeting"


def test_programs_get_them_in_the_words_of_the_protocol(feature: None, invoke_json: Callable[..., Any]) -> None:
    document = invoke_json("resources", "feature")

    assert document["resources"][0]["mimeType"] == "text/plain"
    assert document["resourceTemplates"] == []
    assert invoke_json("read", "feature", "demo://greeting")["contents"][0]["text"].startswith("Hello")


def test_a_server_may_know_no_templates(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
) -> None:
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
    assert read([{"uri": "a:b", "text": "a\x1b[2Jb"}, {"uri": "a:c", "blob": "AAAA"}]).stdout == (
        "ab\n[data, of unknown type, 3 bytes]\n"
    )


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


def test_a_resource_that_does_not_exist_is_an_error(feature: None, invoke: Callable[..., Any]) -> None:
    result = invoke("read", "feature", "demo://nowhere")

    assert result.exit_code == 1
    assert "resource not found" in result.stderr


def test_prompts_are_listed_with_their_arguments(feature: None, invoke: Callable[..., Any]) -> None:
    assert invoke("prompts", "feature").stdout.splitlines() == [
        "greet",
        "  Ask for a greeting of a person, in a language.",
        "    name      required  Who is greeted",
        "    language  optional  Language of the greeting; English by default",
    ]


def test_programs_get_prompts_in_the_words_of_the_protocol(feature: None, invoke_json: Callable[..., Any]) -> None:
    (prompt,) = invoke_json("prompts", "feature")["prompts"]

    assert prompt["arguments"][0]["required"] is True
    assert invoke_json("prompt", "feature", "greet", "name=Ann")["messages"][0]["role"] == "user"


def test_a_prompt_is_filled_in_with_text(feature: None, invoke: Callable[..., Any], tmp_path: Path) -> None:
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
def test_what_cannot_be_meant_is_a_usage_error(
    words: list[str], said: str, feature: None, invoke: Callable[..., Any]
) -> None:
    result = invoke("prompt", "feature", *words)

    assert result.exit_code == 2
    assert said in result.stderr


def test_messages_are_shown_without_what_a_terminal_acts_on(
    configure: Callable[..., Path], invoke: Callable[..., Any], fault_server: Callable[..., dict[str, Any]]
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
    words: list[str],
    written: tuple[int, str, str],
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    demo_server: dict[str, Any],
) -> None:
    configure(demo=demo_server)
    result = invoke(*words)

    assert (result.exit_code, result.stdout, result.stderr) == written
