"""A program with placed servers: its callers call them without a pause until its standard input ends.

It gets the servers' entries and all else as JSON in its first argument, see `main`. It writes a line of JSON when a
call begins, one when it has ended, and in the end one that says what was left behind.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from typing import Any

from gaia.mcp import MCPClient
from tests import leak_check

LONGEST = 0.2
"""Seconds that a server takes for a call at most, so that some calls are always under way."""

SAFE = 0.2
"""How many of the calls are of the tool that may be repeated."""

SHORT = 0.3
"""How many of the calls have a deadline that a pause exceeds."""

TIMEOUT, SHORT_TIMEOUT = 60.0, 1.0
"""Seconds."""


def tell(**message: Any) -> None:
    """One write, so that lines of several threads stay whole; what was written outlives this process."""
    os.write(1, json.dumps(message).encode() + b"\n")


def call_until(stopping: threading.Event, clients: list[MCPClient], name: str, numbers: Any, seed: str) -> None:
    """One caller."""
    chance = random.Random(seed)
    while not stopping.is_set():
        client, call = chance.choice(clients), f"{name}-{next(numbers)}"
        tool = "look" if chance.random() < SAFE else "note"
        timeout = SHORT_TIMEOUT if chance.random() < SHORT else TIMEOUT
        arguments = {"text": call, "seconds": chance.uniform(0, LONGEST)}
        tell(call=call, server=client.name, tool=tool, at=time.monotonic(), timeout=timeout)
        result = client.call_tool(tool, arguments, timeout=timeout)
        told, delivery, placement = result.get("error_type", "ok"), result.get("delivery"), client.status.placement
        place = None if placement is None else (placement.host_pid, placement.node_id)
        error = result.get("error") if told != "ok" else None
        tell(end=call, told=told, delivery=delivery, at=time.monotonic(), place=place, error=error)


def main() -> None:
    settings = json.loads(sys.argv[1])
    name, servers = settings["name"], settings["servers"]
    before = leak_check.Holdings.now()
    clients = [MCPClient.from_config(server, entry) for server, entry in servers.items()]
    for client in clients:
        # A server that is not there yet is waited for by its calls.
        client.connect(keep_trying=True)
    stopping, numbers = threading.Event(), itertools.count(1)
    callers = [
        threading.Thread(target=call_until, args=(stopping, clients, name, numbers, f"{name} {number}"))
        for number in range(settings["callers"])
    ]
    for caller in callers:
        caller.start()
    sys.stdin.read()
    stopping.set()
    for caller in callers:
        caller.join()
    for client in clients:
        client.disconnect()
    tell(left=leak_check.leaked_since(before).describe())


if __name__ == "__main__":
    main()
