"""Others' text, for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.untrusted_text import clean, escaped, one_line


class TestClean:
    @pytest.mark.parametrize("hidden", ["\u200b", "\u2060", "\ufeff", "\U000e0041", "\ufff9", "\u202e"])
    def test_what_only_a_program_would_see_is_removed(self, hidden: str) -> None:
        assert clean(f"a{hidden}b") == "ab"

    def test_what_scripts_and_emoji_need_stays(self) -> None:
        text = "क\u094d\u200dष 👩\u200d💻 naïve"
        assert clean(text) == text

    def test_one_line_is_not_endless(self) -> None:
        assert len(one_line("word " * 1_000_000)) == 2001


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

    def test_what_looks_escaped_is_told_from_what_is(self) -> None:
        assert escaped("\\u{202e}") != escaped("\u202e")

    @given(st.text(), st.text())
    def test_no_two_texts_look_the_same(self, one: str, other: str) -> None:
        assert (escaped(one) == escaped(other)) == (one == other)

    @given(st.text(st.characters()))
    def test_all_of_it_can_be_seen(self, text: str) -> None:
        assert all(character.isprintable() or character == "\n" for character in escaped(text))
