"""`RelayedCall`: one request of a client at a server, over all its rounds."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import orjson
from opentelemetry import context as contexts

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.errors import CallCancelled, InputMissing, InvalidResponse, JsonRpcError, MCPError, UnknownTool
from gaia.mcp.gateway.upstream.rounds import PARK_SECONDS, ClientSide, OnEnd, Relayed, Rounds, check_offered, offers
from gaia.mcp.gateway.upstream.sealing import SealBroken, binding_of
from gaia.mcp.protocol.eras import MISSING_CAPABILITY
from gaia.mcp.protocol.exchange import Send
from gaia.mcp.protocol.messages import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Refusal
from gaia.mcp.protocol.rounds import InputRequest, InputRequired
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.requests.submitted_request import SubmittedRequest
from gaia.mcp.rpc.call import Call, OnAnswer
from gaia.mcp.supervision.server_requests import ServerRequest
from gaia.runtime.log import exception_text, get_logger, traceback_text
from gaia.runtime.loop_work import running_loop_work
from gaia.telemetry import spans

logger = get_logger(__name__)

_OPTIONS = CallOptions()

_AWAY_SECONDS = 60.0
"""Seconds after which a parked call whose client is away gives way to other calls, see `RequestOwner.is_away`."""

_QUESTION_SECONDS = PARK_SECONDS


class RelayedCall(SubmittedRequest):
    """A request at a server's process. The client answers the server's questions.

    Belongs to the gateway's event loop, except for the methods of `RequestOwner`.
    """

    __slots__ = (
        "_asked_count",
        "_is_over",
        "_method",
        "_missing_capability",
        "_on_end",
        "_outcome",
        "_params",
        "_parked_at",
        "_process",
        "_questions",
        "_rounds",
        "_timer",
        "_work",
        "client",
    )

    def __init__(
        self,
        process: MCPClient,
        rounds: Rounds,
        method: str,
        params: dict[str, Any],
        client: ClientSide,
        on_end: OnEnd,
    ) -> None:
        """`params` may have encoded members (`orjson.Fragment`) without line breaks.

        `on_end` is called once, possibly during the start of the call, unless the call is cancelled. Raises `MCPError`
        for a request that is not allowed.
        """
        engine, generation = process._engine, client.generation
        requests = engine.requests if generation is None else engine.requests_of(generation)
        exchange = _new_exchange(process, method, params)
        if exchange.observation is not None and client.identity:
            exchange.observation.of_client(client.identity)
        super().__init__(requests, exchange)
        exchange.owner, exchange.deadline = self, client.deadline
        self.loop = self._work = running_loop_work()
        self.client = client
        """The request that receives the answer. When a parked call continues, the client's next request replaces it."""
        self._process = process
        self._rounds = rounds
        self._method = method
        self._params = params
        self._on_end: OnEnd | None = on_end
        """None while the call is parked, and after its end."""
        self._questions: dict[str, tuple[InputRequest, ServerRequest]] = {}
        """Unanswered questions of a server of the handshake era, or of a round, by the server's keys."""
        self._asked_count = 0
        self._missing_capability: str | None = None
        """A capability that the server needs and the client has not declared."""
        self._outcome: Relayed | None = None
        """The outcome of a call that ended while it was parked."""
        self._parked_at: float | None = None
        """Monotonic reading at the start of parking; None if the call is not parked. Any thread may read it."""
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        """Set while a client of the handshake era is asked for the input that a stateless server requires."""

    # For the client's side.

    def cancel(self, reason: str) -> None:
        """Cancel the call; `on_end` is not called. Does nothing if the call has ended."""
        if self._is_over:
            return
        self._is_over, self._on_end = True, None
        self.cancel_request(CallCancelled(reason))
        self._drop_questions(reason)
        if self._timer is not None:
            # No round is under way that would end, because the client is being asked.
            self._not_answered(CallCancelled(reason))

    def go_on(self, params: Mapping[str, Any], client: ClientSide, on_end: OnEnd) -> None:
        """Continue a parked call, whose client has sent its request again with answers."""
        self.client, self._on_end, self._parked_at = client, on_end, None
        try:
            responses = orjson.loads(orjson.dumps(params.get("inputResponses") or {}))
        except ValueError:
            # For example, a number may be too large. The questions then count as not answered.
            responses = None
        for key in list(self._questions):
            given = responses.get(key) if isinstance(responses, dict) else None
            self._question_answered(key, given if isinstance(given, dict) else None, None)
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            self._end(outcome)
        elif self._questions:
            self._park()

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
            logger.error("relay_failed", server=self._process.name, error=text, exception=trace)

    def ended(self) -> None:
        self._work.run_soon(self._ended)

    def _ended(self) -> None:
        exchange = self.exchange
        exchange.end()
        error, result = exchange.error, exchange.raw
        exchange.params, exchange.raw = None, b""
        # Otherwise the request and its body would wait for the garbage collector.
        exchange.owner = None
        if error is None and exchange.facts.result_type == "input_required" and self.client.is_stateless:
            # The client would trust such a result, and answer questions that the gateway has not checked.
            error = InvalidResponse(f"{self._method}: the server requires input, which its revision has not")
        facts = exchange.facts
        self._end(Relayed(b"" if error is not None else result, error, facts.is_error is True, facts.has_type))

    def _end(self, relayed: Relayed) -> None:
        if self._is_over:
            return
        on_end, error = self._on_end, relayed.error
        if on_end is None:
            # The call is parked. Its client receives the result with its next request.
            self._outcome = self._outcome or relayed
            self._drop_questions("the call has ended")
            return
        self._is_over, self._on_end = True, None
        self._drop_questions("the call has ended")
        self._params = {}
        if self._missing_capability is not None and isinstance(error, JsonRpcError) and self.client.is_stateless:
            # A server of the client's own era would have sent this error.
            data: dict[str, Any] = {"requiredCapabilities": {self._missing_capability: {}}}
            relayed = Relayed(error=JsonRpcError(MISSING_CAPABILITY, error.message, data))
        on_end(relayed)

    def _binding(self) -> bytes:
        return binding_of(self._process.name, self.client.identity, self._method, self._params)

    # A server of the stateless era requires input.

    def ask(self) -> None:
        exchange, required = self.exchange, self.exchange.required
        assert required is not None, "that is why the client is asked"
        if self._is_over:
            self.fail(CallCancelled("the client does not want the answer any more"))
        elif self.client.is_stateless:
            relayed = Relayed(self._rounds.sealed(exchange.raw, self.client, self._binding()))
            exchange.end()
            exchange.owner = None
            self._end(relayed)
        else:
            try:
                check_offered(required, self.client)
            except InvalidResponse as error:
                self.fail(error)
            else:
                self._ask_session(required)

    def _ask_session(self, required: InputRequired) -> None:
        """Ask a client of the handshake era, and begin the next round when it has answered all questions."""
        requests = required.requests or {}
        answers: dict[str, Any] = {}
        self.exchange.deadline = None
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
            if self._is_over:
                return
            if result is None:
                self._not_answered(_missing(f"inputRequests.{key[:40]}: {refusal or 'not answered'}"))
                return
            answers[key] = result
            if len(answers) == len(requests):
                next_round()

        for key, request in requests.items():
            self._questions[key] = (request, ServerRequest(math.inf, 0.0, functools.partial(answered, key)))
        for key in requests:
            if key in self._questions:
                self._ask(key)
        if not requests:
            next_round()

    def _not_answered(self, error: MCPError) -> None:
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
        # Sessions receive the log messages of servers of the handshake era independently of calls.
        if not (self.client.is_stateless or self._process._engine.requests.is_stateless):
            return

        def log() -> None:
            if self._on_end is not None:
                self.client.log(params)

        self._work.run_soon(log)

    def refusal(self, tool: str) -> MCPError | None:
        # Check again, because after a start or restart the server may list the tool with other annotations.
        found = self._process._engine.tool_calls.catalog.get(tool)
        if self.client.may_call(self._process.name, tool, None if found is None else found.annotations):
            return None
        return UnknownTool(f"Unknown tool: {tool}")

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        # The client that connects the server limits the time of the question.
        question = ServerRequest(math.inf, 0.0, answer)
        # Posted even from the loop, because the call may not know its round trip yet.
        self._work.post(functools.partial(self._asked, InputRequest(method, dict(params)), question))
        return lambda: self._work.post(functools.partial(self._withdrawn, question))

    # On the loop again.

    def _asked(self, request: InputRequest, question: ServerRequest) -> None:
        if question.ended:
            return
        refusal: Refusal | None = None
        if self._is_over or self._outcome is not None or self.under_way is None:
            refusal = Refusal(INVALID_REQUEST, "the call that the request belongs to has ended")
        elif not offers(self.client.capabilities, request.method, request.params):
            self._missing_capability = request.method.partition("/")[0]
            refusal = Refusal(METHOD_NOT_FOUND, f"the client does not offer {request.method[:100]}")
        elif self.client.is_stateless and not self._rounds.has_room(self.client.identity):
            refusal = Refusal(INVALID_REQUEST, "too many calls wait for answers of clients")
        if refusal is not None:
            question.finish(refusal=refusal)
            return
        self._asked_count += 1
        key = str(self._asked_count)
        self._questions[key] = (request, question)
        if not self.client.is_stateless:
            self._ask(key)
        elif self._on_end is not None:
            self._park()

    def _ask(self, key: str) -> None:
        request, question = self._questions[key]
        answered = functools.partial(self._question_answered, key)
        try:
            question.scope.on_cancel(self.client.ask(request.method, request.params, answered))
        except Refusal as refusal:
            answered(None, refusal)

    def _question_answered(self, key: str, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        if key not in self._questions:
            return
        _, question = self._questions.pop(key)
        if result is None and refusal is None:
            refusal = Refusal(INVALID_REQUEST, "the client has not answered")
        question.finish(result, refusal)

    def _withdrawn(self, question: ServerRequest) -> None:
        self._questions = {key: asked for key, asked in self._questions.items() if asked[1] is not question}
        question.withdraw()

    def _drop_questions(self, reason: str) -> None:
        questions, self._questions = self._questions, {}
        for _, question in questions.values():
            question.finish(refusal=Refusal(INVALID_REQUEST, reason))
            # Withdraws the question at the client.
            question.scope.cancel()

    # Parked: a client of the stateless era is to answer a server of the handshake era.

    def _park(self) -> None:
        on_end, self._on_end = self._on_end, None
        assert on_end is not None, "its client waits"
        self._parked_at = time.monotonic()
        requests = {key: request for key, (request, _) in self._questions.items()}
        on_end(Relayed(self._rounds.park(self, requests, self._binding())))

    def _give_way(self) -> None:
        if self._parked_at is None or self._is_over:
            # The client has come back meanwhile, or the call was cancelled.
            return
        reason = f"the client has not answered within {_AWAY_SECONDS:g} s, and the server had to ask another one"
        self._end(Relayed(error=_missing(reason)))
        self.cancel_request(CallCancelled(reason))


def _new_exchange(process: MCPClient, method: str, params: dict[str, Any]) -> RequestExchange:
    """The exchange with the server. Raises `ToolDenied` for a tool that may not be called."""
    # The span of the request continues the client's trace.
    parent = None if spans.tracing_is_off() else spans.remote_parent(params.get("_meta"))
    token = None if parent is None else contexts.attach(parent)
    try:
        if method == "tools/call":
            return process._engine.tool_calls.new_request(params["name"], params.get("arguments"), _OPTIONS, params)
        target = params.get("name")
        send = Send(method, params, target=target if isinstance(target, str) else None)
        return process._engine.requests.new_request(send)
    finally:
        if token is not None:
            contexts.detach(token)


def _missing(text: str) -> InputMissing:
    return InputMissing(text, delivery="unknown")


def relay_error(error: Exception) -> MCPError:
    if isinstance(error, MCPError):
        return error
    if isinstance(error, (SealBroken, ValueError)):
        # A client may send values that the encoder refuses.
        refused = JsonRpcError(INVALID_PARAMS, str(error))
        refused.delivery = "not_sent"
        return refused
    logger.error("relay_failed", error=exception_text(error), exception=traceback_text(error))
    return InvalidResponse("internal error of the gateway")
