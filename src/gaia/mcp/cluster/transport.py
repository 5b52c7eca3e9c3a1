"""What stands for a placed server where a transport does: nothing is reached from this program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import StartFailed
from gaia.mcp.transports.base import MCPTransport

if TYPE_CHECKING:
    from gaia.mcp.cluster.link import Engine
    from gaia.mcp.cluster.wire import Launch


class PlacedTransport(MCPTransport):
    """Used by `MCPClient` only, whose calls go to a host; the four methods of a transport raise RuntimeError."""

    def __init__(
        self,
        placement: Placement,
        timeout: float,
        launch: Callable[[], Launch],
        engine: Callable[[], Engine] | None = None,
    ) -> None:
        """`timeout` is in seconds. `launch` is asked at each start of a host, and fills in variables."""
        self.placement = placement
        self.timeout = timeout
        self.launch = launch
        self.engine = engine or _ray

    def connect(self) -> bool:
        _refuse()

    def disconnect(self) -> None:
        """Does nothing: it is never connected."""

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002
        _refuse()

    def is_connected(self) -> bool:
        return False


def _refuse() -> NoReturn:
    raise RuntimeError("a placed server is used with MCPClient or MCPClientManager")


def _ray() -> Engine:
    # Programs that place no server do not load it.
    try:
        from gaia.mcp.cluster.ray_engine import RayEngine
    except ImportError as error:
        from gaia.runtime.extras import missing

        reason = missing("ray", "ray") or str(error)
        raise StartFailed(f"a server with a placement needs {reason}") from error
    return RayEngine()
