"""The login at one server: puts the token on each request, renews it, and asks a person to log in if permitted."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Coroutine, Generator, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.authorization.challenge import Challenge
from gaia.mcp.authorization.config import (
    LOGIN_SECONDS,
    AuthConfig,
    AuthorizationRequest,
    NoLogin,
    OAuth,
    OnAuthorization,
    auth_secrets,
)
from gaia.mcp.authorization.endpoint_policy import is_loopback
from gaia.mcp.authorization.token_file import Login, Stamp, TokenFile
from gaia.mcp.errors import CallCancelled, ConfigError, MCPError, NeedsAuthorization, ServerUnavailable
from gaia.runtime.extras import missing
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import Redactor

logger = get_logger(__name__)

_FOR_TOKENS = ("mcp", "httpx2")

_MAX_PROBLEM = 1000
_SEARCHED_CHARACTERS = 16 * 1024
"""Characters that are searched for secrets before the message is cut: a cut secret would not be recognised."""

_MAX_REPLACED = 16
"""Number of earlier logins' secrets that are still masked, because a late error may repeat them."""

_PYDANTIC_INPUT = r" \[type=.*"
"""The part of pydantic's message that repeats its input, which are tokens."""


class ServerAuthorization:
    """The login at one server, for an `HttpTransport`. Thread-safe.

    Requests wait for each other only while a token is requested, and then share it. A refused request raises
    `NeedsAuthorization`; the server has not acted on it.
    """

    def __init__(
        self,
        name: str,
        url: str,
        config: AuthConfig | None = None,
        *,
        on_authorization: OnAuthorization | None = None,
        login_seconds: float = LOGIN_SECONDS,
    ) -> None:
        """`config` defaults to `OAuth()`. Without `on_authorization`, only an earlier login is used and renewed."""
        self._name = name
        self._config = OAuth() if config is None else config
        self._on_authorization = on_authorization
        self._login_seconds = login_seconds
        parts = urlsplit(url)
        self._is_readable_on_the_way = parts.scheme != "https" and not is_loopback(parts.hostname or "")
        """Whether every machine on the way to the server could read a token."""
        client_id = getattr(self._config, "client_id", None)
        self._file = TokenFile(url, "" if client_id is None else f"{type(self._config).__name__} {client_id}")
        self._challenge = Challenge()
        self._login: Login | None = None
        self._replaced: tuple[str, ...] = ()
        self._asking = reentrant_lock()
        """Held while a token is requested. Requests read the login without it; the login is replaced as a whole."""
        self._failures = 0
        self._failure: MCPError | None = None
        """A thread that waited while another thread's login failed raises this failure, and begins no other login."""
        self._loaded: Stamp = None
        self._was_read = False
        self._refused: Stamp = None
        """The version of the file with the login that the server refused last."""
        self._run_lock = reentrant_lock()
        """Guards `_task` and `_closed`."""
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._closed = False

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked to log in."""
        return self._on_authorization is not None and isinstance(self._config, OAuth)

    @property
    def secrets(self) -> list[str]:
        """The tokens, some earlier tokens, and the configured secret. None of them may be shown."""
        login = self._login
        return [*auth_secrets(self._config), *([] if login is None else login.secrets), *self._replaced]

    @property
    def is_logged_in(self) -> bool:
        """Whether there is a kept login with a token."""
        login = self._read()
        return login is not None and login.access_token is not None

    def changed(self) -> bool:
        """Whether there is a login that the server has not refused yet. Cheap enough for each call."""
        stamp = self._file.stamp()
        return stamp is not None and stamp != self._refused

    def ready_login(self) -> tuple[bool, str | None]:
        """Whether a request can be sent without waiting, and its ``Authorization`` header. Reads the file only once."""
        login = self._login or (None if self._was_read else self._read())
        if login is None or self._is_readable_on_the_way:
            return True, None
        token = login.token
        return (not self._can_renew(login), None) if token is None else (True, f"Bearer {token}")

    def login_flow(self, revision: str | None) -> Generator[str | None, tuple[int, str | None], None]:
        """See `gaia.mcp.transports.base.RequestAuthorization`."""
        token = self._token()
        for attempt in (1, 2):
            status, www_authenticate = yield None if token is None else f"Bearer {token}"
            challenge = Challenge.of(status, www_authenticate, revision)
            if challenge is None:
                return
            self._challenge = challenge
            if isinstance(self._config, NoLogin):
                return
            if attempt == 2:
                raise self._needs("does not take the new login", challenge)
            token = self._new_token(challenge, token)

    def log_in(self, scope: str | None = None) -> None:
        """Let a person log in and grant `scope` too, or use the configured credentials. Raises MCPError."""
        with self._one_at_a_time():
            login = self._read()
            if isinstance(self._config, OAuth):
                self._ask_person(login, self._challenge, scope)
            else:
                self._use_credentials(self._challenge)

    def log_out(self) -> bool:
        """Forget the login; False if there was none."""
        self._take(None)
        self._loaded = None
        return self._file.delete()

    def abort(self) -> None:
        """Cancel a login under way, and refuse later ones until `reopen`."""
        with self._run_lock:
            self._closed = True
            if self._task is not None:
                loop, task = self._task
                # The loop may just have ended.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)

    def reopen(self) -> None:
        """After `abort`: logins are possible again."""
        with self._run_lock:
            self._closed = False

    # Internal.

    def _token(self) -> str | None:
        """The token for the first attempt, renewed if it has expired; None if there is none."""
        login = self._login or self._read()
        if login is None or self._is_readable_on_the_way:
            return None
        token = login.token
        if token is None and self._can_renew(login):
            # The token has expired, so sending it would only be refused.
            with contextlib.suppress(NeedsAuthorization):
                return self._new_token(None, None)
        return token

    def _can_renew(self, login: Login) -> bool:
        return login.refresh_token is not None and isinstance(self._config, OAuth)

    def _new_token(self, challenge: Challenge | None, used: str | None) -> str:
        """A token other than `used`. Without a challenge, only renewal is tried. Raises MCPError."""
        failures = self._failures
        with self._one_at_a_time():
            if failures != self._failures and self._failure is not None:
                raise self._failure
            login = self._read()
            if login is not None and login.token not in (None, used):
                # Another thread or process has already obtained a token.
                return str(login.token)
            if not isinstance(self._config, OAuth):
                return self._use_credentials(challenge or Challenge())
            if challenge is not None and challenge.wants_more:
                return self._step_up(login, challenge)
            renewed = self._renew(login)
            if renewed is None:
                raise self._needs("needs authorization", challenge)
            return renewed

    def _renew(self, login: Login | None) -> str | None:
        if login is None or login.refresh_token is None:
            return None
        assert isinstance(self._config, OAuth), "other logins are made anew, not renewed"
        flows = self._flows()
        with self._file.locked():
            current = self._read()
            if current is None or current.access_token != login.access_token:
                # Another process has already renewed the token.
                return None if current is None else current.token
            token = self._run(flows.renew(self._config, current, self._file))
            if token is None:
                logger.info("login_expired", server=self._name)
                self._file.write(msgspec.structs.replace(current, access_token=None, refresh_token=None))
            else:
                logger.info("login_renewed", server=self._name)
        return token

    def _step_up(self, login: Login | None, challenge: Challenge) -> str:
        suggested = (login.protected_resource or {}).get("scopes_supported") if login is not None else None
        wanted = set(suggested or () if challenge.scope is None else challenge.scope.split())
        given = set(((login.scope if login is not None else None) or "").split())
        if not wanted or wanted <= given:
            raise self._needs("refuses what the login should allow", challenge)
        if not self.interactive:
            raise self._needs(f"wants more than the login allows, the scope {' '.join(sorted(wanted))!r}", challenge)
        return self._ask_person(login, challenge, None)

    def _ask_person(self, login: Login | None, challenge: Challenge, scope: str | None) -> str:
        on_authorization = self._on_authorization
        if on_authorization is None:
            raise self._needs("needs authorization", challenge)
        assert isinstance(self._config, OAuth), "the other configurations need no person"
        flows = self._flows()
        chosen = self._config.scopes
        if chosen is not None or scope is not None:
            before = login.scope if login is not None and challenge.wants_more else None
            chosen = [*(chosen or []), *f"{challenge.scope or ''} {before or ''} {scope or ''}".split()]
        logger.info("login_begins", server=self._name)
        token = self._run(
            flows.log_in(
                self._config,
                login,
                challenge,
                self._file,
                scope=None if chosen is None else " ".join(dict.fromkeys(chosen)),
                open_browser=lambda url: on_authorization(AuthorizationRequest(self._name, url)),
                seconds=self._login_seconds,
            )
        )
        if token is None:
            raise self._needs("needs authorization, and the login did not succeed", challenge)
        logger.info("login_succeeded", server=self._name)
        return token

    def _use_credentials(self, challenge: Challenge) -> str:
        if isinstance(self._config, (OAuth, NoLogin)):
            raise ConfigError(f"server {self._name!r}: auth: its configuration says not to log in there")
        flows = self._flows()
        token = self._run(flows.use_credentials(self._config, challenge, self._file))
        if token is None:
            raise self._needs("needs authorization, and the configured credentials gave no token", challenge)
        return token

    def _flows(self) -> ModuleType:
        """The SDK's flows. Raises ConfigError with an install command if packages are missing."""
        if (lack := missing("oauth", *_FOR_TOKENS)) is not None:
            raise ConfigError(f"server {self._name!r} requires a login, which needs {lack}")
        from gaia.mcp.authorization import flows

        return flows

    def _run(self, flow: Coroutine[Any, Any, Login | None]) -> str | None:
        """Run a flow in this thread, in its own event loop. Returns the new token, or None. Raises MCPError."""
        import httpx2
        from mcp.client.auth import OAuthFlowError

        async def run() -> Login | None:
            task = asyncio.current_task()
            assert task is not None, "this runs in a task"
            with self._run_lock:
                if self._closed:
                    task.cancel()
                self._task = (asyncio.get_running_loop(), task)
            return await flow

        try:
            login = asyncio.run(run())
        except asyncio.CancelledError as error:
            raise CallCancelled(f"the login at server {self._name!r} was given up") from error
        except MCPError:
            raise
        except (OAuthFlowError, ValueError, OSError) as error:
            # Malformed documents and a port in use also come here. The masked message contains the authorization
            # server's text. `from None` drops the cause, which is not masked.
            raise self._needs(f"needs authorization, and logging in failed: {error}", None) from None
        except httpx2.RequestError as error:
            raise ServerUnavailable(
                f"the authorization server of {self._name!r} cannot be reached: {str(error) or type(error).__name__}"
            ) from error
        finally:
            flow.close()
            with self._run_lock:
                self._task = None
        if login is None:
            return None
        self._take(login)
        self._loaded = self._file.stamp()
        return login.access_token

    def _take(self, login: Login | None) -> None:
        """Use `login` from now on. The previous login's secrets stay masked for a while."""
        before = self._login.secrets if self._login is not None else []
        self._replaced = tuple(dict.fromkeys([*before, *self._replaced]))[:_MAX_REPLACED]
        self._login = login

    def _read(self) -> Login | None:
        self._was_read = True
        stamp = self._file.stamp()
        if stamp != self._loaded or stamp is None:
            self._take(None if stamp is None else self._file.read())
            self._loaded = stamp
        return self._login

    def _needs(self, problem: str, challenge: Challenge | None) -> NeedsAuthorization:
        self._refused = self._file.stamp()
        # An authorization server may repeat its input, and a parser its unreadable text.
        problem = Redactor(self.secrets)(re.sub(_PYDANTIC_INPUT, "", problem[:_SEARCHED_CHARACTERS]))
        message = f"the server {problem[:_MAX_PROBLEM]}"
        if isinstance(self._config, OAuth):
            command = ["gaia", "mcp", "login", self._name]
            if challenge and challenge.wants_more and challenge.scope:
                command += ["--scope", challenge.scope]
            message += f"; run: {shlex.join(command)}"
        return NeedsAuthorization(message, status=401 if challenge is None else challenge.status, delivery="not_sent")

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._is_readable_on_the_way:
            self._refused = self._file.stamp()
            raise NeedsAuthorization(
                "the server needs authorization, and over http a token could be read on the way; give its https "
                "address",
                status=401,
                delivery="not_sent",
            )
        with self._asking:
            try:
                yield
            except MCPError as error:
                self._failures += 1
                self._failure = error
                raise
