"""Keeps the list of a server's tools up to date while it is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gaia.mcp.client.protocol.era import ClientIdentity, ServerProfile
from gaia.mcp.client.protocol.exchange import Exchange
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.supervision.exchange_runner import RunExchange
from gaia.mcp.errors import HttpError, InvalidResponse, JsonRpcError, MCPError, NeedsAuthorization

__all__ = ["ToolListing", "open_and_list"]


def open_and_list(
    negotiation: Negotiation, identity: ClientIdentity, on_list_failed: Callable[[MCPError], None]
) -> Exchange[tuple[ServerProfile, list[Any]]]:
    """All that has to be said before calls may be sent. A server that cannot list its tools has none."""
    profile = yield from negotiation.open(identity)
    try:
        tools = yield from profile.era.list_tools(profile)
    except NeedsAuthorization:
        # There may be tools, for those who are logged in.
        raise
    except (JsonRpcError, InvalidResponse, HttpError) as error:
        # The server works, only its list does not; calls by name may still succeed.
        on_list_failed(error)
        tools = []
    return profile, tools


class ToolListing:
    """Lists again whenever the server says that its tools changed. Belongs to the supervisor's thread.

    Changes that are announced while a listing is under way lead to one more listing, not to many.
    """

    def __init__(
        self,
        profile: ServerProfile,
        run_exchange: RunExchange,
        on_listed: Callable[[list[Any]], None],
        on_error: Callable[[MCPError], None],
    ) -> None:
        self._profile = profile
        self._run_exchange = run_exchange
        self._on_listed = on_listed
        self._on_error = on_error
        self._under_way = False
        self._outdated = False

    def refresh(self) -> None:
        if self._under_way:
            self._outdated = True
            return
        self._under_way, self._outdated = True, False
        self._run_exchange(self._profile.era.list_tools(self._profile), self._listed, self._failed)

    def _listed(self, definitions: list[Any]) -> None:
        self._under_way = False
        self._on_listed(definitions)
        if self._outdated:
            self.refresh()

    def _failed(self, error: MCPError) -> None:
        self._under_way = False
        self._on_error(error)
        if self._outdated:
            self.refresh()
