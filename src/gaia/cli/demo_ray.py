"""`gaia mcp demo --ray`: a server on a Ray cluster of three nodes, one of which is killed."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from gaia.cli.rendering import Step, list_text, milliseconds, nothing_left

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.requests.submitted_request import CallFuture
    from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.transports.base import PlacementStatus

_SERVER = "demo"
_RESOURCE = "demo"
_START_SECONDS = 60.0
"""For the placement, the actor's process and the server."""
_CALL_SECONDS = 60.0
"""A call waits until Ray has noticed the loss of a node and has placed the server again."""

_LEASE = 5.0
_SLEEP_SECONDS = 5.0
"""The duration of the call in flight, which is longer than Ray takes to remove the node."""
_LOOK_SECONDS = 0.01

_OBJECT_STORE_BYTES = 80 * 1024 * 1024

_QUICK_CHECKS = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}


def cluster_tour() -> Generator[Step | str, None, None]:
    """Yield the demo's steps, each long one after a line of text. All processes have ended with the generator."""
    import psutil

    started: set[psutil.Process] = set()
    with _Cluster() as cluster:
        for step in _steps(cluster):
            # The processes of the node that is killed later are included.
            started.update(psutil.Process().children(recursive=True))
            yield step
        yield "Stopping the cluster …"
    yield nothing_left(started)


def _steps(cluster: _Cluster) -> Iterator[Step | str]:
    """Yield all steps. An unexpected error becomes the last step."""
    from gaia.mcp import demo_server
    from gaia.mcp.client import MCPClientManager

    entry = {
        "command": sys.executable,
        # Run as a file, the server needs no module search path, which servers do not inherit.
        "args": ["-I", str(demo_server.__file__)],
        "timeout": _START_SECONDS,
    }
    try:
        yield "Starting three nodes, each with processes of its own: this takes 10 to 30 s …"
        yield cluster.start()
        with MCPClientManager({}) as manager:
            placement = {"engine": "ray", "address": cluster.address, "resources": {_RESOURCE: 1}, "lease": _LEASE}
            yield _place(manager, {**entry, "placement": placement})
            yield _call(manager, "call", "Call a tool there", "hello")
            lost = _placement(manager)
            yield "Killing the node: Ray needs 2 to 4 s to notice, and 2 s or more for another actor …"
            yield from _lose(cluster, manager, lost)
            yield _call(manager, "call_again", "Call the tool at its new place", "hello there")
    except (RuntimeError, OSError) as error:
        yield Step("error", False, ["It came to an end", str(error)], {"error": str(error)})


def _place(manager: MCPClientManager, entry: dict[str, Any]) -> Step:
    began = time.perf_counter()
    manager.add_server(_SERVER, entry)
    status, seconds = _status(manager), time.perf_counter() - began
    place = status.placement
    if place is None:
        return Step("place", False, ["Place a server", f"it was not placed: {status.last_error}"], {"seconds": seconds})
    lines = [
        f'Place a server that needs {{"{_RESOURCE}": 1}}',
        f"ready after {milliseconds(seconds)}: node {_node(place)}, actor {_short(place.id)}, process {status.pid}",
    ]
    return Step("place", status.state.value == "ready", lines, {"seconds": seconds, **_facts(status)})


def _call(manager: MCPClientManager, name: str, title: str, text: str) -> Step:
    began = time.perf_counter()
    result = manager.call_tool(f"mcp_{_SERVER}_echo", {"text": text}, timeout=_CALL_SECONDS)
    seconds = time.perf_counter() - began
    answer = f"error: {result.error}" if result.is_error else f"→ {result.text}"
    lines = [title, f'echo {{"text": "{text}"}} {answer} after {milliseconds(seconds)}']
    return Step(name, result.text == text, lines, {"seconds": seconds, "result": result})


def _lose(cluster: _Cluster, manager: MCPClientManager, place: PlacementStatus | None) -> Iterator[Step]:
    if place is None or place.node_id is None:
        yield Step("lose", False, ["Lose its node", "it has no node"], {})
        return
    client = manager.get_client(_SERVER)
    assert client is not None, "it was added"
    written = client.submit_tool("sleep", {"seconds": _SLEEP_SECONDS}, timeout=_CALL_SECONDS)
    while client.status.in_flight == 0 and not written.done():
        time.sleep(_LOOK_SECONDS)
    began = time.perf_counter()
    cluster.lose(place.node_id)
    waiting = client.submit_tool("echo", {"text": "hello again"}, timeout=_CALL_SECONDS)
    while client.status.restarts == 0 and time.perf_counter() - began < _CALL_SECONDS:
        time.sleep(_LOOK_SECONDS)
    seconds, status = time.perf_counter() - began, client.status
    now = status.placement
    elsewhere = now is not None and now.node_id != place.node_id and status.state.value == "ready"
    lines = [
        f"Kill all processes of node {_node(place)} while a call is under way there",
        "the server has no place"
        if now is None
        else f"ready again after {seconds:.1f} s: node {_node(now)}, process {status.pid}",
    ]
    facts = {"lost": place.node_id, "seconds": seconds, **_facts(status)}
    yield Step("lose", elsewhere, lines, facts)
    yield _outcome("recover", "A call that was made right after that is answered, too", waiting)
    title = "The call that was under way was repeated once, because its tool is marked as safe"
    yield _outcome("repeat", title, written)


def _outcome(name: str, title: str, future: CallFuture) -> Step:
    from gaia.mcp.errors import MCPError

    try:
        result = future.result(_CALL_SECONDS)
    except MCPError as error:
        words = f"{error.error_type}, delivery {error.delivery}: {error.message}"
        return Step(name, False, [title, words], {"error_type": error.error_type, "delivery": error.delivery})
    return Step(name, not result.is_error, [title, f"→ {result.text}"], {"result": result})


class _Cluster:
    """A Ray cluster of three nodes on this machine, with this process as its driver. Leaving the context removes it."""

    def __enter__(self) -> _Cluster:
        self._cluster: Any = None
        self._nodes: list[Any] = []
        # Paths of sockets must be short. The default folder for temporary files is long on some systems.
        folder = self._folder = tempfile.mkdtemp(prefix="gaia-ray-", dir="/tmp" if os.path.isdir("/tmp") else None)  # noqa: S108
        # Neither join nor change a cluster of the user.
        variables = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        self._before = {name: os.environ.get(name) for name in ("RAY_ADDRESS", *variables)}
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.update(variables)
        return self

    def start(self) -> Step:
        import ray
        from ray.cluster_utils import Cluster

        # The demo itself reports what happens to nodes.
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        began = time.perf_counter()
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": _QUICK_CHECKS}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={**head, "object_store_memory": _OBJECT_STORE_BYTES}
        )
        self._nodes = [
            self._cluster.add_node(num_cpus=1, object_store_memory=_OBJECT_STORE_BYTES, resources={_RESOURCE: 1})
            for _ in range(2)
        ]
        self._cluster.wait_for_nodes()
        self.address = str(self._cluster.address)
        seconds = time.perf_counter() - began
        nodes = [_short(node.node_id) for node in (self._cluster.head_node, *self._nodes)]
        lines = [
            "Start a Ray cluster of three nodes on this machine",
            f"ready after {milliseconds(seconds)}: {list_text(nodes)}; Ray {ray.__version__}",
            f'two of them have {{"{_RESOURCE}": 1}}',
        ]
        return Step("cluster", len(nodes) == 3, lines, {"seconds": seconds, "nodes": nodes, "ray": ray.__version__})

    def lose(self, node_id: str) -> None:
        node = next(node for node in self._nodes if node.node_id == node_id)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def __exit__(self, *_: object) -> None:
        try:
            if self._cluster is not None:
                self._cluster.shutdown()
        finally:
            for name, value in self._before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            shutil.rmtree(self._folder, ignore_errors=True)


def _status(manager: MCPClientManager) -> ServerStatus:
    (status,) = manager.status()
    return status


def _placement(manager: MCPClientManager) -> PlacementStatus | None:
    return _status(manager).placement


def _facts(status: ServerStatus) -> dict[str, Any]:
    place = status.placement
    return {
        "node_id": None if place is None else place.node_id,
        "actor": None if place is None else place.id,
        "pid": status.pid,
        "restarts": status.restarts,
    }


def _node(place: PlacementStatus) -> str:
    return f"{place.node} {_short(place.node_id)}"


def _short(identifier: str | None) -> str:
    return (identifier or "-")[:8]
