"""Data of one call: metadata and headers that reach the server with that call alone, and an object that never does."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp import CurrentCall, MCPClient, MCPClientManager, current_call
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager
from tests.servers.answers import received, text
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.waiting import PATIENCE

Json = dict[str, Any]
FaultServer = Callable[..., Json]
Connect = Callable[..., MCPClient]
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with ScriptedServer().serving() as server:
        yield server


def last_call(client: MCPClient) -> Json:
    return [message for message in received(client) if message.get("method") == "tools/call"][-2]


class TestMeta:
    def test_goes_with_its_call_and_no_other(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"}, meta={"tenant": "a", "example.com/trail": [1]})
        assert last_call(client)["params"]["_meta"] == {"tenant": "a", "example.com/trail": [1]}
        client.call_tool("echo", {"text": "hi"})
        assert "_meta" not in last_call(client)["params"]

    def test_is_beside_what_the_client_sends(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(era="stateless"))
        client.call_tool("echo", {"text": "hi"}, meta={"tenant": "a"}, on_progress=lambda *_: None)
        meta = last_call(client)["params"]["_meta"]
        assert meta["tenant"] == "a"
        assert {"progressToken", "io.modelcontextprotocol/protocolVersion"} <= meta.keys()

    @pytest.mark.parametrize("name", ["io.modelcontextprotocol/x", "progressToken", "traceparent", 5])
    def test_may_not_name_what_the_protocol_owns(self, fault_server: FaultServer, connect: Connect, name: Any) -> None:
        client = connect(fault_server())
        for call in (client.call_tool, client.submit_tool):
            with pytest.raises(ValueError, match=r"meta: .* is not free for callers"):
                call("echo", {"text": "hi"}, meta={name: "x"})

    def test_must_be_json(self, fault_server: FaultServer, connect: Connect) -> None:
        with pytest.raises(ValueError, match="JSON"):
            connect(fault_server()).call_tool("echo", {"text": "hi"}, meta={"x": object()})


class TestHeaders:
    def test_over_pipes_are_an_error_that_names_the_next_step(
        self, fault_server: FaultServer, connect: Connect
    ) -> None:
        with pytest.raises(ValueError, match=r"headers: messages to server 'fault' have none.*use meta instead"):
            connect(fault_server()).call_tool("echo", {"text": "hi"}, headers={"X-User": "a"})

    @pytest.mark.parametrize(
        ("headers", "problem"),
        [
            ({"Host": "x"}, "headers.Host: the client sets it"),
            ({"mcp-session-id": "x"}, "headers.mcp-session-id: the client sets it"),
            ({"Transfer-Encoding": "chunked"}, "the client sets it"),
            ({"X User": "a"}, "is not the name of a header"),
            ({"X-User": "s3cret\r\nX-Admin: yes"}, "headers.X-User: the value"),
            ({"X-User": 5}, "headers.X-User: the value"),
            (["X-User"], "expected a dict"),
        ],
    )
    def test_that_cannot_be_sent_are_an_error_without_their_values(
        self, served: ScriptedServer, connect: Connect, headers: Any, problem: str
    ) -> None:
        client = connect({"url": served.url}, "web")
        with pytest.raises(ValueError, match=problem) as error:
            client.call_tool("echo", {"text": "hi"}, headers=headers)
        assert "s3cret" not in str(error.value)
        assert served.of("tools/call") == []

    @ERAS
    def test_replace_those_of_the_configuration_in_one_call(self, connect: Connect, era: str) -> None:
        with ScriptedServer(era=era).serving() as served:
            client = connect({"url": served.url, "headers": {"Authorization": "Bearer ours", "X-App": "gaia"}}, "web")
            client.call_tool("echo", {"text": "a"}, headers={"authorization": "Bearer Ann"})
            client.call_tool("echo", {"text": "b"})
            found = [(seen.headers["authorization"], seen.headers["x-app"]) for seen in served.of("tools/call")]
            assert found == [("Bearer Ann", "gaia"), ("Bearer ours", "gaia")]

    def test_go_with_the_answer_to_a_question_of_their_call(self, served: ScriptedServer, connect: Connect) -> None:
        """Two users are asked at once, each on the stream of one call. Then the clocks of the calls run on."""
        both = threading.Barrier(2)

        def ask(exchange: Exchange) -> None:
            user = exchange.seen.headers["x-user"]
            exchange.begin_stream()
            both.wait(PATIENCE)
            exchange.event({"jsonrpc": "2.0", "id": f"q-{user}", "method": "elicitation/create", "params": FORM})
            exchange.wait_for_client_to_leave()

        def answer(request: Any) -> Any:
            call = current_call()
            assert call is not None
            return request.accept({"name": call.context})

        with MCPClientManager({"web": {"url": served.url, "protocol": "handshake"}}, on_elicitation=answer) as manager:
            served.on["tools/call"] = ask
            calls = [
                manager.submit_tool("mcp_web_echo", context=user, headers={"X-User": user}, timeout=0.5)
                for user in ("Ann", "Bob")
            ]
            assert [type(call.exception(PATIENCE)).__name__ for call in calls] == ["CallTimeout"] * 2
        answers = [seen for seen in served.seen if str(seen.body.get("id")).startswith("q-")]
        found = {(seen.headers["x-user"], seen.body["id"], seen.body["result"]["content"]["name"]) for seen in answers}
        assert found == {("Ann", "q-Ann", "Ann"), ("Bob", "q-Bob", "Bob")}

    def test_a_call_in_its_callers_thread_times_out_after_the_question(
        self, served: ScriptedServer, connect: Connect
    ) -> None:
        def ask(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event({"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": FORM})
            exchange.wait_for_client_to_leave()

        entry = {"url": served.url, "protocol": "handshake"}
        with MCPClientManager({"web": entry}, on_elicitation=lambda request: request.decline()) as manager:
            manager.call_tool("mcp_web_echo", {"text": "opens a connection"})
            served.on["tools/call"] = ask
            assert manager.call_tool("mcp_web_echo", timeout=0.5)["error_type"] == "timeout"

    def test_a_cookie_of_one_user_does_not_go_to_another(self, served: ScriptedServer, connect: Connect) -> None:
        def call(exchange: Exchange) -> None:
            exchange.json(exchange.answer({"content": []}), headers={"Set-Cookie": "who=Ann"})

        client = connect({"url": served.url}, "web")
        served.on["tools/call"] = call
        client.call_tool("echo", headers={"Authorization": "Bearer Ann"})
        client.call_tool("echo", headers={"Authorization": "Bearer Bob"})
        assert "cookie" not in served.of("tools/call")[1].headers

    def test_a_refused_login_of_one_user_disturbs_no_other(self, served: ScriptedServer, connect: Connect) -> None:
        def call(exchange: Exchange) -> None:
            if exchange.seen.headers["authorization"] == "Bearer s3cret-bad":
                exchange.body(b"no such token: s3cret-bad", status=401)
            else:
                exchange.json(exchange.answer({"content": []}))

        client = connect({"url": served.url}, "web")
        served.on["tools/call"] = call
        refused = client.call_tool("echo", headers={"Authorization": "Bearer s3cret-bad"})
        assert refused["error_type"] == "needs_authorization"
        assert "s3cret" not in refused["error"]
        assert client.call_tool("echo", headers={"Authorization": "Bearer good"})["content"] == []
        assert client.status.restarts == 0
        assert len(served.of("initialize")) == 1

    def test_are_masked_in_the_errors_of_servers(self, served: ScriptedServer, connect: Connect) -> None:
        client = connect({"url": served.url}, "web")
        served.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32000, "who is s3cret-Ann?"))
        result = client.call_tool("echo", headers={"Authorization": "Bearer s3cret-Ann"})
        assert result["error"].endswith("who is ***?")

    def test_go_with_the_notice_that_cancels_the_call(self, served: ScriptedServer, connect: Connect) -> None:
        reached = threading.Event()

        def hang(exchange: Exchange) -> None:
            reached.set()
            exchange.wait_for_client_to_leave()

        client = connect({"url": served.url}, "web")
        served.on["tools/call"] = hang
        call = client.submit_tool("echo", headers={"X-User": "Ann"})
        assert reached.wait(PATIENCE)
        assert call.cancel()
        assert served.wait_for("notifications/cancelled").headers["x-user"] == "Ann"

    @ERAS
    def test_of_200_users_each_arrive_with_their_own_call_under_kills(self, era: str) -> None:
        """Every call is cut once, after the server has read it; the repeat is the same user's."""
        wrong: list[str] = []
        times: Counter[str] = Counter()
        lock = threading.Lock()

        def call(exchange: Exchange) -> None:
            name, login = str(exchange.arguments["text"]), exchange.seen.headers.get("authorization")
            if login != f"Bearer {name}":
                wrong.append(f"{name}: {login}")
            with lock:
                times[name] += 1
                is_cut = times[name] == 1 and int(name) % 4 == 0
            if is_cut:
                exchange.drop()
            else:
                exchange.json(exchange.answer({"content": [{"type": "text", "text": f"for {name}"}]}))

        async def main(url: str) -> None:
            entry = {"url": url, "headers": {"Authorization": "Bearer nobody"}}
            async with AsyncMCPClientManager({"web": entry}) as manager:
                served.on["tools/call"] = call
                calls = [
                    manager.call_tool(
                        "mcp_web_read", {"text": str(n)}, headers={"Authorization": f"Bearer {n}"}, timeout=PATIENCE
                    )
                    for n in range(200)
                ]
                running = asyncio.gather(*calls)
                while not times:
                    await asyncio.sleep(0.005)
                threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(("mcp-", "gaia-"))]
                assert len(threads) <= 8, threads
                results = await running
                assert [text(result) for result in results] == [f"for {n}" for n in range(200)]

        with ScriptedServer(era=era).serving() as served:
            asyncio.run(main(served.url))
        assert wrong == []
        assert [times[str(n)] for n in range(8)] == [2, 1, 1, 1, 2, 1, 1, 1]


class TestBeforeCall:
    def test_gives_each_call_its_data(self, served: ScriptedServer) -> None:
        seen: list[CurrentCall] = []

        def login(call: CurrentCall) -> Any:
            seen.append(call)
            return {"headers": {"Authorization": f"Bearer {call.context}"}, "meta": {"tenant": "a"}}

        with MCPClientManager({"web": {"url": served.url}}, before_call=login) as manager:
            manager.call_tool("mcp_web_echo", {"text": "a"}, context="Ann", headers={"X-Own": "1"}, meta={"own": 2})
            manager.submit_tool("mcp_web_echo", {"text": "b"}, context="Bob").result(PATIENCE)
        first, second = served.of("tools/call")
        assert (first.headers["authorization"], first.headers["x-own"]) == ("Bearer Ann", "1")
        assert first.body["params"]["_meta"] == {"own": 2, "tenant": "a"}
        assert second.headers["authorization"] == "Bearer Bob"
        assert (seen[0].server, seen[0].tool, seen[0].arguments) == ("web", "echo", {"text": "a"})

    @pytest.mark.parametrize("face", ["awaited", "sync", "submitted"])
    def test_may_be_async_on_every_face(self, served: ScriptedServer, face: str) -> None:
        loops: list[object] = []

        async def login(call: CurrentCall) -> Any:
            await asyncio.sleep(0)
            loops.append(asyncio.get_running_loop())
            return {"headers": {"X-User": str(call.context)}}

        with MCPClientManager({"web": {"url": served.url}}, before_call=login) as manager:
            if face == "sync":
                manager.call_tool("mcp_web_echo", {"text": "a"}, context="Ann")
            elif face == "submitted":
                manager.submit_tool("mcp_web_echo", {"text": "a"}, context="Ann").result(PATIENCE)
            else:

                async def main() -> None:
                    await AsyncMCPClientManager.over(manager).call_tool("mcp_web_echo", {"text": "a"}, context="Ann")
                    assert loops == [asyncio.get_running_loop()]

                asyncio.run(main())
        assert served.of("tools/call")[0].headers["x-user"] == "Ann"

    def test_reaches_pinned_handles(self, fault_server: FaultServer) -> None:
        with MCPClientManager({"fault": fault_server()}, before_call=lambda _: {"meta": {"tenant": "a"}}) as manager:
            client = manager.get_client("fault")
            assert client is not None
            with client.pinned() as handle:
                handle.call_tool("echo", {"text": "a"})

            async def main() -> None:
                async with AsyncMCPClient.over(client).pinned() as pinned:
                    await pinned.call_tool("echo", {"text": "b"})

            asyncio.run(main())
            calls = [message for message in received(client) if message.get("method") == "tools/call"][:2]
        assert [call["params"]["_meta"] for call in calls] == [{"tenant": "a"}] * 2

    @pytest.mark.parametrize(
        ("changes", "problem"), [({"headrs": {}}, "'headrs' is not an option"), ({"meta": {"traceparent": ""}}, "meta")]
    )
    def test_a_mistake_in_it_reaches_the_caller(self, fault_server: FaultServer, changes: Any, problem: str) -> None:
        with MCPClientManager({"fault": fault_server()}, before_call=lambda _: changes) as manager:
            with pytest.raises((TypeError, ValueError), match=problem):
                manager.call_tool("mcp_fault_echo", {"text": "a"})
            client = manager.get_client("fault")
            assert client is not None
            assert client.status.calls == 0


def test_no_repr_shows_the_data_of_a_call() -> None:
    from gaia.mcp.requests.exchange import CallOptions, RequestExchange

    options = CallOptions(headers={"X-User": "s3cret"}, meta={"token": "s3cret"}, context="s3cret")
    shown = CurrentCall(server="web", tool="echo", arguments={"a": "s3cret"}, context="s3cret")
    assert "s3cret" not in f"{options!r} {RequestExchange('tools/call', options=options)!r} {shown!r}"
