"""The tools of one server: listing them, whether each may be called, and calling them."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any

from gaia.mcp.client.client_options import ClientSetup
from gaia.mcp.errors import JsonRpcError, MCPError, NotConnected, ToolDenied
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import BeforeCall, CallKeywords, CallOptions, RequestExchange
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.rpc.call_origin import CurrentCall, call_of
from gaia.mcp.supervision.callbacks import Callbacks
from gaia.mcp.supervision.context import Listing
from gaia.mcp.tools.output_validation import OutputChecks, OutputValidation
from gaia.mcp.tools.pins import PinGate
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_catalog import SortedTools, ToolCatalog
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_MAX_LOCK_SECONDS = 10.0
"""Seconds to wait for the lock file of the pins. A process that holds it longer is stuck."""

Json = dict[str, Any]


class ToolCalls:
    """The tools of one client: listed, filtered, pinned and called. Thread-safe."""

    def __init__(self, setup: ClientSetup, requests: ClientRequests, cache: ResponseCache) -> None:
        self.catalog = ToolCatalog(setup.name)
        self.output_checks = OutputChecks(setup.name)
        self._name = setup.name
        self.requests = requests
        self._observer = setup.observer
        self.adopt(setup)
        self._cache = cache
        self._callbacks = setup.callbacks
        self._listings = itertools.count(1)
        self._taking_effect = reentrant_lock()
        """Guards `_newest` and the catalog. Held while a listing is reported, so that reports come in order."""
        self._newest = 0
        """The number of the request whose answer is in the catalog, or of the last `forget`."""

    def over(self, requests: ClientRequests) -> ToolCalls:
        other = copy.copy(self)
        other.requests = requests
        return other

    def adopt(self, setup: ClientSetup) -> None:
        """Use other settings: for calls at once, for listed tools from the next listing on."""
        options, name = setup.options, self._name
        self.outputs = OutputValidation(name, options.output_validation or "warn", self._observer.masked)
        self._gate = PinGate(name, options.pin_tools or "off", setup.pins, setup.hooks.happened)
        self._on_event = setup.hooks.happened
        self._options, self._services = options, setup.services
        self.before_call = options.before_call
        # An application's transport may have the four methods alone.
        self._takes_headers = getattr(setup.transport, "takes_headers", False)

    # The list of tools.

    def offered(self, *, refresh: bool) -> tuple[MCPTool, ...]:
        """The tools on offer, from the catalog unless `refresh`. Empty if the server cannot list them."""
        if refresh or not self.catalog.listed:
            try:
                self._cache.forget("tools/list")
                listing = self.listing_begins()
                self.listed(self.requests.run(self.requests.list_all("tools/list", "tools")), listing)
            except MCPError as error:
                logger.warning("tools_list_failed", server=self._name, error=error.message)
                return ()
        return self.catalog.tools

    def listing_begins(self) -> Listing:
        """Number a listing before the server is asked for its tools. The result is for `listed`."""
        return Listing(next(self._listings), self._services.clock.monotonic() + self.requests.session.timeout)

    def listed(self, definitions: list[Any], listing: Listing) -> None:
        """Put the server's tool definitions in the catalog, unless the answer to a later request is there already."""
        self._cache.forget("tools/list")

        def blocked_of(allowed: Mapping[str, MCPTool], names: Collection[str]) -> Collection[str]:
            seconds = min(_MAX_LOCK_SECONDS, listing.deadline - self._services.clock.monotonic())
            return self._gate.review(allowed, names, seconds)

        tools = self.catalog.sort(definitions, self._allows, blocked_of)
        if not self._takes_effect(tools, listing.number):
            return
        for pattern in self._options.tool_filter.unmatched(self._name, tools.names):
            logger.warning("tool_pattern_matches_nothing", server=self._name, pattern=pattern)
        if any(tool.output_schema is not None for tool in tools.offered.values()):
            self.output_checks.prepare(self.outputs.prepare(tools.offered.values()))

    def remembered(self, definitions: list[Any]) -> None:
        """Put the tools of an earlier start in the catalog until the server is asked. Approves and reports nothing."""
        tools = self.catalog.sort(definitions, self._allows, lambda allowed, _: self._gate.unapproved(allowed))
        self._takes_effect(tools, next(self._listings))

    def _takes_effect(self, tools: SortedTools | None, number: int) -> bool:
        """Replace the catalog; None empties it. False if it holds the tools of a later request."""
        with self._taking_effect:
            if number < self._newest:
                return False
            self._newest = number
            change = self.catalog.replace(tools)
            self._services.on_tools(self.catalog.tools)
            if change:
                self._on_event(change)
        return True

    def assume(self, tools: Iterable[MCPTool] | None) -> None:
        """Put these tools, filtered and without pins, in the catalog until the server lists its tools."""
        assumed = None
        if tools is not None:
            by_name = {tool.name: tool for tool in tools}
            offered = {name: tool for name, tool in by_name.items() if self._allows(name)}
            assumed = SortedTools(offered, frozenset(by_name.keys() - offered.keys()), {})
        with self._taking_effect:
            self._takes_effect(assumed, next(self._listings))

    def forget(self) -> None:
        self.assume(None)

    # Whether they may be called.

    def refusal_of(self, tool_name: str) -> ToolDenied | None:
        """Why a tool, by the server's own name for it, must not be called; None if it may be called."""
        if not self._allows(tool_name) and (denial := self._denial(tool_name)) is not None:
            return ToolDenied(f"the tool {tool_name!r} of server {self._name!r} {denial}")
        if not self._gate.blocks or tool_name in self.catalog:
            return None
        known = self.catalog.listed or self.requests.session.is_connected()
        return self._gate.refusal(tool_name) if known else None

    def safe_to_repeat(self, tool_name: str) -> bool:
        tool = self.catalog.get(tool_name)
        return tool is not None and tool.safe_to_repeat

    def _denial(self, tool_name: str) -> str | None:
        own, shared = self._options.tool_filter, self._services.tool_filter
        if (denied := own.denial(self._name, tool_name)) is None:
            denied = shared.denial(self._name, tool_name)
            return None if denied is None else f"{denied} of the manager's tool_filter"
        if own.keys == ToolFilter().keys:
            return f"{denied} of the client's tool_filter"
        source = self._services.source
        return f"{denied} of its entry" + ("" if source is None else f" in {source}")

    def _allows(self, tool_name: str) -> bool:
        own, shared = self._options.tool_filter, self._services.tool_filter
        return own.allows(self._name, tool_name) and shared.allows(self._name, tool_name)

    # Calling them.

    def call(self, tool_name: str, arguments: Json | None, options: CallOptions) -> ToolResult:
        if self.before_call is not None:
            options = self._changed(self.before_call, tool_name, arguments, options)
        try:
            return ToolResult.from_server(self.requests.request(self.new_request(tool_name, arguments, options)))
        except NotConnected:
            raise
        except MCPError as error:
            return self.failed(error, tool_name, arguments)

    def failed(self, error: MCPError, tool_name: str, arguments: Json | None) -> ToolResult:
        return failure(error, tool_name, self.catalog.get(tool_name), arguments)

    def submit(
        self, tool_name: str, arguments: Json | None, options: CallOptions, lane: Callbacks | None = None
    ) -> CallFuture:
        """See `MCPClient.submit_tool`. The callbacks run on `lane`, by default on the client's callback threads."""
        if self.before_call is not None:
            options = self._changed(self.before_call, tool_name, arguments, options)
        return self.requests.submit(self.new_request(tool_name, arguments, options), lane or self._callbacks.lane())

    def described(self, tool_name: Any, arguments: Any, options: CallOptions) -> CurrentCall:
        require_tool_name(tool_name)
        return call_of(self._name, "tools/call", tool_name, arguments, options.context, None)

    def _changed(self, before_call: BeforeCall, tool_name: Any, arguments: Any, options: CallOptions) -> CallOptions:
        """The options after `before_call`, whose coroutine runs on the engine's loop while this thread waits."""
        changes = before_call(self.described(tool_name, arguments, options))
        if inspect.isawaitable(changes):
            from gaia.runtime.coroutine_thread import run_apart

            changes = run_apart(_awaited(changes), self._services.server_request_threads.loop())
        return options.changed(changes)

    def new_request(
        self, tool_name: Any, arguments: Any, options: CallOptions, params: Json | None = None
    ) -> RequestExchange:
        """A `tools/call` request, if the tool is allowed; else ToolDenied. Every tool call passes here.

        A gateway passes all `params`; the `arguments` are then only for traces, and may be JSON already
        (`orjson.Fragment`).
        """
        require_tool_name(tool_name)
        if arguments is None:
            arguments = {}
        elif not isinstance(arguments, dict) and params is None:
            raise ValueError(f"the arguments of {tool_name} must be a dict, not {type(arguments).__name__}")
        # The tools in the catalog have passed the filters and the gate.
        tool = self.catalog.get(tool_name) or self._unlisted_tool(tool_name)
        observed = {"name": tool_name, "arguments": arguments}
        if params is None:
            params = observed if options.meta is None else {**observed, "_meta": options.meta}
        if options.headers is not None and not self._takes_headers:
            raise ValueError(
                f"headers: messages to server {self._name!r} have none, as it is not reached at a URL; use meta instead"
            )
        observation = self._observer.follow("tools/call", observed, tool_name)
        return RequestExchange(
            "tools/call",
            params if observation is None else observation.prepare(params),
            options,
            tool=tool_name,
            repeatable=tool is not None and tool.safe_to_repeat,
            max_timeout=self._max_timeout(options),
            observation=observation,
            origin=self.requests.origin_of("tools/call", tool_name, arguments, options.context, observation),
            check=None
            if tool is None or tool.output_schema is None
            else self.outputs.check_of(tool, self.output_checks, None if observation is None else observation.context),
        )

    def _unlisted_tool(self, tool_name: str) -> MCPTool | None:
        """Check a tool that is not in the catalog; return it if it is listed by now. Raises ToolDenied."""
        if self._gate.blocks and not self.catalog.listed and self.requests.session.is_connected():
            # A transport that is not supervised lists tools only on request.
            self.offered(refresh=False)
        refusal = self.refusal_of(tool_name)
        if refusal is not None:
            self._observer.refused(refusal)
            raise refusal
        return self.catalog.get(tool_name)

    def _max_timeout(self, options: CallOptions) -> float | None:
        resets = options.reset_timeout_on_progress
        if not (self._options.reset_timeout_on_progress if resets is None else resets):
            return None
        return self._options.max_timeout if options.max_timeout is None else options.max_timeout


async def _awaited(changes: Awaitable[CallKeywords | None]) -> CallKeywords | None:
    return await changes


def require_tool_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"the tool's name must be a string, not {name!r}")  # noqa: TRY004 - see call_tool


def failure(error: MCPError, tool_name: str, tool: MCPTool | None, arguments: Mapping[str, Any] | None) -> ToolResult:
    """The result of a failed call. For refused arguments it includes the schema, so that a model can correct them."""
    if isinstance(error, JsonRpcError) and error.code == INVALID_PARAMS and tool is not None:
        message = (
            f"MCP tool '{tool_name}' input validation failed.\n\n"
            f"Error details:\n{error.message}\n\n"
            f"Expected tool schema:\n{_pretty(tool.input_schema)}\n\n"
            f"Your arguments:\n{_pretty(arguments or {})}"
        )
        error = JsonRpcError(error.code, message, error.data)
    return ToolResult.from_error(error)


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
