"""From a namespaced name to a tool of a server, or to the reason why there is none. Plain functions, no state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.naming import assign
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.errors import ToolDenied, UnknownTool

__all__ = ["Route", "no_route", "routes_to"]


class Route(NamedTuple):
    """Which client to ask for a tool. The tool carries the server's own name for it, and the namespaced one."""

    client: MCPClient
    tool: MCPTool


def routes_to(clients: Mapping[str, MCPClient], offers: Mapping[str, Iterable[MCPTool]]) -> dict[str, Route]:
    """The routes by namespaced name. `offers` are the tools of each server; those without a client are left out."""
    offered = {
        (name, tool.name): Route(client, tool) for name, client in clients.items() for tool in offers.get(name, ())
    }
    return {
        unique: Route(
            offered[pair].client,
            dataclasses.replace(offered[pair].tool, server=pair[0], namespaced_name=unique),
        )
        for unique, pair in assign(offered).items()
    }


def no_route(name: str, clients: Mapping[str, MCPClient], known: Iterable[str]) -> UnknownTool | ToolDenied:
    """Why no route has this name: a tool of `clients` has it and must not be called, or none at all.

    `known` are the names that would have been right.
    """
    hidden = {
        (server, tool): client
        for server, client in clients.items()
        for tool in (*client.denied_tools, *client.blocked_tools)
    }
    pair = assign(hidden).get(name)
    refusal = None if pair is None else hidden[pair].refusal_of(pair[1])
    if refusal is not None:
        return refusal
    import difflib

    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "list_tools() gives the names"
    return UnknownTool(f"no connected server offers a tool named {name!r}; {hint}")
