"""A server that notes each call before it does anything else, however many there are.

    python tests/servers/noting_server.py LEDGER

Both tools append a line with their text and the time of the monotonic clock to the file LEDGER, and answer after so
many seconds. `note` is not safe to repeat, and `look` is.
"""

import os
import sys
import time
from collections.abc import Callable

from gaia.mcp.demo_server import ADDITIVE, READ_ONLY, Call, Json, Tool, serve, text_result
from tests.servers.feature_server import FeatureServer

ARGUMENTS = {"text": {"type": "string"}, "seconds": {"type": "number"}}


class NotingServer(FeatureServer):
    """Writes the ledger."""

    def __init__(self, write: Callable[[bytes], None], ledger: int) -> None:
        super().__init__(write)
        self._ledger = ledger
        self.tools = {
            "note": Tool("note", "Note the text, and answer later.", ARGUMENTS, ADDITIVE, self._note),
            "look": Tool("look", "The same, but it may be repeated.", ARGUMENTS, READ_ONLY, self._note),
        }

    def _note(self, call: Call, text: str, seconds: float) -> Json:
        # One write, so that lines of several threads stay whole; what was written outlives this process.
        os.write(self._ledger, f"{text} {time.monotonic()}\n".encode())
        call.interrupted.wait(seconds)
        return text_result(text)


if __name__ == "__main__":
    ledger = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.exit(serve(lambda write: NotingServer(write, ledger)))
