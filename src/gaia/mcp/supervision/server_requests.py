"""Requests of one server to the client, from their arrival to the answer.

User code gives the answers, and waits for people and models. A plain function runs on a callback thread, so that
neither a reader, nor another server, nor another kind of request waits for a person. An async function runs on the
event loop of the caller, or on the engine's if the caller has none, and needs no thread. Both run in the context of the
call whose question it is. Known folders are listed at once.

While a question is open, the clocks of the calls to which it may belong stand still (`Call.stand_still`).

A server request ends exactly once: answered, refused, expired, or withdrawn because its answer is not needed any more.
Withdrawal and expiry cancel the user code's scope (`gaia.runtime.cancellation`).
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from gaia.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Refusal,
    Request,
    RequestId,
    encode_result,
    value_size,
)
from gaia.mcp.protocol.rounds import MAX_ROUNDS
from gaia.mcp.protocol.server_questions import elicitation_id
from gaia.mcp.rpc.call import Call, RequestOwner
from gaia.mcp.rpc.call_origin import NO_ORIGIN, CallOrigin, common_origin
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.client_features import METHODS, ClientFeatures
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import DeadlineHandle, Expiring
from gaia.runtime.locks import end_once, reentrant_lock
from gaia.runtime.log import exception_text, get_logger

if TYPE_CHECKING:
    import asyncio

    from gaia.runtime.loop_work import LoopWork

logger = get_logger(__name__)


_MAX_OPEN_BYTES = 32 * 1024 * 1024
"""Bytes of these requests together, including pictures for a model."""

_MAX_THREADS = 256
"""Threads that wait in plain functions for one kind of request of one server; further requests wait for a thread."""

_MAX_STANDSTILL = MAX_ROUNDS
"""How often in all a call's clock may stand still for the time of a question, as in the stateless era."""

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
        self.task: asyncio.Task[None] | None = None
        """Runs the async function that answers. A loop by itself holds its tasks weakly."""
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

    def __init__(
        self,
        server: str,
        features: ClientFeatures,
        pool: CallbackPool,
        clock: Clock,
        timeout: float,
        max_open: int = 1024,
    ) -> None:
        """User code runs on `pool` and gets `timeout` seconds for each answer.

        A server may have `max_open` requests of one kind open at once; more are refused.
        """
        self.features = features
        self.run_user_code = features.run_user_code
        self._server = server
        self._pool = pool
        self._max_open = max_open
        self._groups = {method: pool.group(server, _MAX_THREADS) for method in METHODS}
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

    def ask(
        self, method: str, params: Mapping[str, Any], on_done: OnAnswered, origin: CallOrigin = NO_ORIGIN
    ) -> ServerRequest:
        """Have user code answer a request with an offered `method`, in the context and on the loop of `origin`.

        `on_done` is called once, on the thread that ends the server request, and must be quick. The caller must enforce
        the deadline.
        """
        server_request = self._new(on_done)
        if self.features.answers_at_once(method):
            self._answer_here(server_request, method, params)
            return server_request
        if not self._hold(server_request, method, params):
            return server_request
        try:
            self.note_url(elicitation_id(method, params))
            context = origin.context()
            if self.features.is_async(method):
                loop = origin.loop or self._pool.loop()
                loop.post(lambda: self._begin_task(loop, server_request, method, params, context))
            else:
                self._groups[method].lane().post(
                    functools.partial(context.run, self._answer_here, server_request, method, params)
                )
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
            if refusal is None and len(held) >= self._max_open:
                refusal = Refusal(INTERNAL_ERROR, f"{self._max_open} requests wait already; ask again later")
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

    def asked(self, connection: Connection, request: Request, watch: Callable[[Expiring], None]) -> bool:
        """Have a request answered; False if the method is not offered. `watch` enforces the deadline."""
        if not self.features.offers(request.method):
            return False
        key = (connection, request.id)
        with self._lock:
            known = key in self._by_request
        if known:
            connection.requests.refuse(request, INVALID_REQUEST, "a request with this id has not been answered yet")
            return True
        calls = connection.calls_behind(request.call_id)
        for call in calls:
            call.stand_still(self._clock.monotonic(), _MAX_STANDSTILL * self._timeout)

        def on_done(result: dict[str, Any] | None, refusal: Refusal | None) -> None:
            self._go_on(calls, watch)
            self._reply(connection, request, result, refusal)

        if self.features.relayed:
            server_request = self.relay(connection.owners_of(request.call_id), request, on_done)
        else:
            origin = common_origin(call.origin for call in calls)
            server_request = self.ask(request.method, request.params, on_done, origin)
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

    def _go_on(self, calls: Sequence[Call], watch: Callable[[Expiring], None]) -> None:
        now = self._clock.monotonic()
        for call in calls:
            call.go_on(now)
            # A thread that waits for the call would only look again at the later deadline.
            watch(call)

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

    def _answer_here(self, server_request: ServerRequest, method: str, params: Mapping[str, Any]) -> None:
        """Let `features` answer. Runs on a callback thread, unless no user code is needed."""
        with self._concluding(server_request, method):
            if not server_request.ended:
                question = self.features.question(self._server, method, params)
                _finish(server_request, question.result_of(question.ask()))

    def _begin_task(
        self, work: LoopWork, server_request: ServerRequest, method: str, params: Mapping[str, Any], context: Context
    ) -> None:
        """Let `features` answer in a task. Runs on the loop, or on any thread once the loop is closed."""
        loop = work.loop
        if loop is None or loop.is_closed() or server_request.ended:
            server_request.finish(refusal=Refusal(INTERNAL_ERROR, _NO_ANSWER))
            self._let_go(server_request, method)
            return
        server_request.task = task = loop.create_task(self._answer(server_request, method, params), context=context)
        server_request.scope.on_cancel(lambda: work.post(task.cancel))
        # A task that is cancelled before its first step never enters `_answer`.
        task.add_done_callback(lambda _: self._let_go(server_request, method))

    async def _answer(self, server_request: ServerRequest, method: str, params: Mapping[str, Any]) -> None:
        with self._concluding(server_request, method):
            question = self.features.question(self._server, method, params)
            _finish(server_request, question.result_of(await question.ask()))

    @contextlib.contextmanager
    def _concluding(self, server_request: ServerRequest, method: str) -> Iterator[None]:
        refusal = Refusal(INTERNAL_ERROR, _NO_ANSWER)
        try:
            with server_request.scope.entered():
                yield
        except Refusal as refused:
            refusal = refused
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and the server waits for an answer
            logger.error("server_request_failed", server=self._server, method=method, error=exception_text(error))
        finally:
            # Needed if user code raised SystemExit. Does nothing if the server request has already ended.
            server_request.finish(refusal=refusal)
            self._let_go(server_request, method)


def _finish(server_request: ServerRequest, result: dict[str, Any]) -> None:
    # Raises ValueError for a result that is not JSON, while it can still be refused.
    encode_result("", result)
    server_request.finish(result)


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
