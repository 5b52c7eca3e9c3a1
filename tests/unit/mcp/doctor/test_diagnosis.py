"""Verdicts, and remedies in words."""

import pytest

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


class TestDiagnosis:
    @pytest.mark.parametrize(
        ("checks", "verdict"),
        [
            ((), Verdict.OK),
            ((skipped("a", ""),), Verdict.OK),
            ((ok("a", ""), warned("b", "", None), skipped("c", "")), Verdict.WARN),
            ((failed("a", "", None), warned("b", "", None)), Verdict.FAIL),
        ],
    )
    def test_the_gravest_verdict_counts(self, checks: tuple[Check, ...], verdict: Verdict) -> None:
        assert Diagnosis("it", checks).verdict is verdict

    def test_a_check_is_found_by_its_name(self) -> None:
        diagnosis = Diagnosis("it", (ok("start", "pid 7", 0.5),))

        assert diagnosis.check("start") == Check("start", Verdict.OK, "pid 7", None, 0.5)
        assert diagnosis.check("http") is None


class TestRemedies:
    @pytest.mark.parametrize(
        ("program", "remedy"),
        [("npx", "nodejs.org"), ("/usr/local/bin/uvx", "docs.astral.sh"), ("my-server", None)],
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
    def test_who_is_not_let_in_is_told_to_log_in(self, error: str, is_login: bool) -> None:
        remedy = for_handshake("web", {"url": "https://example.com"}, error, stdio=False)

        assert ("gaia mcp login web" in (remedy or "")) == is_login

    def test_the_name_is_quoted_for_the_shell(self) -> None:
        remedy = for_handshake("a; $(b)", {"url": "https://example.com"}, "401", stdio=False)

        assert "`gaia mcp login 'a; $(b)'`" in (remedy or "")

    def test_a_server_that_does_not_answer_may_need_longer(self) -> None:
        remedy = for_handshake(
            "it", {"command": "x"}, "not ready within its startTimeout of 30 s: initialize was not answered"
        )

        assert "give 'it' a longer \"startTimeout\"" in (remedy or "")

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
