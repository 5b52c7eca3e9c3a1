"""What a fake server answers, message by message."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.agents.base.mcp_context import MCPContext, MCPRequestCancelled
from gaia.mcp.rpc.channel import Ending
from gaia.runtime.clock import SystemClock
from gaia.runtime.threads import DaemonPool
from gaia.testing import FakePrompt
from gaia.testing.fake_session import FakeSession
from gaia.testing.fake_state import FakeServerState, Fault
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


class Server:
    """A session of a server whose client is the test."""

    def __init__(self, revision: str) -> None:
        self.state = FakeServerState(
            "time", revision=revision, instructions=None, clock=SystemClock(), notify=lambda method, params: None
        )
        self.written: list[Json] = []
        self.endings: list[Ending] = []
        self._meta = META if revision == STATELESS else {}
        self._threads = DaemonPool("mcp-time-fake", 4)
        self.session = FakeSession(self.state, 1, self._threads, self._write, self.endings.append)

    def _write(self, line: bytes) -> None:
        self.written.append(json.loads(line))

    def send(self, method: str, params: Json | None = None, identifier: int = 1, meta: Json | None = None) -> None:
        params = {**(params or {}), "_meta": {**self._meta, **(meta or {})}}
        self.session.received({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})

    def notify(self, method: str, params: Json) -> None:
        self.session.received({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, identifier: int = 1) -> Json:
        """Wait for the answer to a request."""

        def answers() -> list[Json]:
            return [message for message in self.written if message.get("id") == identifier and "method" not in message]

        assert wait_until(lambda: bool(answers())), self.written
        return answers()[0]

    def notifications(self) -> list[Json]:
        return [message for message in self.written if "id" not in message]

    def close(self) -> None:
        self.session.close()
        assert self._threads.close(PATIENCE)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("2025-11-25")
    yield server
    server.close()


@pytest.fixture
def stateless() -> Iterator[Server]:
    server = Server(STATELESS)
    yield server
    server.close()


class TestHandshakeEra:
    @pytest.mark.parametrize(
        ("asked", "agreed"),
        [("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05"), ("2099-01-01", "2025-11-25")],
    )
    def test_a_revision_that_it_knows_is_agreed_on(self, server: Server, asked: str, agreed: str) -> None:
        server.send("initialize", {"protocolVersion": asked, "capabilities": {}})
        result = server.answer()["result"]
        assert result["protocolVersion"] == agreed
        assert result["serverInfo"] == {"name": "time", "version": "1.0.0"}

    def test_an_older_server_offers_its_own_revision(self) -> None:
        server = Server("2025-03-26")
        server.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert server.answer()["result"]["protocolVersion"] == "2025-03-26"
        server.close()

    @pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "no/such"])
    def test_a_method_that_it_does_not_have_is_refused(self, server: Server, method: str) -> None:
        server.send(method)
        assert server.answer()["error"]["code"] == -32601

    @pytest.mark.parametrize(
        ("method", "params", "code"),
        [
            ("tools/call", {"name": "nothing"}, -32602),
            ("prompts/get", {"name": "nothing"}, -32602),
            ("resources/read", {"uri": "file:///nothing"}, -32002),
            ("logging/setLevel", {"level": "loud"}, -32602),
            ("resources/subscribe", {}, -32603),
        ],
    )
    def test_params_that_mean_nothing_are_refused(self, server: Server, method: str, params: Json, code: int) -> None:
        server.send(method, params)
        assert server.answer()["error"]["code"] == code

    def test_only_changes_of_subscribed_resources_are_told(self, server: Server) -> None:
        update = ("notifications/resources/updated", {"uri": "file:///a"})
        server.session.tell(*update)
        server.send("resources/subscribe", {"uri": "file:///a"})
        server.session.tell(*update)
        server.send("resources/unsubscribe", {"uri": "file:///a"})
        server.session.tell(*update)
        assert len(server.notifications()) == 1

    @pytest.mark.parametrize("answer", [{"result": {"roots": []}}, {"error": {"code": -1, "message": "not now"}}])
    def test_each_question_gets_its_answer_and_a_refused_one_is_an_error_of_the_call(
        self, server: Server, answer: Json
    ) -> None:
        def ask(context: MCPContext) -> str:
            return str(context.list_roots())

        server.state.tools.add(ask)
        server.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}})
        asked: list[str] = []
        for identifier in (2, 3):
            server.send("tools/call", {"name": "ask"}, identifier)
            assert wait_until(lambda: server.written[-1].get("method") == "roots/list")
            asked.append(server.written[-1]["id"])
            server.session.received({"jsonrpc": "2.0", "id": asked[-1], **answer})
            answered = server.answer(identifier)
            if "error" in answer:
                assert answered["error"] == answer["error"]
            else:
                assert answered["result"]["content"][0]["text"] == "[]"
        assert asked[0] != asked[1]

    def test_an_answer_to_no_question_means_nothing(self, server: Server) -> None:
        server.session.received({"jsonrpc": "2.0", "id": "stray", "result": {}})
        server.notify("notifications/cancelled", {"requestId": 99})
        server.notify("notifications/initialized", {})
        assert server.written == []


class TestStatelessEra:
    def test_it_says_what_it_is(self, stateless: Server) -> None:
        stateless.send("server/discover")
        result = stateless.answer()["result"]
        assert (result["resultType"], result["supportedVersions"]) == ("complete", [STATELESS])
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "time"

    def test_it_has_no_handshake(self, stateless: Server) -> None:
        stateless.send("initialize", {"protocolVersion": "2025-11-25"})
        assert stateless.answer()["error"]["code"] == -32601

    def test_another_revision_is_refused(self, stateless: Server) -> None:
        stateless.send("tools/list", meta={"io.modelcontextprotocol/protocolVersion": "2027-01-01"})
        error = stateless.answer()["error"]
        assert (error["code"], error["data"]["supported"]) == (-32022, [STATELESS])

    def test_a_question_ends_the_call_and_the_answers_come_with_the_next_one(self, stateless: Server) -> None:
        def ask(context: MCPContext) -> dict[str, Any]:
            first = context.elicit("First?", {"type": "object", "properties": {}})
            second = context.elicit("Second?", {"type": "object", "properties": {}})
            return {"answers": [first["action"], second["action"]]}

        stateless.state.tools.add(ask)
        params: Json = {"name": "ask"}
        for round_, action in enumerate(("accept", "decline"), 1):
            stateless.send("tools/call", params, round_)
            result = stateless.answer(round_)["result"]
            assert result["resultType"] == "input_required"
            (key,) = result["inputRequests"]
            params = {**params, "inputResponses": {key: {"action": action}}, "requestState": result["requestState"]}
        stateless.send("tools/call", params, 3)
        assert stateless.answer(3)["result"]["structuredContent"] == {"answers": ["accept", "decline"]}

    def test_only_changes_that_a_client_listens_for_are_told(self, stateless: Server) -> None:
        change = ("notifications/tools/list_changed", {})
        stateless.session.tell(*change)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        stateless.send("subscriptions/listen", {"notifications": wanted}, 7)
        stateless.session.tell(*change)
        stateless.session.tell("notifications/prompts/list_changed", {})
        stateless.session.tell("notifications/resources/updated", {"uri": "file:///a"})
        stateless.session.tell("notifications/resources/updated", {"uri": "file:///b"})
        stateless.notify("notifications/cancelled", {"requestId": 7})
        stateless.session.tell(*change)
        told = stateless.notifications()
        assert [message["method"].partition("/")[2] for message in told] == [
            "subscriptions/acknowledged",
            "tools/list_changed",
            "resources/updated",
        ]
        assert {message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for message in told} == {7}

    @pytest.mark.parametrize(("level", "sent"), [(None, []), ("warning", ["loud"]), ("debug", ["quiet", "loud"])])
    def test_each_request_says_which_log_messages_it_wants(
        self, stateless: Server, level: str | None, sent: list[str]
    ) -> None:
        def speak(context: MCPContext) -> None:
            context.log("info", "quiet")
            context.log("error", "loud")

        stateless.state.tools.add(speak)
        meta = {} if level is None else {"io.modelcontextprotocol/logLevel": level}
        stateless.send("tools/call", {"name": "speak"}, meta=meta)
        stateless.answer()
        assert [message["params"]["data"] for message in stateless.notifications()] == sent


class TestCalls:
    def test_a_cancelled_call_is_not_answered(self, server: Server) -> None:
        cancelled = threading.Event()

        def wait(context: MCPContext) -> None:
            context.on_cancel(cancelled.set)
            cancelled.wait(PATIENCE)
            context.report_progress(1)
            assert context.cancelled
            context.raise_if_cancelled()

        server.state.tools.add(wait)
        server.send("tools/call", {"name": "wait"}, meta={"progressToken": 1})
        call = server.state.wait_for_call("wait", 1)
        server.notify("notifications/cancelled", {"requestId": 1})
        assert cancelled.wait(PATIENCE)
        assert call.cancelled
        server.send("ping", identifier=2)
        server.close()
        assert [message["id"] for message in server.written] == [2]

    def test_a_log_level_that_does_not_exist_is_refused(self, server: Server) -> None:
        def speak(context: MCPContext) -> None:
            context.log("loud", "text")

        server.state.tools.add(speak)
        server.send("tools/call", {"name": "speak"})
        result = server.answer()["result"]
        assert result["isError"]
        assert "no log level 'loud'; levels are debug, info" in result["content"][0]["text"]

    def test_the_end_of_the_server_ends_calls_and_questions(self, server: Server) -> None:
        seen: list[str] = []

        def ask(context: MCPContext) -> None:
            try:
                context.list_roots()
            except MCPRequestCancelled:
                seen.append("cancelled")
                raise

        server.state.tools.add(ask)
        server.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}})
        server.send("tools/call", {"name": "ask"}, 2)
        assert wait_until(lambda: len(server.written) == 2)
        server.close()
        assert seen == ["cancelled"]
        assert len(server.written) == 2

    def test_a_call_that_comes_at_the_end_is_cancelled(self, server: Server) -> None:
        server.state.tools.add({"name": "ping"})
        server.session.close()
        server.send("tools/call", {"name": "ping"})
        server.close()
        assert server.written == []

    def test_a_result_that_json_cannot_hold_is_an_error(self, server: Server) -> None:
        server.state.prompts.add(FakePrompt(lambda: [object()], name="odd"))
        server.send("prompts/get", {"name": "odd"})
        error = server.answer()["error"]
        assert error["code"] == -32603
        assert error["message"].startswith("the result cannot be sent: ")

    def test_a_prompt_that_fails_is_an_error_of_the_protocol(self, server: Server) -> None:
        def greet(name: str) -> str:
            return name

        server.state.prompts.add(greet)
        server.send("prompts/get", {"name": "greet"})
        assert server.answer()["error"]["message"] == "ValueError(\"missing argument 'name'\")"

    def test_the_server_may_end_at_a_call(self, server: Server) -> None:
        server.state.tools.add({"name": "ping"})
        server.state.plan(Fault("end", ending=Ending(7)), None, 1, 1)
        server.send("tools/call", {"name": "ping"})
        assert wait_until(lambda: bool(server.endings))
        assert (server.endings, server.written) == ([Ending(7)], [])

    def test_a_call_that_is_about_to_hang_is_answered_when_calls_are_resumed(self, server: Server) -> None:
        server.state.tools.add({"name": "ping"})
        server.state.plan(Fault("hang"), None, 1, 1)
        server.send("tools/call", {"name": "ping"})
        server.session.resume()
        assert server.answer()["result"]["content"] == []

    def test_the_context_says_who_asks(self, server: Server) -> None:
        def who(context: MCPContext) -> list[Any]:
            return [context.client_info["name"], context.supports("roots"), context.method, context.protocol_version]

        server.state.tools.add(who)
        client = {"clientInfo": {"name": "test"}, "capabilities": {"roots": {}}}
        server.send("initialize", {"protocolVersion": "2025-11-25", **client})
        server.send("tools/call", {"name": "who"}, 2)
        text = server.answer(2)["result"]["content"][0]["text"]
        assert json.loads(text) == ["test", True, "tools/call", "2025-11-25"]
