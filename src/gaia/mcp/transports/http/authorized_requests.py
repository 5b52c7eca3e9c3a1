"""Requests with an authorization: this library's, which adds one header, or one of httpx2, which may do anything.

An authorization may send a request again with another token, after the server has refused the first. Its work in
between may block, so it runs on threads of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gaia.http.connection import HttpConnection
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import Deadline, Job, run
from gaia.mcp.transports.base import RequestAuthorization
from gaia.mcp.transports.http.error_responses import wants_login
from gaia.runtime.threads import DaemonPool

if TYPE_CHECKING:
    import httpx2

_REVISION = "MCP-Protocol-Version"
_FRAMING = frozenset({"content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers about the framing of a message: neither library may repeat those of the other one."""


class _Hooks(NamedTuple):
    """See `HttpConnection.request`."""

    deadline: Deadline
    on_sending: Callable[[], None] | None = None
    on_status: Callable[[int], None] | None = None


class AuthorizedRequests:
    """Called like `HttpConnection.request`, with the connection. As thread-safe as the authorization is."""

    def __init__(self, authorization: RequestAuthorization | httpx2.Auth, threads: DaemonPool) -> None:
        """`threads` run the authorization's code."""
        self._authorization = authorization
        # Checked once, because an isinstance check of a protocol takes 30 µs.
        self._ours = authorization if isinstance(authorization, RequestAuthorization) else None
        self._threads = threads

    async def __call__(
        self,
        connection: HttpConnection,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline: Deadline = None,
        on_sending: Callable[[], None] | None = None,
        on_status: Callable[[int], None] | None = None,
    ) -> Response:
        """Raises the errors of `HttpConnection.request` and of the authorization.

        Requests that the authorization makes to other places use the same connection.
        """
        ours = self._ours
        if ours is None:
            hooks = _Hooks(deadline, on_sending, on_status)
            return await self._with_httpx(connection, method, url, headers, body, hooks)
        is_ready, login = ours.ready_login()
        flow = None if is_ready else _Flow(ours.login_flow(headers.get(_REVISION)), self._threads)
        try:
            if flow is not None:
                login = await flow.send(None)
            while True:
                sent = headers if login is None else {**headers, "Authorization": login}
                response = await connection.request(
                    method, url, sent, body, deadline=deadline, on_sending=on_sending, on_status=on_status
                )
                if not wants_login(response):
                    return response
                try:
                    said: tuple[int, str | None] = (response.status, response.headers.get("WWW-Authenticate"))
                    if flow is None:
                        flow = _Flow(ours.login_flow(headers.get(_REVISION)), self._threads)
                        first = await flow.send(None)
                        # If the flow begins with the login that was just refused, go on to its next one.
                        login = await flow.send(said) if first == login else first
                    else:
                        login = await flow.send(said)
                except EOFError:
                    return response
                except BaseException:
                    response.close()
                    raise
                await _finish(response)
        finally:
            if flow is not None:
                flow.close()

    async def _with_httpx(
        self,
        connection: HttpConnection,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes,
        hooks: _Hooks,
    ) -> Response:
        import httpx2

        auth = self._authorization
        assert isinstance(auth, httpx2.Auth), "what is not ours"
        original = httpx2.Request(method, str(url), headers=dict(headers), content=body or None)
        flow = _Flow(auth.sync_auth_flow(original), self._threads)
        try:
            outgoing = await flow.send(None)
            while True:
                # Other requests are the authorization's own.
                is_message = outgoing.method == original.method and outgoing.url == original.url
                response = await connection.request(
                    outgoing.method,
                    Url.parse(str(outgoing.url)),
                    {name: value for name, value in outgoing.headers.items() if name not in _FRAMING},
                    outgoing.read(),
                    **(hooks if is_message else _Hooks(hooks.deadline))._asdict(),
                    # Only the server itself may get the configured headers, which may be secret.
                    with_shared=is_message,
                )
                try:
                    outgoing = await flow.send(_as_httpx(response, outgoing))
                    await _finish(response)
                except EOFError:
                    return response
                except BaseException:
                    response.close()
                    raise
        finally:
            flow.close()


class _Flow:
    """A generator whose steps run on other threads."""

    def __init__(self, steps: Generator[Any, Any, None], threads: DaemonPool) -> None:
        self._steps: Generator[Any, Any, None] | None = steps
        self._threads = threads
        self._runs = False

    async def send(self, value: object) -> Any:
        """The next value of the generator; `value` is None at first. Raises EOFError at its end, and its exceptions."""
        steps = self._steps

        def step() -> Any:
            assert steps is not None, "the flow has not ended"
            try:
                return steps.send(value)
            except StopIteration:
                raise EOFError from None
            finally:
                self._runs = False

        self._runs = True
        try:
            return await Job(step, self._threads)
        except Exception:
            self._steps = None
            raise

    def close(self) -> None:
        """Close the generator on a thread that may wait. One that still runs is closed with its last reference."""
        steps, self._steps = self._steps, None
        if steps is not None and not self._runs:
            self._threads.submit(steps.close, keep=True)


async def _finish(response: Response) -> None:
    """Read the rest: only then can the connection be used again."""
    await response.read()
    response.close()


def _as_httpx(response: Response, request: httpx2.Request) -> httpx2.Response:
    import httpx2

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            # On the thread of the flow. The exchange waits for the flow meanwhile.
            yield run(response.read())

    headers = [
        (name, one)
        for name, value in response.headers.items()
        if name not in _FRAMING
        for one in (value.split("\n") if name == "set-cookie" else [value])
    ]
    converted = httpx2.Response(response.status, headers=headers, stream=Body(), request=request)
    # Not the server's charset: Python knows some that decompress (bz2) or take quadratic time.
    converted.encoding = "utf-8-sig"
    return converted
