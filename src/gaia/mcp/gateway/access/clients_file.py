"""The clients file: the clients of a gateway, their profiles and their limits.

An unknown key is an error: it could be a misspelt restriction.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.settings import ClaimRule, ClientLimits, GatewayLimits, IssuerSettings, require_secure_url
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.runtime import json_file

_EXAMPLE = '{"clients": {"ci": {"token": "sha256:…", "profile": "everything"}}}'
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = 1


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    token: str
    profile: str
    created: str | None = None
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch("sha256:[0-9a-f]{64}", self.token):
            raise ValueError(
                "token: expected sha256: and 64 hexadecimal digits, as `gaia mcp gateway add-client` writes"
            )


class _ProfileEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    servers: list[str] | None = None
    enabled_tools: list[str] | None = None
    disabled_tools: list[str] = msgspec.field(default_factory=list)
    enabled_prompts: list[str] | None = None
    disabled_prompts: list[str] = msgspec.field(default_factory=list)
    enabled_resources: list[str] | None = None
    disabled_resources: list[str] = msgspec.field(default_factory=list)
    read_only: bool = False
    limits: ClientLimits | None = None

    def profile(self, name: str) -> Profile:
        return Profile(
            name=name,
            servers=("*",) if self.servers is None else tuple(self.servers),
            tools=ToolFilter(self.enabled_tools, self.disabled_tools, short_names=True),
            prompts=ToolFilter(self.enabled_prompts, self.disabled_prompts, short_names=True),
            resources=ToolFilter(self.enabled_resources, self.disabled_resources),
            read_only=self.read_only,
            limits=self.limits,
        )


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = _VERSION
    clients: dict[str, ClientEntry] | None = None
    issuers: dict[str, IssuerSettings] | None = None
    profiles: dict[str, _ProfileEntry] = msgspec.field(default_factory=dict)
    limits: GatewayLimits = msgspec.field(default_factory=GatewayLimits)
    resource: str | None = None
    anonymous: str | None = None
    shared: str | None = None


_KEYS = [
    key
    for kind in (_Document, ClientEntry, IssuerSettings, ClaimRule, _ProfileEntry, GatewayLimits, ClientLimits)
    for key in kind.__struct_encode_fields__
]


@dataclass(frozen=True)
class ClientsFile:
    clients: Mapping[str, ClientEntry] = field(default_factory=dict)
    issuers: Mapping[str, IssuerSettings] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=lambda: {EVERYTHING.name: EVERYTHING})
    """Includes `EVERYTHING`, which always exists."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    resource: str | None = None
    """The URL of the gateway's ``/mcp`` as clients know it. Required if there are issuers."""
    anonymous: Profile | None = None
    """The profile of requests without a token; None refuses them."""
    shared: str | None = field(default=None, repr=False)
    """The URL of the Redis in which several gateways count limits together; it may contain a password."""


def read_clients_file(file: Path) -> ClientsFile:
    """Read and check `file`. Raises ConfigError, with the problem and its place, also if the file does not exist."""
    if (others := json_file.who_else_writes(file)) is not None:
        raise ConfigError(f"{file}: {others}")
    data = json_file.read_bytes(file)
    if not data.strip():
        missing = "is empty" if file.exists() else "there is no such file"
        raise ConfigError(
            f"{file}: {missing}; `gaia mcp gateway add-client NAME --clients {file}` makes it, with a first client"
        )
    return _checked(file, _decoded(file, data))


def add_client(file: Path, name: str, profile: str = EVERYTHING.name, *, replace: bool = False) -> str:
    """Add a client to `file`, creating it if needed. Returns the client's token, of which only the hash is stored.

    With `replace`, a client of this name gets a new token, and the old token is refused from then on. Raises
    ConfigError and changes nothing if the name is taken or unusable, the profile does not exist, or the file is
    unusable.
    """
    _require_name(file, "client", name)
    token = new_token()
    with json_file.locked(file) as target:
        document = _decoded(file, json_file.read_bytes(target))
        found = _checked(file, document)
        if name in found.clients and not replace:
            raise ConfigError(f"{file}: there is a client {name!r} already; give it a new token with --replace")
        if profile not in found.profiles:
            raise ConfigError(
                f"{file}: there is no profile {_with_hint(profile, found.profiles)} "
                '(write it into the file first, such as "profiles": {"read-only": {"readOnly": true}})'
            )
        created = datetime.now(UTC).isoformat(timespec="seconds")
        clients = document["clients"] = document.get("clients") or {}
        clients[name] = {"token": hash_of(token), "profile": profile, "created": created}
        json_file.write(target, {"version": _VERSION, **document})
    return token


def _decoded(file: Path, data: bytes) -> dict[str, Any]:
    found = json_file.decode(file, data, _EXAMPLE)
    try:
        json.loads(data.decode("utf-8-sig").strip() or "{}", object_pairs_hook=_without_duplicates)
    except ValueError as error:
        json_file.broken(file, str(error))
    if (version := found.get("version", _VERSION)) != _VERSION:
        json_file.broken(file, f"its version is {version!r}, and this gaia-mcp understands {_VERSION}; update it")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON does not define which of two equal keys counts, so a client could silently get another client's rights.
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice in one object; remove or rename one of the two")
        found[key] = value
    return found


def _checked(file: Path, content: dict[str, Any]) -> ClientsFile:
    try:
        document = json_file.convert(content, _Document)
    except msgspec.ValidationError as error:
        json_file.broken(file, _explained(error, content))
    clients, issuers = document.clients or {}, document.issuers or {}
    for kind, names in (("profile", document.profiles), ("client", clients), ("issuer", issuers)):
        for name in names:
            _require_name(file, kind, name)
    if EVERYTHING.name in document.profiles:
        json_file.broken(file, f"profiles.{EVERYTHING.name}: this one is always there, and cannot be changed")
    profiles = {EVERYTHING.name: EVERYTHING} | {name: each.profile(name) for name, each in document.profiles.items()}
    named = [
        ("anonymous", EVERYTHING.name if document.anonymous is None else document.anonymous),
        *((f"clients.{name}.profile", each.profile) for name, each in clients.items()),
        *((f"issuers.{name}.profiles", rule.profile) for name, each in issuers.items() for rule in each.profiles),
    ]
    for place, profile in named:
        if profile not in profiles:
            json_file.broken(file, f"{place}: there is no profile {_with_hint(profile, profiles)}")
    _require_different(file, "token", {name: each.token for name, each in clients.items()})
    _require_different(file, "issuer", {name: each.issuer for name, each in issuers.items()})
    if document.resource is not None:
        try:
            require_secure_url("resource", document.resource)
        except ValueError as error:
            json_file.broken(file, str(error))
    elif issuers:
        json_file.broken(
            file, "resource: missing; with issuers, give the URL under which clients reach this gateway's /mcp"
        )
    if document.shared is not None and not re.match("(rediss?|unix)://", document.shared):
        # It may contain a password.
        json_file.broken(file, "shared: not a URL such as redis://host:6379/0")
    anonymous = None if document.anonymous is None else profiles[document.anonymous]
    if document.clients is None and document.issuers is None and anonymous is None:
        # A file with profiles and limits only: everybody may do everything. Empty `clients` or `issuers` let nobody in.
        anonymous = EVERYTHING
    return ClientsFile(
        clients=clients,
        issuers=issuers,
        profiles=profiles,
        limits=document.limits,
        resource=None if document.resource is None else document.resource.rstrip("/"),
        anonymous=anonymous,
        shared=document.shared,
    )


def _explained(error: msgspec.ValidationError, content: dict[str, Any]) -> str:
    """The message for an error in `content`. Changes `content` to find the error's place."""
    problem, _, where = str(error).partition(" - at `$")
    path, inside = "", content
    for key in re.findall(r"\w+|\.{3}", where):
        # msgspec does not report which value of a mapping is wrong.
        name = _culprit(inside, content, error) if key == "..." else key
        if isinstance(inside, list):
            path, inside = f"{path}[{name}]", inside[int(name)]
        else:
            path, inside = f"{path}.{name}", inside[name]
    if (unknown := re.search(r"unknown field `(.*)`", problem)) is not None:
        # A key that exists elsewhere is not the one that was meant here.
        problem = f"there is no key {_with_hint(unknown[1], (key for key in _KEYS if key != unknown[1]))}"
    elif problem.startswith("Invalid RFC3339") or problem.endswith("with a timezone component"):
        problem += "; write the time with its zone, such as 2027-01-31T00:00:00Z"
    return f"{path[1:]}: {problem}" if path else problem


def _culprit(mapping: dict[str, Any], content: dict[str, Any], error: msgspec.ValidationError) -> str:
    """The key of the value that causes `error`. Reduces `mapping`, a part of `content`, to this value."""
    for name, value in mapping.copy().items():
        mapping.clear()
        mapping[name] = value
        try:
            msgspec.convert(content, _Document)
        except msgspec.ValidationError as found:
            if str(found) == str(error):
                break
    return name


def _require_name(file: Path, kind: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{file}: {name!r} cannot be the name of a {kind}: use up to 64 letters, digits, '.', '_' and '-'"
        )


def _require_different(file: Path, what: str, values: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for name, value in values.items():
        if (other := owners.setdefault(value, name)) != name:
            json_file.broken(file, f"{other!r} and {name!r} have the same {what}")


def _with_hint(name: str, known: Iterable[str]) -> str:
    import difflib  # needed only for a misspelt name

    close = difflib.get_close_matches(name[:64], list(known), n=1)
    return repr(name[:64]) + (f"; did you mean {close[0]!r}?" if close else "")


def new_token() -> str:
    """A new token: 256 random bits in letters, digits, ``_`` and ``-``. Scanners for leaked secrets know its prefix."""
    return f"gaia_{secrets.token_urlsafe(32)}"


def hash_of(token: str | bytes) -> str:
    """The hash under which the file stores a token.

    A plain hash is enough, because 256 random bits cannot be guessed. A slow password hash would cost each request a
    tenth of a second.
    """
    return "sha256:" + hashlib.sha256(token.encode() if isinstance(token, str) else token).hexdigest()
