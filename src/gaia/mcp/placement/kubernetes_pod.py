"""`Pod`: a host in a pod, and the thread that watches it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.errors import StartFailed
from gaia.mcp.placement.certificate import public_part
from gaia.mcp.placement.engine import Address, Launch, Placed, Ready
from gaia.mcp.placement.kubernetes_api import GONE, KubernetesApi
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_WATCH_SECONDS = 60
_PAUSE_SECONDS = 0.5
_JOIN_SECONDS = 10.0
_DELETE_SECONDS = 10.0


class Pod(Placed):
    """See `Placed`."""

    def __init__(
        self, api: KubernetesApi, name: str, launch: Launch, inside: Launch, on_ended: Callable[[str], None]
    ) -> None:
        super().__init__(on_ended)
        self._api = api
        self._name = name
        self._is_shared = launch.is_shared
        self._inside = inside
        self._pod: dict[str, Any] = {}
        self._is_left = False
        """Whether the thread ends."""
        self._events: Any = None
        """The answer that tells what happens to the pod."""
        self._runs, self._over = Latch(), Latch()
        self._watcher = EngineThread(self._watch, f"mcp-{launch.name}-pod")
        self._watcher.start()

    def wait(self, timeout: float) -> Address:
        deadline = time.monotonic() + timeout
        try:
            if not self._runs.wait(timeout):
                raise StartFailed(f"it was not started within {timeout:g} s{self._waiting_for()}")
            ready = self._ready(deadline)
            if ready.problem is not None:
                raise StartFailed(ready.problem)
            if not self._is_shared:
                self._api.call(self._api.core.delete_namespaced_secret, self._name, allowed=GONE)
        except StartFailed as error:
            if not self._is_shared or self._over.is_open:
                self.stop(0.0)
            raise StartFailed(f"in the pod {self._name}: {error.message}") from error
        node = self._pod["spec"].get("nodeName", "")
        return Address(
            url=f"https://{self._pod['status']['podIP']}:{ready.port}",
            node=node,
            node_id=node,
            id=self._name,
            pid=ready.pid,
            token=self._inside.token,
            certificate=public_part(self._inside.certificate or ""),
        )

    def _ready(self, deadline: float) -> Ready:
        """What the host has written into the log of the pod."""
        words = ""
        seconds = max(0.1, deadline - time.monotonic())
        for line in self._api.lines(self._api.core.read_namespaced_pod_log, self._name, seconds, follow=True):
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(line, type=Ready)
            words = line.decode(errors="replace").strip() or words
        raise StartFailed(f"its host ended before it was ready{words and ': ' + words}{self._waiting_for()}")

    def stop(self, grace: float) -> bool:
        self._is_stopping = True
        # Other programs may use a shared one: the lease of the last one ends it.
        if not self._is_shared or self._over.is_open:
            try:
                if self._api.delete(self._name, grace):
                    self._seen(self._pod, is_deleted=True)
                self._over.wait(grace + _DELETE_SECONDS if grace else 0.0)
            except StartFailed as error:
                logger.debug("pod_not_deleted", pod=self._name, error=error.message)
        self._is_left = True
        self._interrupt()
        self._watcher.join(_JOIN_SECONDS)
        return self._over.is_open

    def _waiting_for(self) -> str:
        """Why the pod does not run, as Kubernetes says."""
        status = self._pod.get("status", {})
        states = [state for one in status.get("containerStatuses", ()) for state in one["state"].values()]
        found = [*states, *(one for one in status.get("conditions", ()) if one["status"] == "False")]
        texts = [
            f"{one['reason']}{': ' if one.get('message') else ''}{one.get('message', '')}"
            for one in found
            if one.get("reason")
        ]
        return f" ({texts[0]})" if any(texts) else ""

    def _watch(self) -> None:
        api, options = self._api.core, {"field_selector": f"metadata.name={self._name}", "watch": True}
        while not (self._over.is_open or self._is_left):
            try:
                for line in self._api.lines(api.list_namespaced_pod, None, _WATCH_SECONDS, self._opened, **options):
                    event = json.loads(line)
                    if event["type"] != "ERROR":
                        self._seen(event["object"], is_deleted=event["type"] == "DELETED")
                    if self._over.is_open:
                        break
            except (StartFailed, ValueError) as error:
                # The next watch begins with the present state.
                logger.debug("pod_not_watched", pod=self._name, error=str(error))
                if not self._is_left:
                    self._over.wait(_PAUSE_SECONDS)

    def _opened(self, events: Any) -> None:
        self._events = events
        self._interrupt()

    def _interrupt(self) -> None:
        """End the thread's wait if it has been left. An answer that is over already cannot be shut down."""
        if self._is_left and self._events is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                self._events.shutdown()

    def _seen(self, pod: dict[str, Any], *, is_deleted: bool) -> None:
        self._pod, status = pod, pod.get("status", {})
        if is_deleted or is_over(pod):
            self._why_ended = f"ended with its pod {self._name}{self._waiting_for()}"
            self._over.open()
            was_ready = self._runs.is_open
            self._runs.open()
            if was_ready:
                self._tell(self._why_ended)
        elif status.get("podIP") and any("running" in one["state"] for one in status.get("containerStatuses", ())):
            self._runs.open()


def is_over(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
