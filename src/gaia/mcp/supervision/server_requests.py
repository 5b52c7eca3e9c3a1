"""Requests of one server to the client, from their arrival to the answer.

User code gives the answers, and waits for people and models. Each server has a few callback threads for each kind of
request, so that neither a reader, nor another server, nor another kind of request waits for a person. Known folders are
listed at once, without a thread.

A server request ends exactly once: answered, refused, expired, or withdrawn because its answer is not needed any more.
Withdrawal and expiry cancel the user code's scope (`gaia.runtime.cancellation`).
"""

from __future__ import annotations

import contextvars
import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gaia.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Refusal,
    Request,
    RequestId,
    encode_result,
    value_size,
)
from gaia.mcp.protocol.server_questions import elicitation_id
from gaia.mcp.rpc.call import RequestOwner
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.client_features import METHODS, ClientFeatures
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import DeadlineHandle
from gaia.runtime.locks import end_once, reentrant_lock
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_MAX_OPEN = 32
"""Requests of one kind that a server may have open at once; more are refused."""

_MAX_OPEN_BYTES = 32 * 1024 * 1024
"""Bytes of these requests together, including pictures for a model."""

_THREADS = 4
_MAX_URLS = 1000
"""Ids of URL elicitations that are remembered for the server's `notifications/elicitation/complete`."""

_MAX_URL_ID = 1024

OnAnswered = Callable[[dict[str, Any] | None, Refusal | None], object]
"""Called with the result or the refusal; with neither if the server request was withdrawn."""


class ServerRequest:
    """One request of the server. `deadline` is a reading of the clock. Thread-safe."""

    def __init__(self, deadline: float, timeout: float, on_done: OnAnswered) -> None:
        self.deadline = deadline
        self._timeout = timeout
        self.scope = CancelScope()
        self.watched: DeadlineHandle | None = None
        self._outcome: dict[None, tuple[Any, ...]] = {}
        self._on_done = on_done

    @property
    def ended(self) -> bool:
        return bool(self._outcome)

    def finish(self, result: dict[str, Any] | None = None, refusal: Refusal | None = None) -> bool:
        """End it; with neither argument, withdraw it. False if it had already ended."""
        return end_once(self._outcome, (result, refusal), self._conclude)

    def _conclude(self, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        self._on_done(result, refusal)
        if self.watched is not None:
            self.watched.release()

    def expire(self) -> None:
        if self.finish(refusal=Refusal(INTERNAL_ERROR, f"not answered within {self._timeout:g} s")):
            self.scope.cancel()

    def withdraw(self) -> None:
        if self.finish():
            self.scope.cancel()


class ServerRequests:
    """The open requests of one server. Thread-safe."""

    def __init__(self, server: str, features: ClientFeatures, pool: CallbackPool, clock: Clock, timeout: float) -> None:
        """User code runs on `pool` and gets `timeout` seconds for each answer."""
        self.features = features
        self._server = server
        self._groups = {method: pool.group(server, _THREADS) for method in METHODS}
        self._clock = clock
        self._timeout = timeout
        self._lock = reentrant_lock()
        self._open: set[ServerRequest] = set()
        self._held: dict[str, dict[ServerRequest, int]] = {method: {} for method in METHODS}
        """By method: the requests that user code has or will get, with their sizes in bytes. A request that has ended
        stays here until user code has returned, or a thread has skipped it."""
        self._by_request: dict[tuple[Connection, RequestId], ServerRequest] = {}
        self._urls: deque[str] = deque(maxlen=_MAX_URLS)

    def deadline(self) -> float:
        return self._clock.monotonic() + self._timeout

    def ask(self, method: str, params: Mapping[str, Any], on_done: OnAnswered) -> ServerRequest:
        """Have user code answer a request with an offered `method`.

        `on_done` is called once, on the thread that ends the server request, and must be quick. The caller must enforce
        the deadline.
        """
        server_request = self._new(on_done)
        if self.features.answers_at_once(method):
            self._answer(server_request, method, params)
            return server_request
        if not self._hold(server_request, method, params):
            return server_request
        try:
            self.note_url(elicitation_id(method, params))
            # In the context of this thread, so that the spans and the cancellation of the user code belong to it.
            context = contextvars.copy_context()

            def run() -> None:
                try:
                    context.run(self._answer, server_request, method, params)
                finally:
                    self._let_go(server_request, method)

            self._groups[method].lane().post(run)
        except BaseException:
            self._let_go(server_request, method)
            raise
        return server_request

    def relay(self, owners: Sequence[RequestOwner], request: Request, on_done: OnAnswered) -> ServerRequest:
        """Have the gateway's client with a call in flight answer. No code of the application runs."""
        server_request = self._new(on_done, request.method)
        if (refusal := _refusal_to_relay(owners)) is not None:
            present = [owner for owner in owners if not owner.is_away]
            if _refusal_to_relay(present) is None:
                for owner in owners:
                    if owner not in present:
                        owner.give_way()
                owners, refusal = present, None
        if not self._hold(server_request, request.method, request.params, refusal):
            return server_request
        self.note_url(elicitation_id(request.method, request.params))
        server_request.scope.on_cancel(owners[-1].asked(request.method, request.params, server_request.finish))
        return server_request

    def _new(self, on_done: OnAnswered, relayed: str | None = None) -> ServerRequest:
        """A request with a deadline. One with the method `relayed` is held until it has ended."""

        def ended(result: dict[str, Any] | None, refusal: Refusal | None) -> None:
            with self._lock:
                self._open.discard(server_request)
            if relayed is not None:
                self._let_go(server_request, relayed)
            on_done(result, refusal)

        server_request = ServerRequest(self.deadline(), self._timeout, ended)
        return server_request

    def _hold(
        self, server_request: ServerRequest, method: str, params: Mapping[str, Any], refusal: Refusal | None = None
    ) -> bool:
        """Make room for a request. Without room, or with a `refusal`, this refuses it and returns False."""
        size = value_size(params)
        with self._lock:
            held = self._held[method]
            if refusal is None and len(held) >= _MAX_OPEN:
                refusal = Refusal(INTERNAL_ERROR, f"{_MAX_OPEN} requests wait already; ask again later")
            elif refusal is None and sum(held.values()) + size > _MAX_OPEN_BYTES:
                refusal = Refusal(INTERNAL_ERROR, "the request is too long, together with those that wait already")
            elif refusal is None:
                self._open.add(server_request)
                held[server_request] = size
        if refusal is not None:
            server_request.finish(refusal=refusal)
        return refusal is None

    def _let_go(self, server_request: ServerRequest, method: str) -> None:
        with self._lock:
            self._held[method].pop(server_request, None)

    def withdraw_all(self) -> None:
        with self._lock:
            opened = list(self._open)
        for server_request in opened:
            server_request.withdraw()

    def note_url(self, identifier: object) -> None:
        """Remember the id of a URL to which a person is sent: the server may later report that it is done."""
        if isinstance(identifier, str) and len(identifier) <= _MAX_URL_ID:
            with self._lock:
                self._urls.append(identifier)

    def completes(self, identifier: str) -> bool:
        """Whether a person was sent to a URL with this id. Other ids MUST be ignored ("Elicitation")."""
        with self._lock:
            return identifier in self._urls

    # JSON-RPC requests, in the handshake era. The first two methods run on the reader's thread.

    def asked(self, connection: Connection, request: Request, watch: Callable[[ServerRequest], None]) -> bool:
        """Have a request answered; False if the method is not offered. `watch` enforces the deadline."""
        if not self.features.offers(request.method):
            return False
        key = (connection, request.id)
        with self._lock:
            known = key in self._by_request
        if known:
            connection.requests.refuse(request, INVALID_REQUEST, "a request with this id has not been answered yet")
            return True
        on_done = functools.partial(self._reply, connection, request)
        if self.features.relayed:
            server_request = self.relay(connection.owners_of(request.call_id), request, on_done)
        else:
            server_request = self.ask(request.method, request.params, on_done)
        with self._lock:
            # It may have ended meanwhile; if it ends later, `_reply` finds it here.
            if server_request in self._open:
                self._by_request[key] = server_request
        # The supervisor sets the state before it withdraws the requests of a connection. So either the supervisor finds
        # this request, or this thread sees the state.
        if connection.state is ConnectionState.CLOSED:
            server_request.withdraw()
        watch(server_request)
        return True

    def cancelled(self, connection: Connection, identifier: RequestId) -> None:
        with self._lock:
            server_request = self._by_request.get((connection, identifier))
        if server_request is not None:
            logger.debug("server_request_withdrawn", server=self._server, request_id=identifier)
            server_request.withdraw()

    def has_open(self, connection: Connection) -> bool:
        with self._lock:
            return any(asker is connection for asker, _ in self._by_request)

    def lost(self, connection: Connection) -> None:
        with self._lock:
            asked = [one for (asker, _), one in self._by_request.items() if asker is connection]
        for server_request in asked:
            server_request.withdraw()

    def _reply(
        self, connection: Connection, request: Request, result: dict[str, Any] | None, refusal: Refusal | None
    ) -> None:
        with self._lock:
            self._by_request.pop((connection, request.id), None)
        if refusal is not None:
            connection.requests.refuse(request, refusal.code, refusal.message)
        elif result is not None:
            connection.requests.answer(request, result)
        else:
            connection.requests.withdraw(request)

    def _answer(self, server_request: ServerRequest, method: str, params: Mapping[str, Any]) -> None:
        """Let `features` answer. Runs on a callback thread, unless no user code is needed."""
        if server_request.ended:
            return
        refusal = Refusal(INTERNAL_ERROR, _NO_ANSWER)
        try:
            with server_request.scope.entered():
                result = self.features.answer(self._server, method, params)
            # Raises ValueError for a result that is not JSON, while it can still be refused.
            encode_result("", result)
        except Refusal as refused:
            refusal = refused
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and the server waits for an answer
            logger.error("server_request_failed", server=self._server, method=method, error=exception_text(error))
        else:
            server_request.finish(result)
        finally:
            # Needed if user code raised SystemExit. Does nothing if the server request has already ended.
            server_request.finish(refusal=refusal)


def _refusal_to_relay(owners: Sequence[RequestOwner]) -> Refusal | None:
    """The refusal if it is unclear which client a server's request is for. A client's last call takes the request."""
    if len(owners) == 1:
        return None
    clients = {owner.client_key for owner in owners}
    if len(clients) == 1 and None not in clients:
        return None
    if not owners:
        return Refusal(INVALID_REQUEST, "no client has a call under way that the request could belong to")
    text = (
        f"{len(owners)} calls of clients are under way, and the request does not say to which it belongs; "
        'with "instances": "per-session" in its configuration, each client has a server of its own'
    )
    return Refusal(INVALID_REQUEST, text)


_NO_ANSWER = "the client could not answer"
"""The server learns no more than this about internal errors and exceptions in user code."""
