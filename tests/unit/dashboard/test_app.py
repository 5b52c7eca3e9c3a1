"""What the dashboard's page is told, and who else is told anything."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gaia.dashboard import responses
from gaia.dashboard.app import DashboardApp
from tests.served_dashboard import Served
from tests.waiting import wait_until

Serve = Callable[..., Served]

POSTED = [f"/api/{name}" for name in ("try", "restart", "stop", "resources", "resource", "prompts", "prompt")]
"""What the page posts."""


class TestWhoMayAsk:
    def test_nothing_is_told_without_the_token(self, demo: Served) -> None:
        paths = ["/api/state", "/api/events", "/api/server?name=demo", "/api/call?trace=1&span=1", "/other"]
        for method, path in [*(("GET", path) for path in paths), *(("POST", path) for path in POSTED)]:
            for authorization in ("", "Bearer wrong", "Basic x", f"Bearer {demo.dashboard.token}x"):
                assert demo.request(method, path, Authorization=authorization).status == 401, path

    def test_the_page_itself_needs_none(self, demo: Served) -> None:
        for path in DashboardApp.open_paths:
            answer = demo.request("GET", path, Authorization="")
            assert answer.status == 200
            assert demo.dashboard.token.encode() not in answer.body
            assert demo.request("GET", path, Host="evil.example").status == 421
        # In the query it would end up in logs and histories.
        assert demo.request("GET", f"/api/state?token={demo.dashboard.token}", Authorization="").status == 401

    def test_other_pages_are_refused(self, demo: Served) -> None:
        """A browser sends these media types to other sites without asking them, and follows links."""
        assert demo.request("GET", "/api/state", Host="evil.example").status == 421
        for path in POSTED:
            assert demo.request("POST", path, b"{}", Origin="https://evil.example").status == 403
            assert demo.request("POST", path, b"{}", Host="evil.example").status == 421
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                assert demo.request("POST", path, b"{}", **{"Content-Type": kind}).status == 415
            assert demo.request("GET", f"{path}?server=demo").status == 405
        assert demo.get("/api/state")["servers"][0]["state"] == "ready"


class TestHeaders:
    def test_every_answer_forbids_markup_of_others(self, demo: Served) -> None:
        for path in ("/", "/main.js", "/api/state", "/no-such-path"):
            headers = demo.request("GET", path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            for kind in ("script", "style", "connect"):
                assert f"{kind}-src 'self';" in f"{policy};"
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"

    def test_the_page_needs_nothing_from_elsewhere(self, demo: Served) -> None:
        page = b"".join(demo.request("GET", path).body for path in DashboardApp.open_paths)

        assert {"/", "/main.js", "/dashboard.css"} <= DashboardApp.open_paths
        assert b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in page
        assert b"innerHTML" not in page


class TestCalls:
    def test_one_is_listed_with_duration_and_outcome_and_its_spans_and_log_events_looked_up(self, demo: Served) -> None:
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        demo.manager.call_tool("mcp_demo_fail", {"message": "no"})
        calls = demo.get("/api/state")["calls"]
        assert [(call["server"], call["tool"], call["outcome"], call["error_type"]) for call in calls] == [
            ("demo", "add", "ok", None),
            ("demo", "fail", "error", "tool_error"),
        ]
        assert all(0 < call["seconds"] < 10 and abs(call["started"] - time.time()) < 60 for call in calls)

        about = demo.get(f"/api/call?trace={calls[0]['trace_id']}&span={calls[0]['span_id']}")
        assert about["call"]["attributes"]["gen_ai.tool.name"] == "add"
        assert about["call"] in about["spans"]
        assert "tool_called" in {line["event"] for line in about["logs"]}
        for query in ("", "?trace=zz&span=1", "?trace=1&span=2"):
            assert demo.request("GET", f"/api/call{query}").status == 404

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


@pytest.mark.parametrize(
    "value", [2**80, -(2**70), "half \ud800", {"\ud800": [2**64]}, {"deep": [{"text": "ü \u2028 </script>"}]}, None]
)
def test_each_value_of_a_server_is_sent_as_it_is(value: Any) -> None:
    assert json.loads(responses.encode(value)) == value


def test_what_is_no_json_value_becomes_text() -> None:
    class Thing:
        def __str__(self) -> str:
            return "a thing"

    assert json.loads(responses.encode({"it": Thing()})) == {"it": "a thing"}
    assert json.loads(responses.encode({"it": Thing(), "big": 2**80})) == {"it": "a thing", "big": 2**80}


@pytest.mark.parametrize("text", ["one\ntwo", "one\r\n\r\nevent: snapshot", "\u2028", "\ud800\n"])
def test_a_text_with_line_breaks_begins_no_event_of_its_own(text: str) -> None:
    written = responses.event("call", {"text": text})

    assert written.count(b"\n") == 3
    assert b"\r" not in written
    kind, data = written.decode().strip().split("\n")
    assert kind == "event: call"
    assert json.loads(data.removeprefix("data: ")) == {"text": text}


def test_a_problem_is_told_in_the_form_of_the_guard() -> None:
    answer = responses.problem(404, "There is no server 'x'")
    assert (answer.status_code, answer.media_type) == (404, "application/json")
    assert json.loads(bytes(answer.body)) == {"error": {"message": "There is no server 'x'"}}
