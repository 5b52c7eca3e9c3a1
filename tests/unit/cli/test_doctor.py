"""`gaia mcp doctor`: verdicts and remedies for people and programs; and `gaia mcp test-client`."""

import json
import sys

import pytest

from tests.unit.cli.fixture_types import Configure, FaultServer, Invoke, Json, Told


def test_a_working_server_has_a_line_for_each_check_and_warnings_do_not_fail(
    configure: Configure, output: Told, demo_server: Json
) -> None:
    configure(demo=demo_server, other={"command": "nonono"})
    shown = output("doctor", "demo")
    assert shown.startswith("demo works.\n")
    assert shown.count("✓") == 10
    configure(demo=demo_server | {"colour": "red"})
    assert "demo works, with warnings." in output("doctor", "demo")


def test_a_failure_comes_with_its_remedy_and_exit_status_1(configure: Configure, invoke: Invoke) -> None:
    configure(time={"command": "uvx", "args": ["mcp-server-time"], "env": {"PATH": "/nowhere"}})
    examined, tested = invoke("doctor", "time"), invoke("test-client", "time")
    assert examined.exit_code == tested.exit_code == 1
    assert "time does not work." in examined.stdout
    assert "→ uvx comes with uv" in examined.stdout
    last = examined.stdout.splitlines()[-1].split(maxsplit=2)
    assert last == ["-", "versions", "this and what follows: not reached"]
    assert "the step 'spawn' failed" in tested.stdout
    assert "uvx comes with uv" in tested.stdout


def test_without_a_name_all_are_examined(
    configure: Configure, invoke: Invoke, invoke_json: Invoke, refused: Told, demo_server: Json
) -> None:
    assert "No servers are configured" in invoke("doctor").stdout
    assert invoke_json("doctor") == {"ok": True, "servers": []}
    configure(demo=demo_server, bad={"command": "nonono"})
    assert "did you mean 'demo'?" in refused("doctor", "dmo")
    document = invoke_json("doctor")
    verdicts = [(server["server"], server["verdict"]) for server in document["servers"]]
    assert (document["ok"], verdicts) == (False, [("demo", "ok"), ("bad", "fail")])
    assert document["servers"][1]["checks"][1]["name"] == "command"
    assert invoke("doctor").exit_code == 1


def test_entries_that_cannot_be_used_are_examined_too(configure: Configure, invoke_json: Invoke) -> None:
    configure(text="uvx x", yes={"command": "x", "disabled": "yes"}, key={"command": "x", "disabledTool": ["a"]})  # type: ignore[arg-type]
    found = {row["server"]: row["checks"][0] for row in invoke_json("doctor")["servers"]}
    assert [check["verdict"] for check in found.values()] == ["fail"] * 3
    assert found["text"]["detail"] == "expected a config dict with a 'command', got a string"
    assert found["yes"]["detail"] == "disabled: expected a boolean, got a string"
    assert "did you mean 'disabledTools'?" in found["key"]["detail"]


class TestTestClient:
    """`gaia mcp test-client`: at which step a server fails, why, and what may help."""

    def test_a_working_server_passes_every_step(self, configure: Configure, invoke: Invoke, demo_server: Json) -> None:
        configure(demo=demo_server)
        result = invoke("test-client", "demo", "--json")
        document = json.loads(result.stdout)
        steps = {step["name"]: step for step in document["steps"]}

        assert result.exit_code == 0
        assert list(steps) == ["spawn", "handshake", "list", "ping"]
        assert all(step["ok"] and 0 <= step["seconds"] < 30 for step in steps.values())
        assert steps["handshake"]["detail"] == "gaia-demo 1.0.0, protocol 2025-11-25"
        assert steps["list"]["detail"] == "6 tools"
        assert (document["ok"], document["error"], document["hint"], document["warnings"]) == (True, None, None, [])

    def test_people_get_a_table_and_a_verdict(self, configure: Configure, invoke: Invoke, demo_server: Json) -> None:
        configure(demo=demo_server | {"disabledTools": ["crash"], "colour": "red"})
        shown = invoke("test-client", "demo").stdout
        assert shown.count("✓") == 4
        assert "5 tools, 1 more denied by filters" in shown
        assert "Note: the key 'colour' means nothing here" in shown
        assert shown.endswith("demo works.\n")

    @pytest.mark.parametrize(
        ("scenario", "step", "error", "hint"),
        [
            ({"exit_at_start": {"code": 3, "stderr": "no licence"}}, "handshake", "no licence", "Run it by hand"),
            ({"faults": [{"on": "initialize", "hang": True}]}, "handshake", "startTimeout of 1 s", '"startTimeout"'),
            ({"protocol_version": "1.0.0"}, "handshake", "1.0.0", "Run it by hand"),
            (
                {"faults": [{"on": "tools/list", "error": {"code": -32603, "message": "no list today"}}]},
                "list",
                "no list today",
                "authors",
            ),
            ({"faults": [{"on": "ping", "hang": True}]}, "ping", "not answered within", "authors"),
        ],
    )
    def test_the_step_that_fails_is_named_with_the_reason_and_a_hint(
        self,
        scenario: Json,
        step: str,
        error: str,
        hint: str,
        configure: Configure,
        invoke: Invoke,
        fault_server: FaultServer,
    ) -> None:
        configure(it=fault_server(**scenario) | {"timeout": 1, "startTimeout": 1})
        result = invoke("test-client", "it", "--json")
        document = json.loads(result.stdout)
        assert result.exit_code == 1
        assert [each["name"] for each in document["steps"] if not each["ok"]] == [step]
        assert error in document["error"]
        assert hint in document["hint"]

    def test_a_server_without_tools_works_and_an_error_is_an_answer_to_a_ping(
        self, configure: Configure, output: Told, fault_server: FaultServer
    ) -> None:
        unknown = {"on": "ping", "error": {"code": -32601, "message": "unknown"}}
        configure(it=fault_server(capabilities={}, faults=[unknown]))
        assert "the server offers no tools" in output("test-client", "it")

    def test_what_is_most_likely_a_mistake_is_noted(
        self, configure: Configure, invoke_json: Invoke, fault_server: FaultServer
    ) -> None:
        chatty = fault_server(faults=[{"on": "ping", "junk": [{"text": "I am alive!"}]}])
        configure(it=chatty | {"timout": 5, "colour": "red"})
        warnings = invoke_json("test-client", "it")["warnings"]
        assert "the key 'timout' means nothing here; did you mean 'timeout'?" in warnings
        assert "the key 'colour' means nothing here" in warnings
        assert any("1 lines to its standard output" in warning for warning in warnings)

    @pytest.mark.process
    def test_a_command_line_without_args_is_shown_as_it_is(self, configure: Configure, invoke: Invoke) -> None:
        configure(it={"command": f"{sys.executable} -c 'raise SystemExit(4)'"})
        assert f"{sys.executable} -c 'raise SystemExit(4)'" in invoke("test-client", "it").stdout
