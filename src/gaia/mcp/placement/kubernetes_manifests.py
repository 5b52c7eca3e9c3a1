"""The Secret and the Pod of a host, as `kubernetes_engine` creates them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from gaia.mcp.config.placement import Placement
from gaia.mcp.placement.engine import Launch

# The host's standard input stays open, because its end would end the host: its lease does, and the end of the pod.
_HOST = "mkfifo /tmp/in; exec 3<>/tmp/in 0<&3; cat /launch/launch.json >&3 & exec python -P -m gaia.mcp.gateway.host"
_USER = 65532
"""No user of any image, and not root."""


def label_of(name: str) -> str:
    """A server's name as a part of a pod's: the same for the same name, and different ones differ."""
    plain = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:30]
    return plain if plain == name else f"{plain or 'server'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def manifests(
    name: str, label: str, placement: Placement, launch: Launch, inside: Launch
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Secret and the Pod of a host."""
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "gaia-mcp", "gaia-mcp/server": label}}
    demand = placement.demand
    amounts = {"cpu": demand.pop("CPU", 0), "memory": int(demand.pop("memory", 0)), **demand}
    needed = {key: f"{amount:g}" if key == "cpu" else str(int(amount)) for key, amount in amounts.items() if amount}
    selector = {**placement.labels, **({"kubernetes.io/hostname": placement.node} if placement.node else {})}
    container = {
        "name": "host",
        "image": placement.image,
        "command": ["/bin/sh", "-c", _HOST],
        "workingDir": "/tmp",  # noqa: S108 - of the pod
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "resources": {"requests": needed, "limits": {key: text for key, text in needed.items() if key != "cpu"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "launch", "mountPath": "/launch", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": selector,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "launch", "secret": {"secretName": name, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    notes = {"name": launch.name, "started-by": launch.started_by}
    notes["shared"] = str(launch.is_shared).lower()
    annotations = {f"gaia-mcp/{key}": text for key, text in notes.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "immutable": True}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "annotations": annotations}, "spec": spec}
    return {**secret, "stringData": {"launch.json": inside.line().decode()}}, pod
