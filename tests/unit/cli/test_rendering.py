"""What people see: hostile and malformed texts do no harm, and nothing is cut off that matters."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from gaia.cli import descriptions, rendering, terminal
from gaia.cli.descriptions import readable, readable_resource
from gaia.cli.rendering import Step, bar, list_text, microseconds, milliseconds, nothing_left, show_step, sparkline
from gaia.mcp.doctor import Check, Verdict
from gaia.mcp.doctor.examination import NOT_REACHED
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ReplicaStatus, ServerStatus
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.untrusted_text import clean, one_line

Lines = Callable[[RenderableType], list[str]]

HOSTILE = "[red]\x1b[2Jname[/red]\nsecond \u202e"
HARMLESS = "[red]name[/red] second"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """Show a table or a text; returns its lines."""

    def shown(table: RenderableType) -> list[str]:
        terminal.show(table)
        return capsys.readouterr().out.splitlines()

    return shown


@pytest.mark.parametrize(
    ("values", "ascii_only", "drawn"),
    [
        pytest.param([0.0, 1.0, 2.0, 4.0], False, "▁▃▅█", id="the highest value is a full bar"),
        pytest.param([1.0, None, 1.0], False, "█✗█", id="what was not answered is a cross"),
        pytest.param([*range(100)], False, sparkline([*range(88, 100)]), id="only the last values are drawn"),
        pytest.param([1.0, 4.0, None], True, ".#x", id="terminals of few characters get plain ones"),
        pytest.param([], False, "", id="there may be nothing to draw"),
        pytest.param([0.0, None], False, "▁✗", id="nor a highest value"),
    ],
)
def test_a_sparkline(values: list[float | None], ascii_only: bool, drawn: str) -> None:
    assert sparkline(values, ascii_only=ascii_only) == drawn


class TestFigures:
    @pytest.mark.parametrize(
        ("seconds", "shown"), [(None, "-"), (0.0, "0.00 ms"), (0.00999, "9.99 ms"), (0.01, "10 ms"), (61.0, "61000 ms")]
    )
    def test_short_times_have_more_digits(self, seconds: float | None, shown: str) -> None:
        assert milliseconds(seconds) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"), [(0.0000012, "1 µs"), (0.000999, "999 µs"), (0.0009996, "1.00 ms"), (0.5, "500 ms")]
    )
    def test_the_shortest_are_in_microseconds(self, seconds: float, shown: str) -> None:
        assert microseconds(seconds) == shown

    @pytest.mark.parametrize(
        ("share", "width", "drawn"),
        [(0.0, 8, ""), (0.0001, 8, "▏"), (0.5, 8, "████"), (1.0, 8, "████████"), (0.5, 1, "▌"), (9 / 16, 2, "█▏")],
    )
    def test_a_bar_is_as_long_as_its_share_and_never_invisible(self, share: float, width: int, drawn: str) -> None:
        assert bar(share, width) == drawn


class TestTables:
    def test_names_of_servers_are_text_of_one_line(self, lines: Lines) -> None:
        table = rendering.server_table([{"name": HOSTILE, "state": "ready", "tools": None, "source": "x" * 500}])
        header, row = lines(table)
        assert header.split() == ["name", "state", "tools", "source"]
        assert row.startswith(f"{HARMLESS} ")
        assert row.split()[-2:] == ["-", "x" * 500]

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            ({"state": "starting", "tools": None, "waited": 5.0, "sandbox": True}, "starting after 5 s, in a sandbox"),
            ({"state": "ready", "tools": 3, "waited": None, "standby": True}, "ready, with a stand-by"),
            ({"state": "ready", "tools": 3, "waited": None, "node": "worker-1"}, "ready on node worker-1 "),
        ],
        ids=["not answered yet", "with a stand-by", "placed"],
    )
    def test_a_state_says_how_and_where(self, found: dict[str, Any], said: str, lines: Lines) -> None:
        assert lines(rendering.server_table([{"name": "it", "source": "f", **found}]))[1].startswith(f"it    {said}")

    def test_a_status_has_its_last_error_whole_unless_it_is_live(self, lines: Lines) -> None:
        status = ServerStatus(name="it", state=ServerState.FAILED, last_error="no licence " * 40, latency_p50=0.002)
        (row,) = lines(rendering.status_table([(status, [0.1, None])], width=200))[1:]
        live = lines(rendering.status_table([(status, [0.1, None])], width=200, live=True, ascii_only=True))[1]
        assert row.count("no licence") == 40
        assert row.split()[:7] == ["it", "failed", "0", "0", "0", "0", "2.00"]
        assert "#x" in live
        assert "#x" not in row

    @pytest.mark.parametrize("live", [True, False])
    @pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
    def test_a_narrow_terminal_keeps_the_last_error(
        self, width: int, live: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        looks = [
            (
                ServerStatus(name="filesystem", state=ServerState.READY, latency_p50=0.0012, latency_p95=0.012),
                [0.1] * 12,
            ),
            (ServerStatus(name="git", state=ServerState.RESTARTING, last_error="the server exited with code 1"), []),
        ]
        Console(width=width).print(rendering.status_table(looks, width=width, live=live))
        shown = capsys.readouterr().out.splitlines()

        assert len(shown) == 3
        assert "the server exited with code" in shown[2]
        assert [word for word in ("name", "state", "last error") if word not in shown[0]] == []
        assert "restarting" in shown[2]
        assert ("p50" in shown[0]) == (width >= 120)

    def test_where_placed_servers_run_is_shown_if_there_are_any(self, lines: Lines) -> None:
        def on(*nodes: str) -> tuple[ReplicaStatus, ...]:
            places = [PlacementStatus(node=node, node_id=node, id="1", host_pid=1) for node in nodes]
            return tuple(
                ReplicaStatus(replica=number, state=ServerState.READY, placement=place)
                for number, place in enumerate(places, 1)
            )

        here = ServerStatus(name="here", state=ServerState.READY)
        placed = ServerStatus(name="placed", state=ServerState.READY, placement=on("worker-1")[0].placement)
        many = ServerStatus(name="many", state=ServerState.READY, replicas=on("worker-1", "worker-2", "worker-2"))

        header, *rows = lines(rendering.status_table([(status, []) for status in (here, placed, many)], width=200))
        assert header.split()[:3] == ["name", "state", "node"]
        assert [row.split()[2] for row in rows[:2]] == ["-", "worker-1"]
        assert "3 replicas on 2 nodes" in rows[2]
        assert "node" not in lines(rendering.status_table([(here, [])], width=200))[0]

    def test_a_step_that_failed_is_marked(self, lines: Lines) -> None:
        steps = [
            {"name": "spawn", "ok": True, "seconds": 0.1, "detail": HOSTILE},
            {"name": "handshake", "ok": False, "seconds": None, "detail": "failed"},
        ]
        _, spawn, handshake = lines(rendering.step_table(steps))
        assert spawn.split(maxsplit=4) == ["✓", "spawn", "100", "ms", HARMLESS]
        assert handshake.split() == ["✗", "handshake", "-", "failed"]

    def test_a_remedy_stands_below_its_check_and_the_unreached_are_one_line(self, lines: Lines) -> None:
        checks = [
            Check("start", Verdict.FAIL, "no such program", "Install it."),
            Check("handshake", Verdict.SKIPPED, NOT_REACHED),
            Check("tools", Verdict.SKIPPED, NOT_REACHED),
        ]

        start, remedy, rest = lines(rendering.check_table(checks))
        assert start.split(maxsplit=2) == ["✗", "start", "no such program"]
        assert remedy.strip() == "→ Install it."
        assert rest.split(maxsplit=2) == ["-", "handshake", "this and what follows: not reached"]

    def test_latencies_are_in_their_columns(self, lines: Lines) -> None:
        header, row = lines(rendering.latency_table([("one caller", (0.0001, 0.0002, 0.0003, 0.5), 12345.6)]))
        assert header.split() == ["p50", "p95", "p99", "longest", "calls/s"]
        assert row.split() == ["one", "caller", "100", "µs", "200", "µs", "300", "µs", "500", "ms", "12,346"]

    def test_a_diff_keeps_its_lines(self) -> None:
        lines = ["@@ tool @@", "-old [bold]", "+new\x1b[2J", " same"]
        assert rendering.difference_text(lines).plain.splitlines() == ["@@ tool @@", "-old [bold]", "+new", " same"]


def test_a_step_is_shown_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    show_step(Step("one", True, ["It works", "in no time"], {}))
    show_step(Step("two", False, ["It does not"], {}))
    assert capsys.readouterr().out.splitlines() == ["✓ It works", "    in no time", "✗ It does not"]


@pytest.mark.parametrize("is_left", [True, False])
def test_processes_that_are_left_fail(is_left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: ([], [own]) if is_left else ([own], []))
    step: Any = nothing_left({own})
    assert (step.ok, step.facts["left"]) == (not is_left, [own.pid] if is_left else [])
    assert step.facts["pids"] == [own.pid]
    assert list_text([1, 2]) == "1, 2"


def test_hostile_texts_of_a_tool_are_text_of_one_line(lines: Lines) -> None:
    schema = {"properties": {HOSTILE: {"type": HOSTILE, "default": HOSTILE, "enum": [HOSTILE], "description": HOSTILE}}}
    tool = MCPTool(HOSTILE, HOSTILE, schema, {"x": HOSTILE}, {HOSTILE: HOSTILE}, HOSTILE)
    for shown in (descriptions.tool_sections([(tool, True)]), descriptions.tool_details(tool, blocked=False)):
        written = lines(shown)

        assert written[0].startswith(HARMLESS)
        assert not {char for line in written for char in line if not char.isprintable()}
        (parameter,) = [line for line in written if line.startswith("    [red]name[/red] second  ")]
        assert "default" in parameter


def test_blocked_tools_are_marked(lines: Lines) -> None:
    tool = MCPTool("add", "Adds.", {})
    assert lines(descriptions.tool_sections([(tool, True)]))[0] == "add (blocked)"
    assert lines(descriptions.tool_details(tool, blocked=True))[0] == "add (blocked)"


@pytest.mark.parametrize("schema", [{"properties": 5}, {"properties": {"a": 5, "b": {"enum": 5}}}, {"properties": {}}])
def test_malformed_schemas_are_shown_as_far_as_they_go(schema: dict[str, object], lines: Lines) -> None:
    assert lines(descriptions.tool_sections([(MCPTool("add", "", schema), False)]))[0] == "add"


def test_long_defaults_and_choices_are_cut_in_an_overview_only(lines: Lines) -> None:
    schema = {"properties": {"a": {"type": "string", "default": "d" * 500, "enum": ["e" * 500]}}}
    tool = MCPTool("add", "", schema)
    overview = "".join(lines(descriptions.tool_sections([(tool, False)])))
    details = "".join(lines(descriptions.tool_details(tool, blocked=False)))
    assert len(overview) < 300
    assert "d" * 500 in details
    assert "e" * 500 in details


def test_resources_and_templates_are_one_line_each(lines: Lines) -> None:
    found = [
        {"uri": "a:1", "name": HOSTILE, "mimeType": "text/plain", "description": "First.\n\nSecond."},
        {"uriTemplate": "a:{x}", "name": "many"},
    ]
    header, resource, template = lines(descriptions.resource_table(found))

    assert header.split() == ["uri", "name", "type", "description"]
    assert resource.split() == ["a:1", *HARMLESS.split(), "text/plain", "First.", "…"]
    assert template.split() == ["a:{x}", "many", "-", "-"]


def test_prompts_have_their_arguments_below_them(lines: Lines) -> None:
    arguments = [{"name": "who", "required": True, "description": "A name."}, {"name": "how"}, "nonsense"]
    shown = lines(descriptions.prompt_sections([{"name": "greet", "arguments": arguments}, {"name": HOSTILE}]))
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
def test_contents_of_resources_are_text_or_named_with_the_count_of_their_bytes(content: Any, shown: str) -> None:
    assert readable_resource(content) == shown
    assert readable({"type": "image", "data": "AAA=", "mimeType": "image/png"}) == "[image, image/png, 2 bytes]"


HOSTILE_TEXTS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07after",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31mC1",
    "over\rwritten",
    "bell\x07",
    "backspace\x08",
    "\x1b[2J\x1b[H",
    "half\x1b[",
    "left\u202eright",
    "\x1bc",
    "[red]no markup[/red]",
    "lone \ud800 surrogate",
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_cleaned_text_has_nothing_that_a_terminal_acts_on(text: str) -> None:
    cleaned = clean(text)
    assert all(char.isprintable() for char in cleaned)
    cleaned.encode("utf-8")


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_no_text_can_bring_a_control_character_through(text: str) -> None:
    cleaned = clean(text)
    assert not {char for char in cleaned if ord(char) < 0x20 and char not in "\n\t"}
    assert not {char for char in cleaned if 0x7F <= ord(char) <= 0x9F}


def test_line_breaks_and_tabs_stay_in_text_and_go_in_a_line() -> None:
    assert clean("a\n\tb") == "a\n\tb"
    assert one_line("a\n\t b") == "a b"


def test_what_is_said_goes_on_in_indented_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("Error: it ended\nAll is well\x1b[2J\r\nAnd again")
    assert capsys.readouterr().out == "Error: it ended\n  All is well\n  And again\n"


def test_a_pipe_gets_markup_as_text_long_lines_whole_and_no_colours(lines: Lines) -> None:
    assert lines(terminal.text("[bold]not bold[/bold] [/] :smile:")) == ["[bold]not bold[/bold] [/] :smile:"]
    assert lines(terminal.text("word " * 100, "red")) == [("word " * 100).rstrip()]


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_no_color_is_set(
    no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    monkeypatch.setattr(stream, "isatty", lambda: True)
    terminal.show(terminal.text("word", "bold red"))
    assert ("\x1b" in stream.getvalue()) is coloured


def test_json_is_ascii_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b[31m \x9b \u202e ü \ud800"}
    terminal.print_json(value)
    written = capsys.readouterr().out
    assert written.isascii()
    assert "\x1b" not in written
    assert json.loads(written) == value


def test_a_command_to_copy_is_not_broken() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=40, force_terminal=True, color_system=None)
    command = "pip install 'httptools>=0.6.4,<1' 'cryptography>=42' 'pyjwt>=2.13,<3'"
    terminal.say(f"httptools, which is not installed; run: {command}", console=console)
    assert command in shown.getvalue()
