"""`InstancePool`: the processes of one server whose sessions or clients have their own.

A process belongs to one owner until the owner is gone, and never to another owner, because it may remember the owner's
data. One started process is kept as a spare, so that a new owner does not wait for a start. Unused processes stop after
the `idleStop` of their entry. The next call of the owner starts them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec

from gaia.mcp.aio.threads import stop_soon
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import Overloaded, SessionLost
from gaia.mcp.gateway.instances.handles import identity_of
from gaia.mcp.supervision.events import Event, ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_AT_REST = (ServerState.EXITED, ServerState.CLOSED, ServerState.FAILED)
"""States without a process. An instance in such a state can end without a loss."""

_SUMS = ("calls", "errors", "restarts", "recyclings", "noise_lines", "noise_bytes")
"""Figures of a status that only grow. The pool keeps the figures of ended instances."""
_GAUGES = ("in_flight", "queued")


@dataclass
class _Instance:
    client: MCPClient
    happened: Callable[[Event], None]
    entry: ServerConfig | None
    """The server's entry when the instance was made or last renewed."""


@dataclass(eq=False)
class InstancePool:
    """The processes of one server that are not shared. Belongs to the gateway's event loop."""

    manager: MCPClientManager
    shared: MCPClient
    """The manager's own client of the server, whose entry applies."""
    on_event: Callable[[MCPClient, Event], None] = lambda *_: None
    """Receives the events of each instance, on any thread, so it must return at once."""
    most_each: Callable[[], int | None] = lambda: None
    """The number of instances that one client may have; None means half of all."""
    _owned: OrderedDict[Hashable, _Instance] = field(default_factory=OrderedDict)
    """By owner, least recently used first."""
    _spare: _Instance | None = None
    _ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    _is_closed: bool = False
    _told: WeakSet[Any] = field(default_factory=WeakSet)
    """Owners from other gateways that know that their processes are not here."""

    def __len__(self) -> int:
        return len(self._owned)

    def client_of(self, owner: Hashable) -> MCPClient:
        """The client of the owner's process, made if needed without waiting for its start. Raises Overloaded.

        Raises SessionLost once for an owner that comes from another gateway, which may have a process of it.
        """
        instance = self._owned.get(owner)
        if instance is None:
            if getattr(owner, "is_continued", False) and owner not in self._told:
                self._told.add(owner)
                raise SessionLost(
                    f"what server {self.shared.name!r} may remember of this client is in a process of another gateway, "
                    "or has ended; the next call begins with a new process"
                )
            self._check_share(identity_of(owner))
            instance = self._owned[owner] = self._take()
            self._keep_spare()
        else:
            self._owned.move_to_end(owner)
            self._renew(instance)
        return instance.client

    def release(self, owner: Hashable) -> None:
        instance = self._owned.pop(owner, None)
        if instance is not None:
            self._end(instance.client)

    def owner_of(self, client: MCPClient) -> Hashable | None:
        return next((owner for owner, instance in self._owned.items() if instance.client is client), None)

    def status(self, shared: ServerStatus) -> ServerStatus:
        """The status of the shared process plus the figures of all instances, including ended ones."""
        statuses = [client.status for client in self.clients()]
        if not statuses and not any(self._ended.values()):
            return shared
        figures = {
            name: getattr(shared, name) + self._ended.get(name, 0) + sum(getattr(one, name) for one in statuses)
            for name in (*_SUMS, *_GAUGES)
        }
        return msgspec.structs.replace(shared, instances=len(statuses), **figures)

    def clients(self) -> list[MCPClient]:
        spare = [] if self._spare is None else [self._spare]
        return [instance.client for instance in (*self._owned.values(), *spare)]

    def close(self, *, at_once: bool = False) -> list[Callable[[], None]]:
        """Begin to end all instances, `at_once` or after their `drainTimeout`.

        Each returned function waits for one end.
        """
        clients = self.clients()
        self._is_closed = True
        self._owned.clear()
        self._spare = None
        ends: list[Callable[[], None]] = []
        for client in clients:
            drain = 0.0 if at_once or client._engine.entry is None else client._engine.entry.drain_timeout
            client._engine.request_disconnect(drain=drain)
            ends.append(partial(_disconnect, client, drain))
        return ends

    @property
    def _entry(self) -> ServerConfig | None:
        return self.shared._engine.entry

    def _take(self) -> _Instance:
        if self._is_closed:
            raise Overloaded(f"server {self.shared.name!r} is being stopped")
        entry = self._entry
        is_full = entry is not None and len(self._owned) >= entry.max_instances
        if entry is not None and is_full and not self._drop_one_at_rest(list(self._owned)):
            raise Overloaded(
                f"server {self.shared.name!r} has {len(self._owned)} instances, which is its maxInstances; end other "
                'sessions, lower "idleStop", or raise "maxInstances" in its entry'
            )
        instance, self._spare = self._spare, None
        if instance is not None:
            if instance.entry is entry:
                return instance
            self._end(instance.client)
        try:
            return self._make()
        except ValueError as error:
            # The manager has just removed the server.
            raise Overloaded(str(error)) from error

    def _end(self, client: MCPClient) -> None:
        """Begin to stop an instance. Its open calls are cancelled."""
        client._engine.request_disconnect()
        status = client.status
        for name in _SUMS:
            self._ended[name] += getattr(status, name)
        stop_soon(partial(_disconnect, client, 0.0))

    def _keep_spare(self) -> None:
        """Start a spare, without which the next owner would wait for a start."""
        entry = self._entry
        if entry is not None and (entry.lazy or len(self._owned) >= entry.max_instances):
            return
        try:
            self._spare = self._make()
        except Exception as error:  # noqa: BLE001 - the owner that has come has its instance
            logger.warning("spare_instance_missing", server=self.shared.name, error=exception_text(error))
        else:
            self._spare.client._engine.session.wake()

    def _make(self) -> _Instance:
        def happened(event: Event) -> None:
            self.on_event(client, event)

        client = self.manager._engine.factory.new_instance(self.shared.name, happened)
        if (level := self.shared._engine.subscriptions.log_level) is not None:
            # The log level that any client has asked for applies to all processes.
            client._engine.subscriptions.set_log_level(level)
        # With `keep_trying`, this does not wait for the process.
        client.connect(keep_trying=True)
        return _Instance(client, happened, self._entry)

    def _check_share(self, identity: str) -> None:
        """Make room if a client has as many instances as it may have. Raises Overloaded if every one is in use."""
        entry = self._entry
        if not identity or entry is None:
            return
        most = self.most_each() or (entry.max_instances + 1) // 2
        own = [owner for owner in self._owned if identity_of(owner) == identity]
        if len(own) >= most and not self._drop_one_at_rest(own):
            raise Overloaded(
                f"client {identity!r} has {len(own)} instances of server {self.shared.name!r}, and limits allow no "
                'more; end other sessions, or raise "instancesPerClient" of "limits" in the clients file'
            )

    def _drop_one_at_rest(self, owners: Iterable[Hashable]) -> bool:
        """End the first of these owners' instances that has no process. False if there is none."""
        for owner in owners:
            instance = self._owned[owner]
            if instance.client.state in _AT_REST and instance.client.status.queued == 0:
                self.release(owner)
                return True
        return False

    def _renew(self, instance: _Instance) -> None:
        """Switch an instance to the server's current entry, without a gap."""
        if instance.entry is not self._entry:
            instance.entry = self._entry
            stop_soon(partial(_renew, self.manager, instance))


def _renew(manager: MCPClientManager, instance: _Instance) -> None:
    error = manager._engine.factory.renew_instance(instance.client, instance.happened)
    if error is not None:
        logger.warning("instance_not_replaced", server=instance.client.name, error=error.message)


def _disconnect(client: MCPClient, drain: float) -> None:
    try:
        client.disconnect(drain=drain)
    except Exception as error:  # noqa: BLE001 - no caller waits for it
        logger.error("disconnect_failed", server=client.name, error=exception_text(error))
