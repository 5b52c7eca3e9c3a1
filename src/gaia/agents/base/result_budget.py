"""The result budget: a long tool result reaches the model as its head and its tail.

The full text is in a private file, whose path the model is given: a tool that reads files can look further.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from gaia.runtime.locks import reentrant_lock

_HEAD_SHARE = 2 / 3


def text_of_result(result: Any) -> str:
    """What a model reads of what a tool returned: a text as it is, anything else as JSON where that is possible."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text, or a structure that contains itself.
        return repr(result)


class ResultBudget:
    """Shortens texts of more than `max_bytes` bytes of UTF-8. Thread-safe.

    Full texts are kept in `directory`, or else in a temporary directory that goes with this object or the process.
    """

    def __init__(self, max_bytes: int, directory: str | os.PathLike[str] | None = None) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_result_bytes must be positive, not {max_bytes}")
        self.max_bytes = max_bytes
        self._directory = None if directory is None else Path(directory)
        self._lock = reentrant_lock()

    def fit(self, text: str, tool: str) -> str:
        """`text` itself if it is short enough, else its head and its tail around a note that says where all of it is.

        Head and tail together have at most `max_bytes` bytes; the note comes on top.
        """
        # JSON can carry lone surrogates, which UTF-8 proper cannot, and which no endpoint would accept.
        data = text.encode("utf-8", "replace")
        if len(data) <= self.max_bytes:
            return data.decode()
        head = int(self.max_bytes * _HEAD_SHARE)
        tail = self.max_bytes - head
        omitted = len(data) - self.max_bytes
        return (
            data[:head].decode("utf-8", "ignore")
            + f"\n\n[… {omitted} of {len(data)} bytes left out; {self._whereabouts(data, tool)} …]\n\n"
            + data[len(data) - tail :].decode("utf-8", "ignore")
        )

    def _whereabouts(self, data: bytes, tool: str) -> str:
        try:
            return f"the full text is in {self._save(data, tool)}"
        except OSError as error:
            # A full disk makes the result shorter, not the call fail.
            return f"the full text could not be saved: {error.strerror or error}"

    def _save(self, data: bytes, tool: str) -> Path:
        safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in tool)[:64]
        # mkstemp makes a file that only its owner may read, and never follows a link that waits under its name.
        descriptor, path = tempfile.mkstemp(prefix=f"{safe}-", suffix=".txt", dir=self._folder())
        with open(descriptor, "wb") as file:
            file.write(data)
        return Path(path)

    def _folder(self) -> Path:
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="gaia-results-"))
                weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
            else:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._directory
