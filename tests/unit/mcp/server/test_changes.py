"""Who is told of a change, and of which log messages."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest

from gaia.mcp.server.changes import ChangeNotifier, set_log_level, wants_log
from tests.serving.agents import QuietAgent
from tests.waiting import PATIENCE

MakeRequest = Callable[..., Any]

HANDSHAKE = "2025-11-25"
LEVEL = "io.modelcontextprotocol/logLevel"


class Connection:
    """What the SDK keeps of a session, and what its client was told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.exit_stack = contextlib.ExitStack()
        self.error = error
        self.told: list[tuple[str, Any]] = []

    async def notify(self, method: str, params: Any) -> None:
        if self.error is not None:
            raise self.error
        self.told.append((method.removeprefix("notifications/"), params))


def by(connection: Connection) -> Any:
    return SimpleNamespace(session=SimpleNamespace(_connection=connection))


def subscription(uri: str) -> types.SubscribeRequestParams:
    return types.SubscribeRequestParams(uri=uri)


def told_after(prepare: Callable[[ChangeNotifier], Any], *changes: tuple[str, str | None]) -> None:
    """Have an agent notify of `changes` from a thread of its own, and wait until all clients were told."""
    agent = QuietAgent(silent_mode=True)

    async def session() -> None:
        followed = ChangeNotifier()
        await prepare(followed)
        last = Connection()
        await followed.opened(by(last), None)
        with followed.following(agent):
            # On an own thread, as agents do; the lists are told last, so that the waiting has an end.
            def notify() -> None:
                for what, uri in changes:
                    agent.notify_mcp_change(what, uri)
                agent.notify_mcp_change("prompts")

            await asyncio.to_thread(notify)
            async with asyncio.timeout(PATIENCE):
                while ("prompts/list_changed", None) not in last.told:
                    await asyncio.sleep(0)

    asyncio.run(session())


def test_a_resource_is_told_to_those_that_subscribed_to_it() -> None:
    one, other = Connection(), Connection()

    async def prepare(changes: ChangeNotifier) -> None:
        await changes.subscribe(by(one), subscription("note:///a"))
        await changes.subscribe(by(other), subscription("note:///b"))
        await changes.subscribe(by(other), subscription("note:///a"))
        await changes.unsubscribe(by(other), types.UnsubscribeRequestParams(uri="note:///a"))

    told_after(prepare, ("resource", "note:///a"))
    updated = ("resources/updated", {"uri": "note:///a"})
    assert updated in one.told
    assert updated not in other.told


def test_a_list_is_told_to_every_session_but_those_that_have_ended_or_cannot_be_told() -> None:
    connections = [Connection(ConnectionResetError()), Connection(), Connection(), Connection()]

    async def prepare(changes: ChangeNotifier) -> None:
        for connection in connections:
            await changes.opened(by(connection), None)
        connections[-1].exit_stack.close()

    told_after(prepare, ("tools", None), ("resources", None))
    for connection in connections[1:3]:
        assert {("tools/list_changed", None), ("resources/list_changed", None)} <= set(connection.told)
    assert connections[-1].told == []


def test_a_change_after_the_end_reaches_nothing_and_harms_nothing() -> None:
    agent, changes = QuietAgent(silent_mode=True), ChangeNotifier()

    async def session(following: contextlib.ExitStack) -> None:
        following.enter_context(changes.following(agent))

    with contextlib.ExitStack() as following:
        asyncio.run(session(following))
        # The loop is closed, and the agent still has its listener.
        notifier = threading.Thread(target=agent.notify_mcp_change, args=("tools",))
        notifier.start()
        notifier.join()


@pytest.mark.parametrize(
    ("wanted", "level", "sent"),
    [
        ("warning", "info", False),
        ("warning", "warning", True),
        ("warning", "emergency", True),
        ("debug", "debug", True),
        (None, "emergency", False),
        ("loud", "emergency", False),
    ],
)
def test_in_the_stateless_era_each_request_says_which_messages_it_wants(
    wanted: str | None, level: str, sent: bool, make_request: MakeRequest
) -> None:
    assert wants_log(make_request(meta=None if wanted is None else {LEVEL: wanted}), level) is sent


def test_in_the_handshake_era_a_session_gets_everything_until_it_says_otherwise(make_request: MakeRequest) -> None:
    request = make_request(HANDSHAKE, meta={LEVEL: "emergency"})
    assert wants_log(request, "debug")
    set_log_level(request, "error")
    assert [wants_log(request, level) for level in ("warning", "error", "critical")] == [False, True, True]
    with pytest.raises(ValueError, match="no log level 'loud'; levels are debug, info, notice"):
        wants_log(make_request(), "loud")
