"""The feature server with tools for tests of adapters: it keeps a ledger of the calls, and answers with pictures.

    python tests/servers/ledger_server.py LEDGER

Each call of `record`, `hold` and `read` appends its text to the file LEDGER, one line each, before it does anything
else: how often a line is there is how often the call was made, whatever became of the server.

- `record` answers. It is not safe to repeat.
- `hold` never answers: the test kills the server meanwhile. It is not safe to repeat.
- `read` is marked read-only. The first call of a text never answers, a repeated one does.
- `picture` answers with a text, an image, a recording, an embedded text, an embedded image, a link and a PDF document.
- `steps` reports progress twice before it answers.
- `figures` answers with structured content alone.
- `configure` has arguments whose names frameworks use themselves.
"""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

from gaia.mcp.demo_server import ADDITIVE, READ_ONLY, Call, Json, Tool, serve, structured_result, text_result
from tests.servers.feature_server import FeatureServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, as PNG in Base64."""
SOUND = base64.b64encode(b"12345").decode()
DOCUMENT = base64.b64encode(b"%PDF-1.7").decode()

TEXT = {"text": {"type": "string"}}


class LedgerServer(FeatureServer):
    """Writes the ledger."""

    def __init__(self, write: Callable[[bytes], None], ledger: Path) -> None:
        super().__init__(write)
        self._ledger = ledger
        names = {name: {"type": "string"} for name in ("config", "run_manager", "context", "self", "runtime", "name")}
        for tool in (
            Tool("record", "Append the text to the ledger.", TEXT, ADDITIVE, self._record),
            Tool("hold", "Append the text to the ledger, and never answer.", TEXT, ADDITIVE, self._hold),
            Tool("read", "Answer when the ledger has the text already.", TEXT, READ_ONLY, self._read),
            Tool("picture", "Show what results may contain.", {}, READ_ONLY, _picture),
            Tool("figures", "Answer with structured content.", {}, READ_ONLY, _figures),
            Tool("steps", "Report progress.", {}, READ_ONLY, _steps),
            Tool("configure", "Repeat the arguments.", names, READ_ONLY, _configure),
        ):
            self.tools[tool.name] = tool

    def _append(self, text: str) -> int:
        """How often the ledger has the text now."""
        with self._lock, self._ledger.open("a+", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.seek(0)
            return file.read().splitlines().count(text)

    def _record(self, _call: Call, text: str) -> Json:
        return text_result(f"recorded {text}, {self._append(text)} times")

    def _hold(self, call: Call, text: str) -> None:
        self._append(text)
        call.interrupted.wait()

    def _read(self, call: Call, text: str) -> Json | None:
        if self._append(text) == 1:
            call.interrupted.wait()
            return None
        return text_result(f"read {text}")


def _picture(_call: Call) -> Json:
    return {
        "content": [
            {"type": "text", "text": "one pixel"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": SOUND, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "demo://text", "mimeType": "text/plain", "text": "embedded"}},
            {"type": "resource", "resource": {"uri": "demo://image", "mimeType": "image/png", "blob": PIXEL}},
            {"type": "resource_link", "uri": "demo://greeting", "name": "greeting"},
            {"type": "resource", "resource": {"uri": "demo://a.pdf", "mimeType": "application/pdf", "blob": DOCUMENT}},
        ],
        "isError": False,
    }


def _figures(_call: Call) -> Json:
    return {**structured_result({"height": 2}), "content": []}


def _steps(call: Call) -> Json:
    for step in (1, 2):
        call.report_progress(step, 2)
    return text_result("2 steps")


def _configure(_call: Call, /, **arguments: str) -> Json:
    return structured_result(dict(arguments))


if __name__ == "__main__":
    sys.exit(serve(lambda write: LedgerServer(write, Path(sys.argv[1]))))
