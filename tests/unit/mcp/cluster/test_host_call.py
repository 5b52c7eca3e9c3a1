from typing import Any

from gaia.mcp.cluster.host_call import CallOwner, HostRequest, NotApproved
from gaia.mcp.cluster.host_user import HostUser
from gaia.mcp.cluster.wire import Answer, AskedCall, AskedInput, Logged, Withdrawn
from gaia.mcp.protocol.messages import Refusal
from gaia.testing import FakeClock
from tests.hosts import Driver


def owner_of(user: HostUser, **changed: Any) -> CallOwner:
    return CallOwner(user, AskedCall("i", 7, 1.0, None, False, False, None, 0.0, b"{}", **changed), user.key)


def new_user(demo_server: dict[str, Any]) -> HostUser:
    settings = Driver(demo_server).settings
    return HostUser(settings, "i", FakeClock())


def test_the_user_is_asked_and_answers(demo_server: dict[str, Any]) -> None:
    user, answers = new_user(demo_server), list[tuple[Any, Refusal | None]]()
    owner = owner_of(user)
    owner.logged({"data": "x"})
    owner.asked("roots/list", {}, lambda result, refusal: answers.append((result, refusal)))
    assert user.events.fetch(0, 0).events == [Logged(7, {"data": "x"}), AskedInput(1, "roots/list", {})]
    user.questions.answered(Answer(1, {"roots": []}))
    user.questions.answered(Answer(1, {"roots": ["late"]}))
    assert answers == [({"roots": []}, None)]


def test_a_question_is_withdrawn(demo_server: dict[str, Any]) -> None:
    user = new_user(demo_server)
    withdraw = owner_of(user).asked("roots/list", {}, lambda *_: None)
    withdraw()
    withdraw()
    assert user.events.fetch(0, 0).events == [AskedInput(1, "roots/list", {}), Withdrawn(1)]


def test_a_user_that_is_gone_answers_nothing(demo_server: dict[str, Any]) -> None:
    user, answers = new_user(demo_server), list[tuple[Any, Refusal | None]]()
    owner_of(user).asked("roots/list", {}, lambda result, refusal: answers.append((result, refusal)))
    user.close()
    ((result, refusal),) = answers
    assert result is None
    assert refusal is not None
    assert "is gone" in refusal.message


def test_what_another_client_declares_counts_for_its_calls(demo_server: dict[str, Any]) -> None:
    user = new_user(demo_server)
    assert owner_of(user).capabilities == {}
    assert owner_of(user, capabilities={"roots": {}}, log_level="error").capabilities == {"roots": {}}


def test_a_call_is_not_written_if_something_has_changed(demo_server: dict[str, Any]) -> None:
    problems: list[NotApproved | None] = [None, NotApproved("the tools have changed")]
    first, second = (
        HostRequest(1, "tools/call", {}, 0.0, 1.0, owner=owner_of(new_user(demo_server)), problem=problems.pop)
        for _ in range(2)
    )
    assert not first.begin_write()
    assert isinstance(first.error, NotApproved)
    assert first.error.delivery == "not_sent"
    assert second.begin_write()
