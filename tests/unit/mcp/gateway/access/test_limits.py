"""Which calls may go to a server now, which wait, in which order they go, and which are refused."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import MCPError, Overloaded, ServerUnavailable
from gaia.mcp.gateway.access.limits import Admission, Limits
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.access.settings import CircuitSettings, ClientLimits, GatewayLimits, Limit
from tests.gateway.fake_loop import FakeLoop


@dataclass
class Calls:
    """Calls through limits, and what became of them."""

    limits: Limits
    loop: FakeLoop
    running: dict[str, Admission] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    refused: dict[str, MCPError] = field(default_factory=dict)

    def make(
        self, name: str, client: Principal | str = "ann", server: str = "time", tool: str | None = "now"
    ) -> Admission:
        def go(admission: Admission) -> None:
            self.started.append(name)
            self.running[name] = admission

        def refuse(error: MCPError) -> None:
            self.refused[name] = error

        principal = Principal(client) if isinstance(client, str) else client
        return self.limits.admit(principal, server, tool, go, refuse)

    def end(self, name: str, **how: Any) -> None:
        self.running.pop(name).end(**how)


def calls(**settings: Any) -> Calls:
    loop = FakeLoop()
    return Calls(Limits(GatewayLimits(**settings), loop), loop)


ONE = Limit(concurrent=1)


def each_client(**limit: Any) -> dict[str, Any]:
    return {"per_client": ClientLimits(**limit)}


class TestCallsAtOnce:
    def test_a_call_above_the_limit_waits_for_the_end_of_another(self) -> None:
        made = calls(**each_client(concurrent=2))
        for name in "abc":
            made.make(name)
        assert made.started == ["a", "b"]
        made.loop.advance(0.5)
        made.end("b")
        assert made.started == ["a", "b", "c"]
        assert made.running["c"].waited == 0.5
        assert made.running["a"].waited == 0

    @pytest.mark.parametrize(
        ("limits", "made", "started"),
        [
            (each_client(concurrent=1), [("ann", "time", "now"), ("bob", "time", "now")], [0, 1]),
            ({"per_server": {"time": ONE}}, [("ann", "time", "a"), ("ann", "time", "b"), ("ann", "git", "a")], [0, 2]),
            ({"per_server": {"time": ONE}, "per_tool": {"*": ONE}}, [("ann", "time", None)] * 2, [0]),
            (
                {"per_server": {"t*": ONE}},
                [("ann", "time", "a"), ("bob", "time", "a"), ("ann", "tea", "a"), ("ann", "git", "a")],
                [0, 2, 3],
            ),
            (
                {"per_tool": {"mcp_time_now": ONE, "slow*": ONE}},
                [("ann", "time", tool) for tool in ("now", "now", "then", "slow_a", "slow_b", "slow_a")],
                [0, 2, 3, 4],
            ),
        ],
        ids=[
            "the limit of each client is its own",
            "calls to another server do not wait behind those that do",
            "requests that are no tool calls pass the gates of client and server",
            "a server has one limit for all clients and a pattern one for each server",
            "a tool has one limit by its own name or the one among servers",
        ],
    )
    def test_a_limit_counts_what_it_is_for(
        self, limits: dict[str, Any], made: list[tuple[str, str, str | None]], started: list[int]
    ) -> None:
        through = calls(**limits)
        for number, (client, server, tool) in enumerate(made):
            through.make(str(number), client, server, tool)
        assert through.started == list(map(str, started))

    @pytest.mark.parametrize("pattern", ["git_push", "mcp_git_push", "push", "git_pu*"])
    def test_a_tool_is_limited_by_each_name_that_a_listing_has(self, pattern: str) -> None:
        made = calls(per_tool={pattern: Limit(concurrent=1)})
        for name in "ab":
            made.make(name, server="git", tool="push")
        assert made.started == ["a"]

    def test_a_profile_has_limits_of_its_own_for_servers_and_tools(self) -> None:
        limits = ClientLimits(per_server={"time": Limit(concurrent=1)}, per_tool={"push": Limit(concurrent=1)})
        ann, bob = (Principal(name, Profile("narrow", limits=limits)) for name in ("ann", "bob"))
        made = calls(**each_client(concurrent=1))
        made.make("a", ann)
        made.make("b", ann)
        made.make("c", bob)
        made.make("d", ann, "git", "push")
        made.make("e", ann, "git", "push")
        made.make("f", ann, "git", "pull")
        assert made.started == ["a", "c", "d", "f"], "and not the limit of clients without any"

    def test_a_call_that_needs_two_gates_enters_when_both_are_open(self) -> None:
        made = calls(per_server={"time": Limit(concurrent=1)}, **each_client(concurrent=1))
        made.make("a", "ann", "git")
        made.make("b", "bob", "time")
        made.make("c", "ann", "time")
        made.end("a")
        assert made.started == ["a", "b"]
        made.end("b")
        assert made.started == ["a", "b", "c"]


class TestTurns:
    def test_a_client_with_many_calls_delays_another_by_one_call(self) -> None:
        made = calls(per_server={"time": Limit(concurrent=1)})
        for number in range(50):
            made.make(f"run{number}", "runaway")
        made.make("one", "ann")
        made.make("two", "bob")
        for _ in range(4):
            made.end(made.started[-1])
        # The runaway client was waiting first.
        assert made.started == ["run0", "run1", "one", "two", "run2"]

    def test_many_tools_do_not_give_a_client_more_turns(self) -> None:
        made = calls(per_server={"time": Limit(concurrent=1)})
        made.make("first", "ann")
        for number in range(5):
            made.make(f"run{number}", "runaway", tool=f"tool{number}")
        made.make("second", "ann")
        made.make("third", "ann")
        for _ in range(5):
            made.end(made.started[-1])
        assert made.started == ["first", "run0", "second", "run1", "third", "run2"]

    def test_a_newcomer_does_not_pass_those_that_wait(self) -> None:
        made = calls(**each_client(per_second=1, burst=1))
        made.make("a")
        made.make("b")
        made.loop.now += 1.0  # the token is there, and the timer has not come yet
        made.make("c", tool="other")
        assert made.started == ["a"]
        made.loop.advance(0.0)
        assert made.started == ["a", "b"]

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()), max_size=40))
    def test_whatever_happens_no_limit_is_exceeded_and_no_call_is_left(
        self, steps: list[tuple[str, str, bool]]
    ) -> None:
        made = calls(
            per_server={"x": Limit(concurrent=1), "y": Limit(concurrent=2, per_second=5)}, **each_client(concurrent=2)
        )
        made_admissions: list[Admission] = []
        owner: dict[str, tuple[str, str]] = {}
        for number, (client, server, ends) in enumerate(steps):
            name = str(number)
            owner[name] = (client, server)
            made_admissions.append(made.make(name, client, server))
            if ends and made.running:
                made.end(next(iter(made.running)))
            running = [owner[each] for each in made.running]
            assert sum(server == "x" for _, server in running) <= 1
            assert sum(server == "y" for _, server in running) <= 2
            assert all(sum(each == client for each, _ in running) <= 2 for client in "abc")
            made.loop.advance(0.01)
        for _ in steps:
            if made.running:
                made.end(next(iter(made.running)))
            made.loop.advance(0.2)
        assert made.refused == {}
        assert len(made.started) == len(steps)
        while made.running:
            made.end(next(iter(made.running)))
        assert made.loop.pending == 0
        assert all(gate.running == waiting == 0 for gate, waiting in made.limits.figures())


@pytest.mark.parametrize(
    ("limit", "idle", "steps"),
    [
        (
            {"per_second": 2, "burst": 3},
            0.0,
            [(0.0, "abc"), (0.5, "abcd"), (1.0, "abcdef")],
        ),
        ({"per_second": 2}, 100.0, [(0.0, "ab")]),
        ({"per_second": 0.25}, 0.0, [(3.9, "a"), (0.1, "ab")]),
    ],
    ids=[
        "a burst goes at once and the rest at the rate",
        "a bucket fills up to its size",
        "a rate below one lets one go",
    ],
)
def test_a_rate(limit: dict[str, Any], idle: float, steps: list[tuple[float, str]]) -> None:
    made = calls(**each_client(**limit))
    made.loop.advance(idle)
    for name in "abcdef":
        made.make(name)
    for seconds, started in steps:
        made.loop.advance(seconds)
        assert made.started == list(started)


class TestWaiting:
    def test_a_call_waits_for_as_long_as_it_may(self) -> None:
        made = calls(max_wait=3.0, **each_client(concurrent=1))
        made.make("a")
        late = made.make("b")
        made.loop.advance(2.9)
        assert made.refused == {}
        made.loop.advance(0.1)
        assert late.waited == 3.0
        error = made.refused["b"]
        assert isinstance(error, Overloaded)
        assert error.delivery == "not_sent"
        assert "client 'ann': 1 at once" in error.message
        made.end("a")
        assert made.started == ["a"]

    def test_a_call_that_its_client_gives_up_has_waited_until_then(self) -> None:
        made = calls(**each_client(concurrent=1))
        made.make("a")
        given_up = made.make("b")
        made.loop.advance(2.0)
        given_up.end()
        assert given_up.waited == 2.0

    def test_so_many_calls_of_a_client_and_so_many_together_wait_and_no_more(self) -> None:
        made = calls(waiting_per_client=2, **each_client(concurrent=1))
        for name in "abcd":
            made.make(name)
        made.make("e", "bob")
        made.make("f", "bob")
        assert list(made.refused) == ["d"]
        assert isinstance(made.refused["d"], Overloaded)
        made = calls(waiting=2, **each_client(concurrent=1))
        for client in ("ann", "bob", "eve"):
            made.make(f"{client} first", client)
            made.make(f"{client} second", client)
        assert list(made.refused) == ["eve second"]
        assert made.refused["eve second"].message.startswith("too many calls wait")

    def test_a_client_that_goes_away_gives_up_its_place(self) -> None:
        made = calls(waiting_per_client=1, **each_client(concurrent=1))
        made.make("a")
        waiting = made.make("b")
        waiting.end()
        waiting.end()
        made.make("c")
        made.end("a")
        assert made.started == ["a", "c"]
        assert made.refused == {}

    def test_a_call_that_ends_where_it_is_let_in_lets_in_the_next(self) -> None:
        made = calls(**each_client(concurrent=1))
        started: list[int] = []

        def go(admission: Admission) -> None:
            started.append(1)
            admission.end()

        made.make("a")
        for _ in range(200):
            made.limits.admit(Principal("ann"), "time", "now", go, made.refused.setdefault)  # type: ignore[arg-type]
        made.end("a")
        assert len(started) == 200, "however deep that would be as recursion"

    def test_ending_twice_is_harmless(self) -> None:
        made = calls(**each_client(concurrent=1))
        first = made.make("a")
        first.end()
        first.end()
        made.make("b")
        made.make("c")
        assert made.started == ["a", "b"]


def test_of_bounds_of_answers_the_smallest_counts() -> None:
    made = calls(per_server={"time": Limit(answer_bytes=100)}, per_tool={"now": Limit(answer_bytes=50)})
    admission = made.make("a")
    assert admission.check_answer(50) is None
    error = admission.check_answer(51)
    assert error is not None
    assert (error.delivery, "51 bytes" in error.message) == ("unknown", True)
    assert made.make("b", server="git", tool="x").check_answer(10**9) is None


class TestCircuit:
    def test_a_tool_that_keeps_failing_is_left_alone_and_then_tried(self) -> None:
        made = calls(per_tool={"now": Limit(circuit=CircuitSettings(failures=2, window=10, cooldown=5))})
        for name in "ab":
            made.make(name)
            made.end(name, failed=True)
        made.make("c")
        error = made.refused["c"]
        assert isinstance(error, ServerUnavailable)
        assert error.retry_in == 5
        made.make("other", tool="then")
        made.loop.advance(5)
        made.make("trial")
        made.make("d")
        assert list(made.refused) == ["c", "d"], "one call is the trial"
        made.end("trial", failed=False)
        made.make("e")
        assert made.started == ["a", "b", "other", "trial", "e"]

    def test_what_waits_when_the_circuit_opens_is_refused(self) -> None:
        made = calls(per_tool={"now": Limit(concurrent=2, circuit=CircuitSettings(failures=2))})
        for name in "abc":
            made.make(name)
        made.end("a", failed=True)
        made.end("b", failed=True)
        made.make("d")
        made.end("c")
        assert "d" in made.refused


def _known_once(first: Principal | None) -> Callable[[Principal], Principal | None]:
    """`renewed` that gives `first` for the first call, and each other one its own client."""
    answers = iter([first])
    return lambda principal: next(answers, principal)


class TestChange:
    def test_calls_that_wait_wait_for_the_new_limits_in_their_order(self) -> None:
        made = calls(**each_client(concurrent=1))
        for name in "abcdef":
            made.make(name)
        made.limits.change(GatewayLimits(per_client=ClientLimits(concurrent=3)))
        assert made.started == ["a", "b", "c"]
        made.end("a")
        assert made.started == ["a", "b", "c", "d"]
        assert made.limits.figures()[0][0].limit.concurrent == 3
        made.limits.change(GatewayLimits())
        assert made.started == ["a", "b", "c", "d", "e", "f"], "without limits all of them go"
        assert made.loop.pending == 0

    def test_how_long_a_call_has_waited_is_kept(self) -> None:
        made = calls(max_wait=3.0, **each_client(concurrent=1))
        made.make("a")
        made.make("b")
        made.loop.advance(2.0)
        made.limits.change(
            GatewayLimits(per_client=ClientLimits(per_second=0.001, burst=1, concurrent=1), max_wait=3.0)
        )
        made.loop.advance(1.0)
        assert "b" in made.refused

    def test_the_end_of_one_call_may_end_others_that_wait(self) -> None:
        """As if a client had pipelined the end of its session behind a call that is refused."""
        made = calls(**each_client(concurrent=1))
        made.make("a")
        others: list[Admission] = []

        def refuse(_: MCPError) -> None:
            for other in others:
                other.end()

        made.limits.admit(Principal("ann"), "time", "now", lambda _: None, refuse)
        others += [made.make("c"), made.make("d", tool="later")]
        made.make("e")
        made.limits.change(GatewayLimits(per_client=ClientLimits(concurrent=1)), _known_once(None))
        made.end("a")
        assert made.started == ["a", "e"]
        made.end("e")
        assert made.limits.figures()[0][1] == 0
        assert made.loop.pending == 0

    def test_another_profile_of_the_same_client_counts_from_the_next_call_on(self) -> None:
        made = calls()
        ann = Principal("ann", Profile("one", limits=ClientLimits(concurrent=1)))
        made.make("a", ann)
        made.make("b", replace(ann, profile=Profile("two", limits=ClientLimits(concurrent=2))))
        assert made.started == ["a", "b"]


def test_clients_without_number_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.gateway.access.limits._MAX_PLANS", 10)
    made = calls(**each_client(concurrent=1, per_second=100))
    made.make("kept", "kept")
    made.make("waits", "kept")
    for number in range(100):
        made.make(str(number), f"client{number}")
        made.end(str(number))
        made.loop.advance(0.001)
    assert len(made.limits.figures()) < 25
    made.make("third", "kept", tool="other")
    assert "third" not in made.started, "what runs still counts"
    made.end("kept")
    assert "waits" in made.started


def test_without_limits_each_call_goes_at_once_and_figures_say_how_much_of_each_limit_is_in_use() -> None:
    made = calls()
    for number in range(100):
        made.make(str(number))
    assert len(made.started) == 100
    assert made.limits.figures() == []
    made = calls(**each_client(concurrent=1))
    for name in "abc":
        made.make(name)
    [(gate, waiting)] = made.limits.figures()
    assert (gate.name, gate.running, waiting) == ("client 'ann'", 1, 2)
