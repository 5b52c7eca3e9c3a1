from types import SimpleNamespace
from typing import Any

from gaia.mcp.cluster.replica_hooks import ReplicaHooks
from gaia.mcp.errors import ToolDenied
from gaia.mcp.supervision.events import Event, GaveUp, ServerState, StateChanged


class Server:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def changed(self, number: int, event: StateChanged) -> None:
        self.told.append(("changed", number, event.new))

    def listed(self, number: int, definitions: list[Any]) -> None:
        self.told.append(("listed", number, definitions))

    def happened(self, event: Event) -> None:
        self.told.append(("happened", event))


DENIED = ToolDenied("no")
OF_SERVER: Any = SimpleNamespace(refusal_of={"rm": DENIED}.get, safe_to_repeat="read".__eq__, subscriptions=object())


def test_its_states_and_tools_are_told_with_its_number() -> None:
    server = Server()
    hooks = ReplicaHooks(server, 3, OF_SERVER)
    gave_up = GaveUp("it", "it crashes", None)
    hooks.happened(StateChanged("it", ServerState.STARTING, ServerState.READY, 1, None))
    hooks.happened(gave_up)
    hooks.tools_listed([{"name": "add"}], hooks.listing_begins())
    assert server.told == [
        ("changed", 3, ServerState.READY),
        ("happened", gave_up),
        ("listed", 3, [{"name": "add"}]),
    ]


def test_what_the_client_decides_is_the_same_for_all() -> None:
    hooks = ReplicaHooks(Server(), 3, OF_SERVER)
    assert hooks.refusal_of("rm") is DENIED
    assert (hooks.safe_to_repeat("read"), hooks.safe_to_repeat("rm")) == (True, False)
    assert hooks.subscriptions is OF_SERVER.subscriptions
