"""`Profile`: the servers, tools, prompts and resources that a client may see and use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import orjson

from gaia.mcp.gateway.access.resource_uri import allows_template, allows_uri
from gaia.mcp.gateway.access.settings import ClientLimits
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter


@dataclass(frozen=True)
class Profile:
    """A named subset of a gateway's servers, tools, prompts and resources. Immutable; thread-safe.

    For the profile's clients, other things do not exist: no list has them, and using them gets the error for an unknown
    name. Lists, calls, resources, prompts and completion all ask the same methods.
    """

    name: str
    servers: tuple[str, ...] = ("*",)
    tools: ToolFilter = ALLOW_ALL
    prompts: ToolFilter = ALLOW_ALL
    resources: ToolFilter = ALLOW_ALL
    """Filters for URIs, and for the texts of templates."""
    read_only: bool = False
    """Allow only tools whose annotations declare that they change nothing (``readOnlyHint``)."""
    limits: ClientLimits | None = field(default=None, compare=False)
    """The limits of each client with this profile; None means the gateway's `perClient`."""
    within: Profile | None = None
    """A further profile that must also allow a thing, see `narrowed_to`."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash that equal profiles have in common, also those of different gateways."""
        filters = [[one.allow, one.deny, one.short_names] for one in (self.tools, self.prompts, self.resources)]
        within = None if self.within is None else self.within.fingerprint
        parts = orjson.dumps([self.name, self.servers, filters, self.read_only, within])
        return hashlib.sha256(parts).hexdigest()[:16]

    def allows_server(self, server: str) -> bool:
        return any(fnmatchcase(server, pattern) for pattern in self.servers) and (
            self.within is None or self.within.allows_server(server)
        )

    def allows_tool(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether `tool` (its own name) may be listed and called.

        A read-only profile denies it without `annotations`.
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
        """Whether a resource may be listed, read and subscribed to. A filter denies an ambiguous URI."""
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
        """The profile of ``/mcp/@<other>``: both must allow a thing. It has the name of `other` and these limits."""
        within = self if other.within is None else self.narrowed_to(other.within)
        return replace(other, limits=self.limits, within=within)


EVERYTHING = Profile("everything")
