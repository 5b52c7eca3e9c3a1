"""Requests with an authorization of httpx2: its steps, made over our own connections. Needs httpx2."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx2

from gaia.http_client import Deadline, HttpConnection, Response, Url

__all__ = ["AuthorizedRequests"]

_MADE_BY_THE_CONNECTION = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers of a request."""
_MADE_ANEW = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers of a response: its content is decompressed."""


class AuthorizedRequests:
    """See `gaia.mcp.client.transports.http.http_session.SendRequest`. Thread-safe if the authorization is."""

    def __init__(self, auth: httpx2.Auth) -> None:
        self._auth = auth

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
        """As `HttpConnection.request`, and what the authorization raises.

        The authorization may send the request several times, and requests of its own in between; only for the former
        are `on_sending` and `on_status` called.
        """
        original = httpx2.Request(method, str(url), headers=dict(headers), content=body)
        flow = self._auth.sync_auth_flow(original)
        try:
            request = next(flow)
            while True:
                is_original = request is original
                response = connection.request(
                    request.method,
                    Url.parse(str(request.url)),
                    _headers_of(request),
                    request.read(),
                    deadline=deadline,
                    on_sending=on_sending if is_original else None,
                    on_status=on_status if is_original else None,
                )
                try:
                    content = response.read() if self._auth.requires_response_body else None
                    try:
                        request = flow.send(_converted(response, request, content))
                    except StopIteration:
                        return response
                    # Only a connection whose response is read can be used again.
                    response.read()
                except BaseException:
                    response.close()
                    raise
                response.close()
        finally:
            flow.close()


def _headers_of(request: httpx2.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in _MADE_BY_THE_CONNECTION}


def _converted(response: Response, request: httpx2.Request, content: bytes | None) -> httpx2.Response:
    """What an authorization looks at."""
    headers = {name: value for name, value in response.headers.items() if name not in _MADE_ANEW}
    return httpx2.Response(response.status, headers=headers, request=request, content=content)
