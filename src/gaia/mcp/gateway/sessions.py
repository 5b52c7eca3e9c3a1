"""Sessions of clients of the handshake era. Clients of the stateless era have none."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from gaia.mcp.client.protocol.messages import INTERNAL_ERROR, Refusal, RequestId
from gaia.mcp.gateway.client_messages import encode_notification, encode_request
from gaia.mcp.gateway.pending_request import PendingRequest

__all__ = ["Session", "Sessions"]

Answer = Callable[[dict[str, Any] | None, Refusal | None], None]


class Session:
    """What one client has said of itself, and what is under way for it. Belongs to the gateway's event loop."""

    def __init__(self, identifier: str, path: str, owner: object) -> None:
        self.id = identifier
        self.path = path
        """The endpoint's path; a session is valid there only."""
        self.owner = owner
        """The principal that opened it; for others it does not exist."""
        self.revision = ""
        self.capabilities: Mapping[str, Any] = {}
        self.client_info: Mapping[str, Any] = {}
        self.log_level: str | None = None
        self.requests: dict[RequestId, PendingRequest] = {}
        """By the client's ids."""
        self._asked: dict[RequestId, Answer] = {}
        self._numbers = itertools.count(1)

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
        """The client has answered a request; unknown ones are ignored."""
        answer = self._asked.pop(identifier, None)
        if answer is not None:
            answer(result, refusal)

    def end(self) -> None:
        """Cancel what is under way."""
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer(None, Refusal(INTERNAL_ERROR, "the client has ended its session"))
        for request in list(self.requests.values()):
            request.cancel("the client has ended its session")
        self.requests.clear()


class Sessions:
    """Belongs to the gateway's event loop."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, path: str, owner: object) -> Session:
        session = Session(secrets.token_urlsafe(24), path, owner)
        self._sessions[session.id] = session
        return session

    def find(self, identifier: str, path: str, owner: object) -> Session | None:
        session = self._sessions.get(identifier)
        if session is None or session.path != path or session.owner != owner:
            return None
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        session.end()

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)
