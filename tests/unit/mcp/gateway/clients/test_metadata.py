"""Headers and ``_meta`` of requests."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gaia.mcp.gateway.clients.metadata import check_metadata, check_parameters, is_stateless
from gaia.mcp.gateway.messages import RequestRefused

VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: "2026-07-28", CAPABILITIES: {}}
HEADERS = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"echo"}
PARAMS = {"name": msgspec.Raw(b'"echo"')}


def code_of(headers: Mapping[bytes, bytes], meta: Mapping[str, Any] = META, name: bytes = b'"echo"') -> int:
    with pytest.raises(RequestRefused) as refused:
        check_metadata(headers, "tools/call", {"name": msgspec.Raw(name)}, meta, is_request=True)
    assert refused.value.status == 400
    return refused.value.code


def test_the_era_is_told_by_the_body_or_by_the_header() -> None:
    assert is_stateless({}, META)
    assert is_stateless({b"mcp-protocol-version": b"2026-07-28"}, {})
    assert not is_stateless({b"mcp-protocol-version": b"2025-11-25"}, {})
    assert not is_stateless({}, {})
    with pytest.raises(RequestRefused) as refused:
        is_stateless({b"mcp-protocol-version": b"1999-01-01"}, {})
    assert refused.value.code == -32022
    assert "2026-07-28" in refused.value.data["supported"]


def test_headers_that_agree_with_the_body_pass() -> None:
    check_metadata(HEADERS, "tools/call", PARAMS, META, is_request=True)
    encoded = {**HEADERS, b"mcp-name": b"=?base64?" + base64.b64encode(b"echo") + b"?="}
    check_metadata(encoded, "tools/call", PARAMS, META, is_request=True)
    spaced = {**HEADERS, b"mcp-method": b"tools/call ", b"mcp-name": b"=?base64?" + base64.b64encode(b" a ") + b"?="}
    check_metadata(spaced, "tools/call", {"name": msgspec.Raw(b'" a "')}, META, is_request=True)
    check_metadata({}, "notifications/cancelled", {}, {}, is_request=False)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"mcp-protocol-version", b"2025-11-25"),
        (b"mcp-protocol-version", None),
        (b"mcp-method", b"Tools/Call"),
        (b"mcp-method", None),
        (b"mcp-name", b"other"),
        (b"mcp-name", None),
        (b"mcp-name", b"=?base64?!!!?="),
        (b"mcp-name", b"=?base64?" + base64.b64encode(b" echo") + b"?="),
    ],
)
def test_headers_that_do_not_are_refused(header: bytes, value: bytes | None) -> None:
    headers = {key: text for key, text in {**HEADERS, header: value}.items() if text is not None}
    assert code_of(headers) == -32020


def test_what_every_request_has_to_carry() -> None:
    assert code_of(HEADERS, {CAPABILITIES: {}}) == -32602
    assert code_of(HEADERS, {VERSION: "2026-07-28"}) == -32602
    old = {**HEADERS, b"mcp-protocol-version": b"1999-01-01"}
    assert code_of(old, {**META, VERSION: "1999-01-01"}) == -32022
    assert code_of(HEADERS, name=b"17") == -32602


MARKS = {("region",): "Region", ("at", "level"): "Level"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu", "at": {"level": 3}}, {b"mcp-param-region": b"eu", b"mcp-param-level": b"3"}),
        ({"region": None}, {}),
        ({}, {}),
    ],
)
def test_arguments_that_are_repeated_in_headers_agree(arguments: dict[str, Any], headers: dict[bytes, bytes]) -> None:
    check_parameters(headers, MARKS, msgspec.Raw(msgspec.json.encode(arguments)))


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {b"mcp-param-region": b"us"}),
        ({}, {b"mcp-param-region": b"eu"}),
        ({"region": "Hello"}, {b"mcp-param-region": b"=?base64?SGVsbG8?="}),
    ],
)
def test_arguments_that_do_not_are_refused(arguments: dict[str, Any], headers: dict[bytes, bytes]) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_parameters(headers, MARKS, msgspec.Raw(msgspec.json.encode(arguments)))
    assert (refused.value.code, refused.value.status) == (-32020, 400)


@pytest.mark.parametrize(
    "arguments", [b'{"region":"eu","region":"us"}', b'{"region":"us","at":{"level":3,"level":4}}', b"[" * 99999]
)
def test_arguments_with_two_values_of_one_key_are_refused(arguments: bytes) -> None:
    """A server may take the one that no header names."""
    with pytest.raises(RequestRefused) as refused:
        check_parameters({b"mcp-param-region": b"us"}, {("region",): "Region"}, msgspec.Raw(arguments))
    assert (refused.value.code, refused.value.status) == (-32602, 400)
