"""The program of a server: whether it is there, runs, and is new enough."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor import Check, Diagnosis, Verdict, diagnose, programs
from gaia.mcp.doctor.programs import check_program


def found(diagnosis: Diagnosis, name: str) -> Check:
    check = diagnosis.check(name)
    assert check is not None
    return check


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


class TestProgram:
    def test_one_that_is_not_there_comes_with_where_to_get_it(self) -> None:
        diagnosis = diagnose("time", {"command": "uvx", "args": ["x"], "env": {"PATH": "/nowhere"}})
        check = found(diagnosis, "command")
        assert (check.verdict, check.remedy) == (Verdict.FAIL, "uvx comes with uv: https://docs.astral.sh/uv/")
        assert found(diagnosis, "start").verdict is Verdict.SKIPPED

    def test_a_working_directory_that_does_not_exist_and_a_script_without_its_interpreter_are_recognised(
        self, demo_server: dict[str, Any], tmp_path: Path
    ) -> None:
        diagnosis = diagnose("demo", demo_server | {"cwd": "/no/such/place"})
        assert "/no/such/place does not exist" in found(diagnosis, "command").detail
        script = executable(tmp_path / "server", "#!/no/such/python\n")
        diagnosis = diagnose("it", {"command": script, "args": []})
        assert "is a script for /no/such/python" in found(diagnosis, "command").detail

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


class TestWithoutAServer:
    """The checks alone: nothing is started but the program that is asked for its version."""

    def checks(self, *, path: Path | None = None, **entry: Any) -> list[Check]:
        env = {} if path is None else {"PATH": f"{path}:/bin:/usr/bin"}
        return list(check_program(ServerConfig.from_dict("it", {"args": [], "env": env, **entry})))

    def test_a_program_that_is_no_known_runtime_is_not_asked(self, tmp_path: Path) -> None:
        server = executable(tmp_path / "server", "no script at all")
        command, versions = self.checks(command=server)
        assert (command.verdict, command.detail) == (Verdict.OK, server)
        assert (versions.verdict, versions.detail) == (Verdict.SKIPPED, "the command is no well-known runtime")

    def test_nothing_is_asked_where_the_program_is_missing(self, tmp_path: Path) -> None:
        (command,) = self.checks(command="docker", path=tmp_path / "nowhere", env={"PATH": "/nowhere"})
        assert command.verdict is Verdict.FAIL
        assert "docs.docker.com" in (command.remedy or "")

    def test_a_launcher_whose_runtime_is_missing_names_the_runtime(self, tmp_path: Path) -> None:
        executable(tmp_path / "npx", "#!/bin/sh\n")
        command, versions = self.checks(command="npx", env={"PATH": str(tmp_path)})
        assert command.verdict is Verdict.OK
        assert versions.verdict is Verdict.FAIL
        assert "Node.js" in (versions.remedy or "")

    @pytest.mark.process
    def test_a_runtime_that_does_not_answer_is_not_waited_for_and_a_long_answer_is_cut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = executable(tmp_path / "node", "#!/bin/sh\nprintf '%05000d' 0\n")
        _, long = self.checks(command=node, path=tmp_path)
        assert long.detail.count("0") < 300
        monkeypatch.setattr(programs, "_VERSION_SECONDS", 0.05)
        executable(tmp_path / "node", "#!/bin/sh\nexec sleep 60\n")
        _, silent = self.checks(command=node, path=tmp_path)
        assert "did not end within 0.05 s" in silent.detail
        assert long.verdict is silent.verdict is Verdict.WARN

    @pytest.mark.process
    @pytest.mark.parametrize(("version", "verdict"), [("3.9.18", Verdict.WARN), ("3.10", Verdict.OK)])
    def test_a_python_by_any_name_is_one(self, version: str, verdict: Verdict, tmp_path: Path) -> None:
        python = executable(tmp_path / "python3.9", f"#!/bin/sh\necho Python {version}\n")
        _, versions = self.checks(command=python)
        assert (versions.verdict, versions.detail) == (verdict, f"python {version}")
