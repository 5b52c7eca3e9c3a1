"""Sessions of clients of the handshake era."""

import json
from typing import Any, cast

import pytest

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.clients.sessions import Session, Sessions
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.messages import Refusal

VIEW, OTHER_VIEW = cast("View", object()), cast("View", object())
ADA, BOB = Principal("ada"), Principal("bob")


class Stream:
    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.is_over = False

    def send(self, message: bytes) -> None:
        self.messages.append(json.loads(message))

    def end(self) -> None:
        self.is_over = True


class NoChanges:
    def add(self, _audience: object) -> None:
        pass

    remove = add


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(cast("Notifier", NoChanges()), clock, most=2, idle_seconds=60)


def opened(sessions: Sessions) -> Session:
    session = sessions.open(VIEW, ADA)
    assert session is not None
    return session


def test_one_exists_for_its_client_at_its_path_only(sessions: Sessions) -> None:
    session, now = opened(sessions), Principal("ada", Profile("other"))
    assert sessions.find(session.id, VIEW, ADA) is session
    assert sessions.find(session.id, VIEW, BOB) is None
    assert sessions.find(session.id, OTHER_VIEW, ADA) is None
    assert sessions.find(session.id, VIEW, now) is session
    assert session.owner is now, "with other limits perhaps"
    sessions.end(session)
    assert sessions.find(session.id, VIEW, ADA) is None


def test_the_time_of_an_idle_session_begins_when_its_last_call_ends(sessions: Sessions, clock: Clock) -> None:
    busy, idle = opened(sessions), opened(sessions)
    busy.requests[1] = cast("Any", None)
    clock.now += 61
    sessions.end_idle()
    assert list(sessions) == [busy] != [idle]
    busy.requests.clear()
    clock.now += 60
    sessions.end_idle()
    assert list(sessions) == []


def test_a_stream_that_stays_open_keeps_no_session(sessions: Sessions, clock: Clock) -> None:
    session, stream = opened(sessions), Stream()
    assert session.open_stream(stream)
    clock.now += 59
    sessions.find(session.id, VIEW, ADA)
    clock.now += 59
    sessions.end_idle()
    assert list(sessions) == [session]
    clock.now += 1
    sessions.end_idle()
    assert list(sessions) == []
    assert stream.is_over


def test_of_too_many_the_one_that_was_idle_longest_ends(sessions: Sessions) -> None:
    first, second = opened(sessions), opened(sessions)
    sessions.find(first.id, VIEW, ADA)
    opened(sessions)
    assert sessions.find(second.id, VIEW, ADA) is None
    assert sessions.find(first.id, VIEW, ADA) is first


def test_of_too_many_one_ends_of_the_principal_that_has_the_most(clock: Clock) -> None:
    sessions = Sessions(cast("Notifier", NoChanges()), clock, most=3, idle_seconds=60)
    quiet = sessions.open(VIEW, BOB)
    first, second, _third = (opened(sessions) for _ in range(3))
    assert quiet is not None
    assert list(sessions)[:2] == [quiet, second]
    sessions.end(second)
    assert first not in sessions
    newest = [opened(sessions) for _ in range(5)][-1]
    assert quiet in sessions
    assert newest in sessions


def test_a_principal_whose_sessions_are_all_in_use_takes_none_of_another_and_makes_room(clock: Clock) -> None:
    sessions = Sessions(cast("Notifier", NoChanges()), clock, most=3, idle_seconds=60)
    quiet = sessions.open(VIEW, BOB)
    assert quiet is not None
    busy = [opened(sessions) for _ in range(2)]
    for session in busy:
        session.open_stream(Stream())
    assert sessions.open(VIEW, ADA) is None, "the idle one is not hers"
    assert quiet in sessions
    quiet.open_stream(Stream())
    another = sessions.open(VIEW, BOB)
    assert another is not None
    assert list(sessions) == [quiet, busy[1], another]


def test_those_that_are_in_use_stay_and_there_are_few_streams_of_one_session(sessions: Sessions) -> None:
    for session in (opened(sessions), opened(sessions)):
        assert [session.open_stream(Stream()) for _ in range(9)] == [True] * 8 + [False]
    assert sessions.open(VIEW, ADA) is None


def test_no_session_is_opened_after_the_end(sessions: Sessions) -> None:
    sessions.close()
    assert sessions.open(VIEW, ADA) is None


def test_those_that_are_not_used_end_and_one_that_lasts_with_its_connection_only(
    sessions: Sessions, clock: Clock
) -> None:
    used, silent = opened(sessions), opened(sessions)
    clock.now += 61
    sessions.find(used.id, VIEW, ADA)
    sessions.end_idle()
    assert list(sessions) == [used] != [silent]
    used.lasts = True
    clock.now += 61
    sessions.end_idle()
    assert list(sessions) == [used]


def test_changes_wait_for_a_stream_each_once(sessions: Sessions) -> None:
    session, stream = opened(sessions), Stream()
    for _ in range(3):
        session.list_changed("tools")
    session.resource_updated("x:1")
    session.open_stream(stream)
    assert [message["method"] for message in stream.messages] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]


def test_a_message_goes_to_one_stream_and_log_messages_only_if_they_are_wanted(sessions: Sessions) -> None:
    session, first, second = opened(sessions), Stream(), Stream()
    session.open_stream(first)
    session.open_stream(second)
    session.server_log({"level": "error", "data": ""})
    session.log_level = "warning"
    session.server_log({"level": "info", "data": ""})
    session.server_log({"level": "error", "data": ""})
    session.list_changed("tools")
    assert (len(first.messages), len(second.messages)) == (0, 2)
    session.close_stream(second)
    session.list_changed("tools")
    assert len(first.messages) == 1


def test_a_question_is_answered_once_or_withdrawn(sessions: Sessions) -> None:
    session, sent, answers = opened(sessions), Stream(), []
    session.ask("roots/list", {}, lambda *answer: answers.append(answer), sent.send)
    (question,) = sent.messages
    session.answered(question["id"], {"roots": []}, None)
    session.answered(question["id"], {"roots": []}, None)
    assert answers == [({"roots": []}, None)]
    withdraw = session.ask("roots/list", {}, lambda *answer: answers.append(answer), sent.send)
    withdraw()
    withdraw()
    assert [message["method"] for message in sent.messages] == ["roots/list"] * 2 + ["notifications/cancelled"]


def test_the_end_answers_questions_and_cancels_requests(sessions: Sessions) -> None:
    session, answers, stream = opened(sessions), [], Stream()

    class Request:
        method = "tools/call"
        reason = ""

        def cancel(self, reason: str) -> None:
            self.reason = reason

    session.requests[1] = request = Request()
    session.open_stream(stream)
    session.ask("roots/list", {}, lambda *answer: answers.append(answer), stream.send)
    sessions.end_all()
    assert isinstance(answers[0][1], Refusal)
    assert request.reason
    assert stream.is_over
