"""Decides the era of a request, and compares the headers and ``_meta`` of the stateless era."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.gateway.messages import META, Params, RequestRefused
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, UNSUPPORTED_VERSION
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.protocol.request_headers import HEADER_MISMATCH, Path, parameter_text

SUPPORTED = (*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS)

_VERSION = f"{META}protocolVersion"
_CAPABILITIES = f"{META}clientCapabilities"
_VERSION_HEADER, _METHOD_HEADER, _NAME_HEADER = b"mcp-protocol-version", b"mcp-method", b"mcp-name"

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATELESS = frozenset(STATELESS_REVISIONS)


def is_stateless(headers: Mapping[bytes, bytes], meta: Mapping[str, Any]) -> bool:
    """Whether a request is of the stateless era. Raises `RequestRefused` for an unknown revision."""
    if _VERSION in meta:
        return True
    given = headers.get(_VERSION_HEADER)
    # Clients of revision 2025-03-26 and before do not send the header.
    if given is None:
        return False
    revision = given.decode("latin-1")
    if revision not in SUPPORTED:
        raise _unsupported(revision)
    return revision in _STATELESS


_string = msgspec.json.Decoder(str)


def check_metadata(
    headers: Mapping[bytes, bytes], method: str, params: Params, meta: Mapping[str, Any], *, is_request: bool
) -> None:
    """Compare a stateless message's headers with its body. Raises `RequestRefused`. Notifications need no ``_meta``."""
    version = meta.get(_VERSION)
    _compare("MCP-Protocol-Version", _trimmed(headers.get(_VERSION_HEADER)), version if is_request or version else None)
    if is_request:
        check_stateless(meta)
        _compare("Mcp-Method", _trimmed(headers.get(_METHOD_HEADER)), method)
        key = _NAMED_BY.get(method)
        if key is not None and key in params:
            _compare("Mcp-Name", _decoded(headers.get(_NAME_HEADER), "Mcp-Name"), _text(params[key]))


def check_stateless(meta: Mapping[str, Any]) -> None:
    """Check the ``_meta`` that every request of the stateless era needs. Raises `RequestRefused`."""
    version = meta.get(_VERSION)
    if not isinstance(version, str):
        raise _invalid(f"params._meta[{_VERSION!r}] has to be the revision")
    if version not in _STATELESS:
        raise _unsupported(version)
    if not isinstance(meta.get(_CAPABILITIES), dict):
        raise _invalid(f"params._meta[{_CAPABILITIES!r}] has to be an object, if only {{}}")


def check_parameters(headers: Mapping[bytes, bytes], marks: Mapping[Path, str], arguments: msgspec.Raw | None) -> None:
    """Compare a call's ``Mcp-Param-`` headers with its arguments, by the schema's `marks`. Raises `RequestRefused`."""
    try:
        values = None if arguments is None else json.loads(bytes(arguments), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"arguments: {error}") from None
    for path, mark in marks.items():
        name = f"Mcp-Param-{mark}"
        given = _decoded(headers.get(name.lower().encode()), name)
        value = parameter_text(values, path)
        if value is None and given is not None:
            raise _mismatch(f"{name} has no value in the body")
        _compare(name, given, value)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # If a key occurs twice, the server may take the value that was not compared with the header.
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice in one object")
    return found


def _compare(name: str, header: bytes | None, expected: Any) -> None:
    if expected is None:
        return
    if header is None:
        raise _mismatch(f"{name} is missing")
    given = header.decode("utf-8", "replace")
    if given != expected:
        text = f"{name} header value {given[:100]!r} does not match body value {str(expected)[:100]!r}"
        raise _mismatch(text)


def _text(raw: msgspec.Raw) -> Any:
    try:
        return _string.decode(raw)
    except msgspec.DecodeError as error:
        raise _invalid(f"no string: {error}") from None


def _trimmed(header: bytes | None) -> bytes | None:
    return None if header is None else header.strip()


def _decoded(header: bytes | None, name: str) -> bytes | None:
    """The value of a header, decoded if it is marked as Base64 ("Custom Headers")."""
    header = _trimmed(header)
    if header is None or not (header.startswith(b"=?base64?") and header.endswith(b"?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True)
    except binascii.Error:
        raise _mismatch(f"{name} is no valid Base64") from None


def _invalid(text: str) -> RequestRefused:
    return RequestRefused(INVALID_PARAMS, text, status=400)


def _mismatch(text: str) -> RequestRefused:
    return RequestRefused(HEADER_MISMATCH, f"Header mismatch: {text}", status=400)


def _unsupported(revision: str) -> RequestRefused:
    data = {"supported": list(SUPPORTED), "requested": revision[:100]}
    return RequestRefused(UNSUPPORTED_VERSION, "Unsupported protocol version", data, status=400)
