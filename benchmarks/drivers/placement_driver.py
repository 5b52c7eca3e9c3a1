"""Placed servers beside local ones and bare actors of Ray, in one process and in the same rounds.

It takes commands as `driving` does, of its own. The ``way`` is ``local``, ``process``, ``ray`` or ``actor``; the latter
two are there if Ray is installed.

=========  ================================  ======================================================================
``do``     further keys                      answer
=========  ================================  ======================================================================
begin      ``argv``                          starts a server of each way with this command line; ``ray`` is its
                                             version, or None
call       ``way``, ``size``, ``count``      ``latencies`` in seconds of calls with that much text, one after the other
crowd      ``way``, ``callers``,             ``calls`` that were answered within ``seconds``; ``cpu`` seconds that this
           ``seconds``                       process and the host or the actor have taken for all of them
hosts                                        what the host of each way that has one holds: ``rss``, ``uss``, ``threads``
kill       ``way``, ``what``                 ``seconds`` from killing the ``host``, or the ``server``, to the next good
                                             answer
lose                                         the same for the ways ``ray`` and ``actor``, when all processes of the node
                                             with both are killed
share      ``argv``, ``name``                uses the server that programs share by this name
progress   ``count``, ``seconds``            ``latencies`` of calls of its tool that sleeps and tells of progress
=========  ================================  ======================================================================
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

_STORE_BYTES = 256 * 1024 * 1024
_READY_SECONDS = 60.0
_RETRY_SECONDS = 0.001
_ROOM = {"measured": 2}
"""The resource of nodes that are lost: for a host, and for the bare actor."""


class Driver:
    """All that is measured."""

    def __init__(self) -> None:
        self._calls: dict[str, Callable[[str], Any]] = {}
        self._clients: dict[str, Any] = {}
        self._argv: list[str] = []
        self._cluster: Any = None
        self._nodes: list[Any] = []
        self._home: Callable[[], tuple[str, int]] | None = None
        """Node and process of the bare actor."""

    def begin(self, argv: list[str]) -> dict[str, Any]:
        self._argv = argv
        self._use("local", argv, None)
        self._use("process", argv, {"engine": "process"})
        if importlib.util.find_spec("ray") is None:
            return {"ray": None}
        import ray

        self._begin_ray(ray)
        self._use("ray", argv, {"engine": "ray", "resources": {"measured": 1}})
        return {"ray": ray.__version__}

    def _begin_ray(self, ray: Any) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
        # Ray's own figures wait for half a minute until a node counts as lost.
        head["_system_config"] = {
            "health_check_period_ms": 500,
            "health_check_timeout_ms": 1000,
            "health_check_failure_threshold": 4,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._add_node()
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")

        class Bare:
            """With threads, because a host answers calls at once, too."""

            def echo(self, data: bytes) -> bytes:
                return data

            def home(self) -> tuple[str, int]:
                return ray.get_runtime_context().get_node_id(), os.getpid()

        options: Any = {"resources": {"measured": 1}, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 64}
        actor = ray.remote(num_cpus=0, **options)(Bare).remote()
        self._home = lambda: ray.get(actor.home.remote())
        self._home()
        self._calls["actor"] = lambda text: ray.get(actor.echo.remote(text.encode())).decode()

    def _add_node(self) -> None:
        node = self._cluster.add_node(num_cpus=2, object_store_memory=_STORE_BYTES, resources=_ROOM)
        self._nodes.append(node)
        self._cluster.wait_for_nodes()

    def _use(self, way: str, argv: list[str], placement: dict[str, Any] | None) -> None:
        client = self._clients[way] = _client(argv, placement)

        def call(text: str) -> Any:
            result = client.call_tool("echo", {"text": text})
            return result["content"][0]["text"] if "error_type" not in result else result

        self._calls[way] = call

    def call(self, way: str, size: int, count: int) -> dict[str, Any]:
        call, text, clock, latencies = self._calls[way], "x" * size, time.perf_counter, []
        for _ in range(count):
            began = clock()
            answer = call(text)
            latencies.append(clock() - began)
            assert answer == text, f"a wrong answer: {str(answer)[:200]}"
        return {"latencies": latencies}

    def crowd(self, way: str, callers: int, seconds: float) -> dict[str, Any]:
        call, text, answered = self._calls[way], "x" * 64, list[int]()
        processes = [psutil.Process(), *([psutil.Process(self._far(way))] if way != "local" else [])]
        cpu = sum(sum(process.cpu_times()[:2]) for process in processes)
        began = time.perf_counter()

        def work() -> None:
            count = 0
            while time.perf_counter() - began < seconds:
                assert call(text) == text
                count += 1
            answered.append(count)

        _at_once([work] * callers)
        seconds = time.perf_counter() - began
        cpu = sum(sum(process.cpu_times()[:2]) for process in processes) - cpu
        return {"calls": sum(answered), "seconds": seconds, "cpu": cpu}

    def hosts(self) -> dict[str, Any]:
        found = {}
        for way in self._clients.keys() & {"process", "ray"}:
            host = psutil.Process(self._host(way))
            memory = host.memory_full_info()
            found[way] = {"rss": memory.rss, "uss": memory.uss, "threads": host.num_threads()}
        return found

    def kill(self, way: str, what: str) -> dict[str, Any]:
        (self._server(way) if what == "server" else psutil.Process(self._host(way))).kill()
        return {"seconds": self._until_answered(way, time.perf_counter())}

    def _server(self, way: str) -> psutil.Process:
        if way != "local":
            return self._servers_below(psutil.Process(self._host(way)))[0]
        placed = [self._server(other) for other in self._clients.keys() - {"local"}]
        return next(one for one in self._servers_below(psutil.Process()) if one not in placed)

    def _servers_below(self, process: psutil.Process) -> list[psutil.Process]:
        return [one for one in process.children(recursive=True) if one.cmdline() == self._argv]

    def lose(self) -> dict[str, Any]:
        self._add_node()
        assert self._home is not None
        node = next(node for node in self._nodes if node.node_id == self._home()[0])
        assert self._clients["ray"].status.placement.node_id == node.node_id, "the host is on another node"
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        lost = time.perf_counter()
        self._nodes.remove(node)
        seconds: dict[str, float] = {}

        def wait(way: str) -> Callable[[], None]:
            return lambda: seconds.update({way: self._until_answered(way, lost)})

        removing = lambda: self._cluster.remove_node(node, allow_graceful=False)  # noqa: E731
        _at_once([wait("ray"), wait("actor"), removing])
        return {"seconds": seconds}

    def _far(self, way: str) -> int:
        """The process that answers, or passes calls on to the server."""
        return self._home()[1] if way == "actor" and self._home is not None else self._host(way)

    def _host(self, way: str) -> int:
        return int(self._clients[way].status.placement.host_pid)

    def _until_answered(self, way: str, since: float) -> float:
        while time.perf_counter() - since < _READY_SECONDS:
            # Ray raises exceptions of its own.
            with contextlib.suppress(Exception):
                if self._calls[way]("x") == "x":
                    return time.perf_counter() - since
            time.sleep(_RETRY_SECONDS)
        raise TimeoutError(f"no good answer within {_READY_SECONDS:g} s")

    def share(self, argv: list[str], name: str) -> dict[str, Any]:
        self._clients["shared"] = _client(argv, {"engine": "process", "lifetime": "detached", "name": name})
        return {}

    def progress(self, count: int, seconds: float) -> dict[str, Any]:
        client, latencies, heard = self._clients["shared"], [], list[object]()
        for _ in range(count):
            began = time.perf_counter()
            result = client.call_tool("sleep", {"seconds": seconds}, on_progress=lambda *told: heard.append(told))
            latencies.append(time.perf_counter() - began)
            assert "error_type" not in result, str(result)
        assert len(heard) >= count, f"{count} calls have told of progress {len(heard)} times"
        return {"latencies": latencies}

    def end(self) -> None:
        for client in self._clients.values():
            client.disconnect()
        if self._cluster is not None:
            import ray

            ray.shutdown()
            self._cluster.shutdown()


def _client(argv: list[str], placement: dict[str, Any] | None) -> Any:
    from gaia.mcp.client import MCPClient

    entry: dict[str, Any] = {"command": argv[0], "args": argv[1:], "timeout": _READY_SECONDS}
    if placement is not None:
        entry["placement"] = placement
    client = MCPClient.from_config("it", entry)
    if not client.connect():
        raise RuntimeError(f"cannot connect: {client.last_error}")
    return client


def _at_once(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    # What Ray and the servers write must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver = Driver()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(driver, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    driver.end()
    os._exit(0)


main()
