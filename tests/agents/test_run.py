"""Runs of agents from end to end: a scripted endpoint over HTTP, servers as processes, nothing replaced."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.agents.base import Agent
from gaia.agents.base.agent_result import AgentResult, Usage
from gaia.agents.base.chat import Completion, RequestedCall
from gaia.agents.base.console import SilentConsole
from gaia.agents.base.llm import LLMSettings, LLMUnreachable
from gaia.agents.base.tools import tool
from gaia.mcp import MCPClientMixin
from gaia.runtime.cancellation import current_scope
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("empty_registry")


class RecordingConsole(SilentConsole):
    def __init__(self) -> None:
        self.shown: list[str] = []

    def print_step(self, step: int, max_steps: int) -> None:
        self.shown.append(f"step {step}/{max_steps}")

    def print_text(self, text: str) -> None:
        self.shown.append(text)

    def end_text(self) -> None:
        self.shown.append("|")

    def print_tool_usage(self, tool_name: str) -> None:
        self.shown.append(f"using {tool_name}")

    def print_tool_outcome(self, tool_name: str, outcome: str, duration: float) -> None:
        self.shown.append(f"{tool_name}: {outcome}")


class TestedAgent(Agent, MCPClientMixin):
    def __init__(self, endpoint: ScriptedLLM | None, *, stream: bool = True, **settings: Any) -> None:
        llm = None if endpoint is None else LLMSettings(endpoint.base_url, "scripted", stream=stream, max_retries=0)
        super().__init__(llm=llm, auto_load_config=False, **settings)

    def _get_system_prompt(self) -> str:
        return "You are tested."

    def _create_console(self) -> RecordingConsole:
        return RecordingConsole()

    def _register_tools(self) -> None:
        pass

    def shown(self) -> list[str]:
        assert isinstance(self.console, RecordingConsole)
        return self.console.shown


Connected = Callable[..., TestedAgent]


@pytest.fixture
def connected() -> Iterator[Connected]:
    """An agent with this server, which is stopped at the end of the test; the keywords are the agent's."""
    with contextlib.ExitStack() as stack:

        def make(
            endpoint: ScriptedLLM, server: Any, name: str = "demo", kind: Any = TestedAgent, **settings: Any
        ) -> Any:
            agent = kind(endpoint, **settings)
            stack.callback(agent.close_mcp)
            agent.connect_mcp_server(name, server)
            return agent

        yield make


def after(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Do something in another thread as soon as a condition holds."""

    def wait_and_act() -> None:
        if wait_until(condition):
            action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize("stream", [True, False])
class TestAnswers:
    def test_a_model_that_just_answers(self, stream: bool) -> None:
        with scripted_llm(Reply("Hello, you  there.", usage=(7, 3))) as endpoint:
            agent = TestedAgent(endpoint, stream=stream)
            result = agent.run("Hello")
        assert (result.answer, str(result), result.stop_reason) == (
            "Hello, you  there.",
            "Hello, you  there.",
            "answer",
        )
        assert result.usage == Usage(7, 3)
        assert result.usage.total_tokens == 10
        assert len(result.steps) == 1
        (request,) = endpoint.requests
        assert request["model"] == "scripted"
        assert request["messages"] == [
            {"role": "system", "content": "You are tested."},
            {"role": "user", "content": "Hello"},
        ]
        assert "tools" not in request
        shown = agent.shown()
        assert (shown[0], "".join(shown[1:-1]), shown[-1]) == ("step 1/20", "Hello, you  there.", "|")
        assert len(shown) == (5 if stream else 3)

    def test_native_tools_are_called_and_their_results_told(self, stream: bool) -> None:
        @tool
        def add(a: int, b: int = 1) -> int:
            """Add."""
            return a + b

        with scripted_llm(Reply("I add.", [("add", {"a": 2})]), Reply("It is 3.")) as endpoint:
            result = TestedAgent(endpoint, stream=stream).run("2 + 1?")
        assert result.answer == "It is 3."
        assert result.usage == Usage(20, 10)
        (call,) = result.tool_calls
        assert (call.name, call.arguments, call.outcome, call.content) == ("add", {"a": 2}, "success", "3")
        assert call.duration >= 0
        (definition,) = endpoint.requests[0]["tools"]
        assert definition == {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add.",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            },
        }
        assistant, answer = endpoint.requests[1]["messages"][-2:]
        assert assistant["content"] == "I add."
        assert assistant["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}
        assert answer == {"role": "tool", "tool_call_id": assistant["tool_calls"][0]["id"], "content": "3"}

    def test_mcp_tools_keep_their_schema_and_are_called(
        self, stream: bool, demo_server: dict[str, Any], connected: Connected
    ) -> None:
        replies = [Reply(calls=[("mcp_demo_add", {"a": 2, "b": 3}), ("mcp_demo_fail", {})]), Reply("5")]
        with scripted_llm(*replies) as endpoint:
            agent = connected(endpoint, demo_server, stream=stream)
            result = agent.run("2 + 3?")
        offered = {entry["function"]["name"]: entry["function"] for entry in endpoint.requests[0]["tools"]}
        client = agent.get_mcp_client("demo")
        assert client is not None
        schemas = {f"mcp_demo_{tool.name}": tool.input_schema for tool in client.list_tools()}
        assert {name: about["parameters"] for name, about in offered.items()} == schemas
        assert offered["mcp_demo_add"]["parameters"]["additionalProperties"] is False
        # What a model is told about a tool is in the request once.
        sent = json.dumps(endpoint.requests[0])
        assert all(sent.count(json.dumps(tool.description)[1:-1]) == 1 for tool in client.list_tools())
        added, failed = result.tool_calls
        assert (added.name, added.outcome, failed.outcome) == ("mcp_demo_add", "success", "error")
        assert json.loads(added.content)["data"]["structuredContent"] == {"sum": 5}
        assert endpoint.last_results() == [added.content, failed.content]
        assert "using mcp_demo_add" in agent.shown()
        assert "mcp_demo_fail: error" in agent.shown()


class TestMistakesOfTheModel:
    @pytest.fixture(autouse=True)
    def _tools(self, empty_registry: None) -> None:
        @tool
        def upper(text: str) -> str:
            """Upper case."""
            if text == "explode":
                raise LookupError("no such text")
            return text.upper()

    @pytest.mark.parametrize(
        ("name", "arguments", "message"),
        [
            ("upper", '{"text": "a', "not valid JSON"),
            ("upper", '["a"]', "must be a JSON object"),
            ("upper", "{}", "missing required: text"),
            ("upper", {"text": "a", "size": 1}, "unknown: size"),
            ("uper", {"text": "a"}, "did you mean upper?"),
            ("no such tool!", {}, "Unknown tool"),
            ("upper", {"text": "explode"}, "LookupError: no such text"),
        ],
    )
    def test_go_back_to_it_as_errors(self, name: str, arguments: Any, message: str) -> None:
        with scripted_llm(Reply(calls=[(name, arguments)]), Reply("Sorry.")) as endpoint:
            result = TestedAgent(endpoint).run("Go.")
        assert result.answer == "Sorry."
        (call,) = result.tool_calls
        assert call.outcome == "error"
        assert message in call.content
        assert endpoint.last_results() == [call.content]
        # What goes back is what endpoints accept.
        function = endpoint.requests[1]["messages"][-2]["tool_calls"][0]["function"]
        assert isinstance(json.loads(function["arguments"]), dict)
        assert function["name"].replace("_", "").isalnum()


class TestNames:
    def test_a_native_tool_with_a_name_that_endpoints_refuse_gets_one_they_accept(self) -> None:
        @tool(name="grüße an alle")
        def greet() -> str:
            """Greet."""
            return "Hallo"

        def call_it(request: dict[str, Any]) -> Reply:
            return Reply(calls=[(request["tools"][0]["function"]["name"], {})])

        with scripted_llm(call_it, Reply("Done.")) as endpoint:
            (call,) = TestedAgent(endpoint).run("Go.").tool_calls
        assert (call.name, call.outcome, call.content) == ("grüße an alle", "success", "Hallo")
        assert endpoint.requests[0]["tools"][0]["function"]["name"].isascii()


class TestOddEntries:
    def test_an_entry_without_a_function_is_not_offered_and_calling_it_is_an_error(self) -> None:
        with scripted_llm(Reply(calls=[("listed", {})]), Reply("Sorry.")) as endpoint:
            agent = TestedAgent(endpoint)
            agent._tools_registry["listed"] = {"name": "listed", "description": "Only listed."}
            (call,) = agent.run("Go.").tool_calls
        assert "tools" not in endpoint.requests[0]
        assert (call.outcome, "cannot be called" in call.content) == ("error", True)

    def test_calls_with_the_same_id_are_each_made(self) -> None:
        made: list[int] = []

        @tool
        def note(number: int) -> int:
            """Note."""
            made.append(number)
            return number

        class Careless:
            asked = 0

            def complete(self, messages: Any, tools: Any, on_text: Callable[[str], None]) -> Completion:
                self.asked += 1
                if self.asked > 1:
                    return Completion("Done.")
                return Completion("", tuple(RequestedCall("same", "note", {"number": n}) for n in (1, 2)))

        agent = TestedAgent(None)
        agent.llm = Careless()
        result = agent.run("Go.")
        assert sorted(made) == [1, 2]
        assert [call.content for call in result.tool_calls] == ["1", "2"]


class TestParallelCalls:
    def test_calls_of_one_step_overlap(self) -> None:
        both = threading.Barrier(2, timeout=PATIENCE)

        @tool
        def meet(name: str) -> str:
            """Wait for the other one."""
            both.wait()
            return name

        with scripted_llm(Reply(calls=[("meet", {"name": "a"}), ("meet", {"name": "b"})]), Reply("Met.")) as endpoint:
            result = TestedAgent(endpoint).run("Go.")
        assert [call.content for call in result.tool_calls] == ["a", "b"]

    def test_calls_to_one_server_overlap(
        self, fault_server: Callable[..., dict[str, Any]], connected: Connected
    ) -> None:
        # The server answers nothing before it has all three.
        calls = [("mcp_s_echo", {"text": text}) for text in "abc"]
        with scripted_llm(Reply(calls=calls), Reply("Done.")) as endpoint:
            agent = connected(endpoint, fault_server(reorder=3) | {"timeout": PATIENCE}, "s")
            result = agent.run("Go.")
        texts = [json.loads(call.content)["data"]["content"][0]["text"] for call in result.tool_calls]
        assert texts == ["a", "b", "c"]

    def test_no_more_run_at_once_than_allowed(self) -> None:
        running, most = threading.Semaphore(2), []

        @tool
        def count(number: int) -> int:
            """Count."""
            most.append(running.acquire(blocking=False))
            running.release()
            return number

        with scripted_llm(Reply(calls=[("count", {"number": n}) for n in range(12)]), Reply("Done.")) as endpoint:
            result = TestedAgent(endpoint, max_parallel_tools=2).run("Go.")
        assert [call.content for call in result.tool_calls] == [str(number) for number in range(12)]
        assert all(most)


class TestLimits:
    def test_a_run_ends_at_the_step_limit_with_all_its_calls_answered(self) -> None:
        @tool
        def again() -> str:
            """Go on."""
            return "more"

        with scripted_llm(*[Reply(f"Step {n}.", [("again", {})]) for n in range(5)], Reply("Done.")) as endpoint:
            agent = TestedAgent(endpoint, max_steps=2)
            result = agent.run("Go.")
            assert (result.stop_reason, result.answer, len(result.steps)) == ("step_limit", "Step 1.", 2)
            assert [call.outcome for call in result.tool_calls] == ["success", "success"]
            continued = agent.run("Go on.", history=result.messages, max_steps=3)
        assert (continued.stop_reason, len(continued.steps)) == ("step_limit", 3)
        assert endpoint.requests[2]["messages"][1:-1] == list(result.messages)

    def test_a_long_result_reaches_the_model_as_head_and_tail_and_is_kept_in_a_private_file(
        self, tmp_path: Path
    ) -> None:
        text = "start " + "ä" * 5000 + " end"

        @tool
        def read() -> str:
            """Read."""
            return text

        with scripted_llm(Reply(calls=[("read", {})]), Reply("Long.")) as endpoint:
            (call,) = (
                TestedAgent(endpoint, max_result_bytes=1000, result_directory=tmp_path / "r").run("Go.").tool_calls
            )
        (told,) = endpoint.last_results()
        assert told == call.content
        assert told.startswith("start ")
        assert told.endswith(" end")
        (file,) = (tmp_path / "r").iterdir()
        assert str(file) in told
        assert file.read_text("utf-8") == text
        assert file.stat().st_mode & 0o777 == 0o600


class TestServersThatFail:
    def test_a_crash_is_told_to_the_model_and_the_run_goes_on(
        self, demo_server: dict[str, Any], connected: Connected
    ) -> None:
        replies = [
            Reply(calls=[("mcp_demo_crash", {})]),
            Reply(calls=[("mcp_demo_add", {"a": 1, "b": 1})]),
            Reply("2, in spite of all."),
        ]
        with scripted_llm(*replies) as endpoint:
            agent = connected(endpoint, demo_server, confirm="never")
            result = agent.run("1 + 1?")
        crashed, added = result.tool_calls
        assert crashed.outcome == "error"
        assert json.loads(crashed.content)["data"]["error_type"] == "server_crashed"
        assert added.outcome == "success"
        assert result.answer == "2, in spite of all."

    def test_tools_that_come_while_it_runs_are_offered_in_the_next_step(
        self, feature_server: dict[str, Any], connected: Connected
    ) -> None:
        grown = threading.Event()

        def call_the_new_one(request: dict[str, Any]) -> Reply:
            names = {entry["function"]["name"] for entry in request["tools"]}
            return Reply(calls=[("mcp_demo_grown_1", {})]) if "mcp_demo_grown_1" in names else Reply("None.")

        class Watching(TestedAgent):
            def rebuild_system_prompt(self) -> None:
                super().rebuild_system_prompt()
                if "mcp_demo_grown_1" in self._tools_registry:
                    grown.set()

            def _execute_tool(self, tool_name: str, tool_args: dict[str, Any]) -> Any:
                result = super()._execute_tool(tool_name, tool_args)
                assert grown.wait(PATIENCE)
                return result

        with scripted_llm(Reply(calls=[("mcp_demo_grow", {})]), call_the_new_one, Reply("Grown.")) as endpoint:
            agent = connected(endpoint, feature_server, kind=Watching)
            result = agent.run("Grow.")
        assert [call.name for call in result.tool_calls] == ["mcp_demo_grow", "mcp_demo_grown_1"]


class TestCancellation:
    @pytest.fixture
    def state_file(self, tmp_path: Path) -> Path:
        return tmp_path / "state"

    @pytest.fixture
    def server(self, fault_server: Callable[..., dict[str, Any]], state_file: Path) -> dict[str, Any]:
        return fault_server(faults=[{"tool": "echo", "await_cancel": True, "hang": True}], state_file=state_file)

    def cancelled_at_the_server(self, agent: TestedAgent) -> bool:
        """Asked until it is so: a call that was just being written is cancelled by its own thread, in its own time."""
        client = agent.get_mcp_client("s")
        assert client is not None
        received = json.loads(client.call_tool("received")["content"][0]["text"])
        return "notifications/cancelled" in [message["method"] for message in received]

    def test_calls_to_servers_are_cancelled_and_the_servers_told(
        self, server: dict[str, Any], state_file: Path, connected: Connected
    ) -> None:
        with scripted_llm(Reply("I ask.", [("mcp_s_echo", {"text": "a"}), ("mcp_s_pid", {})])) as endpoint:
            agent = connected(endpoint, server, "s")
            other = after(lambda: len(read_state(state_file).calls) == 2, agent.cancel)
            result = agent.run("Go.")
            other.join()
            assert wait_until(lambda: self.cancelled_at_the_server(agent))
        assert (result.stop_reason, result.answer) == ("cancelled", "I ask.")
        assert result.tool_calls[0].outcome == "cancelled"
        # The conversation is whole: each call has an answer.
        assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "tool"]
        assert agent.cancel() is False

    def test_ctrl_c_cancels_calls_and_passes_on(
        self, server: dict[str, Any], state_file: Path, connected: Connected
    ) -> None:
        main = threading.main_thread().ident
        assert main is not None
        with scripted_llm(Reply(calls=[("mcp_s_echo", {"text": "a"})])) as endpoint:
            agent = connected(endpoint, server, "s")
            other = after(
                lambda: len(read_state(state_file).calls) == 1, lambda: signal.pthread_kill(main, signal.SIGINT)
            )
            with pytest.raises(KeyboardInterrupt):
                agent.run("Go.")
            other.join()
            assert wait_until(lambda: self.cancelled_at_the_server(agent))

    def test_a_native_tool_is_left_alone_and_can_know(self) -> None:
        started, noticed, go = threading.Event(), threading.Event(), threading.Event()

        @tool
        def stubborn() -> str:
            """Go on and on."""
            scope = current_scope()
            assert scope is not None
            scope.on_cancel(noticed.set)
            started.set()
            go.wait(PATIENCE)
            return "too late"

        with scripted_llm(Reply(calls=[("stubborn", {})])) as endpoint:
            agent = TestedAgent(endpoint)
            other = after(started.is_set, agent.cancel)
            result = agent.run("Go.")
            other.join()
        assert (result.stop_reason, result.tool_calls[0].outcome) == ("cancelled", "cancelled")
        assert noticed.is_set()
        go.set()

    def test_calls_that_have_not_begun_never_do(self) -> None:
        began: list[int] = []

        @tool
        def work(number: int) -> None:
            """Cancel the run."""
            began.append(number)
            agent.cancel()

        with scripted_llm(Reply(calls=[("work", {"number": n}) for n in range(5)])) as endpoint:
            agent = TestedAgent(endpoint, max_parallel_tools=1)
            result = agent.run("Go.")
        assert began == [0]
        assert [call.outcome for call in result.tool_calls][1:] == ["cancelled"] * 4

    @pytest.mark.parametrize("held", ["hold", "hold_after_text"])
    def test_a_model_that_has_not_answered_is_not_waited_for(self, held: str) -> None:
        reply = Reply("Let me think", **{held: threading.Event()})  # type: ignore[arg-type]
        with scripted_llm(reply) as endpoint:
            agent = TestedAgent(endpoint)

            def thinking() -> bool:
                return len(endpoint.requests) == 1 and (held == "hold" or "think" in agent.shown())

            other = after(thinking, agent.cancel)
            result = agent.run("Go.")
            other.join()
            # The request's thread has ended too, although the endpoint still waits.
            assert wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("TestedAgent")])
        assert result.stop_reason == "cancelled"
        assert result.answer == ("" if held == "hold" else "Let me think")

    def test_a_run_within_a_run_is_cancelled_with_it(self) -> None:
        inner_results: list[AgentResult] = []
        with (
            scripted_llm(Reply("Inner", hold=threading.Event())) as inner_endpoint,
            scripted_llm(Reply(calls=[("delegate", {})])) as endpoint,
        ):
            inner = TestedAgent(inner_endpoint)

            @tool
            def delegate() -> str:
                """Ask the other agent."""
                inner_results.append(inner.run("Go."))
                return "done"

            agent = TestedAgent(endpoint)
            other = after(lambda: len(inner_endpoint.requests) == 1, agent.cancel)
            assert agent.run("Go.").stop_reason == "cancelled"
            other.join()
            assert wait_until(lambda: bool(inner_results))
        assert inner_results[0].stop_reason == "cancelled"


class TestConfirmation:
    @pytest.fixture
    def run(self, demo_server: dict[str, Any], connected: Connected) -> Callable[..., AgentResult]:
        def run(**settings: Any) -> AgentResult:
            calls = [("mcp_demo_add", {"a": 1, "b": 2}), ("mcp_demo_counter", {})]
            with scripted_llm(Reply(calls=calls), Reply("Done.")) as endpoint:
                return connected(endpoint, demo_server, **settings).run("Go.")

        return run

    def test_a_call_that_is_confirmed_is_made_and_asked_about_once(self, run: Callable[..., AgentResult]) -> None:
        seen: list[Any] = []

        def agree(request: Any) -> bool:
            seen.append(request)
            return True

        result = run(confirm="always", on_confirmation=agree)
        assert [call.outcome for call in result.tool_calls] == ["success", "success"]
        assert [(request.tool, request.server) for request in seen] == [
            ("mcp_demo_add", "demo"),
            ("mcp_demo_counter", "demo"),
        ]
        assert seen[0].arguments == {"a": 1, "b": 2}
        assert seen[0].annotations["readOnlyHint"] is True

    def test_without_a_person_to_ask_the_call_is_refused(self, run: Callable[..., AgentResult]) -> None:
        result = run(confirm="destructive")
        assert [call.outcome for call in result.tool_calls] == ["success", "refused"]
        assert "there is none to ask" in result.tool_calls[1].content


class TestOtherModels:
    def test_anything_else_is_a_mistake(self) -> None:
        agent = TestedAgent(None)
        agent.llm = "gpt"  # type: ignore[assignment]
        with pytest.raises(TypeError, match="LLMSettings"):
            agent.run("Hello")


def test_an_endpoint_that_fails_half_way_leaves_what_was_done() -> None:
    @tool
    def act() -> str:
        """Act."""
        return "acted"

    replies = [Reply(calls=[("act", {})]), Reply("I am", break_off=True)]
    with scripted_llm(*replies) as endpoint, pytest.raises(LLMUnreachable) as raised:
        TestedAgent(endpoint).run("Go.")
    result = raised.value.result
    assert result is not None
    assert (result.stop_reason, result.tool_calls[0].content) == ("error", "acted")
