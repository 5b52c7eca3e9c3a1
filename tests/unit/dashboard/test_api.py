"""What the dashboard's page is told, and who else is told anything."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client.supervision.events import Restarted, ServerState
from tests.recorder import Recorder
from tests.served_dashboard import Served
from tests.waiting import wait_until

Serve = Callable[..., Served]


@pytest.fixture
def demo(serve: Serve, demo_server: dict[str, Any]) -> Served:
    return serve(demo=demo_server | {"disabledTools": ["counter"]})


class TestWhoMayAsk:
    def test_nothing_is_told_without_the_token(self, demo: Served) -> None:
        paths = ["/api/state", "/api/events", "/api/server?name=demo", "/api/call?trace=1&span=1", "/api/try", "/other"]
        for path in paths:
            for authorization in ("", "Bearer wrong", "Basic x", f"Bearer {demo.dashboard.token}x"):
                method = "POST" if path == "/api/try" else "GET"
                assert demo.request(method, path, Authorization=authorization).status == 401, path

    def test_the_page_itself_needs_none(self, demo: Served) -> None:
        for path in ("/", "/dashboard.css", "/dashboard.js"):
            answer = demo.request("GET", path, Authorization="")
            assert answer.status == 200
            assert demo.dashboard.token.encode() not in answer.body

    def test_a_token_in_the_query_is_not_accepted(self, demo: Served) -> None:
        # There it would end up in logs and histories.
        assert demo.request("GET", f"/api/state?token={demo.dashboard.token}", Authorization="").status == 401

    def test_other_hosts_names_are_refused(self, demo: Served) -> None:
        assert demo.request("GET", "/", Host="evil.example").status == 421
        assert demo.request("GET", "/api/state", Host="evil.example").status == 421

    def test_other_pages_are_refused(self, demo: Served) -> None:
        assert demo.request("POST", "/api/try", b"{}", Origin="https://evil.example").status == 403

    def test_the_token_is_in_the_fragment_of_the_address(self, demo: Served) -> None:
        assert demo.dashboard.url == f"http://127.0.0.1:{demo.port}/#token={demo.dashboard.token}"
        assert len(demo.dashboard.token) >= 32


class TestHeaders:
    def test_every_answer_forbids_markup_of_others(self, demo: Served) -> None:
        for path in ("/", "/dashboard.js", "/api/state", "/no-such-path"):
            headers = demo.request("GET", path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"

    def test_the_page_needs_nothing_from_elsewhere(self, demo: Served) -> None:
        page = demo.request("GET", "/").body + demo.request("GET", "/dashboard.css").body

        assert b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in page
        assert b"innerHTML" not in demo.request("GET", "/dashboard.js").body


class TestServers:
    def test_all_are_listed_whatever_became_of_them(
        self, serve: Serve, demo_server: dict[str, Any], fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        served = serve(
            demo=demo_server, bad=fault_server(exit_at_start={"code": 3}), off={"command": "x", "disabled": True}
        )
        servers = served.get("/api/state")["servers"]

        assert [(server["name"], server["state"]) for server in servers] == [
            ("demo", "ready"),
            ("bad", "failed"),
            ("off", "disabled"),
        ]
        assert "exited with code 3" in served.get("/api/server?name=bad")["last_error"]
        assert served.get("/api/server?name=off")["tools"] == []

    def test_one_has_its_tools_and_the_names_of_denied_ones(self, demo: Served) -> None:
        server = demo.get("/api/server?name=demo")
        tools = {tool["name"]: tool for tool in server["tools"]}

        assert server["server_info"]["name"] == "gaia-demo"
        assert "gaia demo server" in server["stderr"]
        assert tools["add"]["input_schema"]["required"] == ["a", "b"]
        assert tools["counter"] == {"name": "counter", "denied": "denied"}

    def test_an_unknown_one_is_not_found(self, demo: Served) -> None:
        assert demo.request("GET", "/api/server?name=x").status == 404
        assert demo.request("GET", "/api/server").status == 404

    def test_any_name_can_be_asked_for(self, serve: Serve) -> None:
        name = 'a/b?c&d#<"\N{SNOWMAN}'
        served = serve(**{name: {"command": "x", "disabled": True}})

        assert served.get("/api/server?name=a%2Fb%3Fc%26d%23%3C%22%E2%98%83")["name"] == name


class TestCalls:
    def test_one_is_listed_with_duration_and_outcome(self, demo: Served) -> None:
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        demo.manager.call_tool("mcp_demo_fail", {"message": "no"})
        calls = demo.get("/api/state")["calls"]

        assert [(call["server"], call["tool"], call["outcome"], call["error_type"]) for call in calls] == [
            ("demo", "add", "ok", None),
            ("demo", "fail", "error", "tool_error"),
        ]
        assert all(0 < call["seconds"] < 10 and abs(call["started"] - time.time()) < 60 for call in calls)

    def test_its_spans_and_log_events_can_be_looked_up(self, demo: Served) -> None:
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        (call,) = demo.get("/api/state")["calls"]
        about = demo.get(f"/api/call?trace={call['trace_id']}&span={call['span_id']}")

        assert about["call"]["attributes"]["gen_ai.tool.name"] == "add"
        assert about["call"] in about["spans"]
        assert "tool_called" in {line["event"] for line in about["logs"]}

    def test_what_became_of_the_server_is_told_with_the_call_that_crashed_it(self, demo: Served) -> None:
        demo.manager.call_tool("mcp_demo_crash", {})
        demo.manager.call_tool("mcp_demo_echo", {"text": "after it"})
        crash, echo = demo.get("/api/state")["calls"]

        def story(call: dict[str, Any]) -> tuple[set[str], set[str]]:
            about = demo.get(f"/api/call?trace={call['trace_id']}&span={call['span_id']}")
            return {span["name"] for span in about["spans"]}, {line["event"] for line in about["logs"]}

        assert wait_until(lambda: "gaia.mcp.restart demo" in story(crash)[0])
        for call in (crash, echo):
            spans, events = story(call)
            assert {f"tools/call {call['tool']}", "gaia.mcp.backoff demo", "gaia.mcp.handshake demo"} <= spans
            assert {"server_lost", "server_ready", "tool_called"} <= events

    def test_one_that_is_not_kept_is_not_found(self, demo: Served) -> None:
        for query in ("", "?trace=zz&span=1", "?trace=1&span=2"):
            assert demo.request("GET", f"/api/call{query}").status == 404

    def test_one_under_way_is_shown_as_running(self, demo: Served) -> None:
        calling = threading.Thread(target=demo.manager.call_tool, args=("mcp_demo_sleep", {"seconds": 30}))
        calling.start()
        assert wait_until(lambda: bool(demo.get("/api/state")["running"]))
        (call,) = demo.get("/api/state")["running"]
        about = demo.get(f"/api/call?trace={call['trace_id']}&span={call['span_id']}")
        demo.manager.disconnect_all()
        calling.join()

        assert (call["tool"], call["outcome"], call["seconds"]) == ("sleep", "running", None)
        assert about["call"]["seconds"] is None


class TestTimeline:
    def test_a_restart_is_told(self, demo: Served) -> None:
        recorder = Recorder()
        demo.manager.subscribe(recorder)
        demo.manager.call_tool("mcp_demo_crash", {})
        recorder.wait_for(Restarted)
        assert wait_until(lambda: any(e["kind"] == "restarted" for e in demo.get("/api/state")["events"]))
        events = demo.get("/api/state")["events"]

        states = [event["new"] for event in events if event["kind"] == "state"]
        assert states[-3:] == ["ready", "restarting", "ready"]
        assert [event["generation"] for event in events if event["kind"] == "restarted"] == [2]
        assert [event["id"] for event in events] == list(range(1, len(events) + 1))


class TestTrying:
    def test_a_tool_can_be_called(self, demo: Served) -> None:
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "add", "arguments": {"a": 1, "b": 2}})

        assert answer.status == 200
        assert answer.json["structuredContent"] == {"sum": 3}

    def test_a_denied_tool_cannot(self, demo: Served) -> None:
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "counter"})

        assert answer.status == 403
        assert "denied" in answer.json["error"]["message"]
        assert demo.get("/api/state")["calls"] == []

    def test_a_wrong_request_is_explained(self, demo: Served) -> None:
        wrong: list[tuple[Any, int, str]] = [
            (b"{", 400, "not JSON"),
            ([], 400, "not an object"),
            ({"tool": "add"}, 400, "server: expected a name"),
            ({"server": "demo"}, 400, "tool: expected a name"),
            ({"server": "demo", "tool": "add", "arguments": []}, 400, "arguments: expected an object"),
            ({"server": "demo", "tool": "add", "timeout": -1}, 400, "timeout: expected seconds"),
            ({"server": "demo", "tool": "add", "timeout": True}, 400, "timeout: expected seconds"),
            ({"server": "nobody", "tool": "add"}, 404, "no connected server 'nobody'"),
        ]
        for body, status, message in wrong:
            answer = demo.request("POST", "/api/try", body)
            assert answer.status == status
            assert message in answer.json["error"]["message"]

    def test_a_page_that_goes_away_cancels_its_call(self, demo: Served) -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", demo.port, timeout=20)
        body = json.dumps({"server": "demo", "tool": "sleep", "arguments": {"seconds": 60}, "timeout": 120})
        connection.request("POST", "/api/try", body, {"Authorization": f"Bearer {demo.dashboard.token}"})
        assert wait_until(lambda: bool(demo.get("/api/state")["running"]))
        connection.close()

        assert wait_until(lambda: bool(demo.get("/api/state")["calls"]))
        (call,) = demo.get("/api/state")["calls"]
        assert call["error_type"] == "cancelled"

    def test_a_result_that_is_too_long_is_not_sent_to_the_page(self, demo: Served) -> None:
        text = "x" * 2_500_000
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "echo", "arguments": {"text": text}})

        assert "too many to be shown here" in answer.json["error"]
        assert len(answer.body) < 1000

    def test_what_orjson_cannot_say_reaches_the_page(self, serve: Serve, fault_server: Any) -> None:
        faults = [{"tool": "echo", "result": {"content": [], "big": 2**80}}]
        served = serve(it=fault_server(faults=faults))

        answer = served.request("POST", "/api/try", {"server": "it", "tool": "echo", "arguments": {"text": ""}})
        assert answer.status == 200


class TestStream:
    def test_it_begins_with_everything_and_goes_on_with_what_happens(self, demo: Served) -> None:
        stream = demo.stream()
        kind, everything = next(stream)
        assert kind == "snapshot"
        assert everything["servers"][0]["state"] == "ready"

        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        seen = {}
        for kind, data in stream:
            seen[kind] = data
            if {"call", "servers"} <= seen.keys():
                break
        stream.close()
        assert seen["call"]["tool"] == "add"
        assert seen["servers"][0]["calls"] == 1

    def test_it_ends_with_the_dashboard(self, demo: Served) -> None:
        stream = demo.stream()
        next(stream)
        demo.dashboard.close()

        assert [kind for kind, _ in stream if kind not in ("servers", "running", "call", "event")] == []

    def test_there_is_a_limit_to_how_many_may_watch(self, demo: Served) -> None:
        streams = [demo.stream() for _ in range(16)]
        for stream in streams:
            next(stream)

        assert demo.request("GET", "/api/events").status == 503
        for stream in streams:
            stream.close()


class TestEnding:
    def test_the_manager_goes_on(self, demo: Served) -> None:
        demo.dashboard.close()
        demo.dashboard.close()
        client = demo.manager.get_client("demo")

        assert client is not None
        assert client.state is ServerState.READY
        with pytest.raises(RuntimeError, match="not being served"):
            _ = demo.dashboard.url
