"""`gaia mcp prompts` and `gaia mcp prompt`, against real servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def feature(configure: Callable[..., Path], feature_server: dict[str, Any]) -> None:
    """The server with a prompt is configured as ``feature``."""
    configure(feature=feature_server)


def test_prompts_are_listed_with_their_arguments(feature: None, invoke: Callable[..., Any]) -> None:
    assert invoke("prompts", "feature").stdout.splitlines() == [
        "greet",
        "  Ask for a greeting of a person, in a language.",
        "    name      required  Who is greeted",
        "    language  optional  Language of the greeting; English by default",
    ]


def test_programs_get_them_in_the_words_of_the_protocol(feature: None, invoke_json: Callable[..., Any]) -> None:
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


def test_a_server_without_prompts_is_no_error(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server)
    result = invoke("prompts", "demo")

    assert (result.exit_code, result.stdout) == (0, "demo offers no prompts\n")


def test_nothing_can_be_got_from_a_server_without_prompts(
    configure: Callable[..., Path], invoke: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server)
    result = invoke("prompt", "demo", "greet")

    assert (result.exit_code, result.stderr) == (1, "Error: demo offers no prompts\n")


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
