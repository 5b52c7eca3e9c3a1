"""`KubernetesEngine`: a host is a pod, by the maintained client of Kubernetes.

The program must reach the addresses of pods, as programs in the cluster do. A Secret carries the `Launch` into the pod:
it is deleted as soon as the host is ready, and that of a shared host when its pod is. The host has a certificate of its
own. Deleting the pod is what ends it for certain. A program that was killed leaves a pod that ends with its lease;
whatever starts a server in that namespace next deletes it. `RULES` are the rights that the program needs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.certificate import make_certificate, public_part
from gaia.mcp.placement.engine import Address, Launch, PlacedServer, Ready
from gaia.mcp.placement.kubernetes_manifests import label_of, manifests
from gaia.runtime.extras import missing
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

RULES = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete", "get"]},
)
"""Of the Role in the namespace of the pods."""

_OURS = "app.kubernetes.io/managed-by=gaia-mcp"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONFLICT, _GONE = 409, 404
_REQUEST_SECONDS = 10.0
_WATCH_SECONDS = 60
_PAUSE_SECONDS = 0.5
_DELETE_SECONDS = 10.0


class KubernetesEngine:
    """See `Engine`."""

    def __init__(self, placement: Placement) -> None:
        """Raises ConfigError if the client is missing, or has no settings of a cluster."""
        for package in ("kubernetes", "cryptography"):
            if (absent := missing("kubernetes", package)) is not None:
                raise ConfigError(f"a server on Kubernetes needs {absent}")
        from kubernetes import client, config

        settings = client.Configuration()
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=settings)
                present = _NAMESPACE_FILE.read_text()
            else:
                config.load_kube_config(client_configuration=settings)
                present = config.list_kube_config_contexts()[1]["context"].get("namespace", "default")
        except (config.ConfigException, OSError) as error:
            raise ConfigError(f"no settings of a Kubernetes cluster are found: {error}") from error
        settings.retries = False
        self._placement = placement
        self.namespace = placement.namespace or present
        self._client = client.ApiClient(settings)
        self.api = client.CoreV1Api(self._client)

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> _Pod:
        self._sweep()
        label = label_of(launch.name)
        name = f"gaia-{label}-{'shared' if launch.is_shared else secrets.token_hex(4)}"
        # The end of its standard input, a file, must not end the host: its lease does, and the end of the pod.
        inside = msgspec.structs.replace(launch, certificate=make_certificate(), listen="0.0.0.0", is_shared=True)  # noqa: S104 - of the pod
        secret, pod = manifests(name, label, self._placement, launch, inside)
        if not self.call(self.api.create_namespaced_secret, body=secret, allowed=launch.is_shared and _CONFLICT):
            data = self.call(self.api.read_namespaced_secret, name)["data"]["launch.json"]
            inside = msgspec.json.decode(msgspec.convert(data, bytes, strict=False), type=Launch)
        self.call(self.api.create_namespaced_pod, body=pod, allowed=launch.is_shared and _CONFLICT)
        return _Pod(self, name, launch, inside, on_ended)

    def look(self) -> str:
        from kubernetes import client

        reviews = client.AuthorizationV1Api(self._client)
        for resource, verb in ((rule["resources"][0], verb) for rule in RULES for verb in rule["verbs"]):
            base, _, part = resource.partition("/")
            attributes = {"namespace": self.namespace, "resource": base, "subresource": part, "verb": verb}
            review = {"spec": {"resourceAttributes": attributes}}
            if not self.call(reviews.create_self_subject_access_review, body=review, scope=())["status"]["allowed"]:
                raise StartFailed(f"this program may not {verb} {resource} in the namespace {self.namespace}")
        return f"namespace {self.namespace} of {self._client.configuration.host}"

    def end(self, host: str) -> bool:
        self.delete(host, 0.0)
        deadline = time.monotonic() + _DELETE_SECONDS
        while any(pod["metadata"]["name"] == host for pod in self._pods()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def close(self) -> None:
        manager = self._client.rest_client.pool_manager
        for key in manager.pools.keys():  # noqa: SIM118 - it is no mapping that can be iterated over
            manager.pools[key].close()
        manager.clear()

    def delete(self, name: str, grace: float) -> bool:
        """Have a pod deleted. Returns whether it is gone already."""
        options = {"grace_period_seconds": math.ceil(grace) or 1, "allowed": _GONE}
        is_gone = self.call(self.api.delete_namespaced_pod, name, **options) is None
        self.call(self.api.delete_namespaced_secret, name, allowed=_GONE)
        return is_gone

    def call(self, method: Any, *arguments: Any, allowed: int = 0, scope: Any = None, **options: Any) -> Any:
        """The answer's JSON; None if it has the `allowed` status. Raises StartFailed."""
        scope = (self.namespace,) if scope is None else scope
        with self._told(allowed):
            answer = method(*arguments, *scope, _preload_content=False, _request_timeout=_REQUEST_SECONDS, **options)
            return json.loads(answer.data)

    def lines(
        self, method: Any, name: str | None, seconds: float, on_open: Callable[[Any], object] = id, **options: Any
    ) -> Iterator[bytes]:
        """The lines of an answer that goes on, at most that long. Raises StartFailed.

        `on_open` gets the answer, whose `shutdown` ends it from another thread.
        """
        arguments = (self.namespace,) if name is None else (name, self.namespace)
        with self._told():
            answer = method(*arguments, _preload_content=False, _request_timeout=seconds, **options)
            on_open(answer)
            with contextlib.closing(answer):
                rest = b""
                for data in answer.stream():
                    *lines, rest = (rest + data).split(b"\n")
                    yield from lines

    @contextlib.contextmanager
    def _told(self, allowed: int = 0) -> Iterator[None]:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except ApiException as error:
            if error.status != allowed:
                said = f"{error.status} {error.reason}"
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    said = json.loads(error.body)["message"]
                raise StartFailed(f"Kubernetes refuses: {said}") from error
        except (HTTPError, OSError) as error:
            raise StartFailed(f"Kubernetes does not answer at {self._client.configuration.host}: {error}") from error

    def list(self) -> list[PlacedServer]:
        return [_listed(pod) for pod in self._pods() if not _is_over(pod)]

    def _pods(self) -> Any:
        return self.call(self.api.list_namespaced_pod, label_selector=_OURS)["items"]

    def _sweep(self) -> None:
        for pod in self._pods():
            if _is_over(pod):
                self.delete(pod["metadata"]["name"], 0.0)


class _Pod:
    """A host in a pod, and the thread that watches it. See `Placed`."""

    def __init__(
        self, engine: KubernetesEngine, name: str, launch: Launch, inside: Launch, on_ended: Callable[[str], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._is_shared = launch.is_shared
        self._inside = inside
        self._on_ended = on_ended
        self._pod: dict[str, Any] = {}
        self._why_ended: str | None = None
        self._is_stopping = False
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
                self._engine.call(self._engine.api.delete_namespaced_secret, self._name, allowed=_GONE)
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
        for line in self._engine.lines(self._engine.api.read_namespaced_pod_log, self._name, seconds, follow=True):
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(line, type=Ready)
            words = line.decode(errors="replace").strip() or words
        raise StartFailed(f"its host ended before it was ready{words and ': ' + words}{self._waiting_for()}")

    def why_ended(self) -> str | None:
        return self._why_ended

    def stop(self, grace: float) -> bool:
        self._is_stopping = True
        # Other programs may use a shared one: the lease of the last one ends it.
        if not self._is_shared or self._over.is_open:
            try:
                if self._engine.delete(self._name, grace):
                    self._seen(self._pod, is_deleted=True)
                self._over.wait(grace + _DELETE_SECONDS if grace else 0.0)
            except StartFailed as error:
                logger.debug("pod_not_deleted", pod=self._name, error=error.message)
        self._is_left = True
        self._interrupt()
        self._watcher.join(_REQUEST_SECONDS)
        return self._over.is_open

    def after_fork(self) -> None:
        """A forked child has copies of sockets only, which nothing in it uses."""

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
        api, options = self._engine.api, {"field_selector": f"metadata.name={self._name}", "watch": True}
        while not (self._over.is_open or self._is_left):
            try:
                for line in self._engine.lines(api.list_namespaced_pod, None, _WATCH_SECONDS, self._opened, **options):
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
        if is_deleted or _is_over(pod):
            self._why_ended = f"ended with its pod {self._name}{self._waiting_for()}"
            self._over.open()
            was_ready = self._runs.is_open
            self._runs.open()
            if was_ready and not self._is_stopping:
                self._on_ended(self._why_ended)
        elif status.get("podIP") and any("running" in one["state"] for one in status.get("containerStatuses", ())):
            self._runs.open()


def _is_over(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _listed(pod: dict[str, Any]) -> PlacedServer:
    metadata, notes = pod["metadata"], pod["metadata"].get("annotations", {})
    began = dt.datetime.fromisoformat(metadata["creationTimestamp"])
    return PlacedServer(
        name=notes.get("gaia-mcp/name", metadata["name"]),
        node=pod["spec"].get("nodeName", ""),
        id=metadata["name"],
        is_shared=notes.get("gaia-mcp/shared") == "true",
        started_by=notes.get("gaia-mcp/started-by", ""),
        age=(dt.datetime.now(dt.UTC) - began).total_seconds(),
    )
