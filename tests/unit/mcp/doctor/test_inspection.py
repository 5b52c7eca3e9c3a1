"""One inspection: what is timed, what is seen, and that the server has been stopped afterwards."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.doctor import Verdict, diagnose
from gaia.mcp.doctor.inspection import Inspection, check_names, check_schemas, colliding, inspect_server, names_of
from gaia.mcp.tools.tool_catalog import MAX_DEFINITION
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.transports.base import MCPTransport

Json = dict[str, Any]
FaultServer = Callable[..., Json]


class OwnTransport(MCPTransport):
    """A user's own, whose server answers what `answers` has."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.is_open = False
        self.methods: list[str] = []

    def connect(self) -> bool:
        self.is_open = True
        return True

    def disconnect(self) -> None:
        self.is_open = False

    def is_connected(self) -> bool:
        return self.is_open

    def send_request(self, method: str, params: Json | None = None) -> Json:
        self.methods.append(method)
        if method == "initialize":
            capabilities: Json = {"tools": {}}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {}}}
        answer = self.answers.get(method, {})
        if isinstance(answer, BaseException):
            raise answer
        return {"result": answer}


class TestInspection:
    @pytest.mark.parametrize(
        ("info", "server"),
        [
            ({}, "a server without a name"),
            ({"version": 2}, "2"),
            ({"version": "2", "name": "it", "title": "It"}, "it 2"),
        ],
    )
    def test_a_server_is_called_what_it_calls_itself(self, info: Json, server: str) -> None:
        assert Inspection(server_info=info).server == server

    def test_one_slow_ping_of_several_says_nothing(self) -> None:
        assert Inspection(pings=[9.0, 1.0, 2.0]).ping == 2.0
        assert Inspection().ping is None


class TestWithoutAProcess:
    def test_the_whole_list_is_seen_and_the_server_stopped(self) -> None:
        tools = [{"name": "one"}, {"name": 5}, "two"]
        transport = OwnTransport(**{"tools/list": {"tools": tools}})
        seen = inspect_server(MCPClient("it", transport), pings=2)

        assert seen.error is None
        assert seen.definitions == tools
        assert len(seen.pings) == 2
        assert (seen.start_seconds, seen.pid) == (None, None)
        assert seen.handshake_seconds is not None
        assert not transport.is_open

    def test_patterns_that_match_nothing_are_seen(self) -> None:
        transport = OwnTransport(**{"tools/list": {"tools": [{"name": "one", "inputSchema": {}}]}})
        seen = inspect_server(MCPClient("it", transport, tool_filter=ToolFilter(deny=["one", "three"])))
        assert seen.unmatched == ["three"]

    def test_an_interruption_stops_the_server_too(self) -> None:
        transport = OwnTransport(ping=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            inspect_server(MCPClient("it", transport))
        assert not transport.is_open


class TestOfAProcess:
    def test_start_and_handshake_are_timed_apart(self, fault_server: FaultServer) -> None:
        seen = inspect_server(MCPClient.from_config("it", fault_server()), pings=1)

        assert seen.pid is not None
        assert seen.start_seconds is not None
        assert seen.start_seconds > 0
        assert seen.handshake_seconds is not None
        assert seen.handshake_seconds > 0
        assert seen.status is not None
        assert seen.status.protocol_version == "2025-11-25"

    def test_a_server_that_never_gets_ready_is_not_asked_for_more(self, fault_server: FaultServer) -> None:
        seen = inspect_server(MCPClient.from_config("it", fault_server(exit_at_start={"code": 3})))
        assert "exited with code 3" in (seen.error or "")
        assert (seen.definitions, seen.list_seconds, seen.pings) == (None, None, [])
        assert seen.start_seconds is not None

    def test_after_one_ping_that_failed_no_other_is_sent(self, fault_server: FaultServer) -> None:
        entry = fault_server(faults=[{"on": "ping", "hang": True}]) | {"timeout": 1}
        seen = inspect_server(MCPClient.from_config("it", entry), pings=3)
        assert "not answered within" in (seen.ping_error or "")
        assert len(seen.pings) == 1


TOOL = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}


def test_what_is_listed_is_judged(fault_server: FaultServer) -> None:
    listing = {"tools": [TOOL, TOOL, TOOL | {"name": "a.b", "inputSchema": {"type": "objet"}}]}
    diagnosis = diagnose("it", fault_server(faults=[{"on": "tools/list", "result": listing}]))
    checks = {check.name: (check.verdict, check.detail) for check in diagnosis.checks}
    assert checks["schemas"] == (Verdict.FAIL, 'a.b: inputSchema has no "type": "object"')
    assert checks["names"] == (Verdict.FAIL, "listed more than once: greet")


TOO_LARGE = TOOL | {"description": "x" * MAX_DEFINITION}
MISSING = "".join(f"t{number}: inputSchema is missing; " for number in range(5)) + "and 3 more"
SILENT = [TOOL | {"name": f"t{number}", "description": None} for number in range(7)]


@pytest.mark.parametrize(
    ("tools", "verdict", "detail"),
    [
        ([], Verdict.SKIPPED, "no tools"),
        ([TOOL, TOOL | {"outputSchema": {"type": "object"}}], Verdict.OK, "2 valid, all with a description"),
        ([TOOL, "greet"], Verdict.FAIL, "not a tool with a name: 'greet'"),
        ([{"name": ""}], Verdict.FAIL, "not a tool with a name: {'name': ''}"),
        ([{"name": 7}], Verdict.FAIL, "not a tool with a name: {'name': 7}"),
        ([TOOL | {"inputSchema": []}], Verdict.FAIL, "greet: inputSchema is not an object"),
        (
            [TOOL | {"inputSchema": {"type": "object", "properties": {"a": {"type": "text"}}}}],
            Verdict.FAIL,
            "greet: inputSchema is no JSON Schema: properties.a.type: 'text' is not valid",
        ),
        ([TOOL | {"outputSchema": {"type": 3}}], Verdict.FAIL, "greet: outputSchema is no JSON Schema: "),
        ([TOOL | {"outputSchema": {"$ref": 5}}], Verdict.FAIL, "greet: outputSchema is no JSON Schema: "),
        ([TOO_LARGE], Verdict.FAIL, "'greet': "),
        ([TOOL | {"description": " "}], Verdict.WARN, "without a description: greet"),
        ([TOOL, *SILENT], Verdict.WARN, "without a description: t0; t1; t2; t3; t4; and 2 more"),
        ([{"name": f"t{number}"} for number in range(8)], Verdict.FAIL, MISSING),
    ],
)
def test_models_can_use_a_tool_with_a_schema_and_a_description(tools: list[Any], verdict: Verdict, detail: str) -> None:
    check = check_schemas(tools)
    assert check.verdict is verdict
    assert check.detail.startswith(detail)
    assert len(check.detail) < 1000


@pytest.mark.parametrize(
    ("names", "verdict", "detail"),
    [
        ([], Verdict.SKIPPED, "no tools"),
        (["greet", "part"], Verdict.OK, "2 different"),
        (["greet", "greet"], Verdict.FAIL, "listed more than once: greet"),
        (["g" * 65], Verdict.WARN, f"{'g' * 65} becomes mcp_it_ggg"),
        (["a.b"], Verdict.WARN, "a.b becomes mcp_it_a_b_"),
    ],
)
def test_names_are_unique_and_fit_for_models(names: list[str], verdict: Verdict, detail: str) -> None:
    check = check_names("it", [TOOL | {"name": name} for name in names])
    assert check.verdict is verdict
    assert check.detail.startswith(detail)


def test_entries_without_a_name_are_left_out() -> None:
    assert names_of([TOOL, {"name": 5}, {"name": ""}, None, "greet", {}]) == ["greet"]


class TestCollisions:
    def test_the_server_whose_tools_get_another_name_is_told(self) -> None:
        found = colliding({"a": ["b_c", "d"], "a_b": ["c"], "z": ["c"]})
        assert found.keys() == {"a"}
        assert found["a"].detail.startswith("b_c becomes mcp_a_b_c_")
        assert found["a"].verdict is Verdict.WARN

    def test_a_server_does_not_collide_with_itself(self) -> None:
        assert colliding({"a": ["b", "b"]}) == {}
