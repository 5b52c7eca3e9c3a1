"""On a host: a call for one of its users, on its way to the server."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from gaia.mcp.cluster.host_features import refusal_of
from gaia.mcp.cluster.host_user import HostUser
from gaia.mcp.cluster.wire import Answer, AskedCall, Logged
from gaia.mcp.errors import MCPError
from gaia.mcp.rpc.call import Call, OnAnswer


class CallOwner:
    """The `RequestOwner` of one call: its client is the user, or has sent the call through it."""

    def __init__(self, user: HostUser, asked: AskedCall, client_key: Hashable | None) -> None:
        self.client_key = client_key
        self.capabilities: Mapping[str, Any] = user.declared if asked.capabilities is None else asked.capabilities
        self.log_level = asked.log_level
        self._user = user
        self._number = asked.number

    @property
    def is_away(self) -> bool:
        return False

    def give_way(self) -> None:
        """Does nothing: a user that is away loses its lease."""

    def refusal(self, tool: str) -> MCPError | None:  # noqa: ARG002 - see `HostRequest`
        return None

    def logged(self, params: dict[str, Any]) -> None:
        self._user.events.add(Logged(self._number, params))

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        """Have the user answer, which knows for whom it has made the call. For servers with several users."""

        def answered(given: Answer) -> None:
            refusal = None if given.result is not None else refusal_of(given)
            answer(given.result, refusal)

        return self._user.questions.put(method, params, answered)


class NotApproved(MCPError):
    """The driver has to decide anew whether the call may be made."""


class HostRequest(Call, kw_only=True):
    """A call that is made only if nothing has changed until it is written."""

    problem: Callable[[], MCPError | None]
    """Asked right before: the error that ends the call. For any thread, quick."""

    def begin_write(self) -> bool:
        problem = self.problem()
        if problem is not None:
            self.finish(error=problem)
            return False
        return super().begin_write()
