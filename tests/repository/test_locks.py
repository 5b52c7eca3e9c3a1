"""Code of ours may be interrupted by code that uses it: by a signal handler, a finalizer, or a fork.

`gaia.runtime.locks` has the locks that stand that. The others are listed here, with the reason why they do.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "gaia"

FRAGILE = {"Lock", "RLock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "WeakSet"}

EXCEPTIONS = {
    "runtime/locks.py": "it makes them",
    "cli/bench.py": "threads of one command, of which the main thread is one",
    "mcp/demo_server.py": "a program of its own, with the standard library only",
    "mcp/client/ping.py": "threads of one command; its condition has a reentrant lock",
    "mcp/cluster/host_events.py": "in an actor, where no code of the application runs; it has a reentrant lock",
    "mcp/rpc/call.py": "taken without waiting, or by the one thread that waits for the call",
    "mcp/requests/input_requests.py": "taken without waiting, or by the one thread that waits",
    "mcp/transports/pipe_reader.py": "held for a slice by the loop that reads; no thread of a caller takes it",
    "mcp/transports/pipe_writer.py": "never waited for by a thread that has it: see `send`",
    "mcp/gateway/stdio.py": "waited for by the reading thread alone, which runs nothing of the application",
    "mcp/doctor/endpoint.py": "threads of one examination",
    "testing/fake_clock.py": "threads of a test",
    "testing/fake_session.py": "threads of a test",
    "testing/fake_state.py": "threads of a test",
}
"""Modules, by their paths."""


def uses_fragile_locks(module: Path) -> bool:
    attributes = (node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Attribute))
    return any(
        isinstance(node.value, ast.Name) and node.value.id in ("threading", "weakref") and node.attr in FRAGILE
        for node in attributes
    )


def test_other_modules_take_their_locks_from_one_place() -> None:
    modules = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    users = {name for name, path in modules.items() if uses_fragile_locks(path)}
    assert users == EXCEPTIONS.keys()
