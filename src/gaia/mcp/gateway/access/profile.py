"""What a client may see and use: servers, and what each of them offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from gaia.mcp.gateway.access.limit_settings import ClientLimits
from gaia.mcp.gateway.access.resource_uri import allows_template, allows_uri
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter


@dataclass(frozen=True)
class Profile:
    """A named subset of what a gateway has. Immutable; thread-safe.

    What a profile does not allow does not exist for its clients: it is in no list, and using it is answered as the use
    of something unknown. The same four questions are asked for lists, calls, resources, prompts and completion.
    """

    name: str
    servers: tuple[str, ...] = ("*",)
    """Shell globs of the names of servers."""
    tools: ToolFilter = ALLOW_ALL
    prompts: ToolFilter = ALLOW_ALL
    """By the names of prompts."""
    resources: ToolFilter = ALLOW_ALL
    """By URI; a template by its text."""
    read_only: bool = False
    """Only tools whose annotations say that they change nothing (``readOnlyHint``)."""
    limits: ClientLimits | None = field(default=None, compare=False)
    """Of each client that has this profile; None for the gateway's `perClient`."""
    within: Profile | None = None
    """Another profile, which has to allow the same thing, see `narrowed_to`."""

    def allows_server(self, server: str) -> bool:
        """Whether anything of `server` may be seen."""
        return any(fnmatchcase(server, pattern) for pattern in self.servers) and (
            self.within is None or self.within.allows_server(server)
        )

    def allows_tool(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether `tool` (its own name) of `server` may be listed and called.

        `annotations` are those of the tool's definition; without a definition a read-only profile allows nothing.
        """
        return (
            self.allows_server(server)
            and self.tools.allows(server, tool)
            and (not self.read_only or (annotations is not None and annotations.get("readOnlyHint") is True))
            and (self.within is None or self.within.allows_tool(server, tool, annotations))
        )

    def allows_prompt(self, server: str, prompt: str) -> bool:
        """Whether `prompt` of `server` may be listed, fetched and completed."""
        return (
            self.allows_server(server)
            and self.prompts.allows(server, prompt)
            and (self.within is None or self.within.allows_prompt(server, prompt))
        )

    def allows_resource(self, server: str, uri: str) -> bool:
        """Whether a resource may be listed, read and watched. With a filter, its URI has to have one meaning only."""
        return (
            self.allows_server(server)
            and allows_uri(self.resources, server, uri)
            and (self.within is None or self.within.allows_resource(server, uri))
        )

    def allows_template(self, server: str, template: str) -> bool:
        """Whether a template of this text may be listed and completed."""
        return (
            self.allows_server(server)
            and allows_template(self.resources, server, template)
            and (self.within is None or self.within.allows_template(server, template))
        )

    def narrowed_to(self, other: Profile) -> Profile:
        """What both allow, for ``/mcp/@<other>``: named like `other`, with the limits of this one."""
        within = self if other.within is None else self.narrowed_to(other.within)
        return replace(other, limits=self.limits, within=within)


EVERYTHING = Profile("everything")
"""All servers and all that they offer, without limits."""
