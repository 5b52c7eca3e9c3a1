"""Makes the configured login of a server when the server is opened, because variables are known only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gaia.mcp.authorization.config import LOGIN_SECONDS, AuthConfig, OnAuthorization
from gaia.mcp.errors import NeedsAuthorization
from gaia.runtime.locks import reentrant_lock

if TYPE_CHECKING:
    from gaia.mcp.authorization.server_authorization import ServerAuthorization


class ConfiguredAuthorization:
    """See `gaia.mcp.transports.base.Authorization`. Calling it returns the authorization of the requests."""

    def __init__(
        self,
        name: str,
        expand: Callable[[], tuple[str, AuthConfig | None]],
        on_authorization: OnAuthorization | None = None,
    ) -> None:
        """`expand` returns the server's URL and its ``auth`` with variables expanded. It may raise ConfigError."""
        self.on_authorization = on_authorization
        self.login_seconds = LOGIN_SECONDS
        """`login_seconds` and `on_authorization` may be replaced until the server is opened."""
        self._name = name
        self._expand = expand
        self._lock = reentrant_lock()
        """Guards the attributes below."""
        self._made_of: tuple[str, AuthConfig | None] | None = None
        self._made: ServerAuthorization | None = None
        self._secrets_before: list[str] = []
        """Secrets of the previous login; late errors may repeat them."""

    def __call__(self) -> ServerAuthorization:
        # Imported here: programs that start all servers as processes do not need it.
        from gaia.mcp.authorization.server_authorization import ServerAuthorization

        values = self._expand()
        with self._lock:
            if self._made is None or values != self._made_of:
                self._secrets_before = [] if self._made is None else self._made.secrets
                self._made_of = values
                self._made = ServerAuthorization(
                    self._name, *values, on_authorization=self.on_authorization, login_seconds=self.login_seconds
                )
            return self._made

    @property
    def interactive(self) -> bool:
        return self._made is not None and self._made.interactive

    @property
    def secrets(self) -> list[str]:
        return [] if self._made is None else [*self._made.secrets, *self._secrets_before]

    def changed(self) -> bool:
        return self._made is not None and self._made.changed()

    def log_in(self) -> None:
        if self._made is None:
            raise NeedsAuthorization("the server has not been opened yet", delivery="not_sent")
        self._made.log_in()

    def abort(self) -> None:
        if self._made is not None:
            self._made.abort()

    def reopen(self) -> None:
        if self._made is not None:
            self._made.reopen()
