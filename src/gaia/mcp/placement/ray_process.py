"""The program that is in a Ray cluster for another one: `ray_engine` starts it, and talks to it in lines of JSON.

Ray's client ends its process when the head of the cluster has been gone for a minute, or when the raylet of its machine
dies. In a process of its own it ends nothing else, and the program has none of its threads. What is here needs Ray and
the standard library only.

The first line of output says that the cluster was joined, or why not. Each request has an ``id``, an ``op`` (a method
of `Member`) and arguments, and is answered once. That a host has ended is told later, with the ``id`` of its start,
which is also the host's number.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NAMESPACE = "gaia-mcp"
"""Of the actors of all placed servers, so that they are found."""

_REPORT_SECONDS = 2.0
_END_SECONDS = 3.0
_LEAVE_SECONDS = 3.0
_PAUSE_SECONDS = 0.05
_LINE_BYTES = 256 * 1024 * 1024
_UNIT = 0.0001
"""The least amount that Ray counts; what it tells is a little off."""

_SET_DEATH_SIGNAL = 1
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"


class PlacedServerHost:
    """The actor: it owns the process of a host on its node, and neither outlives the other.

    Ray gets its code by value, so a worker loads nothing for it: the host is a process of its own.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        self._about = about
        self._began = time.monotonic()
        self._process: Any = None
        self._loop: Any = None

    async def start(self, launch: dict[str, Any], program_ip: str) -> dict[str, Any]:
        """Start the host, unless another program has done so. Returns where it listens, and the token."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._ready, self._ended = self._loop.create_future(), self._loop.create_future()
            ip = ray.util.get_node_ip_address()
            # Programs on other machines may use a shared host, too.
            if ip.startswith("127.") or (ip == program_ip and not self._about["is_shared"]):
                launch = {**launch, "listen": "127.0.0.1", "certificate": None}
            else:
                launch = {**launch, "listen": ip}
            threading.Thread(target=self._run, args=(launch,), daemon=True).start()
        answer: dict[str, Any] = await asyncio.shield(self._ready)
        return answer

    def _run(self, launch: dict[str, Any]) -> None:
        """The thread that starts the host stays until its end, because the kernel ends the host with this thread."""
        tell, words = self._loop.call_soon_threadsafe, ""
        prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gaia.mcp.gateway.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: prctl(_SET_DEATH_SIGNAL, signal.SIGKILL),  # noqa: PLW1509 - it calls the kernel only
        )
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(launch).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        for line in process.stdout:  # type: ignore[union-attr]
            if line.startswith(b'{"port"'):
                tell(self._ready.set_result, {**json.loads(line), **self._address(launch)})
            elif text := line.decode(errors="replace").strip():
                words = text
        why = f"the host has ended with exit code {process.wait()}" + (f": {words}" if words else "")
        tell(lambda: self._ready.done() or self._ready.set_result({"problem": f"before it was ready, {why}"}))
        tell(self._ended.set_result, why)
        ray.get_runtime_context().current_actor.leave.remote()

    def _address(self, launch: dict[str, Any]) -> dict[str, Any]:
        pem = launch["certificate"]
        certificate = pem and _BEGIN + pem.partition(_BEGIN)[2].partition(_END)[0] + _END
        place = {"ip": launch["listen"], "nodeId": ray.get_runtime_context().get_node_id()}
        return {**place, "token": launch["token"], "certificate": certificate}

    async def ended(self) -> str:
        """Why the host has ended, as soon as it has. A call of this ends with the actor, if not before."""
        return str(await asyncio.shield(self._ended))

    async def stop(self, grace: float) -> bool:
        """End the host. Returns whether its process is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.stdin.close()
            await asyncio.wait((self._ended,), timeout=grace)
            if not self._ended.done():
                self._process.kill()
                await asyncio.wait((self._ended,), timeout=_REPORT_SECONDS)
        return self._process is None or self._process.poll() is not None

    async def about(self) -> dict[str, Any]:
        return {**self._about, "node": os.uname().nodename, "age": time.monotonic() - self._began}

    async def leave(self) -> None:
        """End the actor for good; only one of its own calls can."""
        # The answers of `ended` leave first.
        await asyncio.sleep(1)
        ray.actor.exit_actor()


class Member:
    """Answers the program's requests. The public methods are operations; what they raise is told as a ``problem``."""

    def __init__(self, own: Any) -> None:
        """`own` is the pipe to the program."""
        self._own = own
        self._ip = ray.util.get_node_ip_address()
        self._actors: dict[int, asyncio.Task[Any]] = {}
        """Of the hosts that were not stopped, by their numbers: a `stop` may come while one is made."""
        self._watches: dict[int, Any] = {}
        """Of the hosts that are ready."""

    async def answer(self, message: dict[str, Any]) -> None:
        request, operation = message.pop("id"), message.pop("op")
        try:
            answer = await getattr(self, operation)(**message)
        except Exception as error:  # noqa: BLE001 - Ray raises more than its own exceptions
            answer = {"problem": first_line(error)}
        tell(self._own, id=request, **answer)

    async def start(
        self, host: int, options: dict[str, Any], launch: dict[str, Any], about: dict[str, Any]
    ) -> dict[str, Any]:
        making = self._actors[host] = asyncio.create_task(asyncio.to_thread(_make_actor, options, about))
        try:
            actor = await making
            answer: dict[str, Any] = await actor.start.remote(launch, self._ip)
        except (RayError, ValueError) as error:
            answer = {"problem": first_line(error)}
        if answer.get("problem"):
            await self._forget(host)
            return {"problem": answer["problem"]}
        self._watches[host] = asyncio.create_task(self._watch(host, actor))
        return {**answer, "actor": actor._actor_id.hex()}

    async def _watch(self, host: int, actor: Any) -> None:
        why = None
        while why is None:
            try:
                why = await actor.ended.remote()
            except ActorUnavailableError:
                # Ray does not know yet whether it has lost it; the next call waits until it does.
                await asyncio.sleep(_PAUSE_SECONDS)
            except RayError as error:
                why = first_line(error)
        tell(self._own, id=host, ended=why)
        await self._forget(host)
        self._watches.pop(host, None)

    async def stop(self, host: int, grace: float, demand: dict[str, float]) -> dict[str, Any]:
        """End a host and its actor, whose place is free then; if it had none yet, say why."""
        making = self._actors.get(host)
        if making is None:
            return {"stopped": True, "reason": None}
        if host not in self._watches:
            reason = await asyncio.to_thread(shortage, demand)
            await self._forget(host)
            return {"stopped": True, "reason": reason}
        has_ended = await self._end(await making, grace)
        if has_ended:
            self._actors.pop(host, None)
        return {"stopped": has_ended, "reason": None}

    async def _end(self, actor: Any, grace: float) -> bool:
        """End an actor with its host. Returns whether that is certain.

        If not, the actor is not killed: Ray would say at once that it is dead, while its host may still run.
        """
        try:
            has_ended = await asyncio.wait_for(_answer(actor.stop.remote(grace)), grace + _END_SECONDS)
        except ActorDiedError:
            return True
        except (RayError, TimeoutError):
            return False
        if has_ended:
            await self._kill(actor)
        return bool(has_ended)

    async def look(self, demand: dict[str, float]) -> dict[str, Any]:
        """What there is in the cluster, and why something that needs `demand` has no place there."""
        nodes = await asyncio.to_thread(_alive_nodes)
        return {"nodes": len(nodes), "version": ray.__version__, "reason": await asyncio.to_thread(shortage, demand)}

    async def list(self) -> dict[str, Any]:
        named = await asyncio.to_thread(_named_actors)
        reports = [asyncio.wait_for(_answer(actor.about.remote()), _REPORT_SECONDS) for actor in named.values()]
        servers = []
        for (name, actor), report in zip(
            named.items(), await asyncio.gather(*reports, return_exceptions=True), strict=True
        ):
            # One without a place does not answer.
            known = report if isinstance(report, dict) else {"is_shared": False, "node": ""}
            servers.append({"name": name.rpartition("#")[0], **known, "id": actor._actor_id.hex()})
        return {"servers": servers}

    async def end(self, actor: str, grace: float) -> dict[str, Any]:
        """End a host of any program."""
        handles = (await asyncio.to_thread(_named_actors)).values()
        found = [handle for handle in handles if handle._actor_id.hex() == actor]
        return {"stopped": all([await self._end(handle, grace) for handle in found])}

    async def _forget(self, host: int) -> None:
        """Kill the actor of a host, as soon as it was made."""
        making = self._actors.pop(host, None)
        if making is not None:
            await asyncio.wait((making,))
            if making.exception() is None:
                await self._kill(making.result())

    async def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            await asyncio.to_thread(ray.kill, actor, no_restart=True)


async def _answer(reference: Any) -> Any:
    return await reference


def _make_actor(options: dict[str, Any], about: dict[str, Any]) -> Any:
    node = options.pop("node", None)
    if node is not None:
        names = ("NodeID", "NodeManagerHostname", "NodeManagerAddress", "NodeName")
        found = [one["NodeID"] for one in _alive_nodes() if node in [one.get(name) for name in names]]
        if not found:
            raise ValueError(f"the Ray cluster has no node {node!r}")
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=found[0], soft=False)
    if about["is_shared"]:
        options |= {"lifetime": "detached", "get_if_exists": True}
    # A lost host is the program's business: Ray must start none again.
    options |= {"namespace": NAMESPACE, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(**options)(PlacedServerHost).remote(about)


def _named_actors() -> dict[str, Any]:
    found = {}
    for known in ray.util.list_named_actors(all_namespaces=True):
        if known["namespace"] == NAMESPACE:
            with contextlib.suppress(ValueError):
                found[known["name"]] = ray.get_actor(known["name"], namespace=NAMESPACE)
    return found


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def shortage(demand: dict[str, float]) -> str | None:
    """Why something that needs `demand` cannot be placed now; None if nothing is known to be missing."""
    nodes, free = _alive_nodes(), ray.available_resources()
    for name, amount in demand.items():
        needed = f"it needs {_amount_text(name, amount)} of the resource {name!r}"
        most = max((node["Resources"].get(name, 0) for node in nodes), default=0)
        if most < amount:
            has = f"has more than {_amount_text(name, most)}" if most else "has any"
            return f"no node of the Ray cluster can take it: {needed}, and none of the {len(nodes)} nodes {has}"
        if free.get(name, 0) + _UNIT / 2 < amount:
            left = f"{_amount_text(name, free.get(name, 0))} is left in the Ray cluster"
            return f"all of the resource {name!r} is in use: {needed}, and {left}"
    return None


def _amount_text(name: str, amount: float) -> str:
    return f"{amount / 2**20:,.0f} MiB" if name == "memory" else f"{amount:g}"


def first_line(error: BaseException) -> str:
    if isinstance(error, RayTaskError):
        # Of the actor itself; Ray's own text begins with where it was.
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    if isinstance(error, RuntimeEnvSetupError):
        # Below tracebacks of Ray's own code.
        return f"Ray could not set up its runtimeEnv: {lines[-1].strip()}"
    return lines[0] if lines else type(error).__name__


def tell(own: Any, **message: Any) -> None:
    own.write(json.dumps(message).encode() + b"\n")
    own.flush()


async def serve(own: Any) -> None:
    """Answer requests until the program closes the pipe. The hosts that are not shared end with this process."""
    member = Member(own)
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    under_way = set()
    while line := await reader.readline():
        message = json.loads(line)
        if message["op"] == "start":
            message["host"] = message["id"]
        task = asyncio.create_task(member.answer(message))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(ray.shutdown), _LEAVE_SECONDS)
    # Ray's own threads may hang without the cluster's head.
    os._exit(0)


def main() -> None:
    # Ray writes to standard output, too.
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR, namespace=NAMESPACE)
    except (RayError, OSError, ValueError, RuntimeError) as error:
        tell(own, problem=first_line(error))
        os._exit(1)
    tell(own)
    asyncio.run(serve(own))


if __name__ == "__main__":
    main()
