"""What channels carry, and how they say that a server has ended."""

from __future__ import annotations

import pytest

from gaia.mcp.rpc.channel import Ending, Frame


class TestFrame:
    def test_it_is_written_whatever_has_become_of_anything(self) -> None:
        frame = Frame(b"{}", "notifications/cancelled", {"requestId": 1})
        assert frame.begin_write()
        frame.undo_write()
        assert frame.begin_write()

    def test_it_is_no_request_whose_answer_is_awaited(self) -> None:
        frame = Frame(b"{}")
        assert (frame.id, frame.method, frame.params, frame.ended) == (None, None, None, False)


class TestEnding:
    @pytest.mark.parametrize(
        ("ending", "text"),
        [
            (Ending(), "closed its output"),
            (Ending(exit_code=0), "exited with code 0"),
            (Ending(exit_code=3, cause="was left"), "exited with code 3"),
            (Ending(exit_code=3, signal="SIGKILL"), "was killed by SIGKILL"),
            (Ending(cause="has forgotten the session", renewable=True), "has forgotten the session"),
            (Ending(stderr_tail="last\nwords"), "closed its output; it last wrote on stderr:\nlast\nwords"),
        ],
    )
    def test_it_says_what_is_known_as_the_end_of_a_sentence(self, ending: Ending, text: str) -> None:
        assert str(ending) == text

    @pytest.mark.parametrize(
        ("ending", "clean"),
        [
            (Ending(exit_code=0), True),
            (Ending(exit_code=1), False),
            (Ending(), False),
            (Ending(signal="SIGTERM"), False),
        ],
    )
    def test_only_a_server_that_says_so_has_ended_cleanly(self, ending: Ending, clean: bool) -> None:
        assert ending.clean is clean
