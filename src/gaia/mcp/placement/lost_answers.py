"""`LostAnswers`: calls whose connection to a host broke, until it is known whether the host has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import Signal
from gaia.http.url import Url
from gaia.mcp.errors import AnswerLost, MCPError
from gaia.mcp.placement.lease import LEASE_PATH
from gaia.mcp.rpc.channel import ChannelListener
from gaia.runtime.locks import reentrant_lock

_ANSWER_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 0.25


class LostAnswers:
    """A listener before the one of the application's connection.

    A host that lives may be sent such a call again, so its failure is passed on when the host has answered a question.
    At a host that has ended the repeat would be lost, too: the failure is kept back until the channel has ended. That
    takes the call back as one of a lost server, to be repeated at the next host.
    """

    def __init__(self, listener: ChannelListener, ask: Callable[[], object]) -> None:
        """`ask` has to begin `settle`. For any thread."""
        self.message_received = listener.message_received
        self.channel_ended = listener.channel_ended
        self.awaits_answers = listener.awaits_answers
        self._pass_on = listener.request_failed
        self._ask = ask
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._kept: list[tuple[int, MCPError]] = []
        self._is_asking = False

    def request_failed(self, call_id: int, error: MCPError) -> None:
        if not isinstance(error, AnswerLost):
            self._pass_on(call_id, error)
            return
        with self._lock:
            self._kept.append((call_id, error))
            is_asking, self._is_asking = self._is_asking, True
        if not is_asking:
            self._ask()

    async def settle(self, connection: HttpConnection, host: str, leaving: Signal) -> None:
        """Ask the host at the URL `host` until it answers, and pass on what was kept before the question."""
        url = Url.parse(host + LEASE_PATH)
        try:
            while True:
                with self._lock:
                    kept = len(self._kept)
                    if not kept:
                        self._is_asking = False
                        return
                if await _answers(connection, url):
                    with self._lock:
                        passed, self._kept = self._kept[:kept], self._kept[kept:]
                    for call_id, error in passed:
                        self._pass_on(call_id, error)
                elif await leaving.within(_ASK_AGAIN_SECONDS):
                    return
        finally:
            connection.close()


async def _answers(connection: HttpConnection, url: Url) -> bool:
    try:
        with await connection.request("GET", url, {}, b"", deadline=time.monotonic() + _ANSWER_SECONDS) as response:
            await response.read()
            return bool(response.status == 200)
    except OSError:
        return False
