"""`OperationPages`: the pages about the gateway itself, for probes, Prometheus and operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.operations.status import READY_STATES, GatewayStatus
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.serving.guards import Headers
from gaia.serving.responses import JSON, HttpRequest, Responder

HEALTH, READY, METRICS, STATUS = "/health", "/ready", "/metrics", "/status"

_USABLE = READY_STATES | {ServerState.RESTARTING, ServerState.AUTHORIZING}
"""States of a server in which calls are answered, or wait for a start."""


@dataclass(eq=False)
class OperationPages:
    """Answers requests for the pages. Belongs to the gateway's event loop.

    ``/health`` and ``/ready`` are for probes: they need no token, and name no server. If the gateway has clients, the
    other pages need a token, and show a client only the part that its profile allows.
    """

    _servers: Callable[[], list[ServerStatus]]
    _status: Callable[[Principal | None], GatewayStatus]
    """Called with the client that asks, or None if it may see everything."""
    _is_draining: Callable[[], bool]
    _checks: Checks

    def has(self, path: str) -> bool:
        return path in (HEALTH, READY, METRICS, STATUS) or path.startswith(f"{READY}/")

    def are_open(self, request: HttpRequest) -> bool:
        return request.path in (HEALTH, READY) or request.method not in ("GET", "HEAD")

    def answer(self, request: HttpRequest, responder: Responder, client: Principal | None) -> None:
        """Answer a request for one of the pages. `client` is None if it may see everything, or if the page is open."""
        path = request.path
        if request.method not in ("GET", "HEAD"):
            _finish(responder, 405, {"error": {"message": "Use GET"}}, [(b"allow", b"GET, HEAD")])
        elif path == HEALTH:
            _finish(responder, 200, {"status": "ok"})
        elif path == READY:
            self._ready(responder)
        else:
            self._show(path, client, responder)

    def _ready(self, responder: Responder) -> None:
        """Answer whether a load balancer should send calls here. One failed server does not prevent that."""
        if self._is_draining():
            _finish(responder, 503, {"status": "stopping"})
            return
        audit = self._checks.audit
        if audit is not None and audit.failure() is not None:
            # Every call would be refused.
            _finish(responder, 503, {"status": "the audit cannot be written"})
            return
        states = [status.state for status in self._servers()]
        is_ready = not states or any(state in _USABLE for state in states)
        words = "ready" if is_ready else "no server is ready"
        ready = sum(state in READY_STATES for state in states)
        _finish(responder, 200 if is_ready else 503, {"status": words, "servers": len(states), "ready": ready})

    def _show(self, path: str, client: Principal | None, responder: Responder) -> None:
        restricted = None if client is None or client.profile == EVERYTHING else client
        if path == STATUS:
            status = self._status(restricted).bounded()
            if restricted is not None:
                # Errors may name programs and folders of this machine.
                servers = [msgspec.structs.replace(one, last_error=_error_word(one)) for one in status.servers]
                status = msgspec.structs.replace(status, servers=servers)
            _finish(responder, 200, status)
        elif path == METRICS and restricted is not None:
            message = f"/metrics is about all clients: it needs a client with the profile {EVERYTHING.name!r}"
            _finish(responder, 403, {"error": {"message": message}})
        elif path == METRICS:
            # Imported late, so that the gateway starts faster. Its first second seldom sees a scrape.
            from prometheus_client import CONTENT_TYPE_LATEST

            from gaia.mcp.gateway.operations.metrics import metrics_of

            headers = [(b"content-type", CONTENT_TYPE_LATEST.encode()), (b"cache-control", b"no-store")]
            responder.finish(200, headers, metrics_of(self._status(None), self._checks))
        else:
            self._ready_server(path.removeprefix(f"{READY}/"), restricted, responder)

    def _ready_server(self, name: str, client: Principal | None, responder: Responder) -> None:
        status = next((one for one in self._servers() if one.name == name), None)
        if status is None or not (client is None or client.profile.allows_server(name)):
            _finish(responder, 404, {"error": {"message": f"There is no server {name!r}"}})
            return
        is_ready = status.state in READY_STATES
        error = status.last_error if client is None else _error_word(status)
        document = {"status": status.state.value, "lastError": None if is_ready else error}
        _finish(responder, 200 if is_ready else 503, document)


def _error_word(status: ServerStatus) -> str | None:
    """The text for a client that may see the server but not the operator's messages."""
    return None if status.last_error is None else "the log of the gateway has the reason"


def _finish(responder: Responder, status: int, document: object, headers: Headers = ()) -> None:
    fixed = [*JSON, (b"cache-control", b"no-store")]
    responder.finish(status, [*fixed, *headers], msgspec.json.encode(document))
