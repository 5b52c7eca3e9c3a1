"""An agent as a model: its name and its limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gaia.agents.base import Agent, ApiAgent, MCPAgent
from gaia.agents.base import agent as agent_module
from gaia.agents.base.console import AgentConsole, SilentConsole
from gaia.agents.base.registry import ToolRegistry
from gaia.agents.base.tools import _TOOL_REGISTRY, tool
from gaia.mcp import MCPClientMixin
from tests.silent_agent import SilentAgent
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("empty_registry")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """A registry of the test's own; agents made in the test use it."""
    registry: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(agent_module, "_TOOL_REGISTRY", registry)
    return registry


class RecordingConsole(SilentConsole):
    def __init__(self) -> None:
        self.used: list[str] = []

    def print_tool_usage(self, tool_name: str) -> None:
        self.used.append(tool_name)


class PlainAgent(Agent):
    def _get_system_prompt(self) -> str:
        return "You are plain."

    def _create_console(self) -> RecordingConsole:
        return RecordingConsole()

    def _register_tools(self) -> None:
        pass


def entry(function: Callable[..., Any], **parameters: bool) -> dict[str, Any]:
    """A registry entry; `parameters` maps each name to whether it is required."""
    return {
        "name": "t",
        "description": "Does it.",
        "parameters": {name: {"type": "string", "required": needed} for name, needed in parameters.items()},
        "function": function,
    }


class TestConstruction:
    def test_defaults(self) -> None:
        agent = PlainAgent()
        assert (agent.silent_mode, agent.debug, agent.llm, agent.max_steps) == (False, False, None, 20)
        assert isinstance(agent.console, RecordingConsole)
        assert isinstance(agent._tools_registry, ToolRegistry)
        assert agent.confirmation_gate.policy == "marked"

    def test_only_the_prompt_must_be_given(self) -> None:
        class Smallest(Agent):
            def _get_system_prompt(self) -> str:
                return "You are small."

        assert type(Smallest().console) is AgentConsole
        assert type(Smallest(silent_mode=True).console) is SilentConsole
        assert Agent.__abstractmethods__ == {"_get_system_prompt"}

    def test_arguments_of_the_mixin_without_it_say_what_is_missing(self) -> None:
        with pytest.raises(
            TypeError, match=r"keyword arguments: mcp_servers \(.* class PlainAgent\(Agent, MCPClientMixin\)"
        ):
            PlainAgent(mcp_servers={"time": {"command": "uvx"}})

    def test_a_silent_agent_asks_for_no_console(self) -> None:
        class Loud(PlainAgent):
            def _create_console(self) -> RecordingConsole:
                raise AssertionError

        assert type(Loud(silent_mode=True).console) is SilentConsole

    def test_an_argument_that_no_class_knows_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"PlainAgent\(\) got unexpected keyword arguments: moda, size"):
            PlainAgent(size=1, moda=2)

    def test_a_misspelt_argument_is_answered_with_the_one_that_it_resembles(self) -> None:
        class WithServers(PlainAgent, MCPClientMixin):
            pass

        with pytest.raises(TypeError, match=r"unexpected arguments: mcp_server; did you mean mcp_servers\?$"):
            WithServers(mcp_server={}, auto_load_config=False)
        with pytest.raises(TypeError, match=r"did you mean max_steps, mcp_servers\? \(MCPClientMixin takes them"):
            PlainAgent(mcp_server={}, max_step=3)

    @pytest.mark.parametrize(
        ("keyword", "said"),
        [
            ("skip_lemonade", r"ignores skip_lemonade: gaia-mcp has no use for it$"),
            ("model_id", r"ignores model_id: .*; llm=LLMSettings\(base_url, model\) says"),
        ],
        ids=["in the singular", "with what says it instead"],
    )
    def test_one_keyword_of_amds_agent_is_named(self, keyword: str, said: str) -> None:
        with pytest.warns(DeprecationWarning, match=said):
            PlainAgent(**{keyword: True})

    def test_keywords_of_amds_agent_are_ignored_and_named_once(self) -> None:
        class Migrated(PlainAgent, MCPClientMixin):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(skip_lemonade=True, show_stats=True, **kwargs)

        with pytest.warns(DeprecationWarning, match="Migrated") as warnings:
            agent = Migrated(streaming=False, debug_prompts=True, max_steps=3, auto_load_config=False)
        (warning,) = warnings
        assert str(warning.message) == (
            "Migrated() ignores debug_prompts, show_stats, skip_lemonade, streaming: gaia-mcp has no use for them"
        )
        # The line of `super().__init__`.
        assert warning.filename == __file__
        assert agent.max_steps == 3

    def test_all_keywords_of_amds_agent_are_known(self) -> None:
        names = [
            *("use_claude", "use_chatgpt", "claude_model", "base_url", "model_id", "debug_prompts", "show_prompts"),
            *("output_dir", "streaming", "show_stats", "output_handler", "max_plan_iterations", "device", "skill_set"),
            *("max_consecutive_repeats", "min_context_size", "skip_lemonade"),
        ]
        with pytest.warns(DeprecationWarning, match="use_claude") as warnings:
            PlainAgent(**dict.fromkeys(names))
        assert len(warnings) == 1

    @pytest.mark.parametrize("bases", [(PlainAgent, MCPClientMixin), (MCPClientMixin, PlainAgent), (PlainAgent,)])
    def test_a_misspelt_keyword_is_an_error_beside_them(self, bases: tuple[type, ...]) -> None:
        agent = type("Misspelt", bases, {})
        with (
            pytest.warns(DeprecationWarning, match="skip_lemonade"),
            pytest.raises(
                TypeError, match=r"Misspelt\(\) got unexpected .*: silent_mod(; did you mean silent_mode\?)?$"
            ),
        ):
            agent(skip_lemonade=True, silent_mod=True)

    def test_a_class_after_the_agent_may_take_one_itself(self) -> None:
        class Streaming:
            def __init__(self, streaming: bool, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.streaming = streaming

        class Speaker(PlainAgent, Streaming): ...

        assert Speaker(streaming=True).streaming is True

    def test_the_rest_of_the_arguments_goes_to_the_next_class_when_the_agent_is_ready(self) -> None:
        class Voice:
            def __init__(self, pitch: int, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.pitch = pitch
                self.heard = (self.console, self.max_steps, self.system_prompt)  # type: ignore[attr-defined]

        class Speaker(PlainAgent, Voice): ...

        agent = Speaker(max_steps=3, pitch=440)
        assert agent.pitch == 440
        assert agent.heard == (agent.console, 3, "You are plain.")

    def test_a_mixin_before_the_agent_passes_arguments_on_to_it(self) -> None:
        class Voice:
            def __init__(self, pitch: int, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.pitch = pitch

        class Speaker(Voice, PlainAgent): ...

        agent = Speaker(pitch=440, max_steps=3)
        assert (agent.pitch, agent.max_steps) == (440, 3)

    def test_an_agent_without_a_prompt_cannot_be_made(self) -> None:
        class Incomplete(Agent): ...

        with pytest.raises(TypeError, match="_get_system_prompt"):
            Incomplete()  # type: ignore[abstract]

    def test_tools_registered_by_the_agent_are_its_own(self) -> None:
        class Adder(PlainAgent):
            def __init__(self, start: int) -> None:
                self.start = start
                super().__init__()

            def _register_tools(self) -> None:
                @tool
                def add(number: int) -> int:
                    """Add."""
                    return self.start + number

        try:
            adders = [Adder(1), Adder(2)]
            assert [adder._execute_tool("add", {"number": 1}) for adder in adders] == [2, 3]
        finally:
            del _TOOL_REGISTRY["add"]

    @pytest.mark.process
    def test_importing_agents_loads_neither_a_terminal_library_nor_the_models_package(self) -> None:
        program = "import sys, gaia.agents.base; print({'rich', 'openai'} & set(sys.modules))"
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
        assert (run.stdout.strip(), run.stderr) == ("set()", "")


class TestSystemPrompt:
    def test_an_agent_without_tools_has_its_own_part_only(self, registry: dict[str, Any]) -> None:
        assert PlainAgent().system_prompt == "You are plain."

    def test_tools_are_listed_by_the_names_to_call_them_by(self, registry: dict[str, Any]) -> None:
        registry["query"] = entry(print, text=True, limit=False)
        registry["mcp_acer_launch"] = {"description": "[MCP:acer] Launch it.", "_mcp_server": "acer"}
        assert PlainAgent().system_prompt == "You are plain.\n\nAVAILABLE TOOLS:\n- query\n- mcp_acer_launch"

    def test_each_mixin_adds_its_part(self, registry: dict[str, Any]) -> None:
        class Polite:
            def _get_prompt_part(self) -> str:
                return "Be polite."

        class Brief:
            def _get_prompt_part(self) -> str:
                return "Be brief."

        class Both(Polite, PlainAgent, Brief): ...

        assert Both().system_prompt == "You are plain.\n\nBe polite.\n\nBe brief."

    def test_it_is_kept_until_rebuilt(self, registry: dict[str, Any]) -> None:
        agent = PlainAgent()
        before = agent.system_prompt
        registry["query"] = entry(print)
        assert agent.system_prompt is before
        agent.rebuild_system_prompt()
        assert "- query" in agent.system_prompt

    def test_an_assigned_text_is_used_until_rebuilt(self, registry: dict[str, Any]) -> None:
        agent = PlainAgent()
        agent.system_prompt = "Mine."
        assert agent.system_prompt == "Mine."
        agent.rebuild_system_prompt()
        assert agent.system_prompt == "You are plain."

    def test_a_text_composed_while_the_tools_change_is_not_used_again(self, registry: dict[str, Any]) -> None:
        class Overtaken(PlainAgent):
            def _get_system_prompt(self) -> str:
                if "late" not in registry:
                    registry_before = registry.copy()
                    registry["late"] = entry(print)
                    self.rebuild_system_prompt()
                    self._tools_registry = registry_before
                else:
                    self._tools_registry = registry
                return "You are overtaken."

        agent = Overtaken()
        assert "late" not in agent.system_prompt
        assert "late" in agent.system_prompt

    def test_the_agents_part_may_use_what_its_constructor_sets_last(self, registry: dict[str, Any]) -> None:
        class Named(PlainAgent):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def _get_system_prompt(self) -> str:
                return f"You are {self.name}."

        assert Named("Ada").system_prompt == "You are Ada."


class TestExecuteTool:
    def test_it_returns_what_the_tool_returns_and_shows_its_use(self, registry: dict[str, Any]) -> None:
        registry["upper"] = entry(lambda text: text.upper(), text=True)
        agent = PlainAgent()
        assert agent._execute_tool("upper", {"text": "a"}) == "A"
        assert agent.console.used == ["upper"]  # type: ignore[attr-defined]

    def test_a_name_is_resolved(self, registry: dict[str, Any]) -> None:
        registry["mcp_s_upper"] = entry(lambda text: text.upper(), text=True) | {
            "_mcp_server": "s",
            "_mcp_tool_name": "upper",
        }
        agent = PlainAgent()
        assert agent._resolve_tool_name("s_upper") == "mcp_s_upper"
        assert agent._execute_tool("upper", {"text": "a"}) == "A"
        assert agent.console.used == ["mcp_s_upper"]  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("name", "arguments", "message"),
        [
            ("uper", {}, "Unknown tool: 'uper'; did you mean upper?"),
            (
                "upper",
                {},
                "Wrong arguments for tool 'upper': missing required: text (it takes: text, locale?)",
            ),
            (
                "upper",
                {"text": "a", "size": 1},
                "Wrong arguments for tool 'upper': unknown: size (it takes: text, locale?)",
            ),
            (
                "upper",
                {"size": 1},
                "Wrong arguments for tool 'upper': missing required: text; unknown: size (it takes: text, locale?)",
            ),
            ("upper", ["a"], "Arguments of tool 'upper' must be an object, not list"),
            ("upper", None, "Arguments of tool 'upper' must be an object, not NoneType"),
        ],
    )
    def test_a_call_that_does_not_fit_is_an_error_and_never_runs(
        self, registry: dict[str, Any], name: str, arguments: Any, message: str
    ) -> None:
        def upper(text: str, locale: str = "") -> str:
            raise AssertionError

        registry["upper"] = entry(upper, text=True, locale=False)
        agent = PlainAgent()
        assert agent._execute_tool(name, arguments) == {"status": "error", "error": message}
        assert agent.console.used == []  # type: ignore[attr-defined]

    def test_a_function_that_takes_any_keyword_judges_for_itself(self, registry: dict[str, Any]) -> None:
        registry["echo"] = entry(lambda **arguments: arguments)
        assert PlainAgent()._execute_tool("echo", {"anything": 1}) == {"anything": 1}

    def test_a_function_that_does_not_say_what_it_takes_judges_for_itself(self, registry: dict[str, Any]) -> None:
        registry["fromkeys"] = entry(dict)
        assert PlainAgent()._execute_tool("fromkeys", {"a": 1}) == {"a": 1}

    def test_an_exception_becomes_an_error(self, registry: dict[str, Any]) -> None:
        registry["lookup"] = entry(lambda: {}["absent"])
        assert PlainAgent()._execute_tool("lookup", {}) == {"status": "error", "error": "KeyError: 'absent'"}

    def test_a_name_that_is_no_text_is_an_error(self, registry: dict[str, Any]) -> None:
        result = PlainAgent()._execute_tool(None, {})  # type: ignore[arg-type]
        assert result["status"] == "error"

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
    def test_stopping_the_program_is_not_a_failure_of_the_tool(
        self, registry: dict[str, Any], stop: type[BaseException]
    ) -> None:
        def interrupted() -> None:
            raise stop

        registry["slow"] = entry(interrupted)
        with pytest.raises(stop):
            PlainAgent()._execute_tool("slow", {})


class TestConfirmation:
    class Asking(SilentConsole):
        def __init__(self, answer: bool) -> None:
            self.answer = answer

        def confirm(self, request: Any) -> bool:
            return self.answer

    @pytest.mark.parametrize("answer", [True, False])
    def test_a_console_that_can_ask_is_asked_before_marked_tools(self, registry: dict[str, Any], answer: bool) -> None:
        class Careful(PlainAgent):
            def _create_console(self) -> Any:
                return TestConfirmation.Asking(answer)

        registry["delete"] = entry(lambda: "deleted") | {"requires_confirmation": True}
        registry["read"] = entry(lambda: "read")
        agent = Careful()
        assert agent.confirmation_gate.policy == "destructive"
        assert agent._execute_tool("read", {}) == "read"
        result = agent._execute_tool("delete", {})
        refused = {"status": "error", "error": "The user refused the call of 'delete'. It was not made."}
        assert result == ("deleted" if answer else refused)

    @pytest.mark.parametrize(("terminal", "policy"), [(True, "destructive"), (False, "marked")])
    def test_the_usual_console_asks_on_a_terminal_only(
        self, monkeypatch: pytest.MonkeyPatch, terminal: bool, policy: str
    ) -> None:
        class Usual(PlainAgent):
            def _create_console(self) -> Any:
                return AgentConsole()

        monkeypatch.setattr(AgentConsole, "interactive", terminal)
        assert Usual().confirmation_gate.policy == policy
        assert Usual(confirm="always").confirmation_gate.policy == "always"
        assert Usual(silent_mode=True).confirmation_gate.policy == "marked"

    def test_without_a_person_a_destructive_tool_needs_an_explicit_policy(self, registry: dict[str, Any]) -> None:
        registry["mcp_files_write"] = entry(lambda: "written") | {
            "_mcp_server": "files",
            "_mcp_tool_name": "write",
            "_mcp_annotations": {"readOnlyHint": False, "destructiveHint": True},
        }
        refused = PlainAgent()._execute_tool("mcp_files_write", {})
        assert refused["status"] == "error"
        assert "marked destructive" in refused["error"]
        assert "on_confirmation" in refused["error"]
        assert 'confirm="never"' in refused["error"]
        assert PlainAgent(confirm="never")._execute_tool("mcp_files_write", {}) == "written"
        assert PlainAgent(on_confirmation=lambda request: True)._execute_tool("mcp_files_write", {}) == "written"


@pytest.mark.parametrize(
    ("name", "model"), [("CodeAgent", "gaia-code"), ("Jira", "gaia-jira"), ("Agent", "gaia-agent")]
)
def test_the_model_is_named_after_the_class(name: str, model: str) -> None:
    cls: type[ApiAgent] = type(name, (ApiAgent, SilentAgent), {})
    assert cls().get_model_id() == model


def test_the_model_tells_its_limits() -> None:
    class CodeAgent(ApiAgent, SilentAgent): ...

    info = CodeAgent().get_model_info()
    assert set(info) == {"max_input_tokens", "max_output_tokens", "description"}
    assert "CodeAgent" in info["description"]


def test_it_combines_with_an_mcp_agent_in_either_order() -> None:
    methods = {"get_mcp_tool_definitions": lambda self: [], "execute_mcp_tool": lambda self, name, arguments: {}}
    for bases in [(MCPAgent, ApiAgent, SilentAgent), (ApiAgent, MCPAgent, SilentAgent)]:
        agent = type("BothAgent", bases, methods)(silent_mode=True)
        assert agent.get_model_id() == "gaia-both"
        assert agent.get_mcp_server_info()["name"] == "GAIA BothAgent"
