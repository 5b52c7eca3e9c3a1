"""A server of one thread with replicas, under gaia-mcp.

It takes one command as `driving` does, of its own:

=========  ================================  ======================================================================
``do``     further keys                      answer
=========  ================================  ======================================================================
crowd      ``replicas``, ``seconds``,        ``calls`` answered within ``seconds`` by that many replicas, for four
           ``tool``, ``arguments``,          callers each; ``placement`` is that of the server
           ``placement``
=========  ================================  ======================================================================
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

_SERVER = [sys.executable, "-I", str(Path(__file__).with_name("working_server.py"))]
_CALLERS_PER_REPLICA = 4
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.02


def crowd(
    replicas: int, seconds: float, tool: str, arguments: dict[str, Any], placement: dict[str, Any] | None = None
) -> dict[str, Any]:
    from gaia.mcp.client import MCPClient

    entry: dict[str, Any] = {"command": _SERVER[0], "args": _SERVER[1:], "replicas": replicas, "stateless": True}
    if placement is not None:
        entry["placement"] = placement
    with MCPClient.from_config("it", entry) as client:
        deadline = time.monotonic() + _READY_SECONDS
        while sum(one.state.value == "ready" for one in client.status.replicas) < replicas:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{replicas} replicas were not ready in time")
            time.sleep(_LOOK_SECONDS)
        answered: list[int] = []
        began = time.perf_counter()

        def work() -> None:
            count = 0
            while time.perf_counter() - began < seconds:
                assert not client.call_tool(tool, arguments).is_error
                count += 1
            answered.append(count)

        threads = [threading.Thread(target=work) for _ in range(_CALLERS_PER_REPLICA * replicas)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"calls": sum(answered), "seconds": time.perf_counter() - began}


def main() -> None:
    # What the servers write must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        assert command.pop("do") == "crowd", "it does nothing else"
        try:
            answer = crowd(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
