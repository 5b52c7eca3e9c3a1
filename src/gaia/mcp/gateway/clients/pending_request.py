"""`PendingRequest`: one request of a client, from its arrival to its answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from gaia.mcp.gateway.access.limits import Admission
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.owners import HANDLE_KEY, Handle
from gaia.mcp.gateway.messages import (
    META,
    Params,
    RequestRefused,
    encode_error,
    encode_notification,
    encode_response,
    fragment,
    is_wanted,
    member,
    stateless_result,
)
from gaia.mcp.gateway.upstream.rounds import OngoingCall
from gaia.mcp.gateway.views.view import View
from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, RequestId
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_NO_CAPABILITIES: Mapping[str, Any] = {}
_MAX_TEXT = 64 * 1024
"""Most characters of a name or a URI, which may be kept for long."""
_ROUND = ("inputResponses", "requestState")
_FORWARDED: Mapping[str, tuple[str, ...]] = {
    "tools/call": ("name", "arguments", *_ROUND),
    "prompts/get": ("name", "arguments", *_ROUND),
    "resources/read": ("uri", *_ROUND),
    "completion/complete": ("ref", "argument", "context", *_ROUND),
}
"""The members of params that servers get. Some servers ignore case (as Go's `encoding/json` does): they would read
``Name`` as the name, which no profile was checked for."""
_OWN_META = frozenset({"progresstoken", HANDLE_KEY})
"""In lower case."""
_TRACE_META = frozenset({"traceparent", "tracestate", "baggage"})


class Reply(Protocol):
    """Sends the answer to one request, and the messages before it."""

    def send(self, message: bytes) -> None:
        """Send a notification or a request that belongs to the client's request."""

    def answer(self, message: bytes, status: int) -> None:
        """Send the response. Nothing follows it. `status` is for HTTP."""

    def abandon(self) -> None:
        """End without a response: the client has cancelled the request."""

    def forget(self) -> None:
        """Forget the request: the client has closed the connection."""

    @property
    def accepts_messages(self) -> bool:
        """Whether messages passed to `send` reach the client."""

    @property
    def unread(self) -> int:
        """Bytes sent to the client that it has not read yet, on all its connections."""


class Target:
    """The server, and the tool, prompt or resource there, that a request is for."""

    __slots__ = ("name", "server", "tool")

    def __init__(self, server: str | None, name: str | None, *, is_tool: bool = False) -> None:
        """`server` is None if no server has it; `name` is that of a tool or prompt, or a URI."""
        self.server = server
        self.name = name
        self.tool = name if is_tool else None


class PendingRequest:
    """Belongs to the gateway's event loop. Answered once; later answers are dropped."""

    __slots__ = (
        "_after_end",
        "_progress_token",
        "_withdrawals",
        "address",
        "admission",
        "begun",
        "call",
        "capabilities",
        "handle",
        "headers",
        "id",
        "is_answered",
        "is_stateless",
        "log_level",
        "meta",
        "method",
        "observation",
        "on_cancelled",
        "params",
        "principal",
        "reply",
        "session",
        "target",
        "view",
    )

    def __init__(
        self,
        identifier: RequestId,
        method: str,
        params: Params,
        meta: Mapping[str, Any],
        reply: Reply,
        view: View,
        session: Session | None,
        principal: Principal | None = None,
        address: str | None = None,
    ) -> None:
        """`session` is None for a client of the stateless era, whose `meta` has been checked."""
        self.id = identifier
        self.method = method
        self.params = params
        self.meta = meta
        self.view = view
        self.session = session
        self.principal = principal
        """The client; None if clients have no names."""
        self.headers: Mapping[bytes, bytes] | None = None
        """Headers of the HTTP request, where they must agree with the params."""
        self.address = address
        """The IP address of the client, if known."""
        self.observation: Observation | None = None
        """Telemetry of the request to the server."""
        self.handle: Handle | None = None
        """The client's handle of its own instances, if the request goes to one."""
        self.is_stateless = session is None
        self.reply = reply
        self.is_answered = False
        self.target: Target | None = None
        """The subject of the request at a server; None until it is relayed."""
        self.begun = 0.0
        """When it was relayed; a reading of the monotonic clock."""
        self.admission: Admission | None = None
        self.call: OngoingCall | None = None
        """The running request to the server."""
        self.on_cancelled: Callable[[bool], None] | None = None
        """Called if the client cancels a relayed request. The argument says whether the server may have it."""
        self._after_end: list[Callable[[], object]] = []
        self._progress_token = meta.get("progressToken")
        self._withdrawals: list[Callable[[], None]] = []
        if session is None:
            self.capabilities: Mapping[str, Any] = meta.get(f"{META}clientCapabilities") or _NO_CAPABILITIES
            self.log_level: str | None = meta.get(f"{META}logLevel")
        else:
            self.capabilities = session.capabilities
            self.log_level = session.log_level

    # For the handlers.

    def text(self, key: str) -> str:
        """A required member of the params. Raises `RequestRefused`."""
        value = member(self.params, key, str)
        if value is None:
            raise RequestRefused(INVALID_PARAMS, f"{key}: missing")
        if len(value) > _MAX_TEXT:
            raise RequestRefused(INVALID_PARAMS, f"{key}: longer than {_MAX_TEXT} characters")
        return value

    def forwarded(self, **changed: Any) -> dict[str, Any]:
        """The params for a server: known members, `changed` or as they came, and the servers' part of ``_meta``."""
        given = self.params
        params: dict[str, Any] = {
            key: fragment(given[key]) for key in _FORWARDED[self.method] if key in given and key not in changed
        }
        params.update(changed)
        if meta := {key: value for key, value in self.meta.items() if _is_for_servers(key)}:
            params["_meta"] = meta
        return params

    # The end of the request.

    def succeed(self, result: bytes) -> None:
        """Answer with a result, a JSON object. In the stateless era it gets a ``resultType`` if it has none."""
        if self._ends():
            self.reply.answer(encode_response(self.id, stateless_result(result) if self.is_stateless else result), 200)

    def fail(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        if self._ends():
            self.reply.answer(encode_error(self.id, code, message, data), status if self.is_stateless else 200)

    def fail_with(self, error: Exception) -> None:
        """Answer with an exception of a handler. Any type but `RequestRefused` is a bug of the gateway."""
        if isinstance(error, RequestRefused):
            self.fail(error.code, error.message, error.data, status=error.status)
        else:
            logger.error("gateway_request_failed", method=self.method, error=exception_text(error))
            self.fail(INTERNAL_ERROR, "internal error of the gateway")

    def cancel(self, reason: str, *, is_gone: bool = False) -> None:
        """Cancel the request. With `is_gone`, the client gets no answer. Does nothing if the request is answered."""
        call, on_cancelled = self.call, self.on_cancelled
        if self._ends():
            if is_gone:
                self.reply.forget()
            else:
                self.reply.abandon()
            if call is not None:
                call.cancel(reason)
            if on_cancelled is not None:
                on_cancelled(call is not None)

    def client_gone(self) -> None:
        """The client has closed the connection on which it would get the answer."""
        self.cancel("the client has closed the connection", is_gone=True)

    def after_end(self, act: Callable[[], object]) -> None:
        """Call `act` once the request is answered or cancelled."""
        self._after_end.append(act)

    def _ends(self) -> bool:
        if self.is_answered:
            return False
        self.is_answered = True
        # Break the reference cycle: request and call refer to each other, and each keeps the whole message.
        self.call = self.on_cancelled = None
        for withdraw in self._withdrawals:
            withdraw()
        self._withdrawals = []
        for act in self._after_end:
            act()
        return True

    # For servers that answer the request (`ClientSide`).

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        return self.view.profile.allows_tool(server, tool, annotations)

    @property
    def identity(self) -> str:
        """The client's name, "" without names. Sealed states of one client are not accepted from another one."""
        return "" if self.principal is None else self.principal.name

    @property
    def key(self) -> Hashable | None:
        return self.session or self.principal

    @property
    def wants_progress(self) -> bool:
        return self._progress_token is not None

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if not self.is_answered:
            self.reply.send(encode_notification(method, params))

    def progress(self, params: dict[str, Any]) -> None:
        if self._progress_token is not None:
            self.notify("notifications/progress", {**params, "progressToken": self._progress_token})

    def log(self, params: dict[str, Any]) -> None:
        if is_wanted(params.get("level"), self.log_level):
            self.notify("notifications/message", params)

    def ask(
        self, method: str, params: dict[str, Any], answer: Callable[[dict[str, Any] | None, Refusal | None], None]
    ) -> Callable[[], None]:
        if self.session is None or self.is_answered or not self.reply.accepts_messages:
            raise Refusal(METHOD_NOT_FOUND, "the client of this request cannot be asked")
        withdraw = self.session.ask(method, params, answer, self.reply.send)
        self._withdrawals.append(withdraw)
        return withdraw


def _is_for_servers(key: str) -> bool:
    """Whether a member of ``_meta`` is passed on to servers."""
    folded = key.casefold()
    is_own = folded in _OWN_META or folded.startswith(META)
    return not is_own and (key == folded or folded not in _TRACE_META)


def later(request: PendingRequest, act: Callable[[], None]) -> Callable[[], None]:
    """Wrap `act` for a callback: its error is the answer, and it is not called for an answered request."""

    def guarded() -> None:
        if request.is_answered:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the client without an answer
            request.fail_with(error)

    return guarded
