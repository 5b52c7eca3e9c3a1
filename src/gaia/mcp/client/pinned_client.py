"""`PinnedClient`: a handle whose calls all go to the same process of a server."""

from __future__ import annotations

from typing import Any, Unpack

from gaia.mcp.client.features import ServerFeatures
from gaia.mcp.client.session import PinnedSession
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.requests.exchange import CallKeywords, CallOptions
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.tools.tool_result import ToolResult
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.signatures import spells_out


class PinnedClient:
    """Stays with one process of a server, for work that the server remembers from one call to the next.

    `MCPClient.pinned` makes it, as a context manager. All methods may be called from any thread. When the process ends,
    its memory is gone: from then on every call raises `SessionLost`. A call under way ends with the delivery
    ``unknown`` and is never repeated. The client itself goes on with other processes. One that is replaced or removed
    has `drain_timeout` seconds for its open handles, as for its calls.
    """

    def __init__(self, session: PinnedSession, tool_calls: ToolCalls, features: ServerFeatures) -> None:
        self._tool_calls = tool_calls
        self._features = features
        self._session = session

    @property
    def placement(self) -> PlacementStatus | None:
        """Where the process runs, if the server is placed."""
        return self._session.placement

    @property
    def is_lost(self) -> bool:
        """Whether the process has ended; a call would raise `SessionLost`."""
        return self._session.is_lost

    def close(self) -> None:
        """Refuse further calls; calls under way go on. The process itself is not affected."""
        self._session.close()

    def __enter__(self) -> PinnedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @spells_out(CallKeywords, CallOptions())
    def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool of the process; see `MCPClient.call_tool`. ``error_type`` is ``session_lost`` if it is lost."""
        return self._tool_calls.call(tool_name, arguments, CallOptions(**options))

    @spells_out(CallKeywords, CallOptions())
    def submit_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> CallFuture:
        """Like `call_tool`, without waiting; see `MCPClient.submit_tool`."""
        return self._tool_calls.submit(tool_name, arguments, CallOptions(**options))

    def read_resource(self, uri: str) -> dict[str, Any]:
        """See `MCPClient.read_resource`. Raises SessionLost."""
        return self._tool_calls.requests.run(self._features.read_resource(uri))

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """See `MCPClient.get_prompt`. Raises SessionLost."""
        return self._tool_calls.requests.run(self._features.get_prompt(name, arguments))
