"""Records each request: its CLIENT span, its duration in the metrics, and its log event."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from opentelemetry import trace
from opentelemetry.context import Context

from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.telemetry import attributes as names
from gaia.telemetry import content, metrics, spans
from gaia.telemetry.content import CaptureMode, ContentPolicy, Recorded
from gaia.telemetry.spans import SUCCESS, Attributes, ClientSpan, Executor, Outcome, ServerSpan

logger = get_logger(__name__)

_MAX_NAME = 200
"""Characters of the name of a server's request, because spans stay in memory for a while."""

_MAX_DESCRIPTIONS = 1024

_RESOURCES = frozenset(
    {"resources/read", "resources/subscribe", "resources/unsubscribe", "notifications/resources/updated"}
)

_TARGETS = {"tools/call": names.TOOL_NAME, "prompts/get": names.PROMPT_NAME}
"""Methods with a target that has few values (a tool or a prompt), and the attribute for its name."""


class _Description(NamedTuple):
    method: str
    target: str | None
    name: str
    attributes: Attributes
    tools: tuple[str, ...]


class Observer:
    """Records the requests of one client to one server. Thread-safe."""

    def __init__(self, server: str, network: Attributes | None = None, policy: ContentPolicy | None = None) -> None:
        """`network` has the attributes ``network.*`` and ``server.*`` of the conventions."""
        self.server = server
        self.policy = policy or ContentPolicy()
        self.redact: Callable[[str], str] | None = None
        """Masks the server's secrets. No content is recorded while it is None."""
        self.session_id: Callable[[], str | None] = lambda: None
        self.network: Attributes = network or {}
        """Set before the first request, and replaced as a whole by `adopt` and `reached`."""
        self._protocol_version: str | None = None
        self._descriptions: dict[tuple[str, str | None], _Description] = {}
        """Filled by any thread, and replaced as a whole when the protocol version changes."""
        self.replica: int | None = None
        self.labels: Attributes = {names.SERVER_NAME: server}
        """The attributes of what happens to the server itself."""
        self.noting = reentrant_lock()
        """Owns the attributes that the observations keep for the ends of their spans."""

    @property
    def common(self) -> dict[str, Any]:
        common: dict[str, Any] = {**self.network, names.SERVER_NAME: self.server}
        if self._protocol_version is not None:
            common[names.PROTOCOL_VERSION] = self._protocol_version
        return common

    def adopt(self, other: Observer) -> None:
        """Record like `other` from now on, because the server has another configuration."""
        self.policy, self.network = other.policy, other.network
        self._descriptions = {}

    def reached(self, network: Attributes) -> None:
        """The server is reached over `network` from now on."""
        if network != self.network:
            self.network = network
            self._descriptions = {}

    def anew(self) -> Observer:
        return Observer(self.server, self.network, self.policy)

    def of_replica(self, number: int) -> Observer:
        other = self.anew()
        other.replica, other.labels = number, {**self.labels, names.REPLICA: number}
        return other

    @property
    def protocol_version(self) -> str | None:
        return self._protocol_version

    @protocol_version.setter
    def protocol_version(self, revision: str | None) -> None:
        if revision != self._protocol_version:
            self._protocol_version = revision
            self._descriptions = {}

    def begin(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        context: Context | None = None,
        executor: Executor | None = None,
    ) -> Observation:
        """Record a message that is about to be sent. `target` is the name of the tool or prompt, if there is one.

        `context` is the context in which the message was requested; None is the current one. `executor` ends the span;
        None: the thread that reports the end does it.
        """
        description = self._descriptions.get((method, target)) or self._describe(method, target)
        span = spans.start_client_span(
            description.name, description.attributes, tools=description.tools, context=context
        )
        observation = Observation(self, description, span, executor)
        if span is not None and span.was_recording:
            observation.begun(span, params or {})
        return observation

    def follow(self, method: str, params: Mapping[str, Any], target: str) -> Observation | None:
        """Like `begin`, in the current context. None if nothing would be recorded, so that calls cost least."""
        if spans.tracing_is_off() and metrics.metering_is_off() and not logger.is_enabled_for(logging.DEBUG):
            return None
        return self.begin(method, params, target=target)

    def serve(
        self, method: str, params: Mapping[str, Any] | None, request_id: object, executor: Executor | None = None
    ) -> ServerSpan:
        """Record a request of the server, from its arrival to the answer; `executor` as for `begin`."""
        method = method[:_MAX_NAME]
        details = {} if request_id is None else {names.REQUEST_ID: str(request_id)}
        attributes = {names.METHOD_NAME: method, **self.common}
        return ServerSpan(method, attributes, details, (params or {}).get("_meta"), executor=executor)

    def refused(self, error: MCPError) -> None:
        metrics.instruments.refused.add(1, {names.SERVER_NAME: self.server, names.ERROR_TYPE: error.error_type})

    def noise_received(self, size: int) -> None:
        metrics.instruments.junk.add(size, {names.SERVER_NAME: self.server})

    def masked(self, text: str) -> str:
        return text if self.redact is None else self.redact(text)

    def _describe(self, method: str, target: str | None) -> _Description:
        attributes = {names.METHOD_NAME: method, **self.common}
        tools: tuple[str, ...] = ()
        if target is not None:
            attributes[_TARGETS[method]] = target
        if method == "tools/call":
            attributes[names.OPERATION_NAME] = names.EXECUTE_TOOL
            # The server's own name of the tool, and the name that models use.
            tools = () if target is None else (target, f"mcp_{self.server}_{target}")
        name = method if target is None else f"{method} {target}"
        if len(self._descriptions) >= _MAX_DESCRIPTIONS:
            self._descriptions = {}
        self._descriptions[(method, target)] = description = _Description(method, target, name, attributes, tools)
        return description


class Observation:
    """Records one message. Any thread may call its methods: `ended` once, the others before it."""

    # Members that are rarely set: as attributes of the class they take no time.
    _call_id: int | None = None
    _linked = False
    _stopped: tuple[float, int] | None = None
    records = False
    _mode: CaptureMode = "off"
    _client: str | None = None
    _noted: dict[str, Any] | None = None
    """The attributes that the span gets at its end, in one step; None if it gets each of them at once. The observer's
    `noting` owns it: a report of progress may come while the request is given up."""

    def __init__(
        self, observer: Observer, description: _Description, span: ClientSpan | None, executor: Executor | None
    ) -> None:
        self._observer = observer
        self._description = description
        self.span = span
        self._executor = executor
        self._started = time.perf_counter()

    def begun(self, span: ClientSpan, params: Mapping[str, Any]) -> None:
        self.records = True
        details = self._details(params)
        if span.is_ours and not spans.running_readers:
            self._noted = details
        else:
            # The span is read before its end, or it may end before the request does and take no more attributes.
            span.set_attributes(details)

    def _details(self, params: Mapping[str, Any]) -> dict[str, Any]:
        details: dict[str, Any] = {}
        observer, method, target = self._observer, self._description.method, self._description.target
        if (session := observer.session_id()) is not None:
            details[names.SESSION_ID] = session
        if method in _RESOURCES:
            details[names.RESOURCE_URI] = observer.masked(str(params.get("uri")))
        if target is None:
            return details
        # Kept for the result too: the configuration does not change during a call.
        self._mode = mode = observer.policy.mode_for(target)
        arguments = _plain(params.get("arguments"))
        if arguments is None:
            return details
        recorded = Recorded(observer.server, target, "arguments", mode if method == "tools/call" else "off", arguments)
        size, text = content.measured(recorded, observer.redact)
        if size is not None:
            details[names.ARGUMENTS_SIZE] = size
        if text is not None:
            details[names.TOOL_ARGUMENTS] = text
        if method == "prompts/get" and isinstance(arguments, Mapping):
            for name, value in arguments.items():
                _, text = content.measured(recorded._replace(mode=mode, value={name: value}), observer.redact)
                if text is not None:
                    details[f"{names.PROMPT_VARIABLE}{name}"] = text
        return details

    def of_client(self, name: str) -> None:
        """The request is made for a client of a gateway. Call this before it is sent."""
        self._client = name
        self._note({names.GATEWAY_CLIENT: name})

    def prepare(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """The params with the trace context, which the server may continue."""
        return params if self.span is None else self.span.inject(params)

    @property
    def context(self) -> Context | None:
        return None if self.span is None else self.span.context

    @property
    def trace_id(self) -> str | None:
        return None if self.span is None else self.span.trace_id()

    def numbered(self, call_id: int) -> None:
        """Note the JSON-RPC id of the request. A request with several rounds has an id for each."""
        earlier, self._call_id = self._call_id, call_id
        if self.records and self.span is not None:
            self._note({names.REQUEST_ID: str(call_id)})
            if earlier is not None:
                ids = {names.EARLIER_REQUEST_ID: str(earlier), names.REQUEST_ID: str(call_id)}
                self.span.add_event("gaia.mcp.call.round_trip", ids)

    def queued(self) -> None:
        if self.span is not None:
            self.span.add_event("gaia.mcp.call.queued", {})

    def requeued(self, reason: str) -> None:
        """The server was lost before the request was written; the request waits for the next connection."""
        self._moved("requeued", {"gaia.mcp.call.reason": reason})

    def repeated(self, call_id: int, reason: str) -> None:
        """The server was lost with the request; it will be sent again with a new id."""
        earlier, self._call_id = self._call_id, call_id
        ids = {names.EARLIER_REQUEST_ID: str(earlier), names.REQUEST_ID: str(call_id)}
        self._moved("repeated", {**ids, "gaia.mcp.call.reason": reason})
        self._note({names.REQUEST_ID: str(call_id)})

    def resumed(self) -> None:
        self._moved("resumed", {})

    def progressed(self, params: Mapping[str, Any]) -> None:
        """Note the server's progress: the numbers, but not the message, which would be content."""
        found: dict[str, float] = {}
        for name, key in ((names.PROGRESS, "progress"), (names.PROGRESS_TOTAL, "total")):
            value: Any = params.get(key)
            if type(value) in (int, float) and abs(value) <= sys.float_info.max:
                # As a float: a large integer may not fit into an exporter's format.
                found[name] = float(value)
        self._note(found)

    def _note(self, attributes: Attributes) -> None:
        if not self.records or self.span is None:
            return
        with self._observer.noting:
            if self._noted is not None:
                for name in attributes:
                    # The attribute that is set last comes last, as in the SDK.
                    self._noted.pop(name, None)
                self._noted.update(attributes)
                return
        self.span.set_attributes(attributes)

    def _moved(self, event: str, attributes: Attributes) -> None:
        """Add an event, and link once to the restart, which is the current span on the supervisor's thread."""
        if self.span is not None:
            self.span.add_event(f"gaia.mcp.call.{event}", attributes)
            if not self._linked:
                self._linked = True
                self.span.link_current()

    def stop(self) -> None:
        """Take the time of the answer; `ended` follows when the outcome is known."""
        self._stopped = (time.perf_counter(), time.time_ns())

    def ended(self, error: BaseException | None, result: Mapping[str, Any], *, handled: bool = False) -> None:
        """The request has its outcome, or was not made because of `error`. `handled`: the caller expected the error."""
        seconds = (time.perf_counter() if self._stopped is None else self._stopped[0]) - self._started
        method, counted = self._description.method, self._description.attributes
        outcome = SUCCESS
        if error is not None or result.get("isError") is True:
            outcome = _outcome(method, error, handled)
            counted = {**counted, **outcome.counted}
        if method == "initialize" and isinstance(agreed := result.get("protocolVersion"), str):
            counted = {**counted, names.PROTOCOL_VERSION: agreed}
            self._note({names.PROTOCOL_VERSION: agreed})
        if self._client is not None:
            counted = {**counted, names.GATEWAY_CLIENT: self._client.partition("/")[0]}
        metrics.instruments.operation_duration.record(seconds, counted)
        if isinstance(error, MCPError) and error.delivery == "not_sent" and error.error_type in _REFUSALS:
            self._observer.refused(error)
        if self.span is not None:
            self._end_span(self.span, outcome, result)
        if method == "tools/call" and logger.is_enabled_for(logging.DEBUG):
            self._log(seconds, None if error is None else _error_type(error), outcome)

    def _end_span(self, span: ClientSpan, outcome: Outcome, result: Mapping[str, Any]) -> None:
        now = time.time_ns() if self._stopped is None else self._stopped[1]
        if self.records:
            with self._observer.noting:
                attributes, self._noted = self._noted or {}, None
            if self._description.target is not None and result and (span.is_ours or span.is_recording):
                self._add_result(attributes, result)
            span.conclude(outcome, attributes)
        if self._executor is None:
            span.end(now)
        else:
            self._executor(lambda: span.end(now))

    def _add_result(self, attributes: dict[str, Any], result: Mapping[str, Any]) -> None:
        is_call = self._description.method == "tools/call"
        mode, observer = self._mode if is_call else "off", self._observer
        recorded = Recorded(observer.server, self._description.target or "", "result", mode, result)
        size, text = content.measured(recorded, observer.redact)
        if size is not None:
            attributes[names.RESULT_SIZE] = size
        if is_call and isinstance(blocks := result.get("content"), list):
            found = {str(block.get("type")) for block in blocks if type(block) is dict}
            attributes[names.RESULT_TYPES] = sorted(found)
        if text is not None:
            attributes[names.TOOL_RESULT] = text

    def _log(self, seconds: float, failure: str | None, outcome: Outcome) -> None:
        current = None if self.span is None else trace.get_current_span(self.span.context)
        with trace.use_span(current or trace.get_current_span(), end_on_exit=False, record_exception=False):
            logger.debug(
                "tool_called",
                server=self._observer.server,
                tool=self._description.target,
                call_id=self._call_id,
                seconds=round(seconds, 6),
                error_type=failure or outcome.error_type,
            )


def _plain(arguments: Any) -> Any:
    if type(arguments) is not orjson.Fragment:
        return arguments
    try:
        return orjson.loads(orjson.dumps(arguments))
    except ValueError:
        # For example a number too large for a double. The server handles it.
        return None


_TOOL_ERROR = Outcome(names.TOOL_ERROR, description="the tool reported an error")

_REFUSALS = frozenset({"overloaded", "server_unavailable", "needs_authorization", "not_connected"})


def _outcome(method: str, error: BaseException | None, handled: bool) -> Outcome:
    if error is None:
        return _TOOL_ERROR if method == "tools/call" else SUCCESS
    if isinstance(error, JsonRpcError):
        return Outcome(str(error.code), str(error.code), error.message, handled=handled)
    if isinstance(error, MCPError):
        return Outcome(error.error_type, None, error.message, error.delivery, handled)
    # For example, arguments that are not JSON, or Ctrl-C in the waiting thread.
    return Outcome(_error_type(error), None, str(error), handled=handled)


def _error_type(error: BaseException) -> str:
    return error.error_type if isinstance(error, MCPError) else type(error).__qualname__
