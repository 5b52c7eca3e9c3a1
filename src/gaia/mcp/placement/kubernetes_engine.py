"""`KubernetesEngine`: a host is a pod, by the maintained client of Kubernetes.

The program must reach the addresses of pods, as programs in the cluster do. A Secret carries the `Launch` into the pod:
it is deleted as soon as the host is ready, and that of a shared host when its pod is. The host has a certificate of its
own. Deleting the pod is what ends it for certain. A program that was killed leaves a pod that ends with its lease;
whatever starts a server in that namespace next deletes it. `RULES` are the rights that the program needs.
"""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.certificate import make_certificate
from gaia.mcp.placement.engine import Engine, Launch, PlacedServer
from gaia.mcp.placement.kubernetes_api import CONFLICT, GONE, KubernetesApi
from gaia.mcp.placement.kubernetes_manifests import label_of, manifests
from gaia.mcp.placement.kubernetes_pod import Pod, is_over
from gaia.runtime.extras import missing

RULES = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete", "get"]},
)
"""Of the Role in the namespace of the pods."""

_OURS = "app.kubernetes.io/managed-by=gaia-mcp"
_PAUSE_SECONDS = 0.5
_DELETE_SECONDS = 10.0


class KubernetesEngine(Engine):
    """See `Engine`."""

    def __init__(self, placement: Placement) -> None:
        """Raises ConfigError if the client is missing, or has no settings of a cluster."""
        if (absent := missing("kubernetes", "kubernetes", "cryptography")) is not None:
            raise ConfigError(f"a server on Kubernetes needs {absent}")
        self._placement = placement
        self._api = KubernetesApi(placement.namespace)

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> Pod:
        self._sweep()
        label = label_of(launch.name)
        name = f"gaia-{label}-{'shared' if launch.is_shared else secrets.token_hex(4)}"
        inside = msgspec.structs.replace(launch, certificate=make_certificate(), listen="0.0.0.0")  # noqa: S104 - of the pod
        secret, pod = manifests(name, label, self._placement, launch, inside)
        allowed = CONFLICT if launch.is_shared else 0
        if not self._api.call(self._api.core.create_namespaced_secret, body=secret, allowed=allowed):
            data = self._api.call(self._api.core.read_namespaced_secret, name)["data"]["launch.json"]
            inside = msgspec.json.decode(msgspec.convert(data, bytes, strict=False), type=Launch)
        try:
            self._api.call(self._api.core.create_namespaced_pod, body=pod, allowed=allowed)
        except StartFailed:
            self._api.call(self._api.core.delete_namespaced_secret, name, allowed=GONE)
            raise
        return Pod(self._api, name, launch, inside, on_ended)

    def look(self) -> str:
        from kubernetes import client

        reviews = client.AuthorizationV1Api(self._api.client)
        for resource, verb in ((rule["resources"][0], verb) for rule in RULES for verb in rule["verbs"]):
            base, _, part = resource.partition("/")
            attributes = {"namespace": self._api.namespace, "resource": base, "subresource": part, "verb": verb}
            review = {"spec": {"resourceAttributes": attributes}}
            if not self._api.call(reviews.create_self_subject_access_review, body=review, scope=())["status"][
                "allowed"
            ]:
                raise StartFailed(f"this program may not {verb} {resource} in the namespace {self._api.namespace}")
        return f"namespace {self._api.namespace} of {self._api.address}"

    def end(self, host: str) -> bool:
        self._api.delete(host, 0.0)
        deadline = time.monotonic() + _DELETE_SECONDS
        while any(pod["metadata"]["name"] == host for pod in self._pods()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def close(self) -> None:
        self._api.close()

    def list(self) -> list[PlacedServer]:
        return [_listed(pod) for pod in self._pods() if not is_over(pod)]

    def _pods(self) -> Any:
        return self._api.call(self._api.core.list_namespaced_pod, label_selector=_OURS)["items"]

    def _sweep(self) -> None:
        for pod in self._pods():
            if is_over(pod):
                self._api.delete(pod["metadata"]["name"], 0.0)


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
