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
"""Characters of a name or a URI, which may be kept for long."""
_ROUND = ("inputResponses", "requestState")
_FORWARDED: Mapping[str, tuple[str, ...]] = {
    "tools/call": ("name", "arguments", *_ROUND),
    "prompts/get": ("name", "arguments", *_ROUND),
    "resources/read": ("uri", *_ROUND),
    "completion/complete": ("ref", "argument", "context", *_ROUND),
}
"""The members of params that servers get. Some would take an unknown one, such as ``Name``, for the one of that name in
other capitals (as Go's `encoding/json` does), which no profile was asked about."""
_OWN_META = frozenset({"progresstoken", HANDLE_KEY})
"""In small letters."""
_TRACE_META = frozenset({"traceparent", "tracestate", "baggage"})


class Reply(Protocol):
    """Where the answer to one request goes, and what comes before it."""

    def send(self, message: bytes) -> None:
        """A notification or a request that belongs to the client's request."""

    def answer(self, message: bytes, status: int) -> None:
        """The response; nothing follows it. `status` is for HTTP."""

    def abandon(self) -> None:
        """The end without a response: the client has cancelled the request."""

    def forget(self) -> None:
        """The end for a client that has gone."""

    @property
    def accepts_messages(self) -> bool:
        """Whether `send` leads anywhere."""

    @property
    def unread(self) -> int:
        """Bytes that the client has been sent and has not taken, on all of its connections."""


class Target:
    """What a request to a server is about."""

    __slots__ = ("name", "server", "tool")

    def __init__(self, server: str | None, name: str | None, *, is_tool: bool = False) -> None:
        """`server` is None if there is no such thing; `name` is that of a tool or prompt, or a URI."""
        self.server = server
        self.name = name
        self.tool = name if is_tool else None


class PendingRequest:
    """Belongs to the gateway's event loop. Answered once; what comes later is dropped."""

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
        """The client, if clients have names."""
        self.headers: Mapping[bytes, bytes] | None = None
        """Of the HTTP request, where they have to agree with the params."""
        self.address = address
        """The IP address that the request came from, if it came from one."""
        self.observation: Observation | None = None
        """Of the request to the server."""
        self.handle: Handle | None = None
        """The client's right to its own instances, once the request goes to one."""
        self.is_stateless = session is None
        self.reply = reply
        """Where the answer goes."""
        self.is_answered = False
        self.target: Target | None = None
        """What a server is to do for it, or does; None before it is passed on."""
        self.begun = 0.0
        """When it was passed on; a reading of the monotonic clock."""
        self.admission: Admission | None = None
        """Its place among the calls that limits let pass, or keep waiting."""
        self.call: OngoingCall | None = None
        """What a server is doing for it."""
        self.on_cancelled: Callable[[bool], None] | None = None
        """Called if the client takes back a request that was to be passed on: told whether its server has got it."""
        self._after_end: list[Callable[[], object]] = []
        self._progress_token = meta.get("progressToken")
        self._withdrawals: list[Callable[[], None]] = []
        if session is None:
            self.capabilities: Mapping[str, Any] = meta.get(f"{META}clientCapabilities") or _NO_CAPABILITIES
            self.log_level: str | None = meta.get(f"{META}logLevel")
        else:
            self.capabilities = session.capabilities
            self.log_level = session.log_level

    # What the handlers need of it.

    def text(self, key: str) -> str:
        """A member of the params that must be there. Raises `RequestRefused`."""
        value = member(self.params, key, str)
        if value is None:
            raise RequestRefused(INVALID_PARAMS, f"{key}: missing")
        if len(value) > _MAX_TEXT:
            raise RequestRefused(INVALID_PARAMS, f"{key}: longer than {_MAX_TEXT} characters")
        return value

    def forwarded(self, **changed: Any) -> dict[str, Any]:
        """The params for a server: `changed` members, the other known ones as they came, and of ``_meta`` the rest."""
        given = self.params
        params: dict[str, Any] = {
            key: fragment(given[key]) for key in _FORWARDED[self.method] if key in given and key not in changed
        }
        params.update(changed)
        if meta := {key: value for key, value in self.meta.items() if _is_for_servers(key)}:
            params["_meta"] = meta
        return params

    # Its end.

    def succeed(self, result: bytes) -> None:
        """Answer with a result: a JSON object, which gets a ``resultType`` in the stateless era if it has none."""
        if self._ends():
            self.reply.answer(encode_response(self.id, stateless_result(result) if self.is_stateless else result), 200)

    def fail(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        if self._ends():
            self.reply.answer(encode_error(self.id, code, message, data), status if self.is_stateless else 200)

    def fail_with(self, error: Exception) -> None:
        """Answer with an exception of a handler. What is not a `RequestRefused` is a mistake of ours."""
        if isinstance(error, RequestRefused):
            self.fail(error.code, error.message, error.data, status=error.status)
        else:
            logger.error("gateway_request_failed", method=self.method, error=exception_text(error))
            self.fail(INTERNAL_ERROR, "internal error of the gateway")

    def cancel(self, reason: str, *, is_gone: bool = False) -> None:
        """The client does not want it any more, or `is_gone`: it gets no answer. Harmless if it is answered."""
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
        """Call `act` once the request is answered, or cancelled."""
        self._after_end.append(act)

    def _ends(self) -> bool:
        if self.is_answered:
            return False
        self.is_answered = True
        # The two know each other, and each has the whole message.
        self.call = self.on_cancelled = None
        for withdraw in self._withdrawals:
            withdraw()
        self._withdrawals = []
        for act in self._after_end:
            act()
        return True

    # What servers reach of the client (`ClientSide`).

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        return self.view.profile.allows_tool(server, tool, annotations)

    @property
    def identity(self) -> str:
        """What tells this client from others, which must not use its sealed states."""
        return "" if self.principal is None else self.principal.name

    @property
    def key(self) -> Hashable | None:
        return self.session or self.principal

    @property
    def wants_progress(self) -> bool:
        return self._progress_token is not None

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to this request."""
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
    """Whether a member of ``_meta`` is passed on."""
    folded = key.casefold()
    is_own = folded in _OWN_META or folded.startswith(META)
    return not is_own and (key == folded or folded not in _TRACE_META)


def later(request: PendingRequest, act: Callable[[], None]) -> Callable[[], None]:
    """`act` for a callback: if it raises, the request is answered with that, and if it is answered, nothing is done."""

    def guarded() -> None:
        if request.is_answered:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the client without an answer
            request.fail_with(error)

    return guarded
