"""`RequestRefused`: the error that a client's request is answered with."""

from __future__ import annotations

from typing import Any


class RequestRefused(Exception):
    """A request is answered with this error. The message is shown to the client, and holds no secret."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        """`status` is that of the HTTP response, if no part of the response was sent before."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
