"""`PendingRequest`: one request of a client, from its arrival to its answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.handles import HANDLE_KEY, ClientOwner, Handle, UnknownHandle, owner_of_session
from gaia.mcp.gateway.messages import (
    COMPLETE,
    META,
    Params,
    RequestRefused,
    encode_error,
    encode_notification,
    encode_response,
    fragment,
    has_result_type,
    is_wanted,
    member,
)
from gaia.mcp.gateway.upstream.rounds import Answer
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, RequestId
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_NO_CAPABILITIES: Mapping[str, Any] = {}
_MAX_TEXT = 64 * 1024
"""Characters of a name or a URI, which the gateway may keep for long."""
_ROUND = ("inputResponses", "requestState")
_FORWARDED: Mapping[str, tuple[str, ...]] = {
    "tools/call": ("name", "arguments", *_ROUND),
    "prompts/get": ("name", "arguments", *_ROUND),
    "resources/read": ("uri", *_ROUND),
    "completion/complete": ("ref", "argument", "context", *_ROUND),
}
"""Members of params for servers. Others are dropped: Go's `encoding/json`, for example, reads ``Name`` as the name."""
_OWN_META = frozenset({"progresstoken", HANDLE_KEY})
_TRACE_META = frozenset({"traceparent", "tracestate", "baggage"})


class Reply(Protocol):
    """Sends the answer to one request, and the messages before it."""

    @property
    def accepts_messages(self) -> bool:
        """Whether the client receives messages that are passed to `send`."""

    @property
    def unread(self) -> int:
        """Bytes sent to the client that it has not read yet, on all its connections."""

    def send(self, message: bytes) -> None:
        """Send a notification or a request that belongs to the client's request."""

    def answer(self, message: bytes, status: int) -> None:
        """Send the response, after which nothing follows. `status` is the HTTP status."""

    def abandon(self) -> None:
        """End without a response, because the client has cancelled the request."""

    def forget(self) -> None:
        """Forget the request, because the client has closed the connection."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """Belongs to the gateway's event loop. Answered once; later answers are dropped. Implements `ClientSide`."""

    id: RequestId
    method: str
    params: Params
    meta: Mapping[str, Any]
    """Already checked, if the client is of the stateless era."""
    reply: Reply
    view: View
    session: Session | None
    principal: Principal | None = None
    """The client; None if the gateway has no clients file."""
    address: str | None = None
    headers: Mapping[bytes, bytes] | None = None
    """Headers of the HTTP request that must agree with the params."""
    deadline: float | None = None
    """A reading of the monotonic clock after which the client does not need the answer; None if it is unknown."""
    generation: int | None = None
    """The number of the only process of the server that may get the request; None: any may."""
    handle: Handle | None = None
    """The client's handle of its own instances, once an instance has received the request."""
    is_answered: bool = False
    on_cancelled: Callable[[str], None] | None = None
    """Called with the reason if the client cancels a request that a server has received."""
    is_stateless: bool = field(init=False)
    identity: str = field(init=False)
    """The client's name; "" without one. The gateway accepts sealed state only from the client that received it."""
    key: Hashable | None = field(init=False)
    wants_progress: bool = field(init=False)
    capabilities: Mapping[str, Any] = field(init=False)
    log_level: str | None = field(init=False)
    _after_end: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        meta, session = self.meta, self.session
        self.is_stateless = session is None
        self.identity = "" if self.principal is None else self.principal.name
        self.key = session or self.principal
        self.wants_progress = meta.get("progressToken") is not None
        if session is None:
            self.capabilities = meta.get(f"{META}clientCapabilities") or _NO_CAPABILITIES
            self.log_level = meta.get(f"{META}logLevel")
        else:
            self.capabilities, self.log_level = session.capabilities, session.log_level

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
        """The params for a server: known members, from `changed` or else from the client, and part of ``_meta``."""
        given = self.params
        params: dict[str, Any] = {
            key: fragment(given[key]) for key in _FORWARDED[self.method] if key in given and key not in changed
        }
        params.update(changed)
        if meta := {key: value for key, value in self.meta.items() if _is_for_servers(key)}:
            params["_meta"] = meta
        return params

    # The end of the request.

    def succeed(self, result: bytes, *, has_type: bool | None = None) -> None:
        """Answer with a result, a JSON object. In the stateless era, a missing ``resultType`` is added.

        `has_type` says whether it is there; None: look for it.
        """
        if self._ends():
            lacks = self.is_stateless and not (has_result_type(result) if has_type is None else has_type)
            self.reply.answer(encode_response(self.id, result, COMPLETE if lacks else b""), 200)

    def fail(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        if self._ends():
            self.reply.answer(encode_error(self.id, code, message, data), status if self.is_stateless else 200)

    def fail_with(self, error: Exception) -> None:
        """Answer with an exception of a handler. Any type other than `RequestRefused` is a defect of the gateway."""
        if isinstance(error, RequestRefused):
            self.fail(error.code, error.message, error.data, status=error.status)
        else:
            logger.error("gateway_request_failed", method=self.method, error=exception_text(error))
            self.fail(INTERNAL_ERROR, "internal error of the gateway")

    def cancel(self, reason: str, *, is_gone: bool = False) -> None:
        """Cancel the request. With `is_gone`, the client gets no answer. Does nothing if the request was answered."""
        on_cancelled = self.on_cancelled
        if self._ends():
            if on_cancelled is not None:
                # Withdraws questions at the client, which must receive that before its request ends.
                on_cancelled(reason)
            if is_gone:
                self.reply.forget()
            else:
                self.reply.abandon()

    def client_gone(self) -> None:
        """The client has closed the connection over which it would receive the answer."""
        self.cancel("the client has closed the connection", is_gone=True)

    def after_end(self, act: Callable[[], object]) -> None:
        self._after_end.append(act)

    def _ends(self) -> bool:
        if self.is_answered:
            return False
        self.is_answered = True
        # Break the reference cycle: request and call refer to each other, and each holds the whole message.
        self.on_cancelled = None
        for act in self._after_end:
            act()
        return True

    # For servers that answer the request.

    def owner_at(self, server: UpstreamServer) -> tuple[Hashable, Handle | None]:
        """The owner of the server's process for this request, and the handle for the result if the handle is new.

        The shared process has the owner None. A client of the stateless era without a handle has one process for all
        its requests. Raises RequestRefused for an invalid handle.
        """
        instances = server.instances_kind
        if instances == "shared":
            return None, None
        if instances == "per-client" or self.session is not None:
            return owner_of_session(self.session, self.identity, instances), None
        given = self.meta.get(HANDLE_KEY)
        if given is None:
            return ClientOwner(self.identity), None
        if self.handle is None:
            handles = self.view.handles
            try:
                self.handle = handles.use(given, self.identity)
            except UnknownHandle as unknown:
                refusals, client = self.view.checks.refusals, self.identity or None
                refusals.note("unknown_handle", unknown.message, self.method, self.address, client)
                raise
            self.after_end(partial(handles.done, self.handle))
        return self.handle, None if self.handle.text == given else self.handle

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        return self.view.profile.allows_tool(server, tool, annotations)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if not self.is_answered:
            self.reply.send(encode_notification(method, params))

    def progress(self, params: dict[str, Any]) -> None:
        if self.wants_progress:
            self.notify("notifications/progress", {**params, "progressToken": self.meta["progressToken"]})

    def log(self, params: dict[str, Any]) -> None:
        if is_wanted(params.get("level"), self.log_level):
            self.notify("notifications/message", params)

    def ask(self, method: str, params: dict[str, Any], answer: Answer) -> Callable[[], None]:
        if self.session is None or self.is_answered or not self.reply.accepts_messages:
            raise Refusal(METHOD_NOT_FOUND, "the client of this request cannot be asked")
        return self.session.ask(method, params, answer, self.reply.send)


def _is_for_servers(key: str) -> bool:
    if key.startswith(META):
        return False
    folded = key.casefold()
    is_own = folded in _OWN_META or folded.startswith(META)
    return not is_own and (key == folded or folded not in _TRACE_META)


def later(request: PendingRequest, act: Callable[[], None]) -> Callable[[], None]:
    """Wrap `act` for a callback: an error becomes the answer, and an answered request is skipped."""

    def guarded() -> None:
        if request.is_answered:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the client without an answer
            request.fail_with(error)

    return guarded
