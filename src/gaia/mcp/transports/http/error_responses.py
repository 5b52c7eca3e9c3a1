"""Interprets HTTP responses whose body is not an MCP message, and makes their errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import orjson

from gaia.http.response import Response
from gaia.http.url import Url
from gaia.mcp.errors import HttpError, NeedsAuthorization
from gaia.mcp.protocol.messages import ErrorResponse, NotAMessage, decode

_KNOWN = frozenset(HTTPStatus)
_EXCERPT_CHARACTERS = 200
_MAX_SEARCHED = 4096
"""Characters of a body that are searched for markup, because the search takes quadratic time."""

_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>|\s+", re.DOTALL | re.IGNORECASE)


def error_in(body: bytes) -> ErrorResponse | None:
    try:
        message = decode(body)
    except NotAMessage:
        return None
    return message if isinstance(message, ErrorResponse) else None


def code_of(error: ErrorResponse) -> Any:
    return error.error.get("code") if isinstance(error.error, dict) else None


def is_forgotten(response: Response, session_id: str | None, error: ErrorResponse | None = None) -> bool:
    """Whether the server says that the session does not exist. `error` answers no request."""
    if session_id is None:
        return False
    if response.status == HTTPStatus.BAD_REQUEST and error is not None and isinstance(error.error, dict):
        # Not in the specification, but the examples of the TypeScript SDK do it.
        return "session" in str(error.error.get("message")).lower()
    return response.status == HTTPStatus.NOT_FOUND


def wants_login(response: Response) -> bool:
    status = response.status
    # Numbers, because every call checks this, and reading a member of `HTTPStatus` takes as long as a call of a
    # function.
    return status == 401 or (status == 403 and b"www-authenticate" in response.headers)


def with_id(error: ErrorResponse, identifier: int) -> bytes:
    """The error as the answer to a request: servers that refuse a request early have not read its id."""
    return orjson.dumps({"jsonrpc": "2.0", "id": identifier, "error": error.error})


def refusal(response: Response, url: Url, body: bytes, server: str, redact: Callable[[str], str]) -> HttpError:
    status = response.status
    phrase = f" {HTTPStatus(status).phrase}" if status in _KNOWN else ""
    said = f"the server answered {status}{phrase}{excerpt(body, redact)}"
    if wants_login(response):
        return NeedsAuthorization(f"{said}; see to the credentials in the configuration of {server!r}", status=status)
    if b"location" in response.headers and 300 <= status < 400:
        target = redirect_target(response, url)
        # Without parts that may be secret.
        place = "nowhere" if target is None else target.without_query()
        said += f"; it redirects to {place}, which is not followed: give that as the url if you trust it"
    return HttpError(said, status=status)


def excerpt(body: bytes, redact: Callable[[str], str]) -> str:
    """The beginning of a body without markup, to append to a message."""
    # Secrets are masked in the whole body, because half of a secret is not recognised; and again without the markup,
    # which may separate the parts of a secret.
    beginning = redact(body.decode("utf-8", "replace"))[:_MAX_SEARCHED]
    text = " ".join(redact(_MARKUP.sub(" ", beginning)).split())
    if not text:
        return ""
    return f": {text[:_EXCERPT_CHARACTERS]}{'…' if len(text) > _EXCERPT_CHARACTERS else ''}"


def redirect_target(response: Response, url: Url) -> Url | None:
    location = response.header(b"location")
    try:
        return url.join(location) if location else None
    except ValueError:
        return None
