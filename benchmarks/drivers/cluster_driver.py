"""Servers on a Ray cluster of three nodes on this machine, a local one beside them, and bare actors.

It takes commands as `driving` does, of its own:

=========  ================================  ======================================================================
``do``     further keys                      answer
=========  ================================  ======================================================================
begin      ``argv``                          starts the cluster, servers with this command line, and actors
call       ``way``, ``size``, ``count``      ``latencies`` in seconds of calls with that much text, one after the
                                             other: ``placed``, ``local``, ``actor``, or ``both`` of
                                             the latter in turn
fetch      ``way``, ``size``, ``count``      ``latencies`` in seconds of calls that are answered with that much:
                                             ``placed``, ``local``, ``actor`` or ``store`` (the actor puts it into the
                                             object store, and answers with the reference)
start                                        ``seconds`` by the parts of a cold start
=========  ================================  ======================================================================
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

_STORE_BYTES = 256 * 1024 * 1024
_SERVER = [sys.executable, "-I", str(Path(__file__).with_name("cluster_server.py"))]
_READY_SECONDS = 60.0


class Cluster:
    """All that is measured."""

    def begin(self, argv: list[str]) -> dict[str, Any]:
        import ray
        from ray.cluster_utils import Cluster as RayCluster

        cores = max(1.0, os.cpu_count() or 1)
        self._cluster: Any = RayCluster(
            initialize_head=True,
            head_node_args={"num_cpus": cores, "object_store_memory": _STORE_BYTES, "include_dashboard": False},
        )
        for _ in range(2):
            self._cluster.add_node(num_cpus=cores, object_store_memory=_STORE_BYTES)
        self._cluster.wait_for_nodes()
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")
        self._ray: Any = ray
        self._actor = _bare_actor(ray)
        self._clients = {
            ("placed", "echo"): _client(argv, {}),
            ("local", "echo"): _client(argv, None),
            ("placed", "blob"): _client(_SERVER, {}),
            ("local", "blob"): _client(_SERVER, None),
        }
        return {}

    def call(self, way: str, size: int, count: int) -> dict[str, Any]:
        text = "x" * size
        data, arguments = text.encode(), {"text": text}

        def ask_actor() -> Any:
            return self._ray.get(self._actor.echo.remote(data))

        if way == "actor":
            return _timed(ask_actor, lambda answer: answer == data, count)
        client = self._clients["local" if way == "both" else way, "echo"]
        if way == "both":
            return _timed(lambda: (ask_actor(), client.call_tool("echo", arguments)), lambda two: two[0] == data, count)
        return _timed(lambda: client.call_tool("echo", arguments), lambda answer: _text(answer) == text, count)

    def fetch(self, way: str, size: int, count: int) -> dict[str, Any]:
        ray = self._ray
        if way == "actor":
            return _timed(lambda: ray.get(self._actor.blob.remote(size)), lambda answer: len(answer) == size, count)
        if way == "store":
            return _timed(
                lambda: ray.get(ray.get(self._actor.stored.remote(size))[0]), lambda answer: len(answer) == size, count
            )
        client, arguments = self._clients[way, "blob"], {"size": size}
        return _timed(lambda: client.call_tool("blob", arguments), lambda answer: len(_text(answer)) == size, count)

    def start(self) -> dict[str, Any]:
        began = _now()
        client = _client(_SERVER, {})
        ready = _now()
        try:
            status = client.status
            reading = float(_text(client.call_tool("began")))
            # Ray may have had a process that waited for an actor.
            actor = max(began, _start_of(status.placement.host_pid))
            server = _start_of(status.pid)
        finally:
            client.disconnect()
        marks = [began, actor, server, reading, ready]
        parts = ["placement", "actor process", "server start", "handshake"]
        lengths = [max(0.0, end - start) for start, end in itertools.pairwise(marks)]
        return {"seconds": {**dict(zip(parts, lengths, strict=True)), "all": ready - began}}


def _now() -> float:
    """By the clock by which Linux notes when processes begin."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _start_of(pid: int) -> float:
    """When a process began, in hundredths of a second of that clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _client(argv: list[str], placement: dict[str, Any] | None) -> Any:
    from gaia.mcp.client import MCPClient

    entry: dict[str, Any] = {"command": argv[0], "args": argv[1:], "timeout": _READY_SECONDS}
    if placement is not None:
        entry["placement"] = placement
    client = MCPClient.from_config("it", entry)
    if not client.connect():
        raise RuntimeError(f"cannot connect: {client.last_error}")
    return client


def _bare_actor(ray: Any) -> Any:
    class Bare:
        """With threads, as the actors have that host servers."""

        def echo(self, data: bytes) -> bytes:
            return data

        def blob(self, size: int) -> bytes:
            return b"x" * size

        def stored(self, size: int) -> list[Any]:
            return [ray.put(b"x" * size)]

    actor = ray.remote(num_cpus=0, max_concurrency=64)(Bare).remote()
    ray.get(actor.echo.remote(b""))
    return actor


def _timed(call: Callable[[], Any], is_right: Callable[[Any], bool], count: int) -> dict[str, Any]:
    clock, latencies = time.perf_counter, []
    for _ in range(count):
        began = clock()
        answer = call()
        latencies.append(clock() - began)
        assert is_right(answer), f"a wrong answer: {str(answer)[:200]}"
    return {"latencies": latencies}


def _text(answer: Any) -> str:
    text: str = answer["content"][0]["text"]
    return text


def main() -> None:
    # What Ray and the servers write must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cluster = Cluster()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(cluster, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    cluster._ray.shutdown()
    cluster._cluster.shutdown()
    os._exit(0)


main()
