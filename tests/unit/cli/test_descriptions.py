"""What servers offer, as text for people: hostile and malformed texts do no harm."""

from typing import Any

import pytest
from rich.console import RenderableType

from gaia.cli import descriptions, terminal
from gaia.cli.descriptions import readable, readable_resource
from gaia.mcp.tools.tool import MCPTool

HOSTILE = "[red]\x1b[2Jname[/red]\nsecond \u202e"
HARMLESS = "[red]name[/red] second"


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def lines(shown: RenderableType, capsys: pytest.CaptureFixture[str]) -> list[str]:
    terminal.show(shown)
    return capsys.readouterr().out.splitlines()


def test_hostile_texts_of_a_tool_are_text_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    schema = {"properties": {HOSTILE: {"type": HOSTILE, "default": HOSTILE, "enum": [HOSTILE], "description": HOSTILE}}}
    tool = MCPTool(HOSTILE, HOSTILE, schema, {"x": HOSTILE}, {HOSTILE: HOSTILE}, HOSTILE)
    for shown in (descriptions.tool_sections([(tool, True)]), descriptions.tool_details(tool, blocked=False)):
        written = lines(shown, capsys)

        assert written[0].startswith(HARMLESS)
        assert not {char for line in written for char in line if not char.isprintable()}
        (parameter,) = [line for line in written if line.startswith("    [red]name[/red] second  ")]
        assert "default" in parameter


def test_blocked_tools_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    tool = MCPTool("add", "Adds.", {})

    assert lines(descriptions.tool_sections([(tool, True)]), capsys)[0] == "add (blocked)"
    assert lines(descriptions.tool_details(tool, blocked=True), capsys)[0] == "add (blocked)"


@pytest.mark.parametrize("schema", [{"properties": 5}, {"properties": {"a": 5, "b": {"enum": 5}}}, {"properties": {}}])
def test_malformed_schemas_are_shown_as_far_as_they_go(
    schema: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(descriptions.tool_sections([(MCPTool("add", "", schema), False)]), capsys)[0] == "add"


def test_long_defaults_and_choices_are_cut_in_an_overview_only(capsys: pytest.CaptureFixture[str]) -> None:
    schema = {"properties": {"a": {"type": "string", "default": "d" * 500, "enum": ["e" * 500]}}}
    tool = MCPTool("add", "", schema)
    overview = "".join(lines(descriptions.tool_sections([(tool, False)]), capsys))
    details = "".join(lines(descriptions.tool_details(tool, blocked=False), capsys))

    assert len(overview) < 300
    assert "d" * 500 in details
    assert "e" * 500 in details


def test_resources_and_templates_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        {"uri": "a:1", "name": HOSTILE, "mimeType": "text/plain", "description": "First.\n\nSecond."},
        {"uriTemplate": "a:{x}", "name": "many"},
    ]
    header, resource, template = lines(descriptions.resource_table(found), capsys)

    assert header.split() == ["uri", "name", "type", "description"]
    assert resource.split() == ["a:1", *HARMLESS.split(), "text/plain", "First.", "…"]
    assert template.split() == ["a:{x}", "many", "-", "-"]


def test_prompts_have_their_arguments_below_them(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [{"name": "who", "required": True, "description": "A name."}, {"name": "how"}, "nonsense"]
    shown = lines(descriptions.prompt_sections([{"name": "greet", "arguments": arguments}, {"name": HOSTILE}]), capsys)

    assert shown == ["greet", "    who  required  A name.", "    how  optional", "", HARMLESS]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"uri": "a:b", "text": "inside"}, "inside"),
        ({"uri": "a:b", "blob": "AAAA", "mimeType": "image/png"}, "[data, image/png, 3 bytes]"),
        ({"uri": "a:b", "blob": "AA=="}, "[data, of unknown type, 1 bytes]"),
        ({"uri": "a:b"}, '{"uri": "a:b"}'),
        (5, "5"),
    ],
)
def test_contents_of_resources_are_text_or_named(content: Any, shown: str) -> None:
    assert readable_resource(content) == shown


def test_bytes_of_blocks_are_counted() -> None:
    assert readable({"type": "image", "data": "AAA=", "mimeType": "image/png"}) == "[image, image/png, 2 bytes]"
