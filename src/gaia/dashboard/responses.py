"""The dashboard's HTTP responses: JSON, server-sent events, and headers that make untrusted text harmless."""

from __future__ import annotations

import json
from typing import Any

import orjson
from starlette.responses import Response

HEADERS = {
    # Scripts and styles come only from gaia's own files, connections go only to this server, and text never becomes
    # markup.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def encode(value: Any) -> bytes:
    """`value` as JSON, even if the fast encoder rejects it."""
    try:
        return orjson.dumps(value, default=str)
    except TypeError:
        # For integers over 64 bits and lone surrogates.
        return json.dumps(value, default=str).encode()


def document(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def problem(status: int, message: str) -> Response:
    return document({"error": {"message": message}}, status)


def event(kind: str, data: Any) -> bytes:
    """One server-sent event. Encoded JSON has no line breaks, so a single ``data`` line is enough."""
    return b"event: " + kind.encode() + b"\ndata: " + encode(data) + b"\n\n"
