"""On a host: the supervisor of its server, as the driver has set it."""

from __future__ import annotations

import random

from gaia import __version__
from gaia.mcp.cluster.host_hooks import HostHooks
from gaia.mcp.cluster.wire import HostSettings, Launch
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.clock import Clock


def new_supervisor(
    settings: HostSettings, hooks: HostHooks, server_requests: ServerRequests, clock: Clock
) -> Supervisor:
    """One that has not been started. Raises ConfigError or ValueError for a command that cannot be used."""
    return Supervisor(
        SupervisionContext(
            name=settings.name,
            transport=_transport(settings.launch, settings.timeout),
            identity=ClientIdentity("GAIA MCP Client", __version__, settings.capabilities),
            negotiation=Negotiation(settings.protocol, settings.probe_timeout),
            start_timeout=settings.start_timeout,
            policy=settings.policy,
            health_interval=settings.health_interval,
            health_timeout=settings.health_timeout,
            max_pending=settings.launch.max_pending,
            recycling=settings.recycling,
            drain_timeout=settings.drain_timeout,
            standby=settings.standby,
            lazy=settings.lazy,
            idle_stop=settings.idle_stop,
            hooks=hooks,
            server_requests=server_requests,
            clock=clock,
            rng=random.Random(),  # noqa: S311 - jitter, not cryptography
            observer=Observer(settings.name),
        )
    )


def _transport(launch: Launch, timeout: float) -> StdioTransport:
    return StdioTransport(
        launch.command,
        launch.args,
        launch.env,
        timeout=timeout,
        cwd=launch.cwd,
        inherit_env=launch.inherit_env,
        max_message_bytes=launch.max_message_bytes,
        max_pending=launch.max_pending,
        sandbox=lambda: launch.sandbox,
        expand=lambda: (launch.args, launch.env, launch.secrets),
    )
