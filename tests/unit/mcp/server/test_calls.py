"""Questions to the client in the course of a call: which may be asked, and what is carried from round to round."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.agents.base.mcp_context import InputRequired, MCPCapabilityMissing, MCPRequestCancelled, current_mcp_context
from gaia.mcp.server.calls import MAX_ROUNDS, Calls, MayHaveActed, ServedContext
from gaia.runtime.cancellation import current_scope
from gaia.serving.threads import WorkerThreads
from tests.serving.agents import QuietAgent, tool
from tests.waiting import PATIENCE

MakeRequest = Callable[..., Any]

FORM = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
HANDSHAKE = "2025-11-25"


def served(request: Any, answers: Any = None, state: str | None = None) -> ServedContext:
    """A context whose event loop has ended: enough for what sends nothing."""

    async def make() -> ServedContext:
        return ServedContext(request, answers or {}, state)

    return asyncio.run(make())


def in_a_thread(request: Any, use: Callable[[ServedContext], Any]) -> Any:
    """What `use` returns on a worker thread, with the event loop at work."""

    async def session() -> Any:
        context = ServedContext(request, {}, None)
        return await asyncio.to_thread(use, context)

    return asyncio.run(session())


class TestStatelessEra:
    def test_what_has_no_answer_yet_ends_the_call(self, make_request: MakeRequest) -> None:
        context = served(make_request(capabilities=EVERYTHING), {"roots-1": {"roots": []}})
        assert context.list_roots() == []
        with pytest.raises(InputRequired) as required:
            context.elicit("How large?", FORM)
        (question,) = required.value.requests.values()
        assert question["params"]["requestedSchema"] is FORM

    def test_answers_of_earlier_rounds_are_carried_along(self, make_request: MakeRequest) -> None:
        request = make_request(capabilities=EVERYTHING)
        first = served(request, {"elicitation-1": {"action": "decline"}})
        first.elicit("First?", FORM)
        with pytest.raises(InputRequired):
            first.sample([], 10)
        second = served(request, {"sampling-1": {"content": {}}}, first.pack("mine"))
        assert second.elicit("First?", FORM) == {"action": "decline"}
        assert second.sample([], 10) == {"content": {}}
        assert (first.round, second.round, second.request_state) == (1, 2, "mine")

    def test_what_was_answered_and_not_asked_is_not_kept(self, make_request: MakeRequest) -> None:
        request = make_request(capabilities=EVERYTHING)
        packed = served(request, {"elicitation-1": {"action": "accept", "content": {}}}).pack(None)
        with pytest.raises(InputRequired):
            served(request, {}, packed).elicit("Sure?", {"type": "object"})

    @pytest.mark.parametrize(
        ("answer", "is_one"),
        [
            (None, False),
            ("accept", False),
            ({"content": {"size": 1}}, False),
            ({"action": "accept"}, False),
            ({"action": "accept", "content": {"size": "large"}}, False),
            ({"roots": []}, False),
            ({"action": "accept", "content": {"size": 1}}, True),
            ({"action": "cancel"}, True),
        ],
    )
    def test_a_form_that_is_filled_in_wrong_is_shown_again(
        self, answer: Any, is_one: bool, make_request: MakeRequest
    ) -> None:
        context = served(make_request(capabilities=EVERYTHING), {"elicitation-1": answer})
        with contextlib.nullcontext() if is_one else pytest.raises(InputRequired):
            assert context.elicit("How large?", FORM) == answer

    @pytest.mark.parametrize("state", ["{broken", "7", "[]", "null", ""])
    def test_a_state_that_is_none_of_ours_begins_anew(self, state: str, make_request: MakeRequest) -> None:
        context = served(make_request(), {}, state)
        assert (context.round, context.request_state, context.answers) == (1, None, {})


class TestHandshakeEra:
    def test_the_thread_waits_for_the_answer_on_the_requests_own_stream(self, make_request: MakeRequest) -> None:
        asked: list[Any] = []

        async def answer(request: Any, _result_type: Any, *, metadata: Any) -> types.ElicitResult:
            asked.append((request.params.message, metadata.related_request_id))
            return types.ElicitResult(action="accept", content={"size": 2})

        request = make_request(HANDSHAKE, capabilities=EVERYTHING, answer=answer, request_id="r1")
        answered = in_a_thread(request, lambda context: context.elicit("How large?", FORM))
        assert answered == {"action": "accept", "content": {"size": 2}}
        assert asked == [("How large?", "r1")]

    def test_a_request_that_is_cancelled_waits_no_longer(self, make_request: MakeRequest) -> None:
        context_of: list[ServedContext] = []

        async def answer(*_: Any, **__: Any) -> None:
            # The client never answers, and cancels the call.
            context_of[0].scope.cancel()
            await asyncio.Event().wait()

        def ask(context: ServedContext) -> None:
            context_of.append(context)
            with pytest.raises(MCPRequestCancelled):
                context.elicit("How large?", FORM)
            assert context.cancelled
            with pytest.raises(MCPRequestCancelled):
                context.report_progress(1)

        in_a_thread(with_progress(make_request(HANDSHAKE, capabilities=EVERYTHING, answer=answer)), ask)

    def test_a_client_without_a_way_back_cannot_be_asked(self, make_request: MakeRequest) -> None:
        request = make_request(HANDSHAKE, capabilities=EVERYTHING, can_send_request=False)
        with pytest.raises(MCPCapabilityMissing, match="elicitation"):
            served(request).elicit("How large?", FORM)


def with_progress(request: Any) -> Any:
    async def report_progress(*_: Any) -> None:
        raise AssertionError("a cancelled request reports nothing")

    request.session.report_progress = report_progress
    return request


class TestCapabilities:
    @pytest.mark.parametrize(
        ("declared", "ask", "missing"),
        [
            ({}, lambda context: context.elicit("?", FORM), "elicitation"),
            ({}, lambda context: context.list_roots(), "roots"),
            ({"elicitation": {}}, lambda context: context.elicit_url("?", "https://a.example"), "elicitation.url"),
            ({"elicitation": {"url": {}}}, lambda context: context.elicit("?", FORM), "elicitation.form"),
            ({"sampling": {}}, lambda context: context.sample([], 1, tools=[]), "sampling.tools"),
        ],
    )
    def test_what_a_client_did_not_declare_is_not_asked(
        self, declared: dict[str, Any], ask: Callable[[ServedContext], Any], missing: str, make_request: MakeRequest
    ) -> None:
        with pytest.raises(MCPCapabilityMissing) as raised:
            ask(served(make_request(capabilities=declared)))
        assert raised.value.capability == missing

    def test_a_client_that_names_no_mode_has_forms_and_one_question_too_many_keeps_the_others_from_being_asked(
        self, make_request: MakeRequest
    ) -> None:
        with pytest.raises(InputRequired):
            served(make_request(capabilities={"elicitation": {}})).elicit("?", FORM)
        context = served(make_request(capabilities={"roots": {}}))
        with pytest.raises(MCPCapabilityMissing):
            context.ask({"a": {"method": "roots/list"}, "b": {"method": "sampling/createMessage", "params": {}}})
        with pytest.raises(ValueError, match="cannot be asked 'tools/call'"):
            context.ask({"a": {"method": "tools/call"}})


def test_a_log_message_is_sent_if_the_client_wants_its_level(make_request: MakeRequest) -> None:
    request = make_request(meta={"io.modelcontextprotocol/logLevel": "warning"})

    def log(context: ServedContext) -> None:
        context.log("info", "not wanted")
        context.log("error", {"disk": "full"}, "storage")

    in_a_thread(request, log)
    (notification,) = request.session.sent
    assert notification.params.model_dump(exclude_none=True, by_alias=True) == {
        "level": "error",
        "logger": "storage",
        "data": {"disk": "full"},
    }


QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}},
}
PARAMS = types.CallToolRequestParams(name="t")


@pytest.fixture
def calls() -> Iterator[Calls]:
    threads = WorkerThreads(2)
    yield Calls(threads)
    threads.close(10)


class Insatiable(QuietAgent):
    """Answers each call with a further question."""

    def __init__(self, question: dict[str, Any] = QUESTION) -> None:
        super().__init__(silent_mode=True)
        self.question = question
        self.states: list[str | None] = []

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [tool("t")]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.states.append(self.mcp_context.request_state)
        state = f"asked {len(self.states)} times"
        return {"resultType": "input_required", "inputRequests": {"q": self.question}, "requestState": state}


async def agree(_context: Any, _params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_agent_that_never_has_enough_answers_is_stopped(mode: str, use: Callable[..., None]) -> None:
    agent = Insatiable()

    async def talk(client: Client) -> None:
        # No error, after which clients may call again: the agent may have acted.
        result = await client.call_tool("t", {})
        assert (result.is_error, f"More than {MAX_ROUNDS} rounds" in result.content[0].text) == (True, True)

    use(agent, talk, mode=mode, elicitation_callback=agree, input_required_max_rounds=100)
    assert agent.states == [None, *(f"asked {number} times" for number in range(1, MAX_ROUNDS))]


def test_a_question_in_no_form_of_the_protocol_is_the_agents_error(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(client: Client) -> None:
        result = await client.call_tool("t", {})
        assert (result.is_error, "asked for input in a form" in result.content[0].text) == (True, True)

    use(Insatiable({"method": "elicitation/create", "params": {"message": 7}}), talk, elicitation_callback=agree)
    assert "input_requests_invalid" in caplog.text


@pytest.mark.parametrize(
    ("revision", "code", "data"),
    [
        (
            "2026-07-28",
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            {"requiredCapabilities": {"elicitation": {"url": {}}}},
        ),
        ("2025-11-25", types.INVALID_REQUEST, None),
    ],
)
async def test_a_missing_capability_is_told_as_the_era_has_it(
    revision: str, code: int, data: Any, calls: Calls, make_request: MakeRequest
) -> None:
    def ask() -> dict[str, Any]:
        raise MCPCapabilityMissing("elicitation.url")

    with pytest.raises(MCPError) as raised:
        await calls.interactive(make_request(revision), PARAMS, ask)
    assert (raised.value.error.code, raised.value.error.data) == (code, data)


async def test_the_agent_finds_its_request_and_the_scope_of_it(calls: Calls, make_request: MakeRequest) -> None:
    found: list[Any] = []

    def look() -> dict[str, Any]:
        context = current_mcp_context.get()
        found.extend([context, current_scope(), set(calls.in_flight)])
        return {"done": True}

    assert await calls.interactive(make_request(request_id="r7"), PARAMS, look) == {"done": True}
    context, scope, in_flight = found
    assert context.request_id == "r7"
    assert scope is context.scope
    assert in_flight == {context}
    assert calls.in_flight == set()


async def test_a_request_that_is_cancelled_cancels_what_the_agent_does_for_it(
    calls: Calls, make_request: MakeRequest
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def wait() -> dict[str, Any]:
        context = current_mcp_context.get()
        assert context is not None
        context.on_cancel(cancelled.set)
        begun.set()
        assert cancelled.wait(PATIENCE)
        return {}

    task = asyncio.create_task(calls.interactive(make_request(), PARAMS, wait))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    assert calls.in_flight == set()


async def test_calls_beyond_the_limit_are_refused(make_request: MakeRequest) -> None:
    threads = WorkerThreads(1, waiting=0)
    calls = Calls(threads)
    begun, let_go = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return let_go.wait(PATIENCE)

    first = asyncio.create_task(calls.plain(hold))
    await asyncio.to_thread(begun.wait, 10)
    for refused in (calls.plain(dict), calls.interactive(make_request(), PARAMS, dict)):
        with pytest.raises(MCPError, match="The server is busy") as raised:
            await refused
        assert not isinstance(raised.value, MayHaveActed)
    let_go.set()
    assert await first
    assert calls.in_flight == set()
    threads.close(10)
