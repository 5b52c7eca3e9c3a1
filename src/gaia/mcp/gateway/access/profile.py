"""`Profile`: the servers, tools, prompts and resources that a client may see and use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from gaia.mcp.gateway.access.resource_uri import allows_template, allows_uri
from gaia.mcp.gateway.access.settings import ClientLimits
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter


@dataclass(frozen=True)
class Profile:
    """A named subset of what a gateway offers. Immutable; thread-safe.

    For its clients, anything else does not exist: it is in no list, and using it gets the same error as an unknown
    name. Lists, calls, resources, prompts and completion all ask the same methods.
    """

    name: str
    servers: tuple[str, ...] = ("*",)
    """Shell globs of server names."""
    tools: ToolFilter = ALLOW_ALL
    prompts: ToolFilter = ALLOW_ALL
    resources: ToolFilter = ALLOW_ALL
    """Filters by URI; a template by its text."""
    read_only: bool = False
    """Allow only tools whose annotations say that they change nothing (``readOnlyHint``)."""
    limits: ClientLimits | None = field(default=None, compare=False)
    """The limits of each client with this profile; None for the gateway's `perClient`."""
    within: Profile | None = None
    """Another profile that must allow the same thing, see `narrowed_to`."""

    def allows_server(self, server: str) -> bool:
        """Whether anything of `server` may be seen."""
        return any(fnmatchcase(server, pattern) for pattern in self.servers) and (
            self.within is None or self.within.allows_server(server)
        )

    def allows_tool(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether `tool` (its own name) of `server` may be listed and called.

        `annotations` are those of the tool's definition. Without a definition, a read-only profile denies the tool.
        """
        return (
            self.allows_server(server)
            and self.tools.allows(server, tool)
            and (not self.read_only or (annotations is not None and annotations.get("readOnlyHint") is True))
            and (self.within is None or self.within.allows_tool(server, tool, annotations))
        )

    def allows_prompt(self, server: str, prompt: str) -> bool:
        return (
            self.allows_server(server)
            and self.prompts.allows(server, prompt)
            and (self.within is None or self.within.allows_prompt(server, prompt))
        )

    def allows_resource(self, server: str, uri: str) -> bool:
        """Whether a resource may be listed, read and watched. A filter denies an ambiguous URI."""
        return (
            self.allows_server(server)
            and allows_uri(self.resources, server, uri)
            and (self.within is None or self.within.allows_resource(server, uri))
        )

    def allows_template(self, server: str, template: str) -> bool:
        return (
            self.allows_server(server)
            and allows_template(self.resources, server, template)
            and (self.within is None or self.within.allows_template(server, template))
        )

    def narrowed_to(self, other: Profile) -> Profile:
        """The profile of ``/mcp/@<other>``: it allows what both allow. Name of `other`, limits of this one."""
        within = self if other.within is None else self.narrowed_to(other.within)
        return replace(other, limits=self.limits, within=within)


EVERYTHING = Profile("everything")
"""All servers and everything they offer, without limits."""
