"""Cassettes of real servers: recorded twice, played back, and compared."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import MCPClientManager, Restarted, ServerLog
from gaia.testing import CassetteMismatch, record, replay
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
FaultServer = Callable[..., Json]
Story = Callable[[MCPClientManager], list[Any]]
"""What a program does, and what it sees."""


def told(story: Story, servers: Any, file: Path, **options: Any) -> list[Any]:
    """Record a story of real servers."""
    with MCPClientManager(servers, **options) as manager, record(manager, file):
        manager.require(timeout=PATIENCE)
        return story(manager)


def replayed(story: Story, file: Path, **options: Any) -> list[Any]:
    with replay(file) as servers, MCPClientManager(servers, **options) as manager:
        manager.require(timeout=PATIENCE)
        return story(manager)


def same(story: Story, servers: Any, tmp_path: Path, **options: Any) -> Path:
    """Check that two recordings of a story are the same, and that a replay looks the same to the program."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    seen = told(story, servers, one, **options)
    told(story, servers, other, **options)
    assert other.read_text("utf-8") == one.read_text("utf-8")
    assert replayed(story, one, **options) == seen
    return one


def outcome(result: Any) -> Any:
    """What a program sees of a result: without what a crashed server wrote on stderr."""
    return str(result["error"]).split(";")[0] if "error" in result else result


class TestDemoServer:
    def test_calls_of_many_kinds(self, demo_server: Json, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            progress: list[Any] = []
            return [
                [tool.namespaced_name for tool in manager.list_tools()],
                manager.call_tool("mcp_demo_add", {"a": 1, "b": 2}),
                [manager.call_tool("mcp_demo_counter") for _ in range(3)],
                manager.call_tool("mcp_demo_sleep", {"seconds": 0.01}, on_progress=lambda *one: progress.append(one)),
                progress,
                outcome(manager.call_tool("mcp_demo_fail", {"message": "no"})),
                outcome(manager.call_tool("mcp_demo_sleep", {"seconds": 30}, timeout=0.05)),
            ]

        same(story, {"demo": demo_server}, tmp_path)

    def test_a_crash_and_the_restart(self, demo_server: Json, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            restarted = threading.Event()
            manager.subscribe(lambda event: restarted.set() if isinstance(event, Restarted) else None)
            seen = [
                manager.call_tool("mcp_demo_counter"),
                manager.call_tool("mcp_demo_counter"),
                outcome(manager.call_tool("mcp_demo_crash", {"exit_code": 3})),
                manager.call_tool("mcp_demo_counter"),
            ]
            assert restarted.wait(PATIENCE)
            return [*seen, manager.status()[0].restarts]

        file = same(story, {"demo": demo_server}, tmp_path)
        first, second = json.loads(file.read_text("utf-8"))["servers"]["demo"]["starts"]
        assert first["end"] == {"exit_code": 3}
        assert "end" not in second

    @pytest.mark.skipif(sys.platform == "win32", reason="no signals")
    def test_a_server_that_is_killed_between_calls(self, demo_server: Json, tmp_path: Path) -> None:
        file = tmp_path / "cassette.json"

        def story(manager: MCPClientManager) -> list[Any]:
            first = manager.call_tool("mcp_demo_counter")
            if (pid := manager.status()[0].pid) is not None:
                os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: manager.status()[0].restarts == 1)
            return [first, manager.call_tool("mcp_demo_counter"), manager.status()[0].last_error]

        seen = told(story, {"demo": demo_server}, file)
        assert replayed(story, file) == [*seen[:2], "the server was killed by SIGKILL"]

    def test_concurrent_calls(self, demo_server: Json, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            with ThreadPoolExecutor(8) as threads:
                return list(threads.map(lambda n: manager.call_tool("mcp_demo_add", {"a": n, "b": n}), range(40)))

        same(story, {"demo": demo_server}, tmp_path)

    def test_secrets_are_masked(self, demo_server: Json, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            return [manager.call_tool("mcp_demo_echo", {"text": "Bearer hunter22!"}).is_error]

        entry = {**demo_server, "env": {"API_TOKEN": "hunter22"}}
        text = same(story, {"demo": entry}, tmp_path).read_text("utf-8")
        assert "hunter22" not in text
        assert "Bearer ***!" in text
        # What says how to start the server is not there at all.
        assert "API_TOKEN" not in text

    def test_a_different_call_shows_the_difference(self, demo_server: Json, tmp_path: Path) -> None:
        file = tmp_path / "cassette.json"
        told(lambda manager: [manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})], {"demo": demo_server}, file)
        with pytest.raises(CassetteMismatch) as failure:
            replayed(lambda manager: [manager.call_tool("mcp_demo_add", {"a": 1, "b": 3})], file)
        message = str(failure.value)
        assert message.startswith(f"{file}, server 'demo': tool 'add'")
        assert message.endswith("@ b\n-2\n+3")


class TestFeatures:
    def test_resources_prompts_and_changes(self, feature_server: Json, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            client = manager.get_client("feature")
            assert client is not None
            logs: list[str] = []
            logged = threading.Event()

            def listen(event: object) -> None:
                if isinstance(event, ServerLog):
                    logs.append(str(event.data))
                    logged.set()

            manager.subscribe(listen)
            seen: list[Any] = [
                [resource["uri"] for resource in client.list_resources()],
                client.read_resource("demo://greeting"),
                client.get_prompt("greet", {"name": "Ada"}),
                manager.call_tool("mcp_feature_grow"),
            ]
            assert wait_until(lambda: any(tool.name == "grown_1" for tool in manager.list_tools()))
            seen += [manager.call_tool("mcp_feature_grown_1"), manager.call_tool("mcp_feature_log", {"text": "hello"})]
            assert logged.wait(PATIENCE)
            return [*seen, logs]

        same(story, {"feature": feature_server}, tmp_path)


class TestFaultServer:
    def test_a_stateless_server(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            client = manager.get_client("fault")
            assert client is not None
            return [manager.call_tool("mcp_fault_echo", {"text": "a"}), client.protocol_version]

        file = same(story, {"fault": fault_server(era="stateless")}, tmp_path)
        (start,) = json.loads(file.read_text("utf-8"))["servers"]["fault"]["starts"]
        methods = [exchange["request"] for exchange in start["exchanges"]]
        assert methods == ["server/discover", "tools/list", "tools/call"]

    def test_a_crash_with_several_calls_under_way(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            calls = [manager.submit_tool("mcp_fault_echo", {"text": text}) for text in "abc"]
            calls.append(manager.submit_tool("mcp_fault_sleep", {"seconds": 0}))
            return [outcome({"error": call.exception(PATIENCE)}) for call in calls]

        faults = [{"tool": "echo", "hang": True}, {"tool": "sleep", "crash": "before_answer", "exit_code": 4}]
        same(story, {"fault": fault_server(faults=faults)}, tmp_path)

    def test_a_crash_in_the_middle_of_an_answer(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            results = [manager.call_tool("mcp_fault_echo", {"text": text}) for text in "abc"]
            return [outcome(result) for result in results]

        servers = {"fault": fault_server(faults=[{"tool": "echo", "nth": [2], "crash": "mid_line"}])}
        same(story, servers, tmp_path)

    def test_a_safe_call_is_repeated_after_the_crash(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def configured(name: str) -> Json:
            return fault_server(
                tools=[{"name": "look", "text": "seen", "annotations": {"readOnlyHint": True}}],
                faults=[{"tool": "look", "crash": "before_answer"}],
                # The first start is before the recording.
                by_start={"3": {"faults": []}},
                state_file=tmp_path / name,
            )

        def story(manager: MCPClientManager) -> list[Any]:
            return [outcome(manager.call_tool("mcp_fault_look"))]

        one, other = tmp_path / "one.json", tmp_path / "other.json"
        seen = told(story, {"fault": configured("state-1")}, one)
        told(story, {"fault": configured("state-2")}, other)
        assert one.read_text("utf-8") == other.read_text("utf-8")
        assert replayed(story, one) == seen
        assert "content" in seen[0]
        first, second = json.loads(one.read_text("utf-8"))["servers"]["fault"]["starts"]
        assert [start["exchanges"][-1].get("crashed") for start in (first, second)] == [True, None]

    def test_what_is_no_message_and_ids_as_text(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            return [manager.call_tool("mcp_fault_echo", {"text": "a"})]

        same(story, {"fault": fault_server(faults=[{"junk": [{"text": "Listening …"}], "twice": True}])}, tmp_path)

    def test_an_answer_that_is_too_long(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            results = [manager.call_tool("mcp_fault_echo", {"text": "x" * size}) for size in (10, 20_000)]
            return [result.get("error_type") for result in results]

        same(story, {"fault": {**fault_server(), "maxMessageBytes": 10_000}}, tmp_path)

    def test_a_server_that_ends_in_its_greeting(self, fault_server: FaultServer, tmp_path: Path) -> None:
        file = tmp_path / "cassette.json"
        faults = [{"on": "initialize", "crash": "before_answer", "exit_code": 5}]
        entry = {**fault_server(faults=faults), "restart": {"restart": "never"}}
        manager = MCPClientManager({"fault": entry})
        with record(manager, file), manager:
            pass
        with replay(file) as servers, MCPClientManager(servers) as manager:
            assert "exited with code 5" in str(manager.status()[0].last_error)

    def test_a_recycled_server(self, fault_server: FaultServer, tmp_path: Path) -> None:
        def story(manager: MCPClientManager) -> list[Any]:
            first = manager.call_tool("mcp_fault_echo", {"text": "a"})
            assert manager.restart("fault")
            return [first, manager.call_tool("mcp_fault_echo", {"text": "b"})]

        file = same(story, {"fault": fault_server()}, tmp_path)
        starts = json.loads(file.read_text("utf-8"))["servers"]["fault"]["starts"]
        assert ["end" in start for start in starts] == [False, False]

    def test_questions_of_the_server(self, fault_server: FaultServer, tmp_path: Path) -> None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}}
        servers = {"fault": fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])}

        def story(manager: MCPClientManager) -> list[Any]:
            return [manager.call_tool("mcp_fault_client_answers").is_error]

        file = same(story, servers, tmp_path, on_elicitation=lambda _: {"action": "accept", "content": {"name": "Ada"}})
        assert '"name": "Ada"' in file.read_text("utf-8")
        with pytest.raises(CassetteMismatch, match="elicitation/create of the server was answered otherwise"):
            replayed(story, file, on_elicitation=lambda _: {"action": "decline"})


class TestHttp:
    @pytest.mark.parametrize("era", [LEGACY, MODERN])
    def test_calls_and_a_failed_exchange(self, tmp_path: Path, era: str) -> None:
        def answer(exchange: Exchange) -> None:
            text = exchange.arguments["text"]
            if text == "fail":
                exchange.body(b"", status=500)
            else:
                exchange.json(exchange.answer({"content": [{"type": "text", "text": text}], "resultType": "complete"}))

        def story(manager: MCPClientManager) -> list[Any]:
            texts = ("a", "fail", "b")
            return [outcome(manager.call_tool("mcp_web_echo", {"text": text})) for text in texts]

        with ScriptedServer(era, on={"tools/call": answer}).serving() as server:
            entry = {"url": server.url, "headers": {"Authorization": "Bearer hunter22"}}
            file = same(story, {"web": entry}, tmp_path)
        text = file.read_text("utf-8")
        assert "hunter22" not in text
        assert '"type": "HttpError"' in text
