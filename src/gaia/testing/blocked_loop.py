"""Why nothing happens while a test waits on the thread of an event loop."""

from __future__ import annotations

import asyncio


def blocked_loop(method: str) -> str:
    """What the error of a wait ends with that has blocked the event loop of this thread; empty if there is none."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return f"; the event loop of this thread could not run meanwhile: await asyncio.to_thread({method}, …)"
