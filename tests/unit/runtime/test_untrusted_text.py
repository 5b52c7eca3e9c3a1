"""Others' text, for people."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.runtime.untrusted_text import clean, consists_of, escaped, escaped_line, indented, one_line

UNSEEN = "\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\u180b\u00ad\ufe00\ufe0e\ufe0f\U000e0100\U000e01ef\U0001d173\u2065"
"""Letters, marks and others that are not drawn, although their categories are those of characters that are."""


class TestClean:
    @pytest.mark.parametrize(
        "hidden", ["\u200b", "\u2060", "\ufeff", "\U000e0041", "\ufff9", "\u202e", *UNSEEN.replace("\ufe0e\ufe0f", "")]
    )
    def test_what_only_a_program_would_see_is_removed(self, hidden: str) -> None:
        assert clean(f"a{hidden}b") == "ab"

    @pytest.mark.parametrize(
        ("text", "left"),
        [("क\u094d\u200dष 👩\u200d💻 ❤\ufe0f naïve", "क\u094d\u200dष 👩\u200d💻 ❤\ufe0f naïve"), ("a\u2800b", "a b")],
    )
    def test_what_scripts_and_emoji_need_stays_and_a_blank_that_is_a_symbol_is_a_blank(
        self, text: str, left: str
    ) -> None:
        assert clean(text) == left

    @pytest.mark.parametrize(
        "part", ["\x9d", "\x1b]", "\x1b[", "\x1b[0", "\x9b ", "\x1b ", "\x1bX", "\x9d\x1b", "\u200b"], ids=ascii
    )
    def test_it_takes_time_in_proportion_to_the_length(self, part: str) -> None:
        """Where the time grew with the square of the length, this took hours."""
        assert len(clean(part * 300_000 + "\x1bX")) <= 600_000

    def test_one_line_is_not_endless(self) -> None:
        assert len(one_line("word " * 1_000_000)) == 2001


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\x1b[2J", "\n\u200b", "\x0b\n", "\u2028\n"], ids=ascii)
def test_in_an_indented_text_only_the_first_line_is_at_the_edge(end: str) -> None:
    assert indented(f"Error: it ended{end}All is well") == "Error: it ended\n  All is well"


class TestEscaped:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain text,\nin lines", "plain text,\nin lines"),
            ("\x1b[31mred", "\\u{001b}[31mred"),
            ("a\u202eb", "a\\u{202e}b"),
            ("zero\u200bwidth", "zero\\u{200b}width"),
            ("\U000e0041\U000e0042", "\\u{e0041}\\u{e0042}"),
            ("no\u00a0break", "no\\u{00a0}break"),
            ("tab\tcr\r", "tab\\u{0009}cr\\u{000d}"),
            ("hidden\ufe0f", "hidden\\u{fe0f}"),
            ("half \ud800", "half \\u{d800}"),
            ("日本語, Ünïcödé, 👍", "日本語, Ünïcödé, 👍"),
        ],
    )
    def test_what_is_not_seen_is_named(self, text: str, shown: str) -> None:
        assert escaped(text) == shown

    @pytest.mark.parametrize("character", [*UNSEEN, "\u2800"], ids=ascii)
    def test_neither_is_what_is_called_a_letter_and_not_drawn(self, character: str) -> None:
        assert escaped(f"a{character}b") == f"a\\u{{{ord(character):04x}}}b"

    def test_what_looks_escaped_is_told_from_what_is(self) -> None:
        assert escaped("\\u{202e}") != escaped("\u202e")


class TestEscapedLine:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain", "plain"),
            ("two\nlines\r\u2028\x85", "two\\u{000a}lines\\u{000d}\\u{2028}\\u{0085}"),
            ("p\u0430ypal", "p\\u{0430}ypal"),
            ("\u0391pple \u03a9", "\\u{0391}pple \u03a9"),
            ("привет, world, naïve, 日本語", "привет, world, naïve, 日本語"),
        ],
    )
    def test_it_is_one_line_and_no_letter_is_taken_for_another(self, text: str, shown: str) -> None:
        assert escaped_line(text) == shown

    @pytest.mark.parametrize("escape", [escaped, escaped_line])
    @given(one=st.text(st.characters()), other=st.text(st.characters()))
    def test_no_two_texts_look_the_same_and_all_of_it_can_be_seen(
        self, escape: Callable[[str], str], one: str, other: str
    ) -> None:
        assert (escape(one) == escape(other)) == (one == other)
        ends = "\n" if escape is escaped else ""
        assert all(character.isprintable() or character in ends for character in escape(one))


@pytest.mark.parametrize(
    ("parts", "text", "expected"),
    [
        (["a", "b"], "ab", True),
        (["a", "b"], "a-b", True),
        (["a", "b"], "b-a", False),
        (["", ""], "anything", True),
        (["ab", "ba"], "aba", False),
        (["a", "b", "c"], "a-b-c", True),
        (["a", "b", "c"], "a-c", False),
        (["a", "x", "y", "c"], "a-y-x-c", False),
        (["a", "bc", "cd"], "a-bcd", False),
        (["a", "", "a"], "a", False),
    ],
)
def test_the_parts_stand_in_their_order_and_do_not_overlap(parts: list[str], text: str, expected: bool) -> None:
    assert consists_of(text, parts) is expected
