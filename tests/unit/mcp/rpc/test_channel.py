"""What channels carry, and how they say that a server has ended."""

from __future__ import annotations

import pytest

from gaia.mcp.rpc.channel import Ending, Frame


def test_a_frame_is_written_whatever_has_become_of_anything_and_awaits_no_answer() -> None:
    frame = Frame(b"{}", "notifications/cancelled", {"requestId": 1})
    assert frame.begin_write()
    frame.undo_write()
    assert frame.begin_write()
    frame = Frame(b"{}")
    assert (frame.id, frame.method, frame.params, frame.ended) == (None, None, None, False)


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
def test_an_ending_is_the_end_of_a_sentence_and_clean_only_if_the_server_says_so(ending: Ending, text: str) -> None:
    assert str(ending) == text
    assert ending.clean is (text == "exited with code 0")
