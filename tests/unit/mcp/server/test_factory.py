"""What the span of a served request tells, and what it leaves out; traces through processes are in `tests/serving`."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import StatusCode
from pydantic import ValidationError

from gaia.agents.base.mcp_context import current_mcp_context
from gaia.mcp.server import factory
from gaia.mcp.server.factory import ServerSpans, create_server
from tests.serving.agents import QuietAgent, tool
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import PATIENCE

MakeRequest = Callable[..., Any]

HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracing:
    provider = TracerProvider()
    monkeypatch.setattr(factory, "_tracer", provider.get_tracer("test"))
    return Tracing(provider)


@pytest.fixture(autouse=True)
def metering(monkeypatch: pytest.MonkeyPatch) -> Metering:
    return Metering(monkeypatch)


def answered(request: Any, answer: Any = None, *, transport: str = "pipe") -> Any:
    """Have a server with spans answer; an exception is raised by its handler."""

    async def handler(_ctx: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    return asyncio.run(ServerSpans(transport)(request, handler))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "params", "name", "more"),
    [
        (
            "tools/call",
            {"name": "add"},
            "tools/call add",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"},
        ),
        ("prompts/get", {"name": "p"}, "prompts/get p", {"gen_ai.prompt.name": "p"}),
        ("resources/read", {"uri": "note:///a"}, "resources/read", {"mcp.resource.uri": "note:///a"}),
        ("tools/list", {"name": "not a tool", "uri": "not a resource"}, "tools/list", {}),
        ("tools/call", {"name": ["no text"]}, "tools/call", {}),
        ("tools/list", None, "tools/list", {}),
    ],
)
def test_a_request_is_named_after_what_it_is_for(
    method: str, params: Any, name: str, more: dict[str, str], tracing: Tracing, make_request: MakeRequest
) -> None:
    answered(make_request(HANDSHAKE, method=method, params=params, request_id=5))
    (span,) = tracing.all
    assert span.name == name
    assert attributes_of(span) == {
        "mcp.method.name": method,
        "mcp.protocol.version": HANDSHAKE,
        "jsonrpc.request.id": "5",
        "network.transport": "pipe",
        **more,
    }


@pytest.mark.parametrize(("revision", "has_session"), [(HANDSHAKE, True), (STATELESS, False)])
def test_over_http_the_client_and_its_session_are_told(
    revision: str, has_session: bool, tracing: Tracing, make_request: MakeRequest
) -> None:
    address = SimpleNamespace(host="::1", port=5000)
    for headers, client in (({"mcp-session-id": "s1"}, address), ({}, None)):
        http = SimpleNamespace(headers=headers, client=client)
        answered(make_request(revision, request=http), transport="tcp")
    known, without = map(attributes_of, tracing.all)
    assert (known["network.transport"], known["network.protocol.name"]) == ("tcp", "http")
    assert (known["client.address"], known["client.port"]) == ("::1", 5000)
    assert known.get("mcp.session.id") == ("s1" if has_session else None)
    assert not [name for name in without if name.startswith(("client.", "mcp.session"))]


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        types.CallToolRequestParams.model_validate({})
    return raised.value


def outcome(span: ReadableSpan) -> tuple[Any, Any, bool]:
    attributes = attributes_of(span)
    code = attributes.get("rpc.response.status_code")
    return code, attributes.get("error.type"), span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MCPError(types.INVALID_PARAMS, "no such tool"), (str(types.INVALID_PARAMS), None, False)),
        (MCPError(types.INTERNAL_ERROR, "broken"), (str(types.INTERNAL_ERROR), str(types.INTERNAL_ERROR), True)),
        (invalid(), (str(types.INVALID_PARAMS), None, False)),
        (asyncio.CancelledError(), (None, "cancelled", True)),
        (KeyError("hunter2"), (None, "KeyError", True)),
    ],
)
def test_the_callers_mistake_is_no_error_of_the_server(
    error: BaseException, told: tuple[Any, Any, bool], tracing: Tracing, make_request: MakeRequest
) -> None:
    with pytest.raises(type(error)):
        answered(make_request(), error)
    (span,) = tracing.all
    assert outcome(span) == told
    assert "hunter2" not in span.to_json()


@pytest.mark.parametrize(
    ("method", "result", "error_type"),
    [
        ("tools/call", {"isError": True}, "tool_error"),
        ("tools/call", {"isError": "true"}, None),
        ("tools/call", {}, None),
        ("prompts/get", {"isError": True}, None),
    ],
)
def test_only_a_tool_can_fail_in_its_result(
    method: str, result: dict[str, Any], error_type: str | None, tracing: Tracing, make_request: MakeRequest
) -> None:
    assert answered(make_request(method=method), result) is result
    assert outcome(tracing.all[0])[1] == error_type


def test_the_span_is_current_while_the_agent_works(tracing: Tracing, make_request: MakeRequest) -> None:
    inside = answered(make_request(), lambda: trace.get_current_span().get_span_context().span_id)
    assert tracing.all[0].context is not None
    assert inside == tracing.all[0].context.span_id


def test_a_request_that_stays_open_has_neither_span_nor_duration(
    tracing: Tracing, metering: Metering, make_request: MakeRequest
) -> None:
    assert answered(make_request(method="subscriptions/listen"), "the end") == "the end"
    assert tracing.all == []
    assert metering.points("mcp.server.operation.duration") == []


Use = Callable[..., None]


class PartlyServed(QuietAgent):
    """Offers what it is told to."""

    def __init__(self, *offered: str, **info: Any) -> None:
        super().__init__(silent_mode=True)
        self.offered = offered
        self.info = info

    def offers_mcp(self, what: str) -> bool:
        return what in self.offered

    def get_mcp_server_info(self) -> dict[str, Any]:
        return self.info


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("offered", [(), ("prompts",), ("prompts", "resources", "completions")])
def test_only_what_an_agent_offers_is_declared_and_that_lists_may_change_in_the_handshake_era(
    offered: tuple[str, ...], mode: str, use: Use
) -> None:
    async def talk(client: Client) -> None:
        declared = client.server_capabilities.model_dump(exclude_none=True)
        assert set(declared) == {"tools", "logging", *offered}
        if mode == "legacy":
            assert all(declared[what]["list_changed"] for what in {"tools", "prompts", "resources"} & set(declared))
            assert "resources" not in offered or declared["resources"]["subscribe"]

    use(PartlyServed(*offered), talk, mode=mode)


@pytest.mark.parametrize(
    ("info", "name", "version"),
    [({}, "GAIA agent", ""), ({"name": None, "version": 2}, "GAIA agent", "2"), ({"name": "notes"}, "notes", "")],
)
def test_an_agent_that_tells_little_of_itself_still_has_a_name(
    info: dict[str, Any], name: str, version: str, use: Use
) -> None:
    async def talk(client: Client) -> None:
        assert (client.server_info.name, client.server_info.version) == (name, version)

    use(PartlyServed(**info), talk, mode="legacy")


class TestTheEnd:
    async def test_it_cancels_the_calls_under_way(self) -> None:
        begun, cancelled = threading.Event(), threading.Event()

        class Waiting(QuietAgent):
            def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
                return [tool("wait")]

            def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
                context = current_mcp_context.get()
                assert context is not None
                context.on_cancel(cancelled.set)
                begun.set()
                assert cancelled.wait(PATIENCE)
                return {}

        agent = Waiting(silent_mode=True)
        served = create_server(agent)

        async with Client(served.server) as client:
            async with served.running():
                call = asyncio.create_task(client.call_tool("wait", {}))
                await asyncio.to_thread(begun.wait, 10)
            await call
        # The client has listed the tools since, to check the result.
        served.threads.close(10)
        assert cancelled.is_set()
        assert served.calls.in_flight == set()

    async def test_a_call_that_does_not_end_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(factory, "GRACE", 0.01)
        begun, let_go = threading.Event(), threading.Event()
        served = create_server(QuietAgent(silent_mode=True))

        def hold() -> None:
            begun.set()
            let_go.wait(PATIENCE)

        async with served.running():
            call = asyncio.create_task(served.threads.run(hold))
            await asyncio.to_thread(begun.wait, 10)
            began = time.monotonic()
        assert time.monotonic() - began < 5
        let_go.set()
        await call


async def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    at_work, most = 0, 0
    lock = threading.Lock()
    three = threading.Semaphore(0)

    class Counting(QuietAgent):
        def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
            return [tool("count")]

        def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            nonlocal at_work, most
            with lock:
                at_work += 1
                most = max(most, at_work)
            three.release()
            three.acquire()
            with lock:
                at_work -= 1
            return {}

    served = create_server(Counting(silent_mode=True), max_threads=1)

    async with served.running(), Client(served.server) as client:
        await asyncio.gather(*(client.call_tool("count", {}) for _ in range(5)))
    assert most == 1
