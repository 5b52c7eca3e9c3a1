"""`diagnose`: what is found out about a server, step by step."""

import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.doctor import Check, Diagnosis, Verdict, diagnose, diagnose_all
from gaia.mcp.doctor.examination import COMMAND_CHECKS

FaultServer = Callable[..., dict[str, Any]]

TOOL = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}


def found(diagnosis: Diagnosis, name: str) -> Check:
    check = diagnosis.check(name)
    assert check is not None
    return check


def verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return {check.name: check.verdict.value for check in diagnosis.checks}


class TestAServerThatWorks:
    def test_every_check_is_made_in_order(self, demo_server: dict[str, Any]) -> None:
        diagnosis = diagnose("demo", demo_server)

        assert tuple(verdicts(diagnosis)) == COMMAND_CHECKS
        assert set(verdicts(diagnosis).values()) == {"ok"}
        assert diagnosis.verdict is Verdict.OK
        assert found(diagnosis, "command").detail == sys.executable
        assert found(diagnosis, "versions").detail == f"python {sys.version.split()[0]}"
        assert found(diagnosis, "handshake").detail == "gaia-demo 1.0.0, protocol revision 2025-11-25 (handshake era)"
        assert found(diagnosis, "tools").detail == "6 tools"
        assert len(diagnosis.tools) == 6

    def test_findings_are_reported_when_they_are_made(self, demo_server: dict[str, Any]) -> None:
        reported: list[Check] = []
        diagnosis = diagnose("demo", demo_server, reported.append)

        assert tuple(reported) == diagnosis.checks

    def test_what_filters_deny_is_counted_and_not_offered(self, demo_server: dict[str, Any]) -> None:
        diagnosis = diagnose("demo", demo_server | {"disabledTools": ["crash"]})

        assert found(diagnosis, "tools").detail == "6 tools, 1 of them denied by filters"
        assert "crash" not in diagnosis.tools

    def test_its_tools_are_looked_at_and_not_approved(self, demo_server: dict[str, Any], home: Path) -> None:
        diagnosis = diagnose("demo", demo_server | {"pinTools": "block"})

        assert len(diagnosis.tools) == 6
        assert not (home / ".gaia").exists()


class TestConfiguration:
    def test_an_entry_that_cannot_be_used_ends_the_examination(self) -> None:
        diagnosis = diagnose("it", {"commnd": "x"})

        assert verdicts(diagnosis) == {"config": "fail"} | dict.fromkeys(COMMAND_CHECKS[1:], "skipped")
        assert "command: missing" in found(diagnosis, "config").detail

    def test_a_variable_that_is_not_set_is_named(self) -> None:
        diagnosis = diagnose("it", {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE_HERE}"}})

        assert "NO_SUCH_VARIABLE_HERE is not set" in found(diagnosis, "config").detail

    @pytest.mark.parametrize(
        ("more", "detail"),
        [
            ({"enabledTool": ["a"]}, "did you mean 'enabledTools'?"),
            ({"disabled": True}, "it is disabled"),
        ],
    )
    def test_what_is_most_likely_a_mistake_is_a_warning(
        self, more: dict[str, Any], detail: str, demo_server: dict[str, Any]
    ) -> None:
        diagnosis = diagnose("demo", demo_server | more)

        assert detail in found(diagnosis, "config").detail
        assert diagnosis.verdict is Verdict.WARN


class TestProgram:
    def test_one_that_is_not_there_comes_with_where_to_get_it(self) -> None:
        diagnosis = diagnose("time", {"command": "uvx", "args": ["x"], "env": {"PATH": "/nowhere"}})
        check = found(diagnosis, "command")

        assert (check.verdict, check.remedy) == (Verdict.FAIL, "uvx comes with uv: https://docs.astral.sh/uv/")
        assert found(diagnosis, "start").verdict is Verdict.SKIPPED

    def test_a_working_directory_that_does_not_exist_is_named(self, demo_server: dict[str, Any]) -> None:
        assert (
            "/no/such/place does not exist"
            in found(diagnose("demo", demo_server | {"cwd": "/no/such/place"}), "command").detail
        )

    def test_a_script_whose_interpreter_is_gone_is_recognised(self, tmp_path: Path) -> None:
        script = executable(tmp_path / "server", "#!/no/such/python\n")

        assert (
            "is a script for /no/such/python"
            in found(diagnose("it", {"command": script, "args": []}), "command").detail
        )

    @pytest.mark.process
    def test_the_runtime_of_a_script_is_found_by_its_first_line(self, tmp_path: Path) -> None:
        script = executable(tmp_path / "server", f"#!{sys.executable}\nraise SystemExit(3)\n")

        assert found(diagnose("it", {"command": script, "args": []}), "versions").detail.startswith("python 3.")

    @pytest.mark.process
    @pytest.mark.parametrize(
        ("body", "verdict", "detail"),
        [
            ("echo v16.20.2", Verdict.WARN, "node 16.20.2"),
            ("echo v22.1.0", Verdict.OK, "node 22.1.0"),
            ("echo broken >&2; exit 7", Verdict.FAIL, "node --version failed: exit status 7: broken"),
            ("echo hello", Verdict.WARN, "node --version says 'hello', which is no version"),
        ],
    )
    def test_the_version_of_a_launcher_s_runtime_is_looked_at(
        self, body: str, verdict: Verdict, detail: str, tmp_path: Path
    ) -> None:
        executable(tmp_path / "node", f"#!/bin/sh\n{body}\n")
        executable(tmp_path / "npx", "#!/bin/sh\nexit 1\n")
        diagnosis = diagnose(
            "it", {"command": "npx", "args": ["-y", "x"], "env": {"PATH": f"{tmp_path}:/bin:/usr/bin"}}
        )
        check = found(diagnosis, "versions")

        assert (check.verdict, check.detail) == (verdict, detail)


class TestConversation:
    def test_a_server_that_ends_at_once_is_quoted(self, fault_server: FaultServer) -> None:
        diagnosis = diagnose("it", fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
        check = found(diagnosis, "handshake")

        assert check.verdict is Verdict.FAIL
        assert "exited with code 3" in check.detail
        assert "no licence" in check.detail
        assert "Run it by hand" in (check.remedy or "")
        assert found(diagnosis, "latency").detail == "not reached"

    def test_one_that_does_not_answer_may_need_longer(self, fault_server: FaultServer) -> None:
        entry = fault_server(faults=[{"on": "initialize", "hang": True}]) | {"timeout": 0.5}

        assert '"timeout"' in (found(diagnose("it", entry), "handshake").remedy or "")

    def test_noise_is_counted_even_if_it_comes_late(self, fault_server: FaultServer) -> None:
        diagnosis = diagnose("it", fault_server(faults=[{"on": "ping", "nth": [2], "junk": [{"text": "alive!"}]}]))
        check = found(diagnosis, "output")

        assert (check.verdict, check.detail) == (
            Verdict.WARN,
            "1 line (6 bytes) on standard output that are no messages",
        )

    def test_tools_that_cannot_be_listed_are_a_failure(self, fault_server: FaultServer) -> None:
        error = {"code": -32603, "message": "no list today"}
        diagnosis = diagnose("it", fault_server(faults=[{"on": "tools/list", "error": error}]))

        assert found(diagnosis, "tools").verdict is Verdict.FAIL
        assert "no list today" in found(diagnosis, "tools").detail

    def test_a_server_without_tools_is_a_warning(self, fault_server: FaultServer) -> None:
        diagnosis = diagnose("it", fault_server(capabilities={}))

        assert found(diagnosis, "tools").verdict is Verdict.WARN
        assert found(diagnosis, "schemas").verdict is Verdict.SKIPPED

    def test_patterns_that_match_nothing_are_named(self, demo_server: dict[str, Any]) -> None:
        diagnosis = diagnose("demo", demo_server | {"disabledTools": ["delete_*"]})

        assert "these patterns match none: 'delete_*'" in found(diagnosis, "tools").detail

    def test_no_sign_of_life_is_a_failure(self, fault_server: FaultServer) -> None:
        # Enough for the start on a busy machine.
        entry = fault_server(faults=[{"on": "ping", "hang": True}]) | {"timeout": 3}

        assert found(diagnose("it", entry), "latency").verdict is Verdict.FAIL

    def test_an_error_is_a_sign_of_life(self, fault_server: FaultServer) -> None:
        entry = fault_server(faults=[{"on": "ping", "error": {"code": -32601, "message": "unknown"}}])

        assert found(diagnose("it", entry), "latency").verdict is Verdict.OK


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
                "greet: inputSchema is no JSON Schema: 'text' is not valid",
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


class TestSeveralServers:
    def test_tools_with_one_name_are_found(self, fault_server: FaultServer) -> None:
        def serving(name: str) -> dict[str, Any]:
            return fault_server(faults=[{"on": "tools/list", "result": {"tools": [TOOL | {"name": name}]}}])

        first, second, third = diagnose_all({"a": serving("b_c"), "a_b": serving("c"), "z": serving("c")})

        assert found(first, "names").detail.startswith("b_c becomes mcp_a_b_c_")
        assert found(second, "names").detail.startswith("c becomes mcp_a_b_c_")
        assert found(third, "names").verdict is Verdict.OK

    def test_findings_are_reported_with_the_server_s_name(self, demo_server: dict[str, Any]) -> None:
        reported: list[str] = []
        lock = threading.Lock()

        def report(name: str, check: Check) -> None:
            with lock:
                reported.append(f"{name} {check.name}")

        diagnose_all({"a": demo_server, "b": {"command": "nonono"}}, report)

        assert sorted(reported) == sorted(f"{name} {check}" for name in "ab" for check in COMMAND_CHECKS)

    def test_an_interruption_waits_for_no_server(self, fault_server: FaultServer) -> None:
        slow = fault_server(faults=[{"on": "initialize", "hang": True}]) | {"timeout": 300}

        def interrupt(name: str, check: Check) -> None:
            if (name, check.name) == ("fine", "latency"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            diagnose_all({"fine": fault_server(), "slow": slow, "other": slow}, interrupt)


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
