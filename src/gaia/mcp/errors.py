"""The exceptions of gaia-mcp, in one tree.

Each failed call says whether the server may have acted on it (`delivery`):

- ``"not_sent"``: no byte of the request reached the server; repeating it is safe.
- ``"unknown"``: the request was written, at least in part; its side effect may have happened.

The classes also derive from the built-in exceptions that the abstract transport documents (`RuntimeError`,
`TimeoutError`, `ValueError`), so code that does not import this module can catch them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = [
    "AnswerLost",
    "CallCancelled",
    "CallTimeout",
    "ConfigError",
    "Delivery",
    "HandshakeFailed",
    "HttpError",
    "InputMissing",
    "InvalidResponse",
    "JsonRpcError",
    "MCPError",
    "NeedsAuthorization",
    "NotConnected",
    "NotOffered",
    "Overloaded",
    "ServerCrashed",
    "ServerUnavailable",
    "SessionLost",
    "StartFailed",
    "ToolDenied",
    "ToolFailed",
    "ToolNotApproved",
    "UnknownTool",
    "UrlElicitationRequired",
    "answered_error",
    "error_of",
]

Delivery = Literal["not_sent", "unknown"]


class MCPError(Exception):
    """Base of all errors of this package."""

    error_type: str = "error"
    """The stable word for this kind of failure, which `call_tool` puts into its ``error_type`` field."""

    def __init__(self, message: str, *, delivery: Delivery = "not_sent") -> None:
        super().__init__(message)
        self.delivery: Delivery = delivery
        """Whether the server may have acted: ``"not_sent"`` or ``"unknown"``."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors of subclasses take more than the message, but `args` holds only the message.
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def message(self) -> str:
        """The problem, its place, and the next step for the reader. Known secrets are masked."""
        return str(self.args[0])

    @message.setter
    def message(self, message: str) -> None:
        # Stored only in `args`: an unmasked copy must not remain where `str`, `repr` and tracebacks look.
        self.args = (message,)

    def mask(self, redact: Callable[[str], str]) -> None:
        """Mask secrets in the message, which may repeat text of a server."""
        self.message = redact(self.message)


def _restored(kind: type[MCPError], args: tuple[Any, ...], state: dict[str, Any]) -> MCPError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(MCPError, ValueError):
    """The configuration cannot be used. The message names the mistake, its place, and the remedy."""

    error_type = "config"


class NotConnected(MCPError, RuntimeError):
    """The client was never connected, or its owner has disconnected it."""

    error_type = "not_connected"


class NotOffered(MCPError, RuntimeError):
    """The server did not declare this capability in its handshake."""

    error_type = "not_offered"


class StartFailed(MCPError, RuntimeError):
    """The server's process could not be started, or ended before it was ready."""

    error_type = "server_unavailable"


class HandshakeFailed(MCPError, RuntimeError):
    """The server runs, but client and server could not agree on a protocol revision."""

    error_type = "server_unavailable"


class ServerUnavailable(MCPError, RuntimeError):
    """The server is down, and this call does not start it. The message gives the reason.

    `retry_in` is the time until the next attempt, in seconds from the refusal; None if there is none, or it is unknown.
    """

    error_type = "server_unavailable"

    def __init__(self, message: str, *, delivery: Delivery = "not_sent", retry_in: float | None = None) -> None:
        super().__init__(message, delivery=delivery)
        self.retry_in = retry_in

    @classmethod
    def of(cls, server: str, reason: str, retry_in: float | None = None) -> ServerUnavailable:
        """The error for the server of this name."""
        error = cls("", retry_in=retry_in)
        error.message = f"server {server!r} is unavailable: {reason}{error.next_attempt}"
        return error

    @property
    def next_attempt(self) -> str:
        """The end of a message: when the next attempt to start the server is; empty if that is unknown."""
        # Rounded up, so that the attempt has been made by then.
        return "" if self.retry_in is None else f"; the next attempt is in {math.ceil(self.retry_in) or 1} s"


class ServerCrashed(MCPError, RuntimeError):
    """The server ended while the call was under way."""

    error_type = "server_crashed"


class AnswerLost(ServerCrashed):
    """The connection broke before the answer to this one call arrived. The server itself may still run."""


class SessionLost(MCPError, RuntimeError):
    """The process that a client's calls stay with is not there any more, and its memory is gone.

    It belongs to a handle of `MCPClient.pinned`, or at a gateway to a session or a handle.
    """

    error_type = "session_lost"


class Overloaded(MCPError, RuntimeError):
    """Too many calls already wait for this server."""

    error_type = "overloaded"


class CallTimeout(MCPError, TimeoutError):
    """The call's deadline passed: queueing, writing and waiting for the answer took too long in all."""

    error_type = "timeout"


class CallCancelled(MCPError, RuntimeError):
    """The call was cancelled by its caller, or by the client being closed."""

    error_type = "cancelled"


class ToolDenied(MCPError, ValueError):
    """The tool is on a deny list, or not on the allow list."""

    error_type = "denied"


class ToolNotApproved(ToolDenied):
    """Definitions are pinned, and the server's tool or prompt differs from the approved definition."""

    error_type = "not_approved"


class ToolFailed(MCPError, RuntimeError):
    """The tool ran and reports an error (``isError``); `ToolResult.raise_for_error` raises this.

    The message is the text of the result.
    """

    error_type = "tool_error"

    def __init__(self, message: str, result: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, delivery="unknown")
        self.result: Mapping[str, Any] = {} if result is None else result
        """The whole result; empty if there is none."""


class UnknownTool(MCPError, ValueError):
    """No connected server offers a tool of this name."""

    error_type = "unknown_tool"


class InvalidResponse(MCPError, ValueError):
    """The server's answer violates the protocol."""

    error_type = "invalid_response"

    def __init__(self, message: str, *, delivery: Delivery = "unknown") -> None:
        super().__init__(message, delivery=delivery)


class InputMissing(MCPError, RuntimeError):
    """The server needs an answer from a person or a model, and the application gave none."""

    error_type = "input_missing"


class JsonRpcError(MCPError, RuntimeError):
    """The server answered with a JSON-RPC error object.

    `code` is its integer code, `data` the value that the server attached (or None). Local failures have no code, so
    code that checks it cannot take them for a server's answer.
    """

    error_type = "jsonrpc"

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, delivery="unknown")
        self.code = code
        self.data = data


class UrlElicitationRequired(JsonRpcError):
    """The request works only after a person has visited a URL (specification 2025-11-25, "Elicitation").

    Show the URLs to the person, and call again afterwards. An `ElicitationCompleted` event may report that the person
    has finished.
    """

    error_type = "url_elicitation_required"
    CODE = -32042

    @property
    def elicitations(self) -> list[dict[str, Any]]:
        """Each is ``{"mode": "url", "message": …, "url": …, "elicitationId": …}``. `web_page` checks the URLs.

        Entries whose URL is not a web page are left out.
        """
        listed = self.data.get("elicitations") if isinstance(self.data, dict) else None
        found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        pages = [(one, web_page(one["url"]) if "url" in one else None) for one in found]
        return [one if page is None else one | {"url": page} for one, page in pages if page or "url" not in one]


def web_page(url: object) -> str | None:
    r"""A server's URL, if a person may open it: https, or http on this machine, never a script, file or app.

    None for other URLs, also for one with a user before the host (``https://bank.example@evil.example``), which seems
    to lead elsewhere, and one with a backslash (``http://evil.example\@127.0.0.1``), which browsers read as a slash and
    Python does not. A host with letters of other alphabets is returned in ASCII (``xn--…``), because those may look
    like Latin ones.
    """
    if not isinstance(url, str) or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        netloc = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode("ascii")
    except ValueError:
        return None
    if not host or "@" in netloc or "%" in netloc:
        return None
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        return None
    return url if netloc == parts.netloc else parts._replace(netloc=netloc).geturl()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def answered_error(code: int, message: str, data: Any = None) -> JsonRpcError:
    """The exception for a server's error object."""
    return (UrlElicitationRequired if code == UrlElicitationRequired.CODE else JsonRpcError)(code, message, data)


class HttpError(MCPError, RuntimeError):
    """A response over HTTP is not an MCP message.

    `status` is the status code; None if there was none, or if it is not the cause.
    """

    error_type = "http"

    def __init__(self, message: str, *, status: int | None = None, delivery: Delivery = "unknown") -> None:
        super().__init__(message, delivery=delivery)
        self.status = status


class NeedsAuthorization(HttpError):
    """The server requires a login. The message says how to log in."""

    error_type = "needs_authorization"


_BY_TYPE: dict[str, type[MCPError]] = {
    cls.error_type: cls
    for cls in (
        ConfigError,
        NotConnected,
        NotOffered,
        ServerUnavailable,
        ServerCrashed,
        SessionLost,
        Overloaded,
        CallTimeout,
        CallCancelled,
        ToolDenied,
        ToolNotApproved,
        UnknownTool,
        InvalidResponse,
        InputMissing,
        HttpError,
        NeedsAuthorization,
    )
}
"""By `error_type`. If several classes have the same word, the most general one."""


def error_of(error_type: str, message: str) -> MCPError:
    """The exception for a word of `MCPError.error_type`; an `MCPError` with that word if no class has it."""
    error = _BY_TYPE.get(error_type, MCPError)(message)
    error.error_type = error_type
    return error
