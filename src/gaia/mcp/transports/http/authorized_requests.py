"""Requests with an authorization: gaia's, which adds one header, or one of httpx2, which may change the whole request.

An authorization may send a request again with another token, after the server has refused the first. Its work in
between may block, so it runs on separate threads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gaia.http.connection import HttpConnection
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import Job, run
from gaia.mcp.transports.base import RequestAuthorization
from gaia.mcp.transports.http.error_responses import wants_login
from gaia.runtime.threads import DaemonPool

if TYPE_CHECKING:
    import httpx2

_REVISION = "MCP-Protocol-Version"
_FRAMING = frozenset({"content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers about the framing of a message. Neither library may repeat the other's."""


class _Request(NamedTuple):
    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes


_Steps = Generator[tuple[_Request, bool], Response, None]
"""Yields each request to send, and whether it is the message or the authorization's own; gets its response."""


class AuthorizedRequests:
    """Called like `HttpConnection.request`, with the connection. As thread-safe as the authorization is."""

    def __init__(self, authorization: RequestAuthorization | httpx2.Auth, threads: DaemonPool) -> None:
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
        **hooks: Any,
    ) -> Response:
        """Raises as `HttpConnection.request` and the authorization do, whose own requests use the same connection."""
        ours, response = self._ours, None
        if ours is None:
            steps = _steps_of_httpx(self._authorization, _Request(method, url, headers, body))
        else:
            is_ready, login = ours.ready_login()
            if is_ready:
                sent = headers if login is None else {**headers, "Authorization": login}
                response = await connection.request(method, url, sent, body, **hooks)
                if not wants_login(response):
                    return response
            steps = _steps_of_ours(ours, _Request(method, url, headers, body), login, response)
        flow, told = _Flow(steps, self._threads), None
        try:
            while True:
                try:
                    request, is_message = await flow.send(told)
                except EOFError:
                    assert response is not None, "each authorization sends the message"
                    return response
                except BaseException:
                    if response is not None:
                        response.close()
                    raise
                if response is not None:
                    # Only after its end can the connection be used again.
                    await response.read()
                    response.close()
                its_hooks = hooks if is_message else {"deadline": hooks.get("deadline")}
                # Only the server itself may get the configured headers, which may be secret.
                response = told = await connection.request(*request, **its_hooks, with_shared=is_message)
                if ours is not None and not wants_login(response):
                    return response
        finally:
            flow.close()


def _steps_of_ours(
    authorization: RequestAuthorization, message: _Request, refused_login: str | None, refused: Response | None
) -> _Steps:
    """`refused` is the response to the message with `refused_login`, if it was sent before."""
    flow = authorization.login_flow(message.headers.get(_REVISION))
    try:
        login = next(flow)
        while True:
            # If the flow begins with the login that was just refused, go on to its next one.
            if refused is None or login != refused_login:
                headers = message.headers if login is None else {**message.headers, "Authorization": login}
                refused = yield message._replace(headers=headers), True
            login = flow.send((refused.status, refused.header(b"www-authenticate")))
            refused = None
    except StopIteration:
        return
    finally:
        flow.close()


def _steps_of_httpx(auth: object, message: _Request) -> _Steps:
    import httpx2

    assert isinstance(auth, httpx2.Auth), "what is not ours"
    original = httpx2.Request(
        message.method, str(message.url), headers=dict(message.headers), content=message.body or None
    )
    flow = auth.sync_auth_flow(original)
    try:
        outgoing = next(flow)
        while True:
            headers = {name: value for name, value in outgoing.headers.items() if name not in _FRAMING}
            request = _Request(outgoing.method, Url.parse(str(outgoing.url)), headers, outgoing.read())
            response = yield request, (outgoing.method, outgoing.url) == (original.method, original.url)
            outgoing = flow.send(_as_httpx(response, outgoing))
    except StopIteration:
        return
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


def _as_httpx(response: Response, request: httpx2.Request) -> httpx2.Response:
    import httpx2

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            # On the thread of the flow. The exchange waits for the flow meanwhile.
            yield run(response.read())

    headers = [
        (name, one)
        for name, value in (
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.items()
        )
        if name not in _FRAMING
        for one in (value.split("\n") if name == "set-cookie" else [value])
    ]
    converted = httpx2.Response(response.status, headers=headers, stream=Body(), request=request)
    # Not the server's charset: Python knows some that decompress (bz2) or take quadratic time.
    converted.encoding = "utf-8-sig"
    return converted
