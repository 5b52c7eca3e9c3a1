"""Requests over all their rounds: progress, questions, parking, every way to end, and all that the engine does."""

import asyncio
import gc
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp.client import MCPClient
from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    InputMissing,
    InvalidResponse,
    JsonRpcError,
    NotConnected,
    ServerCrashed,
    SessionLost,
    ToolDenied,
    UnknownTool,
)
from gaia.mcp.gateway.upstream import relayed_call
from gaia.mcp.gateway.upstream.relayed_call import RelayedCall
from gaia.mcp.gateway.upstream.rounds import Rounds
from gaia.mcp.tools.output_validation import OutputValidation
from gaia.telemetry import attributes as names
from gaia.testing import FakeServer, FakeTool
from tests.fake_transport import FakeTransport, stateless_answers
from tests.gateway.client_of_upstream import REFUSED, Requester, Upstream, call_of, upstream_of
from tests.tracing import Tracing, attributes_of
from tests.waiting import PATIENCE, wait_until

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}}
ANN = {"action": "accept", "content": {"name": "Ann"}}


def hello(context: MCPContext) -> str:
    """Ask a person who it is."""
    answer = context.elicit("Who?", PERSON)
    return f"Hello {answer['content']['name']}" if answer["action"] == "accept" else answer["action"]


def count(context: MCPContext) -> str:
    """Count to two."""
    context.report_progress(1, 2)
    context.log("info", "half")
    context.report_progress(2, 2, "done")
    return "2"


def never(context: MCPContext) -> str:
    """Always ask something else."""
    for number in range(100):
        context.elicit("Again?", PERSON, key=str(number))
    return "enough"


def wait(context: MCPContext) -> str:
    """Wait to be cancelled."""
    over = asyncio.Event()
    loop = asyncio.new_event_loop()
    context.on_cancel(lambda: loop.call_soon_threadsafe(over.set))
    loop.run_until_complete(over.wait())
    loop.close()
    return "cancelled"


def server(revision: str = HANDSHAKE) -> FakeServer:
    return FakeServer("one", tools=[hello, count, wait], protocol=revision)


async def in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_progress_comes_before_the_end(revision: str) -> None:
    async with upstream_of(server(revision)) as upstream:
        requester = Requester().send(upstream, "tools/call", call_of("count"))
        assert await requester.text() == "2"
        reports = [(told["progress"], told.get("message")) for told in requester.told]
        assert reports == [(1, None), (2, "done")]


async def test_a_stateless_server_logs_what_the_request_asks_for() -> None:
    async with upstream_of(server(STATELESS)) as upstream:
        requester = Requester()
        requester.log_level = "info"
        assert await requester.send(upstream, "tools/call", call_of("count")).text() == "2"
        assert [told["data"] for told in requester.told if "data" in told] == ["half"]


@pytest.mark.parametrize(("generation", "calls"), [(1, 1), (2, 0)])
async def test_a_request_for_one_process_reaches_no_other(generation: int, calls: int) -> None:
    one = server()
    async with upstream_of(one) as upstream:
        requester = Requester()
        requester.generation = generation
        relayed = await requester.send(upstream, "tools/call", call_of("count")).relayed()
        assert isinstance(relayed.error, SessionLost if calls == 0 else type(None))
        assert len(one.calls) == calls


async def test_a_request_for_a_process_that_crashes_is_lost_with_it() -> None:
    one = server()
    async with upstream_of(one) as upstream:
        requester = Requester()
        requester.generation = 1
        requester.send(upstream, "tools/call", call_of("wait"))
        await in_thread(one.wait_for_call, "wait")
        await in_thread(one.crash)
        assert isinstance((await requester.relayed()).error, SessionLost)


async def test_a_cancelled_call_is_cancelled_on_the_server_and_ends_nothing_else() -> None:
    one = server()
    async with upstream_of(one) as upstream:
        requester = Requester().send(upstream, "tools/call", call_of("wait"))
        call = await in_thread(one.wait_for_call, "wait")
        assert requester.call is not None
        requester.call.cancel("not wanted")
        requester.call.cancel("twice does no harm")
        assert await in_thread(wait_until, lambda: call.cancelled, PATIENCE)
        assert await Requester().send(upstream, "tools/call", call_of("count")).text() == "2"
        assert not requester.ended.done()


async def test_an_ended_call_keeps_its_request_for_no_garbage_collector() -> None:
    def calls() -> list[object]:
        return [one for one in gc.get_objects() if type(one) is RelayedCall]

    async with upstream_of(server()) as upstream:
        gc.collect()
        gc.disable()
        try:
            requester = Requester().send(upstream, "tools/call", call_of("count"))
            assert await requester.text() == "2"
            requester.call = None
            assert await in_thread(wait_until, lambda: not calls(), 1.0)
        finally:
            gc.enable()


class TestAskingAHandshakeClient:
    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_the_question_is_withdrawn_with_the_call(self, revision: str) -> None:
        async with upstream_of(server(revision)) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("hello"))
            await requester.question()
            assert isinstance(requester.call, RelayedCall)
            requester.call.cancel("not wanted")
            assert requester.withdrawn == ["elicitation/create"]
            if revision == STATELESS:
                assert isinstance(requester.call.exchange.error, CallCancelled)
                assert requester.call.exchange.observation is None

    async def test_an_answer_that_cannot_be_sent_ends_the_call(self) -> None:
        endless: dict[str, Any] = {}
        endless["content"] = endless

        async with upstream_of(server(STATELESS)) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("hello"))
            (await requester.question())[2](endless, None)
            error = (await requester.relayed()).error
            assert isinstance(error, InputMissing)
            assert (error.delivery, "cannot be passed on" in error.message) == ("unknown", True)

    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_it_is_asked_in_the_middle_of_its_call(self, revision: str) -> None:
        async with upstream_of(server(revision)) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("hello"))
            method, params, answer = await requester.question()
            assert (method, params["message"]) == ("elicitation/create", "Who?")
            answer(ANN, None)
            answer(ANN, None)
            assert await requester.text() == "Hello Ann"

    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_a_refusal_of_it_goes_to_a_handshake_server_and_ends_the_call_of_a_stateless_one(
        self, revision: str
    ) -> None:
        async with upstream_of(server(revision)) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("hello"))
            (await requester.question())[2](None, REFUSED)
            relayed = await requester.relayed()
            assert relayed.is_error or relayed.error is not None
            assert revision == HANDSHAKE or isinstance(relayed.error, InputMissing)

    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_what_it_has_not_declared_it_is_not_asked(self, revision: str) -> None:
        async with upstream_of(server(revision)) as upstream:
            requester = Requester(capabilities={}).send(upstream, "tools/call", call_of("hello"))
            relayed = await requester.relayed()
            assert relayed.is_error or relayed.error is not None
            assert requester.asked.empty()

    async def test_the_question_is_withdrawn_when_the_server_is_lost(self) -> None:
        one = server()
        async with upstream_of(one) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("hello"))
            await requester.question()
            one.crash()
            assert isinstance((await requester.relayed()).error, ServerCrashed)
            assert requester.withdrawn == ["elicitation/create"]

    async def test_a_server_that_never_has_enough_is_given_up(self) -> None:
        async with upstream_of(FakeServer("one", tools=[never], protocol=STATELESS)) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("never"))
            for _ in range(9):
                (await requester.question())[2]({"action": "decline"}, None)
            error = (await requester.relayed()).error
            assert isinstance(error, InvalidResponse)
            assert "after 10 rounds" in error.message


async def test_a_question_that_may_be_for_several_clients_is_refused_and_says_what_helps() -> None:
    refusals: list[str] = []

    def asks(context: MCPContext) -> str:
        try:
            return str(context.elicit("Who?", PERSON))
        except JsonRpcError as error:
            refusals.append(error.message)
            raise

    one = FakeServer("one", tools=[asks, wait])
    async with upstream_of(one) as upstream:
        other = Requester(identity="ben").send(upstream, "tools/call", call_of("wait"))
        await in_thread(one.wait_for_call, "wait")
        relayed = await Requester().send(upstream, "tools/call", call_of("asks")).relayed()
        assert relayed.is_error or relayed.error is not None
        assert "per-session" in str(refusals or relayed)
        assert other.asked.empty()


class TestAskingAStatelessClient:
    """It gets a result that requires input, and sends its request again."""

    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_it_answers_with_its_next_request(self, revision: str) -> None:
        rounds = Rounds()
        async with upstream_of(server(revision), rounds) as upstream:
            first = Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            required = await first.result()
            assert required["resultType"] == "input_required"
            ((key, request),) = required["inputRequests"].items()
            assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Who?")
            assert len(rounds) == (1 if revision == HANDSHAKE else 0)
            again = {**call_of("hello"), "inputResponses": {key: ANN}, "requestState": required["requestState"]}
            second = Requester(is_stateless=True).send(upstream, "tools/call", dict(again))
            assert await second.text() == "Hello Ann"
            assert len(rounds) == 0
            if revision == HANDSHAKE:
                third = Requester(is_stateless=True).send(upstream, "tools/call", again)
                assert isinstance((await third.relayed()).error, JsonRpcError), "a parked call goes on once"

    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    @pytest.mark.parametrize("thief", ["another client", "another tool", "other bytes"])
    async def test_no_other_request_can_use_its_state(self, revision: str, thief: str) -> None:
        async with upstream_of(server(revision)) as upstream:
            first = Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            required = await first.result()
            state = required["requestState"]
            if thief == "other bytes":
                state = state[:-6] + ("AAAAA=" if not state.endswith("AAAAA=") else "BBBBB=")
            tool = "count" if thief == "another tool" else "hello"
            identity = "ben" if thief == "another client" else "ann"
            again = {**call_of(tool), "inputResponses": {}, "requestState": state}
            second = Requester(identity=identity, is_stateless=True).send(upstream, "tools/call", again)
            error = (await second.relayed()).error
            assert isinstance(error, JsonRpcError)
            assert (error.code, error.delivery) == (-32602, "not_sent")
            assert "requestState" in error.message

    async def test_what_becomes_of_a_parked_call_waits_for_its_client(self) -> None:
        one = server()
        async with upstream_of(one) as upstream:
            first = Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            required = await first.result()
            one.crash()
            assert await in_thread(wait_until, lambda: one.starts > 1, PATIENCE)
            again = {**call_of("hello"), "inputResponses": {}, "requestState": required["requestState"]}
            second = Requester(is_stateless=True).send(upstream, "tools/call", again)
            error = (await second.relayed()).error
            assert isinstance(error, ServerCrashed)
            assert error.delivery == "unknown"

    async def test_a_parked_call_whose_client_is_away_gives_way_to_the_question_of_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = server()
        async with upstream_of(one) as upstream:
            away = await Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello")).result()
            refused = Requester(identity="ben", is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            assert "calls of clients are under way" in str((await refused.relayed()).error), "it could be either's"
            monkeypatch.setattr(relayed_call, "_AWAY_SECONDS", -1.0)
            asked = Requester(identity="ben", is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            assert "inputRequests" in await asked.result()
            assert await in_thread(wait_until, lambda: one.calls[0].cancelled, PATIENCE)
            again = {**call_of("hello"), "inputResponses": {}, "requestState": away["requestState"]}
            back = await Requester(is_stateless=True).send(upstream, "tools/call", again).relayed()
            assert isinstance(back.error, InputMissing)

    @pytest.mark.parametrize("answers", [[], orjson.Fragment(b'{"1":1e999}')])
    async def test_a_missing_answer_is_a_refusal(self, answers: object) -> None:
        async with upstream_of(server()) as upstream:
            first = Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            required = await first.result()
            again = {**call_of("hello"), "inputResponses": answers, "requestState": required["requestState"]}
            relayed = await Requester(is_stateless=True).send(upstream, "tools/call", again).relayed()
            assert relayed.is_error or relayed.error is not None

    async def test_a_client_that_goes_on_and_leaves_cancels_its_call(self) -> None:
        one = server()
        async with upstream_of(one) as upstream:
            first = Requester(is_stateless=True).send(upstream, "tools/call", call_of("hello"))
            await first.result()
            upstream.rounds.close()
            assert await in_thread(wait_until, lambda: one.calls[0].cancelled, PATIENCE)


@pytest.mark.parametrize(("mode", "fails"), [("error", True), ("warn", False)])
async def test_a_result_that_does_not_fit_its_schema_is_logged_and_fails_only_if_that_is_wanted(
    mode: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}

    def add() -> dict[str, str]:
        return {"sum": "three"}

    one = FakeServer("one", tools=[FakeTool(add, outputSchema=schema)])
    async with upstream_of({**one, "outputValidation": mode}) as upstream:
        relayed = await Requester().send(upstream, "tools/call", call_of("add")).relayed()
        if fails:
            assert isinstance(relayed.error, InvalidResponse)
        else:
            assert orjson.loads(relayed.result)["structuredContent"] == {"sum": "three"}
        assert await in_thread(wait_until, lambda: "output_invalid" in caplog.text, PATIENCE)


async def test_a_check_that_fails_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # As what an extension in Rust raises, it is no `Exception`.
    monkeypatch.setattr(OutputValidation, "_check", Mock(side_effect=BaseException("a mistake")))

    one = FakeServer("one", tools=[FakeTool(lambda: {"sum": 3}, name="add", outputSchema={"type": "object"})])
    async with upstream_of({**one, "outputValidation": "error"}) as upstream:
        relayed = await Requester().send(upstream, "tools/call", call_of("add")).relayed()
        assert isinstance(relayed.error, InvalidResponse)


@pytest.mark.parametrize("is_stateless", [True, False])
async def test_a_handshake_server_cannot_require_input_by_a_result(is_stateless: bool) -> None:
    def ask() -> dict[str, Any]:
        return {"content": [], "resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}}

    async with upstream_of(FakeServer("one", tools=[ask], protocol=HANDSHAKE)) as upstream:
        requester = Requester(is_stateless=is_stateless).send(upstream, "tools/call", call_of("ask"))
        relayed = await requester.relayed()
        if is_stateless:
            assert isinstance(relayed.error, InvalidResponse)
        else:
            assert orjson.loads(relayed.result)["resultType"] == "input_required"


async def test_a_call_that_has_waited_is_sent_only_if_its_client_may_still_make_it() -> None:
    """What a lazy server said at an earlier start is all that the client could be judged by."""
    read_only = {"readOnlyHint": True}

    class Reader(Requester):
        def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
            return (server, tool, annotations) == ("one", "look", read_only)

    one = FakeServer("one", [{"name": "look", "annotations": read_only}])
    async with upstream_of({**one, "lazy": True}) as upstream:
        client = upstream.client
        await in_thread(client.disconnect)
        await in_thread(client.connect)
        assert not client.is_connected()
        assert (await Reader().send(upstream, "tools/call", call_of("look")).relayed()).error is None
        await in_thread(client.disconnect)
        await in_thread(client.connect)
        one.tools.remove("look")
        one.tools.add({"name": "look"})
        relayed = await Reader().send(upstream, "tools/call", call_of("look")).relayed()
        assert isinstance(relayed.error, UnknownTool)
        assert relayed.error.delivery == "not_sent"
        assert len(one.calls) == 1


async def test_each_round_has_only_its_own_answers_and_state() -> None:
    transport = FakeTransport(answers=stateless_answers())
    client = MCPClient("one", transport, protocol="stateless")
    assert client.connect()
    channel = transport.channel()

    requester = Requester().send(Upstream(client, Rounds()), "tools/call", {"name": "echo"})
    first = await in_thread(channel.wait_for, "tools/call")
    channel.answer(first, {"resultType": "input_required", "requestState": "s"})
    second = await in_thread(channel.wait_for, "tools/call", 2)
    assert second["params"]["requestState"] == "s"
    channel.answer(second, {"resultType": "input_required", "inputRequests": {}})
    third = await in_thread(channel.wait_for, "tools/call", 3)
    assert third["params"]["inputResponses"] == {}
    assert "requestState" not in third["params"]
    channel.answer(third, {"content": []})
    await requester.result()
    client.disconnect()


def echo(text: str) -> str:
    """Say it again."""
    return text


def huge(number: float) -> dict[str, int]:
    """A number that no double is as large as."""
    return {"number": 10**400}


def fail() -> str:
    """Fail."""
    raise ValueError("it did")


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_result_is_passed_on_as_bytes(revision: str) -> None:
    async with upstream_of(FakeServer("one", tools=[echo, fail], protocol=revision)) as upstream:
        sent = Requester().send(upstream, "tools/call", call_of("echo", text="höre \n zu"))
        assert await sent.text() == "höre \n zu"
        assert (await sent.relayed()).is_error is False
        failed = await Requester().send(upstream, "tools/call", call_of("fail")).relayed()
        assert failed.is_error
        assert failed.error is None


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_every_method_can_be_passed_on(revision: str) -> None:
    async with upstream_of(FakeServer("one", resources={"file:///a": "A"}, protocol=revision)) as upstream:
        read = await Requester().send(upstream, "resources/read", {"uri": "file:///a"}).result()
        assert read["contents"][0]["text"] == "A"
        error = (await Requester().send(upstream, "resources/read", {"uri": "file:///b"}).relayed()).error
        assert isinstance(error, JsonRpcError), "the server's own"


async def test_a_tool_that_a_filter_denies_never_reaches_the_server() -> None:
    server = FakeServer("one", tools=[echo, fail])
    async with upstream_of({**server, "disabledTools": ["fail"]}) as upstream:
        requester = Requester().send(upstream, "tools/call", call_of("fail"))
        assert isinstance((await requester.relayed()).error, ToolDenied)
        assert requester.call is None
    assert server.calls == []


async def test_a_call_that_was_written_is_lost_with_the_server_and_says_so() -> None:
    server = FakeServer("one", tools=[echo])
    async with upstream_of(server) as upstream:
        server.crash(tool="echo")
        error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        after = Requester().send(upstream, "tools/call", call_of("echo", text="after"))
        assert await after.text() == "after", "it waits for the next start"


async def test_a_deadline_ends_a_call_and_a_server_that_is_disconnected_refuses() -> None:
    server = FakeServer("one", tools=[echo])
    async with upstream_of({**server, "timeout": 0.2}) as upstream:
        server.hang(tool="echo")
        error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
        assert isinstance(error, CallTimeout)
    error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
    assert isinstance(error, NotConnected)


async def test_what_cannot_be_written_is_the_clients_fault() -> None:
    async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
        params = {"name": "echo", "arguments": orjson.Fragment(b'{"text":1e999}'), "_meta": {"far": 10**30}}
        error = (await Requester().send(upstream, "tools/call", params).relayed()).error
        assert isinstance(error, JsonRpcError)
        assert (error.code, error.delivery) == (-32602, "not_sent")


async def test_the_server_is_told_what_this_client_can_do() -> None:
    server = FakeServer("one", tools=[echo], protocol="2026-07-28")
    async with upstream_of(server) as upstream:
        for capabilities in ({}, {"elicitation": {}}):
            requester = Requester(capabilities=capabilities)
            await requester.send(upstream, "tools/call", call_of("echo", text="a")).result()
        metas = [call.meta for call in server.calls]
        key = "io.modelcontextprotocol/clientCapabilities"
        assert [meta[key] for meta in metas] == [{}, {"elicitation": {}}]
        assert orjson.loads(orjson.dumps(metas[0]["io.modelcontextprotocol/clientInfo"]))["name"] == "GAIA MCP Client"


class TestTraced:
    @pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
    async def test_the_clients_trace_goes_on(self, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async with upstream_of(FakeServer("one", tools=[echo], protocol=revision)) as upstream:
            tracing = Tracing.installed(monkeypatch)
            trace = "0af7651916cd43dd8448eb211c80319c"
            meta = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            await Requester().send(upstream, "tools/call", {**call_of("echo", text="a"), "_meta": meta}).result()
            await Requester().send(upstream, "tools/call", call_of("echo", text="b")).result()
            continued, own = tracing.calls
            assert continued.parent is not None
            assert (f"{continued.parent.trace_id:032x}", f"{continued.parent.span_id:016x}") == (
                trace,
                meta["traceparent"][36:52],
            )
            assert own.parent is None

    async def test_it_records_arguments_and_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
            tracing = Tracing.installed(monkeypatch)
            await Requester().send(upstream, "tools/call", call_of("echo", text="hello")).result()
            recorded = attributes_of(tracing.call)
            assert recorded[names.TOOL_ARGUMENTS] == '{"text":"hello"}'
            assert '"hello"' in recorded[names.TOOL_RESULT]

    @pytest.mark.parametrize("sampler", [ALWAYS_ON, ALWAYS_OFF])
    async def test_what_cannot_be_decoded_is_passed_on_all_the_same(
        self, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with upstream_of(FakeServer("one", tools=[huge])) as upstream:
            Tracing.installed(monkeypatch, TracerProvider(sampler=sampler))
            params = {"name": "huge", "arguments": orjson.Fragment(b'{"number":1e400}')}
            relayed = await Requester().send(upstream, "tools/call", params).relayed()
            assert relayed.error is None
            assert b"0" * 400 in relayed.result
