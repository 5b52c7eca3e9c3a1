"""What a fake server offers, and what it remembers."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.runtime.clock import Clock, SystemClock
from gaia.testing import FakeClock
from gaia.testing import fake_state as module
from gaia.testing.fake_state import FakeCall, FakeServerState, Fault

Told = list[tuple[str, dict[str, Any]]]


def make(told: Told | None = None, clock: Clock | None = None) -> FakeServerState:
    def notify(method: str, params: dict[str, Any]) -> None:
        (told if told is not None else []).append((method, params))

    return FakeServerState(
        "time", revision="2025-11-25", instructions=None, clock=clock or SystemClock(), notify=notify
    )


def call(tool: str) -> FakeCall:
    return FakeCall(tool, {}, 1, {})


def ping() -> str:
    return "pong"


def test_tools_are_added_replaced_and_removed_and_clients_are_told() -> None:
    told: Told = []
    tools = make(told).tools
    tools.add(ping)
    tools.add({"name": "ping", "description": "Another one."})
    tools.add(ping)
    assert (list(tools), len(tools), tools.definitions()[0]["name"]) == (["ping"], 1, "ping")
    tools.remove("ping")
    assert tools.get("ping") is None
    assert told == [("notifications/tools/list_changed", {})] * 4


def test_what_is_not_there_cannot_be_removed() -> None:
    told: Told = []
    with pytest.raises(KeyError):
        make(told).prompts.remove("greet")
    assert told == []


def test_a_name_that_is_no_text_is_not_there() -> None:
    assert make().tools.get(["ping"]) is None


def test_resources_are_texts_bytes_and_functions() -> None:
    resources = make().resources
    resources.add("file:///a/notes.md", "# Notes", mimeType="text/markdown")
    resources.add("file:///b", b"\x00")
    resources.add("file:///c", lambda: "fresh")
    assert [one["name"] for one in resources.definitions()] == ["notes.md", "b", "c"]
    read = [resource.read()["contents"][0] for uri in resources if (resource := resources.get(uri))]
    assert read == [
        {"uri": "file:///a/notes.md", "mimeType": "text/markdown", "text": "# Notes"},
        {"uri": "file:///b", "mimeType": "application/octet-stream", "blob": "AA=="},
        {"uri": "file:///c", "mimeType": "text/plain", "text": "fresh"},
    ]


def test_an_update_changes_the_content_alone() -> None:
    told: Told = []
    resources = make(told).resources
    resources.add("file:///a", "old", name="A")
    resources.update("file:///a", "new")
    resource = resources.get("file:///a")
    assert resource is not None
    assert (resource.definition["name"], resource.read()["contents"][0]["text"]) == ("A", "new")
    assert told[1:] == [("notifications/resources/updated", {"uri": "file:///a"})]
    with pytest.raises(KeyError):
        resources.update("file:///b", "new")


def test_a_call_is_remembered_and_meets_its_faults() -> None:
    state = make()
    state.plan(Fault("hang"), "now", 1, None)
    calls = [call("now"), call("later")]
    assert [state.record(one) for one in calls] == [[Fault("hang")], []]
    assert state.calls == calls
    state.clear_faults()
    assert state.record(call("now")) == []


def test_a_call_that_came_is_not_waited_for() -> None:
    state = make()
    calls = [call("now"), call("later"), call("now")]
    for one in calls:
        state.record(one)
    assert state.wait_for_call("now", 2) is calls[2]
    assert state.wait_for_call(None, 2) is calls[1]


def test_a_call_that_does_not_come_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    state = make()
    state.record(call("later"))
    with pytest.raises(AssertionError, match=r"call 1 of now did not come; the calls that came: \['later'\]"):
        state.wait_for_call("now", 1)


def test_a_fake_clock_waits_for_work_once() -> None:
    held: list[int] = []

    class Clock(FakeClock):
        @contextlib.contextmanager
        def hold(self) -> Iterator[None]:
            held.append(1)
            yield
            held.append(-1)

    end = make(clock=Clock()).begin_work()
    assert held == [1]
    end()
    end()
    assert held == [1, -1]


def test_another_clock_waits_for_nothing() -> None:
    make().begin_work()()


HANG = Fault("hang")


def outcomes(state: FakeServerState, *tools: str) -> list[int]:
    """How many faults happen at calls of these tools."""
    return [len(state.record(call(tool))) for tool in tools]


@pytest.mark.parametrize(
    ("tool", "nth", "times", "tools", "happening"),
    [
        (None, 2, 1, "abab", [0, 1, 0, 0]),
        ("a", 2, 1, "abbaa", [0, 0, 0, 1, 0]),
        (None, 2, 2, "aaaa", [0, 1, 1, 0]),
        ("a", 1, None, "a" * 50, [1] * 50),
    ],
    ids=["nth", "only calls of its tool count", "as often as it is told to", "for ever"],
)
def test_a_fault_happens_when_it_is_planned(
    tool: str | None, nth: int, times: int | None, tools: str, happening: list[int]
) -> None:
    state = make()
    state.plan(HANG, tool, nth, times)
    assert outcomes(state, *tools) == happening


def test_several_faults_happen_in_the_order_of_planning() -> None:
    state = make()
    junk = Fault("junk", data=b"x")
    state.plan(junk, None, 1, 1)
    state.plan(HANG, "a", 1, 1)
    assert state.record(call("a")) == [junk, HANG]


def test_calls_count_from_the_moment_of_planning() -> None:
    state = make()
    outcomes(state, "a", "a")
    state.plan(HANG, "a", 1, 1)
    assert outcomes(state, "a", "a") == [1, 0]


@pytest.mark.parametrize(("nth", "times", "name"), [(0, 1, "nth"), (1, 0, "times"), (-1, 1, "nth")])
def test_a_number_below_one_is_refused(nth: int, times: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: must be 1 or more"):
        make().plan(HANG, None, nth, times)
