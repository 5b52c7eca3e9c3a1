"""Errors of servers, as clients get them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from gaia.mcp.errors import AnswerLost, CallTimeout, JsonRpcError, MCPError, Overloaded, ServerUnavailable, ToolDenied
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.circuit import CircuitOpen
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.methods.relaying import fail


class Request:
    def __init__(
        self,
        *,
        is_stateless: bool = True,
        principal: Principal | None = None,
        checks: Checks | None = None,
        method: str = "tools/call",
        params: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.view = SimpleNamespace(checks=checks or Checks())
        self.principal = principal
        self.is_stateless = is_stateless
        self.method = method
        self.params = params
        self.answer: tuple[int, str, Any, int] | None = None
        self.result: dict[str, Any] | None = None

    def succeed(self, result: bytes) -> None:
        self.result = orjson.loads(result)

    def fail(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        self.answer = (code, message, data, status)


def failed(error: MCPError, *, is_stateless: bool = True) -> tuple[int, str, Any, int]:
    request = Request(is_stateless=is_stateless)
    fail(cast("PendingRequest", request), "a", error)
    assert request.answer is not None
    return request.answer


def test_an_error_of_a_server_stays_as_it_is() -> None:
    assert failed(JsonRpcError(-32603, "broken", {"x": 1})) == (-32603, "broken", {"x": 1}, 200)


@pytest.mark.parametrize(
    ("code", "expected", "status"),
    [(-32601, -32601, 404), (-32021, -32021, 400), (-32002, -32602, 200), (-32020, -32603, 200), (-32022, -32603, 200)],
)
def test_codes_of_the_stateless_era(code: int, expected: int, status: int) -> None:
    answer = failed(JsonRpcError(code, "why"))
    assert (answer[0], answer[3]) == (expected, status)


def test_the_handshake_era_has_a_code_for_resources() -> None:
    assert failed(JsonRpcError(-32002, "none"), is_stateless=False)[0] == -32002


def details(error: MCPError, delivery: str) -> dict[str, str]:
    return {"server": "a", "errorType": error.error_type, "delivery": delivery}


def is_reserved(code: int) -> bool:
    """By JSON-RPC. -32000 is CONNECTION_CLOSED in the official SDKs: durable runtimes send the request again."""
    return -32768 <= code <= -32000


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
def test_what_was_not_sent_has_a_code_of_our_own(method: str) -> None:
    request, error = Request(method=method), Overloaded("full")
    fail(cast("PendingRequest", request), "a", error)
    assert request.answer == (-31001, "full (the server has not received it)", details(error, "not_sent"), 200)
    assert not is_reserved(request.answer[0])


def test_a_tool_call_that_may_have_taken_effect_has_a_result_that_says_so() -> None:
    request, error = Request(), AnswerLost("gone", delivery="unknown")
    fail(cast("PendingRequest", request), "a", error)
    assert request.answer is None
    assert request.result == {
        "content": [{"type": "text", "text": "gone (the server may have acted on it)"}],
        "isError": True,
        "_meta": {"gaia.mcp/failure": details(error, "unknown")},
    }


def test_other_requests_have_a_code_of_our_own_for_that() -> None:
    request, error = Request(method="resources/read"), AnswerLost("gone", delivery="unknown")
    fail(cast("PendingRequest", request), "a", error)
    assert request.answer == (-31002, "gone (the server may have acted on it)", details(error, "unknown"), 200)
    assert not is_reserved(request.answer[0])


@pytest.mark.parametrize("member", ["requestState", "inputResponses"])
def test_a_further_round_that_was_not_sent_may_have_taken_effect_in_the_one_before(member: str) -> None:
    request, error = Request(params={"name": b'"t"', member: b'"s"'}), Overloaded("full")
    fail(cast("PendingRequest", request), "a", error)
    assert request.result is not None
    assert request.result["_meta"] == {"gaia.mcp/failure": details(error, "unknown")}


def test_a_gateway_before_a_gateway_says_it_once() -> None:
    request = Request()
    fail(cast("PendingRequest", request), "a", AnswerLost("gone (the server may have acted on it)", delivery="unknown"))
    assert request.result is not None
    assert request.result["content"][0]["text"] == "gone (the server may have acted on it)"


def test_a_client_with_a_name_is_not_told_of_the_gateways_machine(caplog: pytest.LogCaptureFixture) -> None:
    # As the command sets it.
    caplog.set_level("WARNING")
    request = Request(principal=Principal("ci"))
    fail(cast("PendingRequest", request), "a", ServerUnavailable.of("a", "/home/x/server does not exist"))

    assert request.answer is not None
    _, message, data, _ = request.answer
    assert "/home" not in message
    assert "'a'" in message
    assert data == {"server": "a", "errorType": "server_unavailable", "delivery": "not_sent"}
    assert "/home/x/server" in caplog.text


def test_it_is_told_when_an_unavailable_server_is_tried_again() -> None:
    request = Request(principal=Principal("ci"))
    fail(cast("PendingRequest", request), "a", ServerUnavailable.of("a", "/home/x/server does not exist", 4.2))

    assert request.answer is not None
    assert request.answer[1].startswith("server 'a': it is unavailable; the next attempt is in 5 s; the log of")


def test_it_is_told_of_an_open_circuit() -> None:
    request = Request(principal=Principal("ci"))
    fail(cast("PendingRequest", request), "a", CircuitOpen("tool 'x' of 'a' has failed too often", retry_in=5.0))

    assert request.answer is not None
    assert request.answer[1] == "tool 'x' of 'a' has failed too often (the server has not received it)"
    assert request.answer[2]["errorType"] == "server_unavailable"


def test_nor_of_the_file_with_the_list_that_denies() -> None:
    request = Request(principal=Principal("ci"))
    denial = """the tool 'x' of server 'a' is denied by "x" in "disabledTools" of its entry in /home/x/servers.json"""
    fail(cast("PendingRequest", request), "a", ToolDenied(denial))

    assert request.answer is not None
    assert "/home" not in request.answer[1]
    assert "its tool is denied" in request.answer[1]


def test_a_client_that_calls_again_and_again_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    checks = Checks()
    for _ in range(100):
        request = Request(principal=Principal("ci"), checks=checks)
        fail(cast("PendingRequest", request), "a", ServerUnavailable.of("a", "it does not exist"))
    assert caplog.text.count("server_error_withheld") == 1


def test_what_is_about_the_call_itself_it_is_told() -> None:
    request = Request(principal=Principal("ci"))
    fail(cast("PendingRequest", request), "a", CallTimeout("it took 3 s", delivery="unknown"))

    assert request.result is not None
    assert request.result["content"][0]["text"].startswith("it took 3 s")
