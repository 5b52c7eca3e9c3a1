"""Subscriptions: ``subscriptions/listen`` of the stateless era, ``resources/subscribe`` of the handshake era."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.errors import MCPError, Overloaded, SessionLost
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.handles import ClientOwner
from gaia.mcp.gateway.messages import EMPTY_RESULT, RequestRefused, member
from gaia.mcp.gateway.methods.opening import want_level
from gaia.mcp.gateway.methods.relaying import fail
from gaia.mcp.gateway.views.notifier import MAX_WATCHED, Audience
from gaia.mcp.gateway.views.upstream_servers import Kind, UpstreamServer
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.protocol.messages import INVALID_PARAMS

_FILTERS: dict[Kind, str] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
_ACKNOWLEDGEMENT_SECONDS = 5.0
"""How long servers may take to accept subscriptions. The acknowledgement leaves out URIs not accepted by then."""


class _Listening:
    """One ``subscriptions/listen``, which is an audience (see `Audience`). The request's id names the subscription."""

    def __init__(self, request: PendingRequest, kinds: frozenset[Kind]) -> None:
        self._request = request
        self._kinds = kinds
        self._meta = {SUBSCRIPTION_ID: request.id}
        self.is_acknowledged = False
        self._waiting: list[tuple[str, dict[str, Any]]] = []

    @property
    def owner(self) -> Principal | None:
        return self._request.principal

    @property
    def view(self) -> View:
        return self._request.view

    def acknowledge(self, notifications: dict[str, Any]) -> None:
        self._request.notify(
            "notifications/subscriptions/acknowledged", {"_meta": self._meta, "notifications": notifications}
        )
        self.is_acknowledged = True
        for method, params in self._waiting:
            self._tell(method, params)

    def dismiss(self) -> None:
        # A subscription ends with a result.
        self._request.succeed(msgspec.json.encode({"_meta": self._meta}))

    def list_changed(self, kind: Kind) -> None:
        if kind in self._kinds:
            self._tell(f"notifications/{kind}/list_changed", {})

    def resource_updated(self, uri: str) -> None:
        self._tell("notifications/resources/updated", {"uri": uri})

    def server_log(self, message: dict[str, Any]) -> None:
        """Does nothing: subscriptions carry no log messages."""

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        if self.is_acknowledged:
            self._request.notify(method, {**params, "_meta": self._meta})
        else:
            # The acknowledgement has to be the first message.
            self._waiting.append((method, params))


def listen(request: PendingRequest) -> None:
    wanted: dict[str, Any] = member(request.params, "notifications", dict) or {}
    uris = wanted.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise RequestRefused(INVALID_PARAMS, "notifications.resourceSubscriptions: has to be a list of URIs")
    uris = list(dict.fromkeys(uris))
    if len(uris) > MAX_WATCHED:
        message = f"notifications.resourceSubscriptions: no client can watch more than {MAX_WATCHED} resources"
        raise RequestRefused(INVALID_PARAMS, message)
    if not request.reply.accepts_messages:
        raise RequestRefused(INVALID_PARAMS, "Accept has to name text/event-stream", status=406)
    told: dict[str, Any] = {key: True for key in _FILTERS.values() if wanted.get(key) is True}
    listening = _Listening(request, frozenset(kind for kind, key in _FILTERS.items() if key in told))
    changes = request.view.changes
    changes.add(listening)
    request.after_end(lambda: changes.remove(listening))
    undecided: set[str] = set(uris)
    agreed: set[str] = set()
    timer: asyncio.TimerHandle | None = None

    def acknowledge() -> None:
        if timer is not None:
            timer.cancel()
        if uris:
            told["resourceSubscriptions"] = [uri for uri in uris if uri in agreed]
        listening.acknowledge(told)

    def decided(uri: str, server: str | None, error: MCPError | None) -> None:
        if server is not None and error is None:
            agreed.add(uri)
        undecided.discard(uri)
        if not undecided and not listening.is_acknowledged:
            later(request, acknowledge)()

    if not uris:
        acknowledge()
        return
    timer = asyncio.get_running_loop().call_later(_ACKNOWLEDGEMENT_SECONDS, later(request, acknowledge))
    for uri in uris:
        _watch(request, listening, uri, functools.partial(decided, uri))


def subscribe(request: PendingRequest) -> None:
    uri, session = request.text("uri"), request.session
    assert session is not None, "it is a request of the handshake era"

    def done(server: str | None, error: MCPError | None) -> None:
        if server is None:
            raise RequestRefused(INVALID_PARAMS, f"No server tells changes of the resource {uri}")
        if error is None:
            session.watched(uri, is_watched=True)
            request.succeed(EMPTY_RESULT)
        else:
            fail(request, server, error)

    _watch(request, session, uri, done)


def unsubscribe(request: PendingRequest) -> None:
    uri, session = request.text("uri"), request.session
    assert session is not None, "it is a request of the handshake era"
    request.view.changes.unwatch(session, uri)
    session.watched(uri, is_watched=False)
    request.succeed(EMPTY_RESULT)


def resume(session: Session, event_id: str) -> None:
    """Tell a session what it was told of at another gateway, which has sent the event with this id.

    A resource is not watched in a process of the session itself, because that process is not here.
    """
    wishes, view = session.wishes_of(event_id), session.view
    if wishes is None:
        return
    if wishes.log_level is not None:
        want_level(session, wishes.log_level)

    def watch(uri: str) -> None:
        server = _teller(view, uri)
        if session.is_over or server is None or server.instances_kind == "per-session":
            return
        owner = None if server.instances_kind == "shared" else ClientOwner(session.identity)

        def done(error: MCPError | None) -> None:
            if error is None:
                session.watched(uri, is_watched=True)

        with contextlib.suppress(Overloaded):
            view.changes.watch(session, server.process_of(owner), uri, done)

    def known() -> None:
        for uri in wishes.uris:
            watch(uri)

    view.when_resources_known(known)


def _watch(
    request: PendingRequest, audience: Audience, uri: str, done: Callable[[str | None, MCPError | None], None]
) -> None:
    """Watch a resource in the process that answers this client's requests.

    `done` receives the server's name, or None if no server reports changes of the resource; and the server's error.
    """

    def known() -> None:
        server = _teller(request.view, uri)
        if server is None:
            done(None, None)
            return
        owner, _ = request.owner_at(server)
        try:
            client = server.process_of(owner)
        except (Overloaded, SessionLost) as error:
            done(server.name, error)
        else:
            request.view.changes.watch(audience, client, uri, functools.partial(done, server.name))

    request.view.when_resources_known(later(request, known))


def _teller(view: View, uri: str) -> UpstreamServer | None:
    """The server that reports changes of a resource."""
    servers = view.servers_of_resource(uri)
    return next((one for one in servers if (one.capabilities.get("resources") or {}).get("subscribe")), None)
