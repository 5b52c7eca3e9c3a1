"""Sessions of clients of the handshake era. Clients of the stateless era have none."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.messages import encode_notification, encode_request, is_wanted
from gaia.mcp.gateway.upstream.rounds import Answer
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.upstream_servers import Kind
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.messages import INTERNAL_ERROR, Refusal, RequestId

_MAX_KEPT_CHANGES = 1_000
"""Notifications about changes that are kept for a session without a stream."""

_MAX_STREAMS = 8


class MessageStream(Protocol):
    """Sends the client messages that belong to none of its requests."""

    def send(self, message: bytes) -> None: ...

    def end(self) -> None: ...


class SessionRequest(Protocol):
    method: str

    def cancel(self, reason: str) -> None: ...


class Session:
    """One client's state and open requests; an `Audience`. Belongs to the gateway's event loop."""

    def __init__(self, identifier: str, view: View, owner: Principal | None) -> None:
        self.id = identifier
        self.view = view
        """The session is valid only at the path of this view."""
        self.owner = owner
        """The principal that opened the session. For other principals the session does not exist."""
        self.identity = "" if owner is None else owner.name
        self.revision = ""
        """The revision agreed on by `initialize`; "" before."""
        self.capabilities: Mapping[str, Any] = {}
        self.program = ""
        """The client's name and version of itself, cut to a maximum length."""
        self.log_level: str | None = None
        self.mark = hashlib.sha256(identifier.encode()).hexdigest()[:16]
        """The session's name in the audit. The id itself would let a reader use the session."""
        self.lasts = False
        """Whether the session ends with the client's connection, and not because it is idle."""
        self.requests: dict[RequestId, SessionRequest] = {}
        self.used_at = 0.0
        """Clock reading of the client's last message, or of the last sweep that found an open request."""
        self._streams: list[MessageStream] = []
        self._kept_changes: dict[bytes, None] = {}
        """Notifications about changes from times without a stream, without duplicates."""
        self._asked: dict[RequestId, Answer] = {}
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

    # Questions of servers.

    def ask(
        self, method: str, params: Mapping[str, Any], answer: Answer, send: Callable[[bytes], None]
    ) -> Callable[[], None]:
        """Send the client a request. Returns a function that withdraws it."""
        number = f"gateway-{next(self._numbers)}"
        self._asked[number] = answer
        send(encode_request(number, method, params))

        def withdraw() -> None:
            if self._asked.pop(number, None) is not None:
                send(encode_notification("notifications/cancelled", {"requestId": number}))

        return withdraw

    def answered(self, identifier: RequestId, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        """Pass on the client's answer to a request of the gateway. Answers to unknown requests are ignored."""
        answer = self._asked.pop(identifier, None)
        if answer is not None:
            answer(result, refusal)

    def dismiss(self) -> None:
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.end()

    def end(self) -> None:
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer(None, Refusal(INTERNAL_ERROR, "the client has ended its session"))
        for request in list(self.requests.values()):
            request.cancel("the session has ended")
        self.dismiss()


class Sessions:
    """All sessions, least recently used first. Belongs to the gateway's event loop."""

    def __init__(
        self, changes: Notifier, clock: Callable[[], float], *, most: int, idle_seconds: float, prefix: str = ""
    ) -> None:
        """With `most` sessions, a new one may end another, see `_to_make_room`. Ids begin with `prefix`."""
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

    def open(self, view: View, owner: Principal | None) -> Session | None:
        """Open a session. None if there are too many and none can be ended, or after `close`."""
        if self._is_closed:
            return None
        if len(self) >= self.most:
            victim = self._to_make_room(owner)
            if victim is None:
                return None
            self.end(victim)
        session = Session(self._prefix + secrets.token_urlsafe(24), view, owner)
        session.used_at = self._clock()
        self._sessions[session.id] = session
        self._counts[owner] += 1
        self._changes.add(session)
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
        """The session with this id, which counts as used now; None if it belongs to another view or owner."""
        session = self._sessions.get(identifier)
        if session is None or session.view is not view or session.owner != owner:
            return None
        # The principal is equal by name, and has the current profile.
        session.owner = owner
        self._use(session)
        return session

    def belongs_to_another(self, identifier: str, owner: Principal | None) -> bool:
        session = self._sessions.get(identifier)
        return session is not None and session.owner != owner

    def _use(self, session: Session) -> None:
        session.used_at = self._clock()
        self._sessions.move_to_end(session.id)

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
