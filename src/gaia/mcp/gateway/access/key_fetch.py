"""Fetches an issuer's keys: its metadata, if they are not configured to be somewhere, and the key set (RFC 7517)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaia.http.connection import HttpConnection
from gaia.http.errors import HttpClientError
from gaia.http.proxies import Proxies
from gaia.http.request import HttpSettings
from gaia.http.streams import tls_context
from gaia.http.url import Url
from gaia.http.waits import run
from gaia.mcp.gateway.access.issuer_settings import IssuerSettings, require_secure_url

FETCH_SECONDS = 10.0
"""For all requests of one fetch together."""

_MAX_BYTES = 512 * 1024


class KeysUnavailable(Exception):
    """The keys could not be fetched; the message says from where, and why."""


def fetch_keys(issuer: IssuerSettings) -> list[dict[str, Any]]:
    """The public keys of an issuer as JSON objects. Blocks for `FETCH_SECONDS` at most. Raises `KeysUnavailable`.

    No redirect is followed: what is configured says whose keys count. Names are looked up without a deadline, which
    the operating system has; so this is for a thread that nothing waits for.
    """
    deadline = time.monotonic() + FETCH_SECONDS
    connection = _connection(issuer)
    try:
        address = issuer.jwks_uri or _discovered(connection, issuer, deadline)
        keys = _object(connection, address, deadline).get("keys")
    finally:
        connection.close()
    if not isinstance(keys, list):
        raise KeysUnavailable(f'{address}: expected a key set like {{"keys": […]}}')
    return [key for key in keys if isinstance(key, dict)]


def _connection(issuer: IssuerSettings) -> HttpConnection:
    try:
        return HttpConnection(HttpSettings(tls=tls_context(), proxies=Proxies.from_environment(), max_bytes=_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise KeysUnavailable(f"{issuer.issuer}: {error}") from error


def _discovered(connection: HttpConnection, issuer: IssuerSettings, deadline: float) -> str:
    """Where the issuer's metadata says that its keys are."""
    problems: list[str] = []
    for address in _metadata_addresses(issuer.issuer):
        try:
            metadata = _object(connection, address, deadline)
        except KeysUnavailable as error:
            problems.append(str(error))
            continue
        if metadata.get("issuer") != issuer.issuer:
            # RFC 8414, section 3.3: otherwise one issuer of a host could speak for another.
            problems.append(f"{address}: it is the metadata of another issuer")
            continue
        keys = metadata.get("jwks_uri")
        try:
            require_secure_url("jwks_uri", str(keys))
        except ValueError as error:
            problems.append(f"{address}: {error}")
            continue
        return str(keys)
    raise KeysUnavailable("; ".join(problems))


def _metadata_addresses(issuer: str) -> Iterator[str]:
    """By RFC 8414, and by OpenID Connect Discovery."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield parts._replace(path=f"/.well-known/oauth-authorization-server{path}").geturl()
    yield parts._replace(path=f"{path}/.well-known/openid-configuration").geturl()


def _object(connection: HttpConnection, address: str, deadline: float) -> dict[str, Any]:
    """The JSON object at an address."""

    async def fetch() -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        with await connection.request("GET", Url.parse(address), headers, deadline=deadline) as response:
            return response.status, await response.read()

    try:
        status, body = run(fetch())
    except (HttpClientError, ValueError) as error:
        raise KeysUnavailable(f"{address}: {error}") from error
    if status != 200:
        raise KeysUnavailable(f"{address}: HTTP {status}")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeysUnavailable(f"{address}: not a JSON object: {error}") from error
