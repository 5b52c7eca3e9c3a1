"""Code of ours may be interrupted by code that uses it: by a signal handler, a finalizer, or a fork.

`gaia.runtime.locks` has the locks that stand that. The others are listed here, with the reason why they do.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "gaia"

FRAGILE = re.compile(
    r"(?<!`)\b(threading\.(Lock|RLock|Event|Condition|Semaphore|BoundedSemaphore|Barrier)|weakref\.WeakSet)\b(?!`)"
)

EXCEPTIONS = {
    "runtime/locks.py": "it makes them",
    "cli/bench.py": "threads of one command, of which the main thread is one",
    "mcp/demo_server.py": "a program of its own, with the standard library only",
    "mcp/client/ping.py": "threads of one command; its condition has a reentrant lock",
    "mcp/rpc/call.py": "taken without waiting, or by the one thread that waits for the call",
    "mcp/transports/pipe_reader.py": "held for a slice by the loop that reads; no thread of a caller takes it",
    "mcp/transports/pipe_writer.py": "never waited for by a thread that has it: see `send`",
    "mcp/gateway/stdio.py": "waited for by the reading thread alone, which runs nothing of the application",
    "mcp/doctor/endpoint.py": "threads of one examination",
    "testing/fake_clock.py": "threads of a test",
    "testing/fake_http.py": "threads of a test",
    "testing/fake_session.py": "threads of a test",
    "testing/fake_state.py": "threads of a test",
}
"""Modules, by their paths."""


def test_other_modules_take_their_locks_from_one_place() -> None:
    modules = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert {name for name, text in modules.items() if FRAGILE.search(text)} == EXCEPTIONS.keys()
