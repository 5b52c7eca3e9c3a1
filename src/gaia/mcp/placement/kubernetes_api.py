"""`KubernetesApi`: the few requests to Kubernetes that the engine makes, and what their failures mean."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gaia.mcp.errors import ConfigError, StartFailed

CONFLICT, GONE = 409, 404

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REQUEST_SECONDS = 10.0


class KubernetesApi:
    """Thread-safe."""

    def __init__(self, namespace: str | None) -> None:
        """For the namespace of the present context if it is None. Raises ConfigError without settings of a cluster."""
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
        self.namespace = namespace or present
        self.client = client.ApiClient(settings)
        self.core = client.CoreV1Api(self.client)

    @property
    def address(self) -> str:
        return str(self.client.configuration.host)

    def close(self) -> None:
        manager = self.client.rest_client.pool_manager
        for key in manager.pools.keys():  # noqa: SIM118 - it is no mapping that can be iterated over
            manager.pools[key].close()
        manager.clear()

    def delete(self, name: str, grace: float) -> bool:
        """Have a pod deleted. Returns whether it is gone already."""
        options = {"grace_period_seconds": math.ceil(grace) or 1, "allowed": GONE}
        is_gone = self.call(self.core.delete_namespaced_pod, name, **options) is None
        self.call(self.core.delete_namespaced_secret, name, allowed=GONE)
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
            raise StartFailed(f"Kubernetes does not answer at {self.address}: {error}") from error
