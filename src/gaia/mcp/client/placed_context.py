"""Makes the `PlacedContext` of a client whose server is placed on a cluster."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from gaia import __version__
from gaia.mcp.client.client_options import ClientSetup, common_fields
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import HostSettings, KnownTools, WireProfile
from gaia.mcp.supervision.context import KnownServer
from gaia.mcp.supervision.policy import RestartPolicy


def placed_context(setup: ClientSetup, transport: PlacedTransport) -> PlacedContext:
    # The observer must not report a host's network as this program's: this program talks to Ray.
    setup.observer.network = {"network.transport": "tcp"}
    setup.observer.redact = str

    options, hooks = setup.options.in_effect(transport.timeout), setup.hooks

    def settings() -> HostSettings:
        return HostSettings(
            version=__version__,
            name=setup.name,
            driver=_this_program(),
            launch=transport.launch(),
            timeout=transport.timeout,
            capabilities=dict(options.features.capabilities),
            policy=options.restart_policy or RestartPolicy(),
            demand=transport.placement.demand,
            lease=transport.placement.lease,
            known=_known(hooks.last_known()) if options.lazy else None,
            resources=hooks.subscriptions.resources,
            log_level=hooks.subscriptions.log_level,
            **common_fields(options, HostSettings),
        )

    return PlacedContext(
        name=setup.name,
        placement=transport.placement,
        engine=transport.engine,
        settings=settings,
        timeout=transport.timeout,
        is_lazy=options.lazy,
        hooks=hooks,
        server_requests=setup.server_requests,
        observer=setup.observer,
        executor=setup.callbacks.lane().post,
        **common_fields(options, PlacedContext),
    )


def _known(known: KnownServer | None) -> KnownTools | None:
    if known is None:
        return None
    profile, tools = known
    return KnownTools(None if profile is None else WireProfile.of(profile), tools)


def _this_program() -> str:
    # Arguments may be secrets, so only the program's name is shown.
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return f"{program} on {socket.gethostname()}, pid {os.getpid()}"
