"""`diagnose`: which checks there are, what they say, and in which order."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.config.placement import Placement
from gaia.mcp.doctor import diagnose, diagnose_all
from gaia.mcp.doctor.diagnosis import (
    Check,
    Diagnosis,
    Verdict,
    failed,
    for_handshake,
    for_missing_program,
    ok,
    skipped,
    warned,
)
from gaia.mcp.doctor.examination import COMMAND_CHECKS, PLACED_CHECKS
from gaia.mcp.doctor.inspection import Inspection, judge
from gaia.mcp.doctor.placement import check_placement

Json = dict[str, Any]
FaultServer = Callable[..., Json]

TOOL = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}


def found(diagnosis: Diagnosis, name: str) -> Check:
    check = diagnosis.check(name)
    assert check is not None
    return check


def verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return {check.name: check.verdict.value for check in diagnosis.checks}


class TestAServerThatWorks:
    def test_every_check_is_made_in_order_and_reported_when_it_is_made(self, demo_server: Json) -> None:
        reported: list[Check] = []
        diagnosis = diagnose("demo", demo_server, reported.append)

        assert tuple(reported) == diagnosis.checks
        assert tuple(verdicts(diagnosis)) == COMMAND_CHECKS
        assert set(verdicts(diagnosis).values()) == {"ok"}
        assert diagnosis.verdict is Verdict.OK
        assert found(diagnosis, "command").detail == sys.executable
        assert found(diagnosis, "versions").detail == f"python {sys.version.split()[0]}"
        assert found(diagnosis, "handshake").detail == "gaia-demo 1.0.0, protocol revision 2025-11-25 (handshake era)"
        assert found(diagnosis, "tools").detail == "6 tools"
        assert len(diagnosis.tools) == 6

    def test_what_filters_deny_is_counted_and_not_offered_and_nothing_approved(
        self, demo_server: Json, home: Path
    ) -> None:
        diagnosis = diagnose("demo", demo_server | {"disabledTools": ["crash", "delete_*"], "pinTools": "block"})
        detail = found(diagnosis, "tools").detail
        assert detail.startswith("6 tools, 1 of them denied by filters")
        assert "these patterns match none: 'delete_*'" in detail
        assert len(diagnosis.tools) == 5
        assert "crash" not in diagnosis.tools
        assert not (home / ".gaia").exists()


class TestConfiguration:
    def test_an_entry_that_cannot_be_used_ends_the_examination(self) -> None:
        diagnosis = diagnose("it", {"commnd": "x"})
        assert verdicts(diagnosis) == {"config": "fail"} | dict.fromkeys(COMMAND_CHECKS[1:], "skipped")
        assert "command: missing" in found(diagnosis, "config").detail
        unset = diagnose("it", {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE_HERE}"}})
        assert "NO_SUCH_VARIABLE_HERE is not set" in found(unset, "config").detail

    @pytest.mark.parametrize(
        ("more", "detail"), [({"timout": 5}, "did you mean 'timeout'?"), ({"disabled": True}, "it is disabled")]
    )
    def test_what_is_most_likely_a_mistake_is_a_warning(self, more: Json, detail: str, demo_server: Json) -> None:
        diagnosis = diagnose("demo", demo_server | more)
        assert detail in found(diagnosis, "config").detail
        assert diagnosis.verdict is Verdict.WARN


class TestConversation:
    def test_a_server_that_ends_at_once_is_quoted_and_it_is_told_what_the_server_did_not_get(
        self, fault_server: FaultServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UV_INDEX_COMPANY_PASSWORD", "hunter2")
        monkeypatch.setenv("LICENCE_SERVER", "27000@licences")
        entry = fault_server(exit_at_start={"code": 3, "stderr": "no licence"})

        diagnosis = diagnose("it", entry)
        check = found(diagnosis, "handshake")
        assert check.verdict is Verdict.FAIL
        assert "exited with code 3" in check.detail
        assert "no licence" in check.detail
        assert found(diagnosis, "latency").detail == "not reached"
        remedy = check.remedy or ""
        assert "Run it by hand" in remedy
        told = remedy.partition("It does not get these variables of this environment: ")[2]
        assert "UV_INDEX_COMPANY_PASSWORD, " in told
        assert "LICENCE_SERVER" in told
        assert "PATH," not in told.split()
        assert "hunter2" not in remedy
        assert "27000" not in remedy
        assert 'name it in "env", as in {"NAME": "${NAME}"}' in told

        entry["env"] = {**entry.get("env", {}), "LICENCE_SERVER": "${LICENCE_SERVER}"}
        assert "LICENCE_SERVER" not in (found(diagnose("it", entry), "handshake").remedy or "")
        everything = found(diagnose("it", entry | {"inheritEnv": True}), "handshake").remedy or ""
        assert "It does not get" not in everything

    def test_one_that_does_not_answer_may_need_longer(self, fault_server: FaultServer) -> None:
        entry = fault_server(faults=[{"on": "initialize", "hang": True}]) | {"startTimeout": 0.5}
        assert '"startTimeout"' in (found(diagnose("it", entry), "handshake").remedy or "")

    def test_noise_is_counted_even_if_it_comes_late(self, fault_server: FaultServer) -> None:
        diagnosis = diagnose("it", fault_server(faults=[{"on": "ping", "nth": [2], "junk": [{"text": "alive!"}]}]))
        check = found(diagnosis, "output")
        assert (check.verdict, check.detail) == (
            Verdict.WARN,
            "1 line (6 bytes) on standard output that are no messages",
        )

    def test_tools_that_cannot_be_listed_are_a_failure_and_an_error_is_a_sign_of_life(
        self, fault_server: FaultServer
    ) -> None:
        unlisted = {"on": "tools/list", "error": {"code": -32603, "message": "no list today"}}
        unknown = {"on": "ping", "error": {"code": -32601, "message": "unknown"}}
        diagnosis = diagnose("it", fault_server(faults=[unlisted, unknown]))
        assert found(diagnosis, "tools").verdict is Verdict.FAIL
        assert "no list today" in found(diagnosis, "tools").detail
        assert found(diagnosis, "latency").verdict is Verdict.OK

    def test_a_server_without_tools_is_a_warning(self, fault_server: FaultServer) -> None:
        diagnosis = diagnose("it", fault_server(capabilities={}))
        assert found(diagnosis, "tools").verdict is Verdict.WARN
        assert found(diagnosis, "schemas").verdict is Verdict.SKIPPED

    def test_no_sign_of_life_is_a_failure(self, fault_server: FaultServer) -> None:
        # Enough for the start on a busy machine.
        entry = fault_server(faults=[{"on": "ping", "hang": True}]) | {"timeout": 1.5}
        assert found(diagnose("it", entry), "latency").verdict is Verdict.FAIL


class TestSeveralServers:
    def test_tools_with_one_name_are_found(self, fault_server: FaultServer) -> None:
        def serving(name: str) -> Json:
            return fault_server(faults=[{"on": "tools/list", "result": {"tools": [TOOL | {"name": name}]}}])

        first, second, third = diagnose_all({"a": serving("b_c"), "a_b": serving("c"), "z": serving("c")})

        assert found(first, "names").detail.startswith("b_c becomes mcp_a_b_c_")
        assert found(second, "names").verdict is Verdict.OK
        assert found(third, "names").verdict is Verdict.OK

    def test_findings_are_reported_with_the_server_s_name(self, demo_server: Json) -> None:
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


class TestJudge:
    """The verdicts on what was seen, without a server."""

    @pytest.fixture
    def seen(self) -> Inspection:
        """A server that works."""
        return Inspection(
            pid=7,
            start_seconds=0.1,
            handshake_seconds=0.2,
            capabilities={"tools": {}},
            definitions=[TOOL],
            list_seconds=0.1,
            pings=[0.001],
        )

    def judged(self, seen: Inspection, config: Json | None = None, *, stdio: bool = True) -> dict[str, Check]:
        return {check.name: check for check in judge("it", config or {"command": "x"}, seen, stdio=stdio)}

    def test_nothing_follows_a_start_that_failed(self) -> None:
        error = "'uvx' was not found on the server's PATH"
        (check,) = judge("it", {"command": "uvx x"}, Inspection(error=error), stdio=True)
        assert (check.name, check.verdict, check.detail) == ("start", Verdict.FAIL, error)
        assert "uvx comes with uv" in (check.remedy or "")

    def test_over_http_there_is_no_program_to_judge(self, seen: Inspection) -> None:
        assert tuple(self.judged(seen, stdio=False)) == ("handshake", "tools", "schemas", "names", "latency")

    def test_a_list_that_failed_leaves_the_server_s_latency_to_see(self, seen: Inspection) -> None:
        seen.definitions, seen.list_error = None, "no list today"
        verdicts = {name: check.verdict.value for name, check in self.judged(seen).items()}
        assert verdicts["tools"] == "fail"
        assert (verdicts["schemas"], verdicts["names"], verdicts["latency"]) == ("skipped", "skipped", "ok")

    def test_only_denied_tools_are_none(self, seen: Inspection) -> None:
        seen.denied = frozenset({"greet"})
        check = self.judged(seen)["tools"]
        assert (check.verdict, check.detail) == (Verdict.WARN, "1 tools, 1 of them denied by filters")

    @pytest.mark.parametrize(
        ("pings", "listing", "verdict"),
        [
            ([0.25], 2.0, Verdict.OK),
            ([0.26], 0.1, Verdict.WARN),
            ([0.001], 2.1, Verdict.WARN),
            ([9.0, 0.1, 0.1], 0.1, Verdict.OK),
            ([], 0.1, Verdict.FAIL),
        ],
    )
    def test_a_slow_server_is_a_warning_and_a_silent_one_a_failure(
        self, pings: list[float], listing: float, verdict: Verdict, seen: Inspection
    ) -> None:
        seen.pings, seen.list_seconds = pings, listing
        assert self.judged(seen)["latency"].verdict is verdict


def test_of_a_placed_server_the_engine_is_examined(demo_server: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    diagnosis = diagnose("demo", demo_server | {"placement": {"engine": "ssh", "host": "worker"}})
    assert tuple(verdicts(diagnosis)) == PLACED_CHECKS
    assert found(diagnosis, "placement").verdict is Verdict.FAIL
    assert "needs the command ssh" in found(diagnosis, "placement").detail
    assert found(diagnosis, "placement").remedy is None
    assert found(diagnosis, "handshake").verdict is Verdict.SKIPPED


def test_an_engine_that_is_reached_is_told_with_what_it_finds() -> None:
    check = check_placement(Placement(engine="process"))
    assert (check.name, check.verdict) == ("placement", Verdict.OK)
    assert check.detail.startswith("process: this machine, ")


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ((), Verdict.OK),
        ((skipped("a", ""),), Verdict.OK),
        ((ok("a", ""), warned("b", "", None), skipped("c", "")), Verdict.WARN),
        ((failed("a", "", None), warned("b", "", None)), Verdict.FAIL),
    ],
)
def test_the_gravest_verdict_counts(checks: tuple[Check, ...], verdict: Verdict) -> None:
    diagnosis = Diagnosis("it", (*checks, ok("start", "pid 7", 0.5)))
    assert diagnosis.verdict is verdict
    assert diagnosis.check("start") == Check("start", Verdict.OK, "pid 7", None, 0.5)
    assert diagnosis.check("http") is None


class TestRemedies:
    @pytest.mark.parametrize(
        ("program", "remedy"), [("npx", "nodejs.org"), ("/usr/local/bin/uvx", "docs.astral.sh"), ("my-server", None)]
    )
    def test_well_known_programs_come_with_their_source(self, program: str, remedy: str | None) -> None:
        found = for_missing_program(program)
        assert (remedy or "") in (found or "")
        assert (found is None) == (remedy is None)

    @pytest.mark.parametrize(
        ("error", "is_login"),
        [
            ("the server answered 401 Unauthorized", True),
            ("403", True),
            ("the server answered 404 Not Found", False),
            ("port 4013 is closed", False),
        ],
    )
    def test_who_is_not_let_in_is_told_to_log_in_by_a_name_quoted_for_the_shell(
        self, error: str, is_login: bool
    ) -> None:
        remedy = for_handshake("a; $(b)", {"url": "https://example.com"}, error, stdio=False)
        assert ("`gaia mcp login 'a; $(b)'`" in (remedy or "")) == is_login

    def test_a_server_that_does_not_answer_may_need_longer(self) -> None:
        error = "not ready within its startTimeout of 30 s: initialize was not answered"
        assert "give 'it' a longer \"startTimeout\"" in (for_handshake("it", {"command": "x"}, error) or "")

    @pytest.mark.parametrize(
        ("entry", "line"),
        [
            ({"command": "my server", "args": ["--key", "${KEY}", 5]}, "'my server' --key \"${KEY}\" 5"),
            ({"command": "ls", "args": ["${HOME}/my notes", "a${B}$C"]}, """ls "${HOME}"'/my notes' a"${B}"'$C'"""),
            ({"command": "ls", "args": ["${A:-$(rm x)}"]}, "ls '${A:-$(rm x)}'"),
            ({"command": "uvx some-server --fast"}, "uvx some-server --fast"),
            ({"command": "server\nrm '$HOME' *"}, "server rm '$HOME' '*'"),
        ],
    )
    def test_the_command_line_can_be_typed_and_shows_no_values_of_variables(
        self, entry: dict[str, object], line: str
    ) -> None:
        remedy = for_handshake("it", entry, "exited with code 1")
        assert (remedy or "").endswith(f"see what it says: {line}")

    def test_what_belongs_into_a_sandbox_is_not_simply_run_without_one(self) -> None:
        remedy = for_handshake("it", {"command": "x", "sandbox": {"memory": "16M"}}, "was killed by SIGKILL") or ""
        assert "what the sandbox denied it" in remedy
        assert "If you trust it, run it by hand, without a sandbox, to see what it says: x" in remedy
