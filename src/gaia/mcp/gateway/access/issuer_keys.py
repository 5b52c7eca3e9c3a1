"""`IssuerKeys`: the public keys of one issuer, fetched in a thread, cached, and refreshed by age."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaia.http.connection import HttpConnection
from gaia.http.errors import HttpClientError
from gaia.http.request import HttpSettings
from gaia.http.streams import tls_context
from gaia.http.url import Proxies, Url
from gaia.http.waits import run
from gaia.mcp.gateway.access.gate import Scheduler, Timer
from gaia.mcp.gateway.access.settings import IssuerSettings, require_secure_url
from gaia.runtime.log import get_logger

FETCH_SECONDS = 10.0
"""Seconds for all HTTP requests of one fetch together."""

_MAX_BYTES = 512 * 1024


class KeysUnavailable(Exception):
    """The keys could not be fetched. The message has the address and the reason."""


def fetch_keys(issuer: IssuerSettings) -> list[dict[str, Any]]:
    """Fetch the public keys of an issuer as JSON objects. Raises `KeysUnavailable`.

    Blocks up to `FETCH_SECONDS`, or longer if a name lookup is slow, whose limit the operating system sets. So it must
    run in a thread that no other thread joins. Redirects are not followed, because the configured address decides whose
    keys count.
    """
    deadline = time.monotonic() + FETCH_SECONDS
    try:
        settings = HttpSettings(tls=tls_context(), proxies=Proxies.from_environment(), max_bytes=_MAX_BYTES)
        connection = HttpConnection(settings)
    except (OSError, ValueError) as error:
        raise KeysUnavailable(f"{issuer.issuer}: {error}") from error
    try:
        address = issuer.jwks_uri or _discovered(connection, issuer, deadline)
        keys = _object(connection, address, deadline).get("keys")
    finally:
        connection.close()
    if not isinstance(keys, list):
        raise KeysUnavailable(f'{address}: expected a key set like {{"keys": […]}}')
    return [key for key in keys if isinstance(key, dict)]


def _discovered(connection: HttpConnection, issuer: IssuerSettings, deadline: float) -> str:
    problems: list[str] = []
    for address in _metadata_addresses(issuer.issuer):
        try:
            metadata = _object(connection, address, deadline)
        except KeysUnavailable as error:
            problems.append(str(error))
            continue
        if metadata.get("issuer") != issuer.issuer:
            # RFC 8414, section 3.3. Otherwise one issuer of a host could speak for another.
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
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield parts._replace(path=f"/.well-known/oauth-authorization-server{path}").geturl()
    yield parts._replace(path=f"{path}/.well-known/openid-configuration").geturl()


def _object(connection: HttpConnection, address: str, deadline: float) -> dict[str, Any]:
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


logger = get_logger(__name__)

REFRESH_SECONDS = 600.0
"""Age after which keys are fetched again. They stay in use meanwhile."""
MAX_AGE_SECONDS = 3600.0
"""Age after which keys are no longer used: the issuer cannot be reached, and may have withdrawn them."""
RETRY_SECONDS = 30.0
"""Shortest time between two fetches, however many tokens name unknown keys."""
RETRY_FAILED_SECONDS = 5.0
"""Shortest time between a failed fetch and the next one."""
GIVE_UP_SECONDS = FETCH_SECONDS + 5.0
"""Time after which a fetch counts as failed, for example because of a slow name lookup. A later result is ignored."""
MAX_WAITING = 256

Done = Callable[["list[dict[str, Any]] | KeysUnavailable"], None]


class TokenRefused(Exception):
    """The token is not accepted. The message gives the reason, and no part of the token."""

    def __init__(self, message: str, status: int = 401) -> None:
        """`status` is 403 for a valid token without rights, and 503 if the token cannot be verified now."""
        super().__init__(message)
        self.status = status


class IssuerKeys:
    """The cached keys of one issuer. For one event loop. Times are readings of its clock, in seconds."""

    def __init__(self, issuer: str, fetch: Callable[[Done], None], scheduler: Scheduler) -> None:
        """`fetch` fetches the keys without blocking the loop, and passes them to its argument there."""
        self._issuer = issuer
        self._fetch = fetch
        self._scheduler = scheduler
        self._keys: dict[str | None, list[Mapping[str, Any]]] = {}
        self._fetched_at: float | None = None
        self._problem = "they have not been fetched yet"
        self._next_try = -math.inf
        self._under_way: Timer | None = None
        self._waiting: list[Callable[[], None]] = []
        self.generation = 0
        """Rises when the keys change. Tokens that were verified with older keys are then verified again."""

    def candidates(self, kid: str | None) -> list[Mapping[str, Any]] | None:
        """The keys that may have signed a token; None while they are fetched. Raises `TokenRefused`."""
        now = self._scheduler.time()
        age = None if self._fetched_at is None else now - self._fetched_at
        if age is not None and age >= REFRESH_SECONDS:
            self._refresh(now)
        if age is not None and age < MAX_AGE_SECONDS:
            # A token without a ``kid`` may be signed with any key. A key without a ``kid`` may have signed any token.
            all_keys = [key for keys in self._keys.values() for key in keys]
            found = self._keys.get(kid) or self._keys.get(None) if kid is not None else all_keys
            if found:
                return found
        self._refresh(now)
        if self._under_way is not None:
            return None
        if age is None or age >= MAX_AGE_SECONDS:
            raise TokenRefused(f"the keys of {self._issuer} cannot be had: {self._problem}", 503)
        raise TokenRefused("its issuer has no such key")

    def when_fetched(self, callback: Callable[[], None]) -> bool:
        """Call `callback` after the running fetch. False if too many callbacks already wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(callback)
        return True

    def _refresh(self, now: float) -> None:
        if self._under_way is not None or now < self._next_try:
            return
        timer: Timer | None = None

        def done(result: list[dict[str, Any]] | KeysUnavailable) -> None:
            # The result of a fetch that has timed out is ignored.
            if self._under_way is timer:
                self._on_fetched(result)

        late = KeysUnavailable(f"no answer within {GIVE_UP_SECONDS:g} s")
        timer = self._under_way = self._scheduler.call_later(GIVE_UP_SECONDS, done, late)
        self._fetch(done)

    def _on_fetched(self, result: list[dict[str, Any]] | KeysUnavailable) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None
        now = self._scheduler.time()
        if isinstance(result, KeysUnavailable):
            self._next_try = now + RETRY_FAILED_SECONDS
            self._problem = str(result)
            logger.warning("issuer_keys_unavailable", issuer=self._issuer, error=self._problem)
        else:
            self._next_try, self._fetched_at = now + RETRY_SECONDS, now
            keys: dict[str | None, list[Mapping[str, Any]]] = {}
            for key in result:
                kid = key.get("kid")
                keys.setdefault(kid if isinstance(kid, str) else None, []).append(key)
            if keys != self._keys:
                self._keys = keys
                self.generation += 1
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
