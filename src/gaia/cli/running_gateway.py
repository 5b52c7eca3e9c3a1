"""Reads the status of a running gateway, for `gaia mcp list` and `gaia mcp watch`."""

from __future__ import annotations

import contextlib
import http.client
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from typer import Argument, Option

from gaia.cli.terminal import CommandFailed, usage_error
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.gateway.operations.status import GatewayStatus

UrlArgument = Annotated[
    str | None, Argument(metavar="[URL]", help="A gateway that runs, such as http://127.0.0.1:8765/mcp.")
]
TokenOption = Annotated[
    str | None, Option(envvar="GAIA_GATEWAY_TOKEN", help="For the gateway. Better set GAIA_GATEWAY_TOKEN.")
]

_SECONDS = 10.0
_MAX_BYTES = 64 * 1024 * 1024


def fetch_status(url: str, token: str | None, limit: float | None = None) -> GatewayStatus:
    """The status of the gateway at `url`. Raises CommandFailed. Follows no redirect: the token is for this gateway."""
    import msgspec

    from gaia.mcp.gateway.operations.status import GatewayStatus

    seconds = limit or _SECONDS
    answer: Future[tuple[int, bytes]] = Future()

    def get() -> None:
        try:
            answer.set_result(_get(url, token, seconds))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            answer.set_exception(error)

    # A thread, because a name lookup has no deadline, and a socket's timeout starts again with each byte.
    threading.Thread(target=get, name="gaia-status", daemon=True).start()
    try:
        status, body = answer.result(seconds)
    except TimeoutError as error:
        message = f"{url} cannot be reached: there was no complete answer within {seconds:g} s"
        raise CommandFailed(message, error_type="gateway_unreachable") from error
    if status in (401, 403):
        raise CommandFailed(
            f"{url} does not let this client in (status {status})",
            hint="Set GAIA_GATEWAY_TOKEN to the token that `gaia mcp gateway add-client` has printed.",
            error_type="unauthorized",
        )
    try:
        if status != 200:
            raise ValueError(f"answers with status {status}")
        return msgspec.json.decode(body, type=GatewayStatus)
    except ValueError as error:
        raise CommandFailed(
            f"{url} is no gateway of gaia-mcp, or of another version: {error}",
            hint="The URL of a gateway ends with /mcp; `gaia mcp gateway` writes it when it starts.",
            error_type="no_gateway",
        ) from error


def _get(url: str, token: str | None, seconds: float) -> tuple[int, bytes]:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError("a URL begins with http:// or https:// and a host")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=seconds)
    except ValueError as error:
        raise usage_error(f"{url!r} is no URL of a gateway: {error}") from error
    with contextlib.closing(connection):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # The endpoint is at /mcp, perhaps below the path of a proxy or an application. /status is beside it.
        before, _, _ = parts.path.partition("/mcp")
        try:
            connection.request("GET", f"{before.rstrip('/')}/status", headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_MAX_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise CommandFailed(f"{url} cannot be reached: {reason}", error_type="gateway_unreachable") from error


def rows_of(status: GatewayStatus) -> list[dict[str, object]]:
    return [
        {
            "name": server.name,
            "state": server.state.value,
            "tools": server.tool_count if server.tool_count or server.state.value == "ready" else None,
            "source": None,
            "error": server.last_error,
            "waited": None,
        }
        for server in status.servers
    ]


def summary_of(status: GatewayStatus) -> str:
    name = f"Gateway {one_line(status.name)}: " if status.name else ""
    running = sum(session.running for session in status.sessions)
    words = [f"{status.session_count} of at most {status.max_sessions} sessions, {running} requests under way in them"]
    if status.is_draining:
        words.append("stopping")
    if status.reload is not None and status.reload.error is not None:
        words.append(f"configuration refused: {one_line(status.reload.error)}")
    return name + ", ".join(words)
