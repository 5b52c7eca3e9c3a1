"""Serves an `ApiAgent` as a model behind OpenAI's chat completions. Needs the extra ``gaia-mcp[serve]``.

- `app`: the routes, keep-alive comments, and the handling of disconnected clients.
- `chat_completions`: the fields of a request, and the documents of an answer.

Invariants: an agent answers on a worker thread, never on the event loop. A client's disconnection cancels the work. The
client gets a general message about a failure; the log gets the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gaia.serving.loading import require

if TYPE_CHECKING:
    from gaia.agents.base import ApiAgent
    from gaia.serving.options import HttpOptions

__all__ = ["serve_api"]


def serve_api(agents: Iterable[ApiAgent], options: HttpOptions | None = None, **limits: Any) -> None:
    """Serve `agents` at ``http://host:port/v1`` until the process is told to end."""
    require("starlette", "uvicorn", "httptools")
    from gaia.api.app import serve

    serve(agents, options, **limits)
