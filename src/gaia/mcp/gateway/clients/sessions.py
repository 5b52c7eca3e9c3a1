"""Sessions of clients of the handshake era. Clients of the stateless era have none.

With a key that several gateways share, the id of a session says, encrypted, what `initialize` agreed on, so another
gateway goes on with the session. The ids of events on its stream say what the client wants to be told of.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.messages import RequestRefused, encode_notification, encode_request, is_wanted
from gaia.mcp.gateway.upstream.rounds import Answer
from gaia.mcp.gateway.upstream.sealing import ID_SECONDS, MAX_ID, SealBroken, StateSeal
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.upstream_servers import Kind
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.gateway_answers import NOT_SENT
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_REQUEST, Refusal, RequestId

_MAX_KEPT_CHANGES = 1_000
"""Notifications about changes that are kept for a session without a stream."""

_MAX_STREAMS = 8

_MAX_DELETED = 10_000
"""Deleted sessions whose sealed ids this gateway remembers. The oldest is forgotten for another one."""

_QUESTION = "gateway-"
"""Questions of gateways have ids that begin with this."""


class Handshake(NamedTuple):
    """What a client has said in `initialize`, and the revision that was agreed on."""

    revision: str = ""
    capabilities: Mapping[str, Any] = {}
    program: str = ""
    """The client's name and version of itself, cut to a maximum length."""


_NOT_SAID = Handshake()

_URI_BYTES = 2_900
"""Bytes of resources in the id of an event, which is no longer than `MAX_ID` with its other parts."""

_EVENT_IDS_SINCE = "2025-11-25"
"""The first revision whose clients expect events without a message."""


class Wishes(NamedTuple):
    """What a client wants to be told of, apart from changes of lists."""

    since: float = 0.0
    """When the client has said so last, in seconds since the epoch."""
    log_level: str | None = None
    uris: Sequence[str] = ()
    """The resources that it watches."""


class MessageStream(Protocol):
    """Sends the client messages that belong to none of its requests."""

    def send(self, message: bytes) -> None: ...

    def note(self, event_id: str) -> None:
        """Send an event without a message. The client repeats its id when it opens the next stream."""

    def end(self) -> None: ...


class SessionRequest(Protocol):
    method: str

    def cancel(self, reason: str) -> None: ...


class Session:
    """One client's state and open requests; an `Audience`. Belongs to the gateway's event loop."""

    def __init__(
        self,
        identifier: str,
        view: View,
        owner: Principal | None,
        handshake: Handshake = _NOT_SAID,
        *,
        is_continued: bool = False,
        seal: StateSeal | None = None,
    ) -> None:
        self.id = identifier
        self._seal = seal
        self.view = view
        """The session is valid only at the path of this view."""
        self.owner = owner
        """The principal that opened the session. For other principals the session does not exist."""
        self.identity = "" if owner is None else owner.name
        self.revision, self.capabilities, self.program = handshake
        self.is_continued = is_continued
        """Whether another gateway has opened the session, or this one has ended it because it was idle."""
        self.is_open = is_continued
        """Whether the client has the answer to `initialize`, and with it the id."""
        self.log_level: str | None = None
        self.mark = _mark_of(identifier)
        """The session's name in the audit. The id itself would let a reader use the session."""
        self.lasts = False
        """Whether the session ends with the client's connection, and not because it is idle."""
        self.requests: dict[RequestId, SessionRequest] = {}
        self.used_at = 0.0
        """Clock reading of the client's last message, or of the last sweep that found an open request."""
        self.is_over = False
        self._watched: dict[str, None] = {}
        self._wished_at = 0.0
        self._streams: list[MessageStream] = []
        self._kept_changes: dict[bytes, None] = {}
        """Notifications about changes from times without a stream, without duplicates."""
        self._asked: dict[RequestId, Answer] = {}
        # Another gateway that goes on with the session must not take an answer for that to a question of its own.
        self._questions = f"{_QUESTION}{secrets.token_hex(8)}-"
        self._numbers = itertools.count(1)

    @property
    def is_idle(self) -> bool:
        """Whether the session has no open requests and no streams, so that it may end to make room for another."""
        return not self.requests and not self._streams

    # The server's stream.

    def open_stream(self, stream: MessageStream) -> bool:
        """Send messages that belong to no request to `stream` from now on. False if there are too many streams."""
        if len(self._streams) >= _MAX_STREAMS:
            return False
        self._streams.append(stream)
        if self._wished_at:
            self._note()
        kept, self._kept_changes = self._kept_changes, {}
        for message in kept:
            stream.send(message)
        return True

    def close_stream(self, stream: MessageStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)

    def _changed(self, message: bytes) -> None:
        if self._streams:
            # The specification forbids to send one message on several streams.
            self._streams[-1].send(message)
        elif len(self._kept_changes) < _MAX_KEPT_CHANGES:
            self._kept_changes[message] = None

    # As an audience.

    def list_changed(self, kind: Kind) -> None:
        self._changed(encode_notification(f"notifications/{kind}/list_changed", None))

    def resource_updated(self, uri: str) -> None:
        self._changed(encode_notification("notifications/resources/updated", {"uri": uri}))

    def server_log(self, message: dict[str, Any]) -> None:
        if self._streams and is_wanted(message["level"], self.log_level):
            self._streams[-1].send(encode_notification("notifications/message", message))

    # What the client wants to be told of, for another gateway.

    def watched(self, uri: str, *, is_watched: bool) -> None:
        """Note that the client watches a resource, or no longer."""
        if is_watched:
            self._watched[uri] = None
        else:
            self._watched.pop(uri, None)
        self.wished()

    def wished(self) -> None:
        self._wished_at = time.time()
        self._note()

    def wishes_of(self, event_id: str) -> Wishes | None:
        """What the client has said since, by the id of an event of another gateway; None if that is nothing new."""
        try:
            if self._seal is None or len(event_id) > MAX_ID:
                return None
            wishes = Wishes(*self._seal.open(event_id, self._events)["wants"])
        except SealBroken:
            return None
        return wishes if wishes.since > self._wished_at else None

    def _note(self) -> None:
        if self._seal is None or not self._streams or self.revision < _EVENT_IDS_SINCE:
            return
        wants = {"wants": [self._wished_at, self.log_level, _that_fit(self._watched)]}
        self._streams[-1].note(self._seal.seal(wants, self._events, ID_SECONDS))

    @property
    def _events(self) -> bytes:
        return b"events " + self.id.encode()

    # Questions of servers.

    def ask(
        self, method: str, params: Mapping[str, Any], answer: Answer, send: Callable[[bytes], None]
    ) -> Callable[[], None]:
        """Send the client a request. Returns a function that withdraws it."""
        number = f"{self._questions}{next(self._numbers)}"
        self._asked[number] = answer
        send(encode_request(number, method, params))

        def withdraw() -> None:
            if self._asked.pop(number, None) is not None:
                send(encode_notification("notifications/cancelled", {"requestId": number}))

        return withdraw

    def answered(self, identifier: RequestId, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        """Pass on the client's answer to a request of the gateway. Answers to unknown requests are ignored.

        Raises `RequestRefused` for the answer to a question of another gateway.
        """
        answer = self._asked.pop(identifier, None)
        if answer is not None:
            answer(result, refusal)
            return
        asker = identifier if isinstance(identifier, str) else ""
        if asker.startswith(_QUESTION) and not asker.startswith(self._questions):
            text = "another gateway has asked this, and the answer has to reach that one"
            raise RequestRefused(INVALID_REQUEST, text, status=409)

    def dismiss(self) -> None:
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.end()

    def end(self) -> None:
        self.is_over = True
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer(None, Refusal(INTERNAL_ERROR, "the client has ended its session"))
        for request in list(self.requests.values()):
            request.cancel("the session has ended")
        self.dismiss()


class Sessions:
    """All sessions, least recently used first. Belongs to the gateway's event loop."""

    def __init__(
        self,
        changes: Notifier,
        clock: Callable[[], float],
        *,
        most: int,
        idle_seconds: float,
        prefix: str = "",
        seal: StateSeal | None = None,
    ) -> None:
        """With `most` sessions, a new one may end another, see `_to_make_room`. Ids begin with `prefix`.

        With the `seal` of several gateways, sessions of the others go on here. None: each session is of this one alone.
        """
        self._seal = seal
        self._deleted: dict[str, None] = {}
        """The marks of deleted sessions, the oldest first."""
        self._changes = changes
        self._clock = clock
        self.most = most
        self._prefix = prefix
        self._is_closed = False
        self._idle_seconds = idle_seconds
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._counts: Counter[Principal | None] = Counter()
        self.on_ended: Callable[[Session], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def close(self) -> None:
        self._is_closed = True

    def open(self, view: View, owner: Principal | None, handshake: Handshake = _NOT_SAID) -> Session | None:
        """Open a session. None if there are too many and none can be ended, or after `close`."""
        if self._is_closed:
            return None
        return self._add(Session(self._new_id(view, owner, handshake), view, owner, handshake, seal=self._seal))

    def _add(self, session: Session) -> Session | None:
        owner = session.owner
        if len(self) >= self.most:
            victim = self._to_make_room(owner)
            if victim is None:
                return None
            self.end(victim)
        session.used_at = self._clock()
        self._sessions[session.id] = session
        self._counts[owner] += 1
        self._changes.add(session)
        return session

    # Ids that other gateways can open.

    def _new_id(self, view: View, owner: Principal | None, handshake: Handshake) -> str:
        if self._seal is not None:
            facts = {"of": _name_of(owner), "at": _place_of(view), "with": list(handshake)}
            # A session whose capabilities are large, or cannot be encoded, is of this gateway alone.
            with contextlib.suppress(TypeError):
                identifier = self._prefix + self._seal.seal(facts, _binding(self._prefix), ID_SECONDS)
                if len(identifier) <= MAX_ID:
                    return identifier
        return self._prefix + secrets.token_urlsafe(24)

    def _sealed(self, identifier: str) -> dict[str, Any] | None:
        """What the id of a session says that is not here; None if no gateway with this key has given it."""
        if self._seal is None or len(identifier) > MAX_ID or _mark_of(identifier) in self._deleted:
            return None
        prefix, dot, sealed = identifier.rpartition(".")
        try:
            return self._seal.open(sealed, _binding(prefix + dot))
        except SealBroken:
            return None

    def _continued(self, identifier: str, view: View, owner: Principal | None) -> Session | None:
        facts = self._sealed(identifier)
        if facts is None or (facts["of"], facts["at"]) != (_name_of(owner), _place_of(view)):
            return None
        handshake = Handshake(*facts["with"])
        session = self._add(Session(identifier, view, owner, handshake, is_continued=True, seal=self._seal))
        if session is None:
            raise RequestRefused(NOT_SENT, "the gateway takes no further sessions now", status=503)
        return session

    def _to_make_room(self, newcomer: Principal | None) -> Session | None:
        """The session that ends for a new one; None if no session may end.

        It is the least recently used idle session of the principal with the most sessions. If that principal has no
        idle session, the principal with the next most sessions follows. The newcomer's own sessions come last. A
        principal that uses more than half of all sessions loses one of them even if none is idle.
        """
        for owner, count in self._counts.most_common():
            own = [session for session in self if session.owner == owner]
            idle = next((session for session in own if session.is_idle), None)
            if idle is not None or owner == newcomer:
                return idle
            if count > self.most // 2:
                return own[0]
        return None

    def find(self, identifier: str, view: View, owner: Principal | None) -> Session | None:
        """The session with this id, which counts as used now; None if it belongs to another view or owner.

        Raises `RequestRefused` if it is the session of another gateway and there are too many here.
        """
        session = self._sessions.get(identifier) or self._continued(identifier, view, owner)
        if session is None or session.view is not view or session.owner != owner:
            return None
        # The principal is equal by name, and has the current profile.
        session.owner = owner
        self._use(session)
        return session

    def belongs_to_another(self, identifier: str, owner: Principal | None) -> bool:
        session = self._sessions.get(identifier)
        if session is not None:
            return session.owner != owner
        facts = self._sealed(identifier)
        return facts is not None and facts["of"] != _name_of(owner)

    def _use(self, session: Session) -> None:
        session.used_at = self._clock()
        self._sessions.move_to_end(session.id)

    def delete(self, session: Session) -> None:
        """End a session as its client wants it. This gateway does not go on with it either."""
        if self._seal is not None:
            self._deleted[session.mark] = None
            if len(self._deleted) > _MAX_DELETED:
                del self._deleted[next(iter(self._deleted))]
        self.end(session)

    def end(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._counts[session.owner] -= 1
            if not self._counts[session.owner]:
                del self._counts[session.owner]
            self._changes.remove(session)
            session.end()
            self.on_ended(session)

    def end_idle(self) -> None:
        """End sessions that were not used for long. The gateway calls it at intervals."""
        long_ago = self._clock() - self._idle_seconds
        for session in list(self):
            if session.requests or session.lasts:
                # The idle time begins after the last call. Streams do not count, because proxies keep the streams of
                # dead clients.
                self._use(session)
            elif session.used_at <= long_ago:
                self.end(session)

    def end_all(self) -> None:
        for session in list(self):
            self.end(session)


def _that_fit(uris: Iterable[str]) -> list[str]:
    """Those of the resources for which the id of an event has room."""
    found, room = [], _URI_BYTES
    for uri in uris:
        # The length is compared first, because texts may be long, and there may be many.
        if len(uri) < room and (size := len(orjson.dumps(uri)) + 1) <= room:
            found.append(uri)
            room -= size
    return found


def _mark_of(identifier: str) -> str:
    return hashlib.sha256(identifier.encode()).hexdigest()[:16]


def _name_of(owner: Principal | None) -> str | None:
    return None if owner is None else owner.name


def _place_of(view: View) -> list[str | None]:
    """The path and the profile: the same at gateways that show the client the same there."""
    return [view.server, view.profile.fingerprint]


def _binding(prefix: str) -> bytes:
    return b"session " + prefix.encode()
