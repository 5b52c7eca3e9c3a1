"""A server that notes in a file which calls it has executed, and when.

    python tests/servers/timed_server.py FILE

Each call of `note` appends its text and a reading of the monotonic clock, which all processes of a machine share.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from gaia.mcp.demo_server import ADDITIVE, Call, DemoServer, Json, Tool, serve, text_result


class TimedServer(DemoServer):
    def __init__(self, write: Callable[[bytes], None], file: Path) -> None:
        super().__init__(write)
        self._file = file
        note = Tool("note", "Note the text and the time.", {"text": {"type": "string"}}, ADDITIVE, self._note)
        self.tools[note.name] = note

    def _note(self, _call: Call, text: str) -> Json:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{text} {time.monotonic()}\n")
        return text_result(text)


if __name__ == "__main__":
    sys.exit(serve(lambda write: TimedServer(write, Path(sys.argv[1]))))
