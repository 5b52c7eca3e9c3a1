"""Stores logins: one private file per server, bound to the authorization server that issued the login."""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.errors import ConfigError
from gaia.runtime import json_file
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import repr_of_shown

logger = get_logger(__name__)

_LOCK_SECONDS = 60.0
"""Seconds. Longer than renewing a token takes; a process that holds the lock longer is stuck."""

_MIN_LIFETIME_SECONDS = 10.0
"""Seconds. A token that is about to expire would arrive expired."""

Stamp = tuple[int, ...] | None
"""Identifies a version of a file; None if there is no file."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A stored login. The `repr` shows no secret.

    `client`, `authorization_server` and `protected_resource` are the SDK's documents, which are needed to renew a
    token.
    """

    server: str
    issuer: str | None = None
    """The authorization server that issued the login. No other server ever receives any part of it (2026-07-28)."""
    access_token: str | None = None
    refresh_token: str | None = None
    scope: str | None = None
    expires_at: float | None = None
    """Seconds of the system's clock; None if unknown."""
    client: dict[str, Any] | None = None
    redirect_uri: str | None = None
    authorization_server: dict[str, Any] | None = None
    protected_resource: dict[str, Any] | None = None

    @property
    def token(self) -> str | None:
        """The access token; None if there is none, or if it has expired."""
        if self.expires_at is not None and time.time() > self.expires_at - _MIN_LIFETIME_SECONDS:
            return None
        return self.access_token

    @property
    def secrets(self) -> list[str]:
        client_secret = (self.client or {}).get("client_secret")
        return [secret for secret in (self.access_token, self.refresh_token, client_secret) if secret]

    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("server", self.server), ("issuer", self.issuer)]


class TokenFile:
    """The file of one server and one kind of login. Thread-safe, and safe against other processes."""

    def __init__(self, server: str, identity: str = "") -> None:
        """`identity` separates logins at the same server, such as those with different client ids."""
        self.server = server
        digest = hashlib.sha256(f"{server}\n{identity}".encode()).hexdigest()[:24]
        # The host's name is for people who look into the folder.
        host = re.sub(r"[^A-Za-z0-9.-]", "_", urlsplit(server).hostname or "server")
        self.path = folder() / f"{host}-{digest}.json"

    def stamp(self) -> Stamp:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> Login | None:
        """The login; None if there is none, or if it is malformed. Raises ConfigError if the file cannot be read."""
        data = json_file.read_bytes(self.path)
        if not data:
            return None
        try:
            login = msgspec.json.decode(data, type=Login)
        except msgspec.DecodeError:
            # A new login repairs the file, and without a login the server asks for one.
            logger.warning("login_unreadable", file=str(self.path))
            return None
        return login if login.server == self.server else None

    def write(self, login: Login) -> None:
        """Replace the kept login; only the user can read the file. Raises ConfigError."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            json_file.write(self.path, msgspec.to_builtins(login))
        except OSError as error:
            raise ConfigError(f"{self.path}: the login cannot be saved: {error.strerror or error}") from error

    def delete(self) -> bool:
        """Forget the login; False if there was none. Raises ConfigError."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be deleted: {error.strerror or error}") from error
        return True

    def locked(self) -> AbstractContextManager[Path]:
        """A lock between processes: many authorization servers accept a refresh token only once."""
        return json_file.locked(self.path, _LOCK_SECONDS)


def folder() -> Path:
    """The folder of all logins. Raises ConfigError if there is no home directory."""
    return json_file.home_folder("logins") / "logins"
