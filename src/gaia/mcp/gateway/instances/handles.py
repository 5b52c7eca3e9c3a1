"""Owners of processes, and handles: owners for clients of the stateless era, which have no sessions.

A client that wants its own instances sends ``"gaia.mcp/instances": "new"`` in the `_meta` of a request. The result's
`_meta` has the handle in the same place, and the client sends it in further requests. A handle cannot be guessed, works
only for the client that got it, and expires when it is not used. With a key that several gateways share, it says,
encrypted, which client that is, so another gateway accepts it. The processes are not there.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import orjson

from gaia.mcp.config.server_config import Instances
from gaia.mcp.gateway.messages import RequestRefused, may_have, with_members
from gaia.mcp.gateway.upstream.sealing import ID_SECONDS, MAX_ID, SealBroken, StateSeal
from gaia.mcp.protocol.messages import INVALID_PARAMS

HANDLE_KEY = "gaia.mcp/instances"

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_META = msgspec.Raw(b"null")

_NEW = "new"
_BYTES = 24
_BINDING = b"handle"


class ClientOwner(NamedTuple):
    identity: str


def identity_of(owner: object) -> str:
    """The client's name behind an owner (a session, a `ClientOwner` or a handle); "" without one."""
    found: str = getattr(owner, "identity", "")
    return found


def owner_of_session(session: object, identity: str, instances: Instances) -> object:
    return ClientOwner(identity) if instances == "per-client" else session


class UnknownHandle(RequestRefused):
    """The handle belongs to another client, has expired, or never existed."""


@dataclass(eq=False)
class Handle:
    """A client's right to its own instances, and their owner. Compared by identity."""

    text: str
    identity: str
    is_continued: bool = False
    """Whether another gateway has made it, or this one has ended it because it was not used."""
    used_at: float = 0.0
    under_way: int = 0


class Handles:
    """All handles, least recently used first. Belongs to the gateway's event loop."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_expired: Callable[[Handle], None],
        most_each: Callable[[], int],
        *,
        most: int = 1_000,
        idle_seconds: float = 1_800.0,
        seal: StateSeal | None = None,
    ) -> None:
        """With `most` handles, a new one ends the least recently used unused one of the client with the most handles.

        A client with `most_each()` handles loses one of them for each new one. A handle ends after `idle_seconds`
        without use. `on_expired` is called with each handle that ends. `seal` is that of several gateways.
        """
        self._seal = seal
        self._clock = clock
        self._on_expired = on_expired
        self._most = most
        self._most_each = most_each
        self._idle_seconds = idle_seconds
        self._handles: OrderedDict[str, Handle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles)

    def use(self, given: object, identity: str) -> Handle:
        """The given handle, or a new one for "new"; `done` must follow. Raises UnknownHandle and RequestRefused."""
        self.expire()
        if given == _NEW:
            handle = self._keep(Handle(self._new_text(identity), identity))
        else:
            found = (self._handles.get(given) or self._continued(given)) if isinstance(given, str) else None
            if found is None or found.identity != identity:
                raise UnknownHandle(
                    INVALID_PARAMS,
                    f'_meta {HANDLE_KEY}: there is no such handle, or it has expired; give "new" to get another one',
                )
            handle = found if found.text in self._handles else self._keep(found)
            self._handles.move_to_end(handle.text)
        handle.under_way += 1
        handle.used_at = self._clock()
        return handle

    def done(self, handle: Handle) -> None:
        handle.under_way -= 1
        handle.used_at = self._clock()
        if handle.text in self._handles:
            # Keep the handles in the order of `used_at`.
            self._handles.move_to_end(handle.text)

    def end(self, handle: Handle) -> None:
        if self._handles.pop(handle.text, None) is not None:
            self._on_expired(handle)

    def expire(self) -> None:
        long_ago = self._clock() - self._idle_seconds
        for handle in list(self._handles.values()):
            if handle.used_at > long_ago:
                return
            if not handle.under_way:
                self.end(handle)

    def _new_text(self, identity: str) -> str:
        if self._seal is None:
            return secrets.token_urlsafe(_BYTES)
        return self._seal.seal({"of": identity}, _BINDING, ID_SECONDS)

    def _continued(self, text: str) -> Handle | None:
        """A handle that is not here, if a gateway with the same key has given it."""
        if self._seal is None or len(text) > MAX_ID:
            return None
        try:
            return Handle(text, self._seal.open(text, _BINDING)["of"], is_continued=True)
        except SealBroken:
            return None

    def _keep(self, handle: Handle) -> Handle:
        identity = handle.identity
        counts = Counter(handle.identity for handle in self._handles.values())
        has_share = counts[identity] >= self._most_each()
        if has_share or len(self._handles) >= self._most:
            clients = [identity] if has_share else [client for client, _ in counts.most_common()]
            unused = [one for one in self._handles.values() if not one.under_way]
            victim = next((one for client in clients for one in unused if one.identity == client), None)
            if victim is None:
                raise RequestRefused(INVALID_PARAMS, "there are too many clients with instances; try again later")
            self.end(victim)
        self._handles[handle.text] = handle
        return handle


def with_handle(result: bytes, handle: Handle) -> bytes:
    if may_have(result, b'"_meta"'):
        # Values stay encoded, because a number may be too large to be decoded.
        members = _members.decode(result)
        meta = members.get("_meta", _NO_META)
        own = {**(_members.decode(meta) if bytes(meta)[:1] == b"{" else {}), HANDLE_KEY: handle.text}
        return msgspec.json.encode({**members, "_meta": own})
    return with_members(result, b'"_meta":' + orjson.dumps({HANDLE_KEY: handle.text}))
