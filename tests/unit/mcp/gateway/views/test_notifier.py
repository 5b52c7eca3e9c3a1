"""Who is told what changes, and what is watched for it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp.errors import CallTimeout, JsonRpcError
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.views import notifier as changes_module
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.upstream_servers import Kind
from gaia.mcp.supervision.events import ResourceUpdated, ServerLog
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.runtime.loop_work import LoopWork
from gaia.testing import FakeServer
from tests.gateway.lines import Lines
from tests.waiting import PATIENCE


class Audience:
    owner = None

    def __init__(self, server: str) -> None:
        self.server = server
        self.kinds: list[str] = []
        self.uris: list[str] = []
        self.is_dismissed = False
        self.view = self
        self.told = asyncio.Event()

    def sees(self, server: str) -> bool:
        return server == self.server

    def sees_resource(self, server: str, uri: str) -> bool:
        return server == self.server and uri.startswith("x:")

    def list_changed(self, kind: Kind) -> None:
        self.kinds.append(kind)
        self.told.set()

    def resource_updated(self, uri: str) -> None:
        self.uris.append(uri)
        self.told.set()

    def server_log(self, message: dict[str, Any]) -> None:
        pass

    def dismiss(self) -> None:
        self.is_dismissed = True

    async def wait(self) -> None:
        await asyncio.wait_for(self.told.wait(), PATIENCE)
        self.told.clear()


def one() -> str:
    """One."""
    return "1"


async def test_only_those_are_told_that_see_the_server() -> None:
    servers = {"a": FakeServer("a"), "b": FakeServer("b")}

    async with Gateway(servers) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        of_a, of_b = Audience("a"), Audience("b")
        for audience in (of_a, of_b):
            gateway._changes.add(audience)
        servers["a"].prompts.add(one)
        await of_a.wait()
        gateway._changes.remove(of_b)
        assert (of_a.kinds, of_b.kinds) == (["prompts"], [])
        gateway._changes.dismiss()
        assert (of_a.is_dismissed, of_b.is_dismissed) == (True, False)


async def test_a_resource_is_watched_for_those_that_want_it() -> None:
    server = FakeServer("a", resources={"x:1": "", "x:2": ""})

    async with Gateway({"a": server}) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        changes, known = gateway._changes, gateway._servers.get("a")
        assert known is not None
        first, second = Audience("a"), Audience("a")
        for audience in (first, second):
            changes.add(audience)
            agreed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            changes.watch(audience, known.client, "x:1", agreed.set_result)
            assert await asyncio.wait_for(agreed, PATIENCE) is None
        changes.unwatch(second, "x:1")
        server.resources.update("x:1", "")
        await first.wait()
        assert (first.uris, second.uris) == (["x:1"], [])
        changes.remove(first)
        async with asyncio.timeout(PATIENCE):
            while known.client._engine.subscriptions.resources:
                await asyncio.sleep(0.005)


class Features:
    """A server whose answers the test gives, one after the other."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[str, asyncio.Future[None]]] = asyncio.Queue()

    def answer_of(self, what: str) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((what, answer))
        return answer

    async def next(self) -> tuple[str, asyncio.Future[None]]:
        return await asyncio.wait_for(self.asked.get(), PATIENCE)

    def subscribe_resource(self, uri: str) -> str:
        return "subscribe"

    def unsubscribe_resource(self, uri: str) -> str:
        return "unsubscribe"


def watching(monkeypatch: pytest.MonkeyPatch, decisions: Subscriptions | None = None) -> tuple[Features, Any, Any]:
    """A server, of the stateless era if it makes decisions, with what watches it and its client."""
    features = Features()

    async def run(_: object, what: str) -> None:
        await features.answer_of(what)

    monkeypatch.setattr(changes_module, "run", run)
    requests = Mock(is_stateless=decisions is not None)
    engine = Mock(features=features, requests=requests, subscriptions=decisions or Mock())
    return features, Notifier(Mock()), Mock(_engine=engine)


@pytest.mark.parametrize("unsubscribing_fails", [False, True])
async def test_a_client_that_comes_while_a_watch_ends_gets_the_answer_to_its_own(
    monkeypatch: pytest.MonkeyPatch, unsubscribing_fails: bool
) -> None:
    features, changes, client = watching(monkeypatch)
    early, late = Audience("a"), Audience("a")
    outcomes: list[object] = []
    for audience in (early, late):
        changes.add(audience)
    changes.watch(early, client, "x:1", outcomes.append)
    (await features.next())[1].set_result(None)
    while not outcomes:
        await asyncio.sleep(0)
    changes.unwatch(early, "x:1")
    what, answer = await features.next()
    assert what == "unsubscribe"
    refused = asyncio.get_running_loop().create_future()
    changes.watch(late, client, "x:1", refused.set_result)
    if unsubscribing_fails:
        answer.set_exception(JsonRpcError(-32603, "still watched"))
    else:
        answer.set_result(None)
    what, answer = await features.next()
    assert (what, refused.done()) == ("subscribe", False)
    answer.set_exception(JsonRpcError(-32603, "not that one"))
    assert "not that one" in str(await asyncio.wait_for(refused, PATIENCE))
    changes.remove(late)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_server_of_the_stateless_era_is_asked_no_more_for_what_it_does_not_agree_to(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    decisions = Subscriptions()
    features, changes, client = watching(monkeypatch, decisions)
    monkeypatch.setattr(changes_module, "_DECISION_SECONDS", PATIENCE if answers else 0.001)
    audience = Audience("a")
    changes.add(audience)
    refused = asyncio.get_running_loop().create_future()
    changes.watch(audience, client, "x:1", refused.set_result)
    (await features.next())[1].set_result(None)
    if answers:
        decisions.decided(["x:1"], [], JsonRpcError(-32602, "not that one"))
    what, answer = await features.next()
    assert what == "unsubscribe"
    answer.set_result(None)
    error = await asyncio.wait_for(refused, PATIENCE)
    assert isinstance(error, JsonRpcError if answers else CallTimeout)


def speak(context: MCPContext, words: str) -> str:
    """Say it to the log."""
    context.log("info", words)
    return words


@contextlib.asynccontextmanager
async def speaking(instances: str, sessions: int, level: str = "debug") -> AsyncIterator[list[Lines]]:
    """So many sessions at a server that speaks, which want its log from this level on."""
    async with Gateway({"it": {**FakeServer("it", tools=[speak]), "instances": instances}}) as gateway:
        opened = [Lines(gateway, stateless=False) for _ in range(sessions)]
        for lines in opened:
            await lines.open()
            await lines.ask("logging/setLevel", {"level": level})
        yield opened


async def heard(lines: Lines, words: str) -> list[str]:
    """What a session is told while it calls."""
    await lines.ask("tools/call", {"name": "it_speak", "arguments": {"words": words}})
    return [(await lines.wait_told("notifications/message"))["params"]["data"]]


async def test_a_session_gets_the_log_messages_of_its_own_process() -> None:
    async with speaking("per-session", 2) as (one, other):
        assert await heard(one, "mine") == ["mine"]
        assert await heard(other, "yours") == ["yours"]
        assert await heard(one, "again") == ["again"]
        assert [message["method"] for message in (*one.told, *other.told)].count("notifications/message") == 0


async def test_sessions_that_share_a_process_get_its_log_messages() -> None:
    async with speaking("per-client", 2) as (one, other):
        assert await heard(one, "ours") == ["ours"]
        assert (await other.wait_told("notifications/message"))["params"]["data"] == "ours"


async def test_a_process_that_runs_already_is_told_of_another_level() -> None:
    async with speaking("per-session", 1, "error") as (lines,):
        await lines.ask("tools/call", {"name": "it_speak", "arguments": {"words": "not loud enough"}})
        await lines.ask("logging/setLevel", {"level": "debug"})
        assert await heard(lines, "now") == ["now"]


async def test_requests_for_one_resource_that_come_while_answers_leave_are_answered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over HTTP, the answer to one request lets in the one that was pipelined after it."""
    features, changes, client = watching(monkeypatch)
    audience, outcomes = Audience("a"), list[object]()
    changes.add(audience)

    def answered(outcome: object) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 4:
            changes.watch(audience, client, "x:1", answered)

    changes.watch(audience, client, "x:1", answered)
    (await features.next())[1].set_result(None)
    async with asyncio.timeout(PATIENCE):
        while len(outcomes) < 4:
            await asyncio.sleep(0)
    assert outcomes == [None] * 4
    assert features.asked.empty(), "the server was asked once"
    changes.unwatch(audience, "x:1")
    assert (await features.next())[0] == "unsubscribe"
    changes.stop()


class SlowToTell(Audience):
    """Telling it takes as long as a turn of the loop may take."""

    seconds = 0.0

    def resource_updated(self, uri: str) -> None:
        super().resource_updated(uri)
        SlowToTell.seconds += 1.0

    def server_log(self, message: dict[str, Any]) -> None:
        self.resource_updated(message["data"])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time passes only while slow audiences are told."""
    monkeypatch.setattr(changes_module, "running_loop_work", lambda: turns_of(asyncio.get_running_loop()))
    turns: dict[Any, LoopWork] = {}

    def turns_of(loop: Any) -> LoopWork:
        return turns.setdefault(loop, LoopWork(loop, lambda: SlowToTell.seconds))


def known_as(name: str) -> Mock:
    server = Mock(client=name, speaks_stateless=False)
    server.name = name
    return server


def log_of(server: str, text: str) -> ServerLog:
    return ServerLog(server, "info", None, text)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("kind", ["log", "update"])
async def test_many_audiences_are_told_in_slices_and_other_servers_events_meanwhile(kind: str) -> None:
    servers: Any = Mock()
    servers.get.side_effect = known_as
    changes: Any = Notifier(servers)
    crowd, other = [SlowToTell("a") for _ in range(50)], SlowToTell("b")
    for audience in (*crowd, other):
        changes.add(audience)
    if kind == "log":
        changes._happened(log_of("a", "x:1"), None)
    else:
        watch = Mock()
        watch.audiences = crowd
        changes._watched["a", "x:1"] = watch
        changes._happened(ResourceUpdated("a", "x:1"), None)
    told = [sum(len(audience.uris) for audience in crowd)]
    changes._happened(log_of("b", "x:2"), None)
    while told[-1] < 50:
        await asyncio.sleep(0)
        told.append(sum(len(audience.uris) for audience in crowd))
        if other.uris and told[-1] < 40:
            other.is_dismissed = True
    assert max(after - before for before, after in itertools.pairwise(told)) == 1
    assert other.is_dismissed, "the other server's event did not wait for all of them"
    assert all(audience.uris == ["x:1"] for audience in crowd)


@pytest.mark.usefixtures("slow")
def test_events_that_come_faster_than_audiences_can_be_told_are_told_once_or_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use() -> SlowToTell:
        servers: Any = Mock()
        servers.get.side_effect = known_as
        changes: Any = Notifier(servers)
        audience = SlowToTell("a")
        changes.add(audience)
        watch = Mock()
        watch.audiences = [audience]
        changes._watched["a", "x:"] = watch
        for _ in range(1000):
            changes._happened(ResourceUpdated("a", "x:same"), None)
        for number in range(1000):
            changes._happened(log_of("a", f"x:{number}"), None)
        last = -1
        while last < len(audience.uris):
            last = len(audience.uris)
            for _ in range(3):
                await asyncio.sleep(0)
        changes._happened(log_of("a", "x:later"), None)
        return audience

    audience = asyncio.run(use())
    # The one that was being told when the others came, and one for all of these.
    assert audience.uris.count("x:same") == 2
    assert audience.uris[2:] == [*(f"x:{number}" for number in range(255)), "x:later"]
    assert caplog.text.count("gateway_events_dropped") == 1
