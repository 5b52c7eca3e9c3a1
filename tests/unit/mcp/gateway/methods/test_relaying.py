"""Errors of servers, as clients get them."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from gaia.mcp.errors import AnswerLost, CallTimeout, JsonRpcError, MCPError, Overloaded, ServerUnavailable, ToolDenied
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.audit import Audit, AuditEntry
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.gate import CircuitOpen
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.access.settings import GatewayLimits, Limit
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.methods import relaying
from gaia.testing import FakeServer
from tests.gateway.lines import asking
from tests.tracing import Tracing
from tests.waiting import PATIENCE


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


def failed(error: MCPError, **request: Any) -> Request:
    """A request whose server failed."""
    made = Request(**request)
    relaying.fail(cast("PendingRequest", made), "a", error)
    return made


@pytest.mark.parametrize(
    ("code", "expected", "status", "is_stateless"),
    [
        (-32603, -32603, 200, True),
        (-32601, -32601, 404, True),
        (-32021, -32021, 400, True),
        (-32002, -32602, 200, True),
        (-32020, -32603, 200, True),
        (-32022, -32603, 200, True),
        (-32002, -32002, 200, False),
    ],
)
def test_an_error_of_a_server_stays_as_it_is_but_for_the_codes_of_the_stateless_era(
    code: int, expected: int, status: int, is_stateless: bool
) -> None:
    request = failed(JsonRpcError(code, "why", {"x": 1}), is_stateless=is_stateless)
    assert request.answer is not None
    assert (request.answer[0], request.answer[3]) == (expected, status)
    if code == -32603:
        assert request.answer == (-32603, "why", {"x": 1}, 200)


def details(error: MCPError, delivery: str) -> dict[str, str]:
    return {"server": "a", "errorType": error.error_type, "delivery": delivery}


def is_reserved(code: int) -> bool:
    """By JSON-RPC. -32000 is CONNECTION_CLOSED in the official SDKs: durable runtimes send the request again."""
    return -32768 <= code <= -32000


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
def test_what_was_not_sent_has_a_code_of_our_own(method: str) -> None:
    error = Overloaded("full")
    answer = failed(error, method=method).answer
    assert answer == (-31001, "full (the server has not received it)", details(error, "not_sent"), 200)
    assert not is_reserved(answer[0])


@pytest.mark.parametrize("message", ["gone", "gone (the server may have acted on it)"])
def test_a_tool_call_that_may_have_taken_effect_has_a_result_that_says_so_once(message: str) -> None:
    error = AnswerLost(message, delivery="unknown")
    request = failed(error)
    assert request.answer is None
    assert request.result == {
        "content": [{"type": "text", "text": "gone (the server may have acted on it)"}],
        "isError": True,
        "_meta": {"gaia.mcp/failure": details(error, "unknown")},
    }
    answer = failed(error, method="resources/read").answer
    assert answer == (-31002, "gone (the server may have acted on it)", details(error, "unknown"), 200)
    assert not is_reserved(answer[0])


@pytest.mark.parametrize("member", ["requestState", "inputResponses"])
def test_a_further_round_that_was_not_sent_may_have_taken_effect_in_the_one_before(member: str) -> None:
    error = Overloaded("full")
    request = failed(error, params={"name": b'"t"', member: b'"s"'})
    assert request.result is not None
    assert request.result["_meta"] == {"gaia.mcp/failure": details(error, "unknown")}


DENIAL = """the tool 'x' of server 'a' is denied by "x" in "disabledTools" of its entry in /home/x/servers.json"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ServerUnavailable.of("a", "/home/x/server does not exist"), "server 'a': it is unavailable; the log of"),
        (
            ServerUnavailable.of("a", "/home/x/server does not exist", 4.2),
            "server 'a': it is unavailable; the next attempt is in 5 s; the log of",
        ),
        (
            CircuitOpen("tool 'x' of 'a' has failed too often", retry_in=5.0),
            "tool 'x' of 'a' has failed too often (the server has not received it)",
        ),
        (ToolDenied(DENIAL), "server 'a': its tool is denied"),
        (CallTimeout("it took 3 s", delivery="unknown"), "it took 3 s"),
    ],
)
def test_a_client_with_a_name_is_told_of_its_call_and_not_of_the_gateways_machine(
    error: MCPError, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    # As the command sets it.
    caplog.set_level("WARNING")
    request = failed(error, principal=Principal("ci"))
    if request.result is not None:
        assert request.result["content"][0]["text"].startswith(said)
        return
    assert request.answer is not None
    _, message, data, _ = request.answer
    assert message.startswith(said)
    assert "/home" not in message
    assert data == details(error, "not_sent")
    assert ("/home/x" in caplog.text) is ("/home" in str(error))


def test_a_client_that_calls_again_and_again_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    checks = Checks()
    for _ in range(100):
        failed(ServerUnavailable.of("a", "it does not exist"), principal=Principal("ci"), checks=checks)
    assert caplog.text.count("server_error_withheld") == 1


def echo(text: str) -> str:
    """Say it again."""
    return text


def fail() -> str:
    """Fail."""
    raise ValueError("it did")


def written(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_each_call_leaves_a_line_before_its_answer(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo, fail], resources={"x:1?token=secret": "text"})
    file = tmp_path / "audit.jsonl"

    async with asking(Gateway({"a": server}, audit=file)) as lines:
        await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "secret"}})
        (line,) = written(file)
        assert (line["client"], line["method"], line["server"], line["target"]) == (
            "anonymous",
            "tools/call",
            "a",
            "echo",
        )
        assert (line["outcome"], line["delivery"]) == ("ok", "answered")
        assert line["arguments"].startswith("sha256:")
        await lines.ask("tools/call", {"name": "a_fail", "arguments": {}})
        await lines.ask("tools/call", {"name": "a_none", "arguments": {}})
        await lines.ask("resources/read", {"uri": "x:1?token=secret"})
        server.crash(tool="echo")
        await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        outcomes = [(line["outcome"], line["delivery"]) for line in written(file)[1:]]
        assert ["answer_bytes" in line for line in written(file)] == [True, True, False, True, False]
        assert outcomes == [
            ("tool_error", "answered"),
            ("unknown_tool", "not_sent"),
            ("ok", "answered"),
            ("server_crashed", "unknown"),
        ]
        assert "secret" not in file.read_text()


async def test_a_call_that_cannot_be_recorded_is_an_error_of_the_audit(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    file = tmp_path / "audit.jsonl"

    gateway = Gateway({"a": server}, audit=file)
    async with asking(gateway) as lines:
        await lines.ask("tools/list")
        file.rename(tmp_path / "moved")
        file.mkdir()
        gateway.reopen_audit()
        error = await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        assert (error["data"]["errorType"], error["data"]["delivery"]) == ("audit", "not_sent")
        assert server.calls == []
        counted = gateway.endpoint._pages._checks.counts.ended
        assert counted["", "a", "audit"] == 1


@pytest.mark.parametrize("stateless", [False, True])
async def test_a_line_says_which_gateway_session_and_request_it_is_about(tmp_path: Path, stateless: bool) -> None:
    file = tmp_path / "audit.jsonl"

    gateway = Gateway({"a": FakeServer("a", tools=[echo])}, audit=file, name="gw1")
    async with asking(gateway, stateless=stateless) as lines:
        for _ in range(2):
            await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        await lines.ask("tools/call", {"name": "none", "arguments": {}})
        sessions = [session.mark for session in gateway._sessions] * 3
    written_ = written(file)
    first = written_[0]["request"]
    assert [(line["gateway"], line["request"]) for line in written_] == [("gw1", first + n) for n in range(3)]
    assert [line["session"] for line in written_ if "session" in line] == sessions
    traces = {line["trace"] for line in written_}
    assert len(traces) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", trace) for trace in traces)


CLIENTS_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("given", [None, CLIENTS_TRACE, f"00-{32 * '0'}-{16 * '1'}-01"])
async def test_a_line_has_the_trace_of_the_client_or_of_the_gateway(
    tmp_path: Path, tracing: Tracing, given: str | None
) -> None:
    file = tmp_path / "audit.jsonl"

    async with asking(Gateway({"a": FakeServer("a", tools=[echo])}, audit=file)) as lines:
        meta = {} if given is None else {"_meta": {"traceparent": given}}
        await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}, **meta})
    (line,) = written(file)
    (span,) = tracing.named("tools/call")
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == line["trace"]
    assert (line["trace"] == "0af7651916cd43dd8448eb211c80319c") is (given == CLIENTS_TRACE)


async def test_a_cancelled_call_leaves_a_line(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")
    file = tmp_path / "audit.jsonl"

    async with asking(Gateway({"a": server}, audit=file)) as lines:
        number, _ = lines.begin("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        await asyncio.to_thread(server.wait_for_call)
        lines.send({"method": "notifications/cancelled", "params": {"requestId": number}})
    assert [(line["outcome"], line["delivery"]) for line in written(file)] == [("cancelled", "unknown")]


async def test_a_call_that_is_cancelled_while_the_audit_holds_its_answer_has_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[str] = []
    held: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()

    def hold(_: Audit, entry: AuditEntry, then: Callable[[], None]) -> None:
        outcomes.append(entry.outcome)
        held.set_result(then)

    monkeypatch.setattr(Audit, "record", hold)
    async with asking(Gateway({"a": FakeServer("a", tools=[echo])}, audit=tmp_path / "audit.jsonl")) as lines:
        number, answer = lines.begin("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        let_go = await asyncio.wait_for(held, PATIENCE)
        lines.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        let_go()
        await lines.ask("tools/list")
        assert not answer.done()
    assert outcomes == ["ok"]


def limited(**limit: Any) -> ClientsFile:
    return ClientsFile(anonymous=EVERYTHING, limits=GatewayLimits(per_tool={"echo": Limit(**limit)}, max_wait=600.0))


async def test_a_call_waits_until_the_limits_admit_it() -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")

    async with asking(Gateway({"a": server}, clients=limited(concurrent=1))) as lines:
        call = {"name": "a_echo", "arguments": {"text": "x"}}
        first, _ = lines.begin("tools/call", call)
        await asyncio.to_thread(server.wait_for_call)
        _, waiting = lines.begin("tools/call", call)
        await lines.ask("tools/list")
        assert len(server.calls) == 1
        lines.send({"method": "notifications/cancelled", "params": {"requestId": first}})
        assert (await waiting)["result"]["content"][0]["text"] == "x"


async def test_a_line_of_a_refused_call_says_how_long_it_waited(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")
    file = tmp_path / "audit.jsonl"
    limits = GatewayLimits(per_tool={"echo": Limit(concurrent=1)}, max_wait=0.01)

    clients = ClientsFile(anonymous=EVERYTHING, limits=limits)
    async with asking(Gateway({"a": server}, clients=clients, audit=file)) as lines:
        call = {"name": "a_echo", "arguments": {"text": "x"}}
        lines.begin("tools/call", call)
        await asyncio.to_thread(server.wait_for_call)
        await lines.ask("tools/call", call)
        [line] = written(file)
        assert line["outcome"] == "overloaded"
        assert 0.01 <= line["waited"] <= line["seconds"]


async def test_an_answer_that_is_too_large_is_an_error() -> None:
    servers = {"a": FakeServer("a", tools=[echo])}
    async with asking(Gateway(servers, clients=limited(answer_bytes=500))) as lines:
        call = {"name": "a_echo", "arguments": {"text": 1_000 * "x"}}
        withheld = await lines.ask("tools/call", call)
        assert withheld["isError"]
        assert "answerBytes" in withheld["content"][0]["text"]
