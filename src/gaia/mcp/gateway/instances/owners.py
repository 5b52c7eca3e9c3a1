"""Who owns the instance that a request goes to: its session, its client, or the handle that it names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol

from gaia.mcp.config.server_config import Instances
from gaia.mcp.gateway.instances.handles import HANDLE_KEY, Handle, Handles, UnknownHandle

_MOST_HANDLES = 1_000
_HANDLE_SECONDS = 1_800.0


class OwnedRequest(Protocol):
    """What is to be known of a request, to find its owner."""

    method: str
    meta: Mapping[str, Any]
    """Its `_meta`."""
    address: str | None
    """The IP address that it came from."""
    handle: Handle | None
    """The handle that it uses, from the first server that it goes to on."""

    @property
    def identity(self) -> str:
        """The name of its client, "" if clients have none."""

    @property
    def session(self) -> Hashable | None:
        """The session that it belongs to; None in the stateless era."""

    def after_end(self, act: Callable[[], object]) -> None:
        """Call `act` once it is answered or cancelled."""


class _Client(NamedTuple):
    """A client as an owner."""

    identity: str


def identity_of(owner: object) -> str:
    """The name of the client that an owner of instances belongs to: a session, a client or a handle; "" without one."""
    found: str = getattr(owner, "identity", "")
    return found


class InstanceOwners:
    """Belongs to the gateway's event loop."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_gone: Callable[[Hashable], None],
        on_unknown: Callable[[OwnedRequest, str], None] = lambda *_: None,
        most_handles_each: Callable[[], int] = lambda: _MOST_HANDLES,
    ) -> None:
        """`on_gone` is told of owners that do not exist any more; sessions are told of by `Sessions`.

        ``most_handles_each()`` is how many handles one client may have.

        `on_unknown` is told of requests with a handle that is not their client's, and of what the client is told.
        """
        self._on_unknown = on_unknown
        self._handles = Handles(
            clock, on_gone, most=_MOST_HANDLES, most_each=most_handles_each, idle_seconds=_HANDLE_SECONDS
        )

    def owner_of(self, request: OwnedRequest, instances: Instances) -> tuple[Hashable, Handle | None]:
        """The owner, and the handle that the client is to be told of, if it is a new one. Raises RequestRefused.

        A client of the stateless era that names no handle has one process for all of its requests.
        """
        if instances == "per-client" or request.session is not None:
            return self.owner_of_session(request.session, request.identity, instances), None
        given = request.meta.get(HANDLE_KEY)
        if given is None:
            return _Client(request.identity), None
        handle = request.handle
        if handle is None:
            try:
                handle = request.handle = self._handles.use(given, request.identity)
            except UnknownHandle as unknown:
                self._on_unknown(request, unknown.message)
                raise
            request.after_end(functools.partial(self._handles.done, handle))
        return handle, None if handle.text == given else handle

    def owner_of_session(self, session: object, identity: str, instances: Instances) -> object:
        """The owner of the processes that requests in a session of the client `identity` go to."""
        return _Client(identity) if instances == "per-client" else session

    def expire(self) -> None:
        """End handles that were not used for long."""
        self._handles.expire()
