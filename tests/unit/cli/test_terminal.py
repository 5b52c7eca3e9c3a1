"""What commands write is safe for a terminal and readable for programs."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gaia.cli import terminal
from gaia.runtime.untrusted_text import clean, one_line

HOSTILE = [
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


@pytest.mark.parametrize("text", HOSTILE)
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


def test_markup_is_shown_as_the_text_that_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(terminal.text("[bold]not bold[/bold] [/] :smile:"))

    assert capsys.readouterr().out == "[bold]not bold[/bold] [/] :smile:\n"


def test_a_pipe_gets_long_lines_whole_and_no_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    terminal.show(terminal.text("word " * 100, "red"))

    assert capsys.readouterr().out == ("word " * 100).rstrip() + "\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_no_color_is_set(
    no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdout", Terminal())
    terminal.show(terminal.text("word", "bold red"))

    assert ("\x1b" in sys.stdout.getvalue()) is coloured


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
