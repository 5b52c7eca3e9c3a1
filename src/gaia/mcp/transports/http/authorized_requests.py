"""Requests with an authorization: ours, which adds one header, or one of httpx2, which may do anything.

An authorization may send a request twice: the second time with another token, after the server has refused the first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gaia.http import Deadline, HttpConnection, Response, Url
from gaia.mcp.transports.base import RequestAuthorization

if TYPE_CHECKING:
    import httpx2

_REVISION = "MCP-Protocol-Version"
_FRAMING = frozenset({"content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that say how a message was sent: neither library may repeat those of the other one."""


class _Request(NamedTuple):
    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes
    is_message: bool = True
    """Whether it is the request itself, instead of one that the authorization makes for its own purposes."""


_Flow = Generator[_Request, Response, None]
"""Yields requests, and is sent the response to each; the last one is that of the message."""


class AuthorizedRequests:
    """Called as `HttpConnection.request`, with the connection. Thread-safe, as far as the authorization is."""

    def __init__(self, authorization: RequestAuthorization | httpx2.Auth) -> None:
        self._flow: Callable[[_Request], _Flow]
        if isinstance(authorization, RequestAuthorization):
            self._flow = partial(_with_login, authorization)
        else:
            self._flow = partial(_with_httpx, authorization)

    def __call__(
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
        """Raises what `HttpConnection.request` and the authorization do.

        Requests that the authorization makes elsewhere use the same connection.
        """
        flow = self._flow(_Request(method, url, headers, body))
        try:
            request = next(flow)
            while True:
                response = connection.request(
                    *request[:4],
                    deadline=deadline,
                    on_sending=on_sending if request.is_message else None,
                    on_status=on_status if request.is_message else None,
                    # The configured headers, which may be secret, are for the server alone.
                    with_shared=request.is_message,
                )
                try:
                    request = flow.send(response)
                    # Only a connection whose response is read can be used again.
                    response.read()
                except StopIteration:
                    return response
                except BaseException:
                    response.close()
                    raise
                response.close()
        finally:
            flow.close()


def _with_login(authorization: RequestAuthorization, request: _Request) -> _Flow:
    flow = authorization.login_flow(request.headers.get(_REVISION))
    login = next(flow)
    while True:
        headers = request.headers if login is None else {**request.headers, "Authorization": login}
        response = yield request._replace(headers=headers)
        try:
            login = flow.send((response.status, response.headers.get("WWW-Authenticate")))
        except StopIteration:
            return


def _with_httpx(auth: httpx2.Auth, request: _Request) -> _Flow:
    import httpx2

    original = httpx2.Request(
        request.method, str(request.url), headers=dict(request.headers), content=request.body or None
    )
    flow = auth.sync_auth_flow(original)
    try:
        outgoing = next(flow)
        while True:
            response = yield _Request(
                outgoing.method,
                Url.parse(str(outgoing.url)),
                {name: value for name, value in outgoing.headers.items() if name not in _FRAMING},
                outgoing.read(),
                is_message=outgoing.method == original.method and outgoing.url == original.url,
            )
            outgoing = flow.send(_as_httpx(response, outgoing))
    except StopIteration:
        return
    finally:
        flow.close()


def _as_httpx(response: Response, request: httpx2.Request) -> httpx2.Response:
    import httpx2

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield response.read()

    headers = [
        (name, one)
        for name, value in response.headers.items()
        if name not in _FRAMING
        for one in (value.split("\n") if name == "set-cookie" else [value])
    ]
    converted = httpx2.Response(response.status, headers=headers, stream=Body(), request=request)
    # The charset is the server's choice, too, and Python knows some that decompress (bz2) or take quadratic time.
    converted.encoding = "utf-8-sig"
    return converted
