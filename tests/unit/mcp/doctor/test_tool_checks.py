"""What a list of tools looks like to agents."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.doctor import Check, Diagnosis, Verdict, diagnose
from gaia.mcp.doctor.inspection import check_names, check_schemas, colliding, names_of
from gaia.mcp.tools.tool_catalog import MAX_DEFINITION

FaultServer = Callable[..., dict[str, Any]]

TOOL = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}


def found(diagnosis: Diagnosis, name: str) -> Check:
    check = diagnosis.check(name)
    assert check is not None
    return check


class TestTools:
    @pytest.mark.parametrize(
        ("tool", "name", "verdict", "detail"),
        [
            (
                TOOL | {"inputSchema": {"type": "objet"}},
                "schemas",
                "fail",
                'greet: inputSchema has no "type": "object"',
            ),
            (
                TOOL | {"inputSchema": {"type": "object", "properties": {"a": {"type": "text"}}}},
                "schemas",
                "fail",
                "greet: inputSchema is no JSON Schema: properties.a.type: 'text' is not valid",
            ),
            (TOOL | {"outputSchema": {"type": 3}}, "schemas", "fail", "greet: outputSchema is no JSON Schema"),
            ({"name": 7}, "schemas", "fail", "not a tool with a name: {'name': 7}"),
            (TOOL | {"description": " "}, "schemas", "warn", "without a description: greet"),
            (TOOL | {"name": "g" * 65}, "names", "warn", f"{'g' * 65} becomes mcp_it_ggg"),
            (TOOL | {"name": "a.b"}, "names", "warn", "a.b becomes mcp_it_a_b_"),
        ],
    )
    def test_definitions_are_judged(
        self, tool: dict[str, Any], name: str, verdict: str, detail: str, fault_server: FaultServer
    ) -> None:
        listing = {"tools": [tool]}
        check = found(diagnose("it", fault_server(faults=[{"on": "tools/list", "result": listing}])), name)

        assert check.verdict == verdict
        assert check.detail.startswith(detail)

    def test_a_name_that_is_listed_twice_is_a_failure(self, fault_server: FaultServer) -> None:
        listing = {"tools": [TOOL, TOOL]}
        check = found(diagnose("it", fault_server(faults=[{"on": "tools/list", "result": listing}])), "names")

        assert (check.verdict, check.detail) == (Verdict.FAIL, "listed more than once: greet")

    def test_long_lists_of_problems_are_cut(self, fault_server: FaultServer) -> None:
        tools = [{"name": f"t{number}"} for number in range(8)]
        check = found(
            diagnose("it", fault_server(faults=[{"on": "tools/list", "result": {"tools": tools}}])), "schemas"
        )

        assert check.detail.endswith("t4: inputSchema is missing; and 3 more")


class TestSchemas:
    def test_no_tools_are_nothing_to_look_at(self) -> None:
        assert check_schemas([]).verdict is check_names("it", []).verdict is Verdict.SKIPPED

    def test_good_ones_are_counted(self) -> None:
        check = check_schemas([TOOL, TOOL | {"outputSchema": {"type": "object"}}])

        assert (check.verdict, check.detail) == (Verdict.OK, "2 valid, all with a description")

    @pytest.mark.parametrize(
        ("tool", "detail"),
        [
            ("greet", "not a tool with a name: 'greet'"),
            ({"name": ""}, "not a tool with a name: {'name': ''}"),
            (TOOL | {"inputSchema": []}, "greet: inputSchema is not an object"),
            (TOOL | {"outputSchema": {"$ref": 5}}, "greet: outputSchema is no JSON Schema: "),
        ],
    )
    def test_one_that_cannot_be_used_is_named(self, tool: Any, detail: str) -> None:
        check = check_schemas([TOOL, tool])

        assert check.verdict is Verdict.FAIL
        assert check.detail.startswith(detail)

    def test_a_definition_too_large_for_the_client_is_named_and_not_printed(self) -> None:
        check = check_schemas([TOOL | {"description": "x" * MAX_DEFINITION}])

        assert check.verdict is Verdict.FAIL
        assert check.detail.startswith("'greet': ")
        assert len(check.detail) < 1000

    def test_a_tool_that_is_no_tool_does_not_hide_the_silent_ones(self) -> None:
        silent = [TOOL | {"name": f"t{number}", "description": None} for number in range(7)]
        check = check_schemas([TOOL, *silent])

        assert (check.verdict, check.detail) == (
            Verdict.WARN,
            "without a description: t0; t1; t2; t3; t4; and 2 more",
        )


class TestNames:
    def test_entries_without_one_are_left_out(self) -> None:
        assert names_of([TOOL, {"name": 5}, {"name": ""}, None, "greet", {}]) == ["greet"]

    def test_good_ones_are_counted(self) -> None:
        check = check_names("it", [TOOL, TOOL | {"name": "part"}])

        assert (check.verdict, check.detail) == (Verdict.OK, "2 different")


class TestCollisions:
    def test_the_server_whose_tools_get_another_name_is_told(self) -> None:
        found = colliding({"a": ["b_c", "d"], "a_b": ["c"], "z": ["c"]})

        assert found.keys() == {"a"}
        assert found["a"].detail.startswith("b_c becomes mcp_a_b_c_")
        assert found["a"].verdict is Verdict.WARN

    def test_a_server_does_not_collide_with_itself(self) -> None:
        assert colliding({"a": ["b", "b"]}) == {}
