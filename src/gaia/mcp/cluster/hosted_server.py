"""On a host: its server, as the first user has set it, and what all users want of it together."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gaia.mcp.cluster.host_features import HostFeatures, Questions
from gaia.mcp.cluster.host_hooks import HostHooks
from gaia.mcp.cluster.host_supervisor import new_supervisor
from gaia.mcp.cluster.host_user import HostUser
from gaia.mcp.cluster.wire import HostSettings
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.runtime.clock import Clock


class HostedServer:
    """The supervisor of the server, and what belongs to it. Thread-safe, but for `subscribe`."""

    def __init__(self, settings: HostSettings, questions: Questions, clock: Clock, *, is_shared: bool) -> None:
        """`questions` are those of the first user.

        If it `is_shared`, others may come, and the user whose call it is answers. Raises ConfigError or ValueError.
        """
        self.settings = settings
        self.is_shared = is_shared
        self._callbacks = CallbackPool(settings.name, "server-requests")
        features = HostFeatures(
            declared=settings.capabilities,
            timeout=settings.question_timeout,
            questions=questions,
            relayed=is_shared,
        )
        self.requests = ServerRequests(settings.name, features, self._callbacks, clock, settings.question_timeout)
        self.hooks = HostHooks(settings.name, settings.timeout, clock, settings.known)
        self.hooks.supervisor = self.supervisor = new_supervisor(settings, self.hooks, self.requests, clock)

    def begin_start(self) -> None:
        """Have it started, on a thread of its own."""
        # What is shared is tried again as long as it has users, whatever the first of them wanted.
        keep_trying = self.settings.keep_trying or self.is_shared
        threading.Thread(
            target=self.supervisor.start,
            kwargs={"keep_trying": keep_trying},
            name=f"mcp-{self.settings.name}-start",
            daemon=True,
        ).start()

    def subscribe(self, users: Iterable[HostUser]) -> None:
        """Want what some user wants; of log levels the last that was set. Callers take turns."""
        wanted, users = self.hooks.subscriptions, list(users)
        uris = dict.fromkeys(uri for user in users for uri in user.resources)
        for uri in wanted.resources:
            if uri not in uris:
                wanted.remove_resource(uri)
        for uri in uris:
            wanted.add_resource(uri)
        for user in users:
            if user.log_level is not None:
                wanted.set_log_level(user.log_level)

    def stop(self) -> None:
        """Stop it, and return when nothing of it is left."""
        self.supervisor.stop()
        self._callbacks.close()
