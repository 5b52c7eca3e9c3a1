"""What comes from other threads goes on in the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

from gaia.mcp.gateway.upstream.rounds import Rounds
from gaia.mcp.gateway.upstream.server_link import ServerLink
from gaia.runtime.loop_work import running_loop_work


def test_a_function_runs_on_the_loop_and_at_once_if_that_is_where_it_is_called() -> None:
    async def use() -> None:
        client: Any = Mock()
        link = ServerLink(client, Rounds(), running_loop_work())
        seen: list[tuple[str, int]] = []
        arrived = asyncio.Event()

        def note(word: str) -> None:
            seen.append((word, threading.get_ident()))
            arrived.set()

        here, run = threading.get_ident(), link.on_loop(note)
        run("at once")
        assert seen == [("at once", here)]
        arrived.clear()
        await asyncio.get_running_loop().run_in_executor(None, run, "from a thread")
        await arrived.wait()
        assert seen[1:] == [("from a thread", here)]

    asyncio.run(use())
