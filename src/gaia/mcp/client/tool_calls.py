"""The tools of one server: which there are, whether they may be called, and calling them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.features import ServerFeatures
from gaia.mcp.client.observation.request_spans import Observation, Observer
from gaia.mcp.client.output_validation import OutputValidation
from gaia.mcp.client.pinning.gate import ToolGate
from gaia.mcp.client.protocol.exchange import paginate
from gaia.mcp.client.response_cache import ResponseCache
from gaia.mcp.client.results import failure
from gaia.mcp.client.round_trips import RoundTrips
from gaia.mcp.client.supervision.callbacks import CallbackPool
from gaia.mcp.client.supervision.caller import CallFuture
from gaia.mcp.client.supervision.client_request import CallOptions, ClientRequest, OnProgress
from gaia.mcp.client.supervision.events import Event, ToolsChanged
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_catalog import ToolCatalog
from gaia.mcp.client.tool_filter import ToolFilter
from gaia.mcp.errors import MCPError, NotConnected, ToolDenied

__all__ = ["ToolCalls"]

logger = get_logger(__name__)


class ToolCalls(ServerFeatures):
    """The part of a client that is about tools. What it needs of the rest is declared here."""

    name: str
    tool_filter: ToolFilter
    _manager_filter: ToolFilter
    _catalog: ToolCatalog
    _gate: ToolGate
    _outputs: OutputValidation
    _cache: ResponseCache
    _observer: Observer
    _callbacks: CallbackPool
    _reset_timeout_on_progress: bool
    _max_timeout: float
    _on_tools: Callable[[tuple[MCPTool, ...]], None]

    @property
    @abstractmethod
    def _trips(self) -> RoundTrips:
        """Every request goes this way."""

    @abstractmethod
    def is_connected(self) -> bool:
        """True while the server is ready for calls."""

    @abstractmethod
    def happened(self, event: Event) -> None:
        """Tell listeners."""

    def list_tools(self, refresh: bool = False) -> list[MCPTool]:
        """The tools on offer, filtered; from the cache unless `refresh`. Empty if the server cannot list them.

        The cache follows the server: it is filled by each handshake and by `notifications/tools/list_changed`.
        """
        if refresh or not self._catalog.listed:
            try:
                self._cache.forget("tools/list")
                self.tools_listed(self._drive(paginate("tools/list", "tools")))
            except MCPError as error:
                logger.warning("tools_list_failed", server=self.name, error=error.message)
                return []
        return list(self._catalog.tools)

    @property
    def denied_tools(self) -> frozenset[str]:
        """Names of tools that the server has and a filter hides."""
        return self._catalog.denied

    @property
    def blocked_tools(self) -> Mapping[str, MCPTool]:
        """Tools that the server has and that are withheld until their definitions are approved, by name."""
        return self._catalog.blocked

    def refusal_of(self, tool_name: str) -> ToolDenied | None:
        """Why a tool, by the server's own name for it, must not be called; None if it may."""
        if not self._allows(tool_name):
            return ToolDenied(f"the tool {tool_name!r} of server {self.name!r} is denied by a tool filter")
        if not self._gate.blocks or tool_name in self._catalog:
            return None
        known = self._catalog.listed or self.is_connected()
        return self._gate.refusal(tool_name) if known else None

    @property
    def _tools(self) -> list[MCPTool] | None:
        """The cache, under the name that the specification gives it; None before the first listing."""
        return list(self._catalog.tools) if self._catalog.listed else None

    def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> dict[str, Any]:
        """Call a tool by the server's own name for it, and wait for the result.

        Returns the result as the server sent it (``content``, ``isError``, ``structuredContent``), or
        ``{"error": …, "error_type": …, "delivery": …}``; see `gaia.mcp.client.results`. `timeout` is in seconds and
        covers waiting, writing and the answer. ``on_progress(progress, total, message)`` runs in this thread. With
        `reset_timeout_on_progress` the call has its whole timeout again with each progress, up to `max_timeout`; the
        client's own settings count where they are None.

        Raises RuntimeError when the client was never connected or was disconnected, and ValueError for arguments that
        are not a dict of JSON values.
        """
        try:
            options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
            return self._request(*self._tool_request(tool_name, arguments, options))
        except NotConnected:
            raise
        except MCPError as error:
            return failure(error, tool_name, self._catalog.get(tool_name), arguments)

    def submit_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> CallFuture:
        """Like `call_tool`, without waiting: a future of the result, which raises the exceptions of `gaia.mcp.errors`.

        `cancel()` on it also tells the server. Its callbacks and `on_progress` run on a callback thread. A call that
        is not allowed, or a client that is not connected, raises at once.
        """
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        wanted, observation = self._tool_request(tool_name, arguments, options)
        try:
            on_done = None if observation is None else observation.ended
            return self._trips.submit(wanted, self._callbacks.lane(), on_done)
        except BaseException as error:
            if observation is not None:
                observation.ended(error, {})
            raise

    def create_tool_wrapper(self, tool: MCPTool) -> Callable[..., dict[str, Any]]:
        """A function that calls `tool` with its keyword arguments, for an agent's registry."""

        def wrapper(**kwargs: Any) -> dict[str, Any]:
            return self.call_tool(tool.name, kwargs)

        wrapper.__name__ = tool.name
        wrapper.__doc__ = tool.description
        return wrapper

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result object. Raises `MCPError`; denied tools stay denied."""
        if method == "tools/call":
            params = params or {}
            return self._request(*self._tool_request(params.get("name"), params.get("arguments"), CallOptions(timeout)))
        observation = self._observer.begin(method, params)
        return self._request(
            ClientRequest(method, observation.prepare(params), timeout, observer=observation), observation
        )

    # Inside.

    def _allows(self, tool_name: str) -> bool:
        return self.tool_filter.allows(self.name, tool_name) and self._manager_filter.allows(self.name, tool_name)

    def _tool_request(
        self, tool_name: Any, arguments: Any, options: CallOptions
    ) -> tuple[ClientRequest, Observation | None]:
        """A `tools/call`, unless it is not allowed, and what follows it. Every tool call passes here."""
        if not isinstance(tool_name, str):
            raise ValueError(f"the tool's name must be a string, not {tool_name!r}")  # noqa: TRY004 - see call_tool
        if arguments is None:
            arguments = {}
        elif not isinstance(arguments, dict):
            raise ValueError(f"the arguments of {tool_name} must be a dict, not {type(arguments).__name__}")
        # What the catalog offers has passed the filters and the gate.
        tool = self._catalog.get(tool_name) or self._unlisted_tool(tool_name)
        params = {"name": tool_name, "arguments": arguments}
        observation = self._observer.follow("tools/call", params)
        wanted = ClientRequest(
            "tools/call",
            params if observation is None else observation.prepare(params),
            options.timeout,
            repeatable=tool is not None and tool.safe_to_repeat,
            on_progress=options.on_progress,
            observer=observation,
            longest=self._longest(options),
            check=None if tool is None or tool.output_schema is None else self._outputs.check_of(tool),
        )
        return wanted, observation

    def _unlisted_tool(self, tool_name: str) -> MCPTool | None:
        """A tool that is not on offer, if it can be called all the same. Raises ToolDenied if it must not be."""
        if self._gate.blocks and not self._catalog.listed and self.is_connected():
            # Over a transport that is not supervised, tools are listed only when somebody wants to know them.
            self.list_tools()
        refusal = self.refusal_of(tool_name)
        if refusal is not None:
            self._observer.refused(refusal)
            raise refusal
        return self._catalog.get(tool_name)

    def _longest(self, options: CallOptions) -> float | None:
        """How long progress may keep a call alive; None if it does not."""
        resets = options.reset_timeout_on_progress
        if not (self._reset_timeout_on_progress if resets is None else resets):
            return None
        return self._max_timeout if options.max_timeout is None else options.max_timeout

    def _request(self, wanted: ClientRequest, observation: Observation | None) -> dict[str, Any]:
        """Make a request in this thread, from the beginning to the end of its observation."""
        if observation is None:
            return self._trips.request(wanted)
        error: BaseException | None = None
        result: dict[str, Any] = {}
        try:
            result = self._trips.request(wanted)
        except BaseException as caught:
            error = caught
            raise
        finally:
            observation.ended(error, result)
        return result

    # What the supervisor calls, on its thread (`SupervisionHooks`).

    def tools_listed(self, definitions: list[Any]) -> None:
        """Take over a new list of tool definitions, as the server sent them."""
        self._cache.forget("tools/list")
        change, names = self._catalog.replace(definitions, self._allows, self._gate.review)
        for pattern in self.tool_filter.unmatched(self.name, names):
            logger.warning("tool_pattern_matches_nothing", server=self.name, pattern=pattern)
        self._on_tools(self._catalog.tools)
        self._announce(change)

    def refusal(self, method: str, params: Mapping[str, Any] | None) -> MCPError | None:
        """Why a call that waited for the server must not be sent to it now: its tools may be others than before."""
        return self.refusal_of(str((params or {}).get("name"))) if method == "tools/call" else None

    def _announce(self, change: ToolsChanged) -> None:
        if change.added or change.removed or change.changed:
            self.happened(change)
