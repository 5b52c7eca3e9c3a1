"""`RelayedCall`: one request of a client at a server, over all its rounds."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import orjson

from gaia.mcp.errors import CallCancelled, InputMissing, InvalidResponse, JsonRpcError, MCPError
from gaia.mcp.gateway.upstream.client_side import ClientSide, offers
from gaia.mcp.gateway.upstream.rounds import PARK_SECONDS, OnEnd, Relayed, check_offered
from gaia.mcp.gateway.upstream.sealing import SealBroken
from gaia.mcp.gateway.upstream.upstream import Upstream
from gaia.mcp.protocol.eras import MISSING_CAPABILITY
from gaia.mcp.protocol.messages import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Refusal
from gaia.mcp.protocol.rounds import InputRequired
from gaia.mcp.requests.submitted_request import SubmittedRequest
from gaia.mcp.rpc.call import Call, OnAnswer
from gaia.runtime.log import exception_text, get_logger, traceback_text

logger = get_logger(__name__)

_AWAY_SECONDS = 60.0
"""Seconds after which a parked call without its client gives way to other calls, see `RequestOwner.is_away`."""

_QUESTION_SECONDS = PARK_SECONDS
"""Seconds that a client may take to answer a server's request."""


class _Question:
    """One request of a server during a call. It ends once: `answer` is called, or the server withdraws it."""

    __slots__ = ("answer", "is_over", "method", "params", "withdraw")

    def __init__(self, method: str, params: dict[str, Any], answer: OnAnswer) -> None:
        self.method = method
        self.params = params
        self.answer = answer
        self.withdraw: Callable[[], object] = lambda: None
        """Withdraws the question at the client."""
        self.is_over = False


class RelayedCall(SubmittedRequest):
    """Belongs to the gateway's event loop, except for the methods of `RequestOwner`. The client answers questions."""

    __slots__ = (
        "_asked_count",
        "_binding",
        "_is_over",
        "_method",
        "_missing_capability",
        "_on_end",
        "_outcome",
        "_params",
        "_parked_at",
        "_questions",
        "_timer",
        "_upstream",
        "_work",
        "client",
    )

    def __init__(
        self, upstream: Upstream, method: str, params: dict[str, Any], client: ClientSide, on_end: OnEnd
    ) -> None:
        """`params` may have encoded members (`orjson.Fragment`) without line breaks.

        `on_end` is called once, possibly during the start of the call, unless the call is cancelled. Raises `MCPError`
        for a request that may not be passed on.
        """
        exchange = upstream.new_exchange(method, params)
        if exchange.observation is not None:
            client.observation = exchange.observation
            if client.identity:
                exchange.observation.of_client(client.identity)
        super().__init__(upstream.client._engine.trips, exchange)
        exchange.owner = self
        self.loop = self._work = upstream.work
        self.client = client
        """The request that gets the answer. The client's next request replaces it when it continues a parked call."""
        self._upstream = upstream
        self._method = method
        self._params = params
        self._on_end: OnEnd | None = on_end
        """None while the call is parked, and once it is over."""
        self._questions: dict[str, _Question] = {}
        """Unanswered questions of a server of the handshake era; or those of the round, by the server's keys."""
        self._asked_count = 0
        self._missing_capability: str | None = None
        """The capability that the server asked for and the client has not declared."""
        self._outcome: Relayed | None = None
        """The end of the call, if it ended while it was parked."""
        self._parked_at: float | None = None
        """Start of parking, a reading of the monotonic clock; None if it is not parked. Any thread may read it."""
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        """Set while a client of the handshake era is asked what a server of the other era requires."""
        self._binding: bytes | None = None

    # For the client's side.

    def cancel(self, reason: str) -> None:
        """Cancel the call; `on_end` is not called. Does nothing if the call has ended."""
        if self._is_over:
            return
        self._is_over, self._on_end = True, None
        self.cancel_request(CallCancelled(reason))
        self._drop_questions(reason)
        if self._timer is not None:
            # The client is asked, so no round is under way that would end.
            self._stop_timer()
            self.fail(CallCancelled(reason))

    # Rounds, see `SubmittedRequest`.

    @property
    def wants_progress(self) -> bool:
        return self.client.wants_progress

    def progressed(self, params: Mapping[str, Any]) -> None:
        def report() -> None:
            if self._on_end is not None:
                self.client.progress(dict(params))

        self._work.run_soon(report)

    def answered(self, call: Call) -> None:
        self._work.run_soon(functools.partial(self.next_step, call))

    def next_step(self, call: Call) -> None:
        try:
            super().next_step(call)
        except Exception as error:  # noqa: BLE001 - the client has been answered, and the loop must go on
            text, trace = exception_text(error), traceback_text(error)
            logger.error("relay_failed", server=self._upstream.client.name, error=text, exception=trace)

    def ended(self) -> None:
        self._work.run_soon(self._ended)

    def _ended(self) -> None:
        exchange = self.exchange
        exchange.end()
        error, result = exchange.error, exchange.raw
        exchange.params, exchange.raw = None, b""
        if error is None and exchange.facts.result_type == "input_required" and self.client.is_stateless:
            # The client would trust such a result, and answer questions that were not checked.
            error = InvalidResponse(f"{self._method}: the server requires input, which its revision has not")
        self._end(Relayed(b"" if error is not None else result, error, exchange.facts.is_error is True))

    def _end(self, relayed: Relayed) -> None:
        if self._is_over:
            return
        on_end = self._on_end
        if on_end is None:
            # The call is parked. Its client gets the result when it comes back.
            self._outcome = self._outcome or relayed
            self._drop_questions("the call has ended")
            return
        self._is_over, self._on_end = True, None
        self._drop_questions("the call has ended")
        self._params = {}
        if (
            self._missing_capability is not None
            and isinstance(relayed.error, JsonRpcError)
            and self.client.is_stateless
        ):
            # The error that a server of the client's own era would have sent.
            name = self._missing_capability
            error = JsonRpcError(MISSING_CAPABILITY, relayed.error.message, {"requiredCapabilities": {name: {}}})
            relayed = Relayed(error=error)
        on_end(relayed)

    # A server of the stateless era requires input.

    @property
    def binding(self) -> bytes:
        """The hash that ties the sealed state to this request."""
        if self._binding is None:
            self._binding = self._upstream.binding(self._method, self._params, self.client)
        return self._binding

    def ask(self) -> None:
        exchange, required = self.exchange, self.exchange.required
        assert required is not None, "that is why the client is asked"
        if self._is_over:
            self.fail(CallCancelled("the client does not want the answer any more"))
            return
        if self.client.is_stateless:
            relayed = Relayed(self._upstream.rounds.sealed(exchange.raw, self.client, self.binding))
            exchange.end()
            self._end(relayed)
            return
        try:
            check_offered(required, self.client)
        except InvalidResponse as error:
            self.fail(error)
        else:
            self._ask_session(required)

    def _ask_session(self, required: InputRequired) -> None:
        """Ask a client of the handshake era, and begin the next round when it has answered everything."""
        answers: dict[str, Any] = {}
        self._timer = asyncio.get_running_loop().call_later(
            _QUESTION_SECONDS, self._not_answered, _missing("the client has not answered in time")
        )

        def next_round() -> None:
            self._stop_timer()
            self._questions.clear()
            try:
                self.input_arrived(answers)
            except (ValueError, RecursionError) as error:
                self.fail(_missing(f"the client's answers cannot be passed on: {error}"))

        def answered(key: str, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
            if self._is_over or key in answers:
                return
            if result is None:
                self._not_answered(_missing(f"inputRequests.{key[:40]}: {refusal or 'not answered'}"))
                return
            answers[key] = result
            if len(answers) == len(required.requests or {}):
                next_round()

        for key, request in (required.requests or {}).items():
            self._questions[key] = _Question(request.method, request.params, functools.partial(answered, key))
        for question in list(self._questions.values()):
            if not question.is_over:
                self._ask(question)
        if not required.requests:
            next_round()

    def _not_answered(self, error: InputMissing) -> None:
        self._stop_timer()
        self.fail(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # A server of the handshake era asks (`RequestOwner`). These methods run on any thread.

    @property
    def client_key(self) -> Hashable | None:
        return self.client.key

    @property
    def is_away(self) -> bool:
        since = self._parked_at
        return since is not None and time.monotonic() - since > _AWAY_SECONDS

    def give_way(self) -> None:
        self._work.post(self._give_way)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.client.capabilities

    @property
    def log_level(self) -> str | None:
        return self.client.log_level

    def logged(self, params: dict[str, Any]) -> None:
        # Sessions get the log messages of servers of the handshake era anyway, with or without a call there.
        if not (self.client.is_stateless or self._upstream.is_stateless):
            return

        def log() -> None:
            if self._on_end is not None:
                self.client.log(params)

        self._work.run_soon(log)

    def refusal(self, tool: str) -> MCPError | None:
        # Check again: after a start or restart the server may list the tool with other annotations.
        client = self._upstream.client
        found = client._engine.tool_calls.catalog.get(tool)
        if self.client.may_call(client.name, tool, None if found is None else found.annotations):
            return None
        return JsonRpcError(INVALID_PARAMS, f"Unknown tool: {tool}")

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        question = _Question(method, dict(params), answer)
        # Posted even from the loop: the call may not know its round trip yet.
        self._work.post(functools.partial(self._asked, question))
        return lambda: self._work.post(functools.partial(self._withdrawn, question))

    # On the loop again.

    def _asked(self, question: _Question) -> None:
        if question.is_over:
            return
        if self._is_over or self._outcome is not None or self.under_way is None:
            self._close(question, None, Refusal(INVALID_REQUEST, "the call that the request belongs to has ended"))
        elif not offers(self.client.capabilities, question.method, question.params):
            text = f"the client does not offer {question.method[:100]}"
            self._missing_capability = question.method.partition("/")[0]
            self._close(question, None, Refusal(METHOD_NOT_FOUND, text))
        elif self.client.is_stateless and not self._upstream.rounds.has_room(self.client.identity):
            self._close(question, None, Refusal(INVALID_REQUEST, "too many calls wait for answers of clients"))
        else:
            self._asked_count += 1
            self._questions[str(self._asked_count)] = question
            # The client of the server limits the time of the question itself.
            self.allow(_QUESTION_SECONDS + self.requests.session.timeout)
            if not self.client.is_stateless:
                self._ask(question)
            elif self._on_end is not None:
                self._park()

    def _ask(self, question: _Question) -> None:
        """Ask a client of the handshake era."""
        try:
            withdraw = self.client.ask(
                question.method, question.params, functools.partial(self._question_answered, question)
            )
        except Refusal as refusal:
            self._question_answered(question, None, refusal)
        else:
            question.withdraw = withdraw

    def _question_answered(self, question: _Question, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        if question.is_over:
            return
        self._forget(question)
        self._close(question, result, refusal)
        if not self._questions:
            self.allow()

    def _withdrawn(self, question: _Question) -> None:
        """The server no longer needs the answer."""
        if not question.is_over:
            question.is_over = True
            self._forget(question)
            question.withdraw()

    def _close(self, question: _Question, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        question.is_over = True
        if result is None and refusal is None:
            refusal = Refusal(INVALID_REQUEST, "the client has not answered")
        question.answer(result, refusal)

    def _forget(self, question: _Question) -> None:
        self._questions = {key: other for key, other in self._questions.items() if other is not question}

    def _drop_questions(self, reason: str) -> None:
        questions, self._questions = self._questions, {}
        for question in questions.values():
            if not question.is_over:
                question.withdraw()
                self._close(question, None, Refusal(INVALID_REQUEST, reason))

    # Parked: a client of the stateless era is to answer a server of the handshake era.

    def _park(self) -> None:
        on_end, self._on_end = self._on_end, None
        assert on_end is not None, "its client waits"
        requests = {
            key: {"method": question.method, "params": question.params} for key, question in self._questions.items()
        }
        self._parked_at = time.monotonic()
        on_end(Relayed(self._upstream.rounds.park(self, requests, self.binding)))

    def _give_way(self) -> None:
        if self._parked_at is None or self._is_over:
            # The client has come back meanwhile, or the call was cancelled.
            return
        reason = f"the client has not answered within {_AWAY_SECONDS:g} s, and the server had to ask another one"
        self._end(Relayed(error=_missing(reason)))
        self.cancel_request(CallCancelled(reason))

    def go_on(self, params: Mapping[str, Any], client: ClientSide, on_end: OnEnd) -> None:
        """Continue a parked call: the client has sent its request again, with answers."""
        self.client, self._on_end, self._parked_at = client, on_end, None
        try:
            responses = orjson.loads(orjson.dumps(params.get("inputResponses") or {}))
        except ValueError:
            # For example a number that is too large. The questions then count as not answered.
            responses = None
        for key, question in list(self._questions.items()):
            given = responses.get(key) if isinstance(responses, dict) else None
            answer = given if isinstance(given, dict) else None
            self._question_answered(question, answer, None)
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            self._end(outcome)
        elif self._questions:
            self._park()


def _missing(text: str) -> InputMissing:
    return InputMissing(text, delivery="unknown")


class EndingOnError:
    """A block that passes a request on. If it raises, `on_end` gets the error; nothing else would end the request."""

    __slots__ = ("_on_end",)

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, MCPError):
            if isinstance(error, (SealBroken, ValueError)):
                # A client may send values that cannot be encoded.
                refused = JsonRpcError(INVALID_PARAMS, str(error))
                refused.delivery = "not_sent"
                error = refused
            else:
                logger.error("relay_failed", error=exception_text(error), exception=traceback_text(error))
                error = InvalidResponse("internal error of the gateway")
        self._on_end(Relayed(error=error))
        return True
