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
from typing import Any, TypeVar

import msgspec

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.limit_settings import ClientLimits, GatewayLimits, IssuerSettings, require_secure_url
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.runtime import json_file

_EXAMPLE = '{"clients": {"ci": {"token": "sha256:…", "profile": "everything"}}}'
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = 1

StructT = TypeVar("StructT", bound=msgspec.Struct)


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One client with a token that this gateway made."""

    token: str
    """The hash of the token, see `hash_of`."""
    profile: str
    created: str | None = None
    """Time when the token was made; for people."""
    expires: datetime | None = None
    """Time from which the token is refused; None for never."""

    def __post_init__(self) -> None:
        if not is_hash(self.token):
            raise ValueError(
                "token: expected sha256: and 64 hexadecimal digits, as `gaia mcp gateway add-client` writes"
            )
        if self.expires is not None and self.expires.tzinfo is None:
            raise ValueError("expires: needs a time zone, as in 2027-01-31T00:00:00Z")


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
    """The whole file. The entries are decoded one by one, so that error messages can name them."""

    version: int = _VERSION
    clients: dict[str, msgspec.Raw] | None = None
    issuers: dict[str, msgspec.Raw] | None = None
    profiles: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    limits: msgspec.Raw = msgspec.Raw(b"{}")
    resource: str | None = None
    anonymous: str | None = None


@dataclass(frozen=True)
class ClientsFile:
    """The checked contents of a clients file. Immutable."""

    clients: Mapping[str, ClientEntry] = field(default_factory=dict)
    issuers: Mapping[str, IssuerSettings] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=lambda: {EVERYTHING.name: EVERYTHING})
    """Includes `EVERYTHING`, which always exists."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    resource: str | None = None
    """The URL of the gateway's ``/mcp`` as clients know it. Required if there are issuers."""
    anonymous: Profile | None = None
    """The profile of requests without a token; None refuses them."""


def read_clients_file(file: Path) -> ClientsFile:
    """Read and check `file`. Raises ConfigError with the problem and its place, also if there is no such file."""
    if (others := json_file.who_else_writes(file)) is not None:
        raise ConfigError(f"{file}: {others}")
    data = json_file.read_bytes(file)
    if not data.strip():
        missing = "is empty" if file.exists() else "there is no such file"
        raise ConfigError(
            f"{file}: {missing}; `gaia mcp gateway add-client NAME --clients {file}` makes it, with a first client"
        )
    return _checked(file, data)


def add_client(file: Path, name: str, profile: str = EVERYTHING.name, *, replace: bool = False) -> str:
    """Add a client to `file`, creating it if needed. Returns the client's token, which is stored nowhere.

    With `replace`, a client of this name gets a new token, and its old one is refused from then on. Raises ConfigError
    and changes nothing if the name is taken or unusable, the profile does not exist, or the file is unusable.
    """
    _require_name(file, "client", name)
    token = new_token()
    with json_file.locked(file) as target:
        data = json_file.read_bytes(target)
        document = json_file.decode(file, data, _EXAMPLE)
        found = _checked(file, data) if data.strip() else ClientsFile()
        if name in found.clients and not replace:
            raise ConfigError(f"{file}: there is a client {name!r} already; give it a new token with --replace")
        if profile not in found.profiles:
            raise ConfigError(
                f"{file}: there is no profile {_with_hint(profile, found.profiles)} "
                '(write it into the file first, such as "profiles": {"read-only": {"readOnly": true}})'
            )
        created = datetime.now(UTC).isoformat(timespec="seconds")
        clients = document.setdefault("clients", {})
        clients[name] = {"token": hash_of(token), "profile": profile, "created": created}
        json_file.write(target, {"version": _VERSION, **document})
    return token


def _checked(file: Path, data: bytes) -> ClientsFile:
    document = _read_document(file, data)
    profiles = {EVERYTHING.name: EVERYTHING}
    for name, raw in document.profiles.items():
        _require_name(file, "profile", name)
        if name == EVERYTHING.name:
            json_file.broken(file, f"profiles.{name}: this one is always there, and cannot be changed")
        place = f"profiles.{name}"
        profiles[name] = _convert(file, place, raw, _ProfileEntry).profile(name)
    clients = _entries(file, "client", document.clients or {}, ClientEntry)
    issuers = _entries(file, "issuer", document.issuers or {}, IssuerSettings)
    _require_profiles(file, profiles, (("anonymous", document.anonymous),))
    _require_profiles(file, profiles, ((f"clients.{name}.profile", each.profile) for name, each in clients.items()))
    for name, issuer in issuers.items():
        _require_profiles(file, profiles, ((f"issuers.{name}.profiles", rule.profile) for rule in issuer.profiles))
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
    anonymous = None if document.anonymous is None else profiles[document.anonymous]
    if document.clients is None and document.issuers is None and anonymous is None:
        # A file with profiles and limits only: everybody may do everything. An empty `clients` lets nobody in.
        anonymous = EVERYTHING
    return ClientsFile(
        clients=clients,
        issuers=issuers,
        profiles=profiles,
        limits=_convert(file, "limits", document.limits, GatewayLimits),
        resource=None if document.resource is None else document.resource.rstrip("/"),
        anonymous=anonymous,
    )


def _read_document(file: Path, data: bytes) -> _Document:
    # Decoded first for the error messages with line and column.
    text = json_file.decode(file, data, _EXAMPLE)
    try:
        json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_duplicates)
    except ValueError as error:
        json_file.broken(file, str(error))
    document = _convert(file, "", msgspec.Raw(msgspec.json.encode(text)), _Document)
    if document.version != _VERSION:
        problem = f"its version is {document.version!r}, and this gaia-mcp understands {_VERSION}; update it"
        json_file.broken(file, problem)
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON does not define which of two equal keys counts: one client could silently get another one's rights.
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice in one object; remove or rename one of the two")
        found[key] = value
    return found


def _entries(file: Path, kind: str, raw: Mapping[str, msgspec.Raw], of: type[StructT]) -> dict[str, StructT]:
    for name in raw:
        _require_name(file, kind, name)
    return {name: _convert(file, f"{kind}s.{name}", each, of) for name, each in raw.items()}


def _convert(file: Path, place: str, raw: msgspec.Raw, of: type[StructT]) -> StructT:
    try:
        return msgspec.json.decode(raw, type=of)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = place + _with_name(where.rstrip("`"), raw, of, str(error))
        known = [*of.__struct_encode_fields__, *ClientLimits.__struct_encode_fields__]
        if (unknown := re.search(r"unknown field `(.*)`", what)) is not None:
            what = f"there is no key {_with_hint(unknown[1], known)}"
        elif what.startswith("Invalid RFC3339"):
            what += "; write the time with its zone, such as 2027-01-31T00:00:00Z"
        json_file.broken(file, f"{path.lstrip('.')}: {what}" if path else what)


def _with_name(where: str, raw: msgspec.Raw, of: type[msgspec.Struct], error: str) -> str:
    """The path with the name in place of ``[...]``: msgspec does not say which value of a mapping is wrong."""
    before, dots, after = where.partition("[...]")
    if not dots:
        return where
    document = inside = msgspec.json.decode(raw)
    for key in before.strip(".").split("."):
        inside = inside[key]
    values = inside.copy()
    for name, value in values.items():
        inside.clear()
        inside[name] = value
        try:
            msgspec.convert(document, of)
        except msgspec.ValidationError as found:
            if str(found) == error:
                return f"{before}.{name}{after}"
    return where


def _require_name(file: Path, kind: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{file}: {name!r} cannot be the name of a {kind}: use up to 64 letters, digits, '.', '_' and '-'"
        )


def _require_profiles(file: Path, profiles: Mapping[str, Profile], named: Iterable[tuple[str, str | None]]) -> None:
    for place, name in named:
        if name is not None and name not in profiles:
            json_file.broken(file, f"{place}: there is no profile {_with_hint(name, profiles)}")


def _require_different(file: Path, what: str, values: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for name, value in values.items():
        if (other := owners.setdefault(value, name)) != name:
            json_file.broken(file, f"{other!r} and {name!r} have the same {what}")


def _with_hint(name: str, known: Iterable[str]) -> str:
    import difflib  # only what is misspelt needs it

    close = difflib.get_close_matches(name[:64], list(known), n=1)
    return repr(name[:64]) + (f"; did you mean {close[0]!r}?" if close else "")


_PREFIX = "gaia_"
"""The prefix lets scanners for leaked secrets find the token."""

_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new_token() -> str:
    """A new token: 256 random bits in letters, digits, ``_`` and ``-``."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str | bytes) -> str:
    """The hash of a token that the file stores.

    A plain hash is enough, because 256 random bits cannot be guessed. A slow hash, as for passwords, would cost each
    request a tenth of a second.
    """
    return "sha256:" + hashlib.sha256(token.encode() if isinstance(token, str) else token).hexdigest()


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None
