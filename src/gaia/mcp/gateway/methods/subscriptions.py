"""``subscriptions/listen`` of the stateless era, ``resources/subscribe`` and ``resources/unsubscribe`` of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.errors import MCPError, Overloaded
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.messages import EMPTY_RESULT, RequestRefused, member
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
"""Seconds that servers have to accept subscriptions. The acknowledgement leaves out those not accepted by then."""


class _Listening:
    """One ``subscriptions/listen``: an audience (see `Audience`). The request's id is the subscription's id."""

    def __init__(self, request: PendingRequest, kinds: frozenset[Kind]) -> None:
        self._request = request
        self._kinds = kinds
        self._meta = {SUBSCRIPTION_ID: request.id}
        self._is_acknowledged = False
        self._waiting: list[tuple[str, dict[str, Any]]] = []

    @property
    def owner(self) -> Principal | None:
        return self._request.principal

    @property
    def view(self) -> View:
        return self._request.view

    def sees(self, server: str) -> bool:
        return self.view.sees(server)

    def sees_resource(self, server: str, uri: str) -> bool:
        return self.view.sees_resource(server, uri)

    def acknowledge(self, notifications: dict[str, Any]) -> None:
        self._request.notify(
            "notifications/subscriptions/acknowledged", {"_meta": self._meta, "notifications": notifications}
        )
        self._is_acknowledged = True
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
        """Subscriptions carry no log messages."""

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        if self._is_acknowledged:
            self._request.notify(method, {**params, "_meta": self._meta})
        else:
            # The acknowledgement has to come first.
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
    kinds = frozenset(kind for kind, key in _FILTERS.items() if wanted.get(key) is True)
    listening = _Listening(request, kinds)
    changes = request.view.changes
    changes.add(listening)
    request.after_end(lambda: changes.remove(listening))
    agreed: dict[str, None] = {}

    def acknowledge() -> None:
        told: dict[str, Any] = {_FILTERS[kind]: True for kind in _FILTERS if kind in kinds}
        if uris:
            told["resourceSubscriptions"] = [uri for uri in uris if uri in agreed]
        listening.acknowledge(told)

    if not uris:
        acknowledge()
        return
    everything = _AllOrTime(len(uris), later(request, acknowledge))
    for uri in uris:
        _watch(request, listening, uri, agreed, everything)


def _watch(
    request: PendingRequest, listening: _Listening, uri: str, agreed: dict[str, None], everything: _AllOrTime
) -> None:
    def known() -> None:
        servers = _servers_that_tell(request, uri)
        if not servers:
            everything.one_is_done()
            return

        def done(error: MCPError | None) -> None:
            if error is None:
                agreed[uri] = None
            everything.one_is_done()

        _watch_at(request, listening, servers[0], uri, done)

    request.view.when_resources_known(later(request, known))


class _AllOrTime:
    """Calls `act` once, after `count` calls of `one_is_done` or after `_ACKNOWLEDGEMENT_SECONDS`."""

    def __init__(self, count: int, act: Callable[[], None]) -> None:
        self._missing = count
        self._act: Callable[[], None] | None = act
        self._timer = asyncio.get_running_loop().call_later(_ACKNOWLEDGEMENT_SECONDS, self._finish)

    def one_is_done(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def _finish(self) -> None:
        act, self._act = self._act, None
        self._timer.cancel()
        if act is not None:
            act()


def subscribe(request: PendingRequest) -> None:
    uri, session = request.text("uri"), request.session
    assert session is not None, "it is a request of the handshake era"

    def known() -> None:
        servers = _servers_that_tell(request, uri)
        if not servers:
            raise RequestRefused(INVALID_PARAMS, f"No server tells changes of the resource {uri}")

        def done(error: MCPError | None) -> None:
            if error is None:
                request.succeed(EMPTY_RESULT)
            else:
                fail(request, servers[0].name, error)

        _watch_at(request, session, servers[0], uri, done)

    request.view.when_resources_known(later(request, known))


def unsubscribe(request: PendingRequest) -> None:
    assert request.session is not None, "it is a request of the handshake era"
    request.view.changes.unwatch(request.session, request.text("uri"))
    request.succeed(EMPTY_RESULT)


def _servers_that_tell(request: PendingRequest, uri: str) -> list[UpstreamServer]:
    found = request.view.servers_of_resource(uri)
    return [server for server in found if (server.capabilities.get("resources") or {}).get("subscribe")]


def _watch_at(
    request: PendingRequest,
    audience: Audience,
    server: UpstreamServer,
    uri: str,
    done: Callable[[MCPError | None], None],
) -> None:
    """Watch a resource in the process that answers this client's requests."""
    owner, _ = request.owner_at(server)
    try:
        client = server.process_of(owner)
    except Overloaded as error:
        done(error)
        return
    request.view.changes.watch(audience, client, uri, done)
