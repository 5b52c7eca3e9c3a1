"""What clients of the stateless era name their instances with: handles, which stand for sessions.

A client that wants instances of its own sends ``"gaia.mcp/instances": "new"`` in the `_meta` of a request. The result's
`_meta` has the handle in the same place, and the client sends that in its further requests. A handle cannot be guessed,
only the client that it was given to can use it, and it expires when it is not used.
"""

from __future__ import annotations

import functools
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
import orjson

from gaia.mcp.config.server_config import Instances
from gaia.mcp.gateway.messages import RequestRefused, may_have, with_members
from gaia.mcp.protocol.messages import INVALID_PARAMS

HANDLE_KEY = "gaia.mcp/instances"
"""The member of `_meta`, in requests and in results."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_META = msgspec.Raw(b"null")

_NEW = "new"
_BYTES = 24


class UnknownHandle(RequestRefused):
    """The handle is not this client's, has expired, or was guessed."""


class Handle:
    """One client's right to its instances. It is their owner: two are equal if they are the same."""

    def __init__(self, text: str, identity: str) -> None:
        self.text = text
        self.identity = identity
        """The client that it was given to."""
        self.used_at = 0.0
        """A reading of the clock, in seconds."""
        self.under_way = 0
        """Requests that use it now."""


class Handles:
    """All handles, the one used last at the end. Belongs to the gateway's event loop."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_expired: Callable[[Handle], None],
        *,
        most: int,
        most_each: Callable[[], int],
        idle_seconds: float,
    ) -> None:
        """With `most` handles, another one ends the one that was not used for longest, of the client with the most.

        A client that has `most_each()` of them loses one of its own for each further one.

        `on_expired` is told of each handle that ends. One that has not been used for `idle_seconds` ends.
        """
        self._clock = clock
        self._on_expired = on_expired
        self._most = most
        self._most_each = most_each
        self._idle_seconds = idle_seconds
        self._handles: OrderedDict[str, Handle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles)

    def use(self, given: object, identity: str) -> Handle:
        """The handle of a request of the client `identity`, which has `given` one, or gets a new one for "new".

        `done` has to follow. Raises UnknownHandle, and RequestRefused if there are too many.
        """
        self.expire()
        if given == _NEW:
            handle = self._issue(identity)
        else:
            found = self._handles.get(given) if isinstance(given, str) else None
            if found is None or found.identity != identity:
                raise UnknownHandle(
                    INVALID_PARAMS,
                    f'_meta {HANDLE_KEY}: there is no such handle, or it has expired; give "new" to get another one',
                )
            handle = found
            self._handles.move_to_end(handle.text)
        handle.under_way += 1
        handle.used_at = self._clock()
        return handle

    def done(self, handle: Handle) -> None:
        """A request that has used it has ended."""
        handle.under_way -= 1
        handle.used_at = self._clock()
        if handle.text in self._handles:
            # The order is that of their times.
            self._handles.move_to_end(handle.text)

    def end(self, handle: Handle) -> None:
        """It is not valid any more."""
        if self._handles.pop(handle.text, None) is not None:
            self._on_expired(handle)

    def expire(self) -> None:
        """End those that have not been used for long."""
        long_ago = self._clock() - self._idle_seconds
        for handle in list(self._handles.values()):
            if handle.used_at > long_ago:
                return
            if not handle.under_way:
                self.end(handle)

    def _issue(self, identity: str) -> Handle:
        counts = Counter(handle.identity for handle in self._handles.values())
        has_share = counts[identity] >= self._most_each()
        if has_share or len(self._handles) >= self._most:
            unused = self._unused_of([identity] if has_share else [client for client, _ in counts.most_common()])
            if unused is None:
                raise RequestRefused(INVALID_PARAMS, "there are too many clients with instances; try again later")
            self.end(unused)
        handle = Handle(secrets.token_urlsafe(_BYTES), identity)
        self._handles[handle.text] = handle
        return handle

    def _unused_of(self, identities: Iterable[str]) -> Handle | None:
        """The one that was not used for longest, of the first of these clients that has an unused one."""
        for identity in identities:
            for handle in self._handles.values():
                if handle.identity == identity and not handle.under_way:
                    return handle
        return None


def with_handle(result: bytes, handle: Handle) -> bytes:
    """A result, a JSON object, that tells the client its handle."""
    if may_have(result, b'"_meta"'):
        # Values stay as they are: a number may be too large to be decoded.
        members = _members.decode(result)
        meta = members.get("_meta", _NO_META)
        own = {**(_members.decode(meta) if bytes(meta)[:1] == b"{" else {}), HANDLE_KEY: handle.text}
        return msgspec.json.encode({**members, "_meta": own})
    return with_members(result, b'"_meta":' + orjson.dumps({HANDLE_KEY: handle.text}))


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
