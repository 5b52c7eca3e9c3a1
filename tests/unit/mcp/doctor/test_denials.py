"""What the doctor finds out about a sandbox."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor import Verdict, diagnose
from gaia.mcp.doctor.programs import Denial, check_sandbox, denials_in
from tests.sandboxes import ENGINES, linux, probing, require, without_bubblewrap

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import Sandbox
from gaia.mcp.transports.sandbox.cage import Cage
from gaia.mcp.transports.sandbox.confinement import Confinement, confinement_of

pytestmark = linux

STARTED = (
    '9 execve("/usr/bin/bwrap", ["/usr/bin/bwrap", "sandbox/launcher.py"], 0x7f /* 9 vars */) = 0\n'
    '10 execve("/usr/bin/python3", ["/usr/bin/python3", "-I", "-S", "/x/sandbox/launcher.py", "7b..."], 0x7f) = 0\n'
    '10 openat(AT_FDCWD</>, "/before/the/server", O_RDONLY) = -1 ENOENT (No such file or directory)\n'
    '10 execve("/bin/server", ["/bin/server"], 0x7f /* 9 vars */) = 0\n'
)


@pytest.fixture
def home_with_files(home: Path) -> Path:
    for name in ("file", "ä b"):
        (home / name).write_text("x")
    return home.resolve()


@pytest.fixture
def confinement(home_with_files: Path, tmp_path: Path) -> Confinement:
    return confinement_of(Sandbox(), ["/bin/cat"], "/bin", str(tmp_path))


def seen(confinement: Confinement, *lines: str) -> list[Denial]:
    return denials_in([*STARTED.splitlines(keepends=True), *(f"{line}\n" for line in lines)], confinement)


class TestReading:
    def test_nothing_before_the_server_counts(self, confinement: Confinement) -> None:
        assert seen(confinement) == []

    def test_a_file_that_is_hidden_was_denied(self, confinement: Confinement, home_with_files: Path) -> None:
        line = f'11 openat(AT_FDCWD</usr>, "{home_with_files}/file", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file)'
        assert seen(confinement, line, line) == [Denial("read", f"{home_with_files}/file")]

    def test_one_that_is_not_there_outside_either_was_not(
        self, confinement: Confinement, home_with_files: Path
    ) -> None:
        assert seen(confinement, f'11 stat("{home_with_files}/none", 0x7f) = -1 ENOENT (No such file)') == []
        assert seen(confinement, '11 open("/proc/1/environ", O_RDONLY) = -1 ENOENT (No such file)') == []
        assert seen(confinement, f'11 open("{home_with_files}/file", O_RDONLY) = 3') == []

    def test_writing_asks_for_what_exists(self, confinement: Confinement, home_with_files: Path) -> None:
        (home_with_files / "folder").mkdir()
        new = f'11 openat(7<{home_with_files}/folder>, "new", O_WRONLY|O_CREAT, 0666) = -1 EROFS (Read-only)'
        old = f'11 openat(AT_FDCWD<{home_with_files}>, "file", O_RDWR) = -1 EACCES (Permission denied)'
        assert seen(confinement, new, old) == [
            Denial("write", f"{home_with_files}/folder"),
            Denial("write", f"{home_with_files}/file"),
        ]

    def test_names_are_as_in_c(self, confinement: Confinement, home_with_files: Path) -> None:
        line = rf'11 access("{home_with_files}/\303\244 b", R_OK) = -1 EACCES (Permission denied)'
        assert seen(confinement, line) == [Denial("read", f"{home_with_files}/ä b")]

    def test_calls_that_others_interrupted_are_put_together(
        self, confinement: Confinement, home_with_files: Path
    ) -> None:
        lines = [
            f'11 open("{home_with_files}/file" <unfinished ...>',
            "12 +++ exited with 0 +++",
            "11 <... open resumed>, O_RDONLY) = -1 ENOENT (No such file)",
        ]
        assert seen(confinement, *lines) == [Denial("read", f"{home_with_files}/file")]

    def test_the_network(self, confinement: Confinement, home_with_files: Path) -> None:
        lines = [
            '11 connect(3<socket:[1]>, {sa_family=AF_INET, sin_addr=inet_addr("8.8.8.8")}, 16) = -1 ENETUNREACH (x)',
            "11 socket(AF_INET6, SOCK_STREAM, 0) = -1 EACCES (Permission denied)",
            f'11 connect(3<socket:[1]>, {{sa_family=AF_UNIX, sun_path="{home_with_files}/file"}}, 110) = -1 ENOENT (x)',
            '11 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/nowhere"}, 110) = -1 ENOENT (x)',
        ]
        assert seen(confinement, *lines) == [
            Denial("network", "8.8.8.8"),
            Denial("network", "AF_INET6"),
            Denial("write", f"{home_with_files}/file"),
        ]


class TestTheCheck:
    CODE = """
import os, sys
for name, mode in (("file", "r"), ("folder/new", "w"), (".ssh/id", "r")):
    try:
        open(os.path.join(sys.argv[1], name), mode)
    except OSError:
        pass
os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[2]])
"""

    @pytest.fixture
    def entry(self, home_with_files: Path) -> dict[str, Any]:
        (home_with_files / "folder").mkdir()
        (home_with_files / ".ssh").mkdir()
        (home_with_files / ".ssh" / "id").write_text("key")
        configured = probing()
        server = configured["args"][-1]
        return configured | {"args": ["-I", "-S", "-c", self.CODE, str(home_with_files), server]}

    @pytest.mark.process
    @pytest.mark.parametrize("engine", ENGINES)
    def test_what_a_server_is_denied_is_said_with_the_keys_that_permit_it(
        self, entry: dict[str, Any], home_with_files: Path, engine: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require(engine)
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        if engine == "landlock":
            without_bubblewrap(monkeypatch)
        check = check_sandbox("probing", entry, ServerConfig.from_dict("probing", entry))
        if "could not be observed" in check.detail:
            pytest.skip(check.detail)
        assert check.verdict is Verdict.WARN
        assert engine in check.detail
        for words in (f"read {home_with_files}/file", f"write {home_with_files}/folder", f"{home_with_files}/.ssh/id"):
            assert words in check.detail
        assert check.remedy is not None
        assert f'"read": ["{home_with_files}/file"' in check.remedy
        assert f'"write": ["{home_with_files}/folder"]' in check.remedy
        assert ".ssh" not in check.remedy

    @pytest.mark.process
    def test_without_strace_only_the_engine_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        require("bubblewrap")
        which = shutil.which
        monkeypatch.setattr("shutil.which", lambda name, **keys: None if name == "strace" else which(name, **keys))
        entry = probing(memory="256M")
        check = check_sandbox("probing", entry, ServerConfig.from_dict("probing", entry))
        assert check.verdict is Verdict.OK
        assert check.detail.startswith("bubblewrap, limits by ")
        assert "if strace is installed" in check.detail

    def test_inherited_variables_that_are_left_out_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caged = Cage(
            [], {"PATH": "/bin", "npm_config_cache": "/tmp/npm"}, "landlock", Mock(), Mock(groups=None, of_process={})
        )
        monkeypatch.setattr("gaia.mcp.transports.sandbox.cage.cage", lambda *_: caged)
        which = shutil.which
        monkeypatch.setattr("shutil.which", lambda name, *_, **__: None if name == "strace" else which(name))
        for name in ("SSL_CERT_FILE", "NPM_CONFIG_CACHE"):
            monkeypatch.setenv(name, "/of/host")
        monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy")
        server = ServerConfig.from_dict("it", {"command": sys.executable, "args": [], "sandbox": True})
        detail = check_sandbox("it", {}, server).detail
        named = detail.partition("without the variables ")[2].partition(", of no use")[0].split(", ")
        assert {"HTTPS_PROXY", "SSL_CERT_FILE"} <= set(named)
        assert {"PATH", "NPM_CONFIG_CACHE"}.isdisjoint(named)
        assert "hunter2" not in detail

    @pytest.mark.process
    def test_one_that_does_not_work_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        require("bubblewrap")
        (tmp_path / "strace").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "strace").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        entry = probing()
        check = check_sandbox("probing", entry, ServerConfig.from_dict("probing", entry))
        assert check.verdict is Verdict.WARN
        assert "could not be observed" in check.detail

    def test_one_that_cannot_be_made_fails_and_nothing_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_bubblewrap(monkeypatch)
        monkeypatch.setattr("gaia.mcp.transports.sandbox.kernel.landlock_version", lambda: 0)
        entry = {"command": sys.executable, "args": ["-c", "pass"], "sandbox": True}
        diagnosis = diagnose("probing", entry | {"command": "/bin/cat", "args": []})
        check = diagnosis.check("sandbox")
        assert check is not None
        assert check.verdict is Verdict.FAIL
        assert "bubblewrap is not installed" in check.detail
        assert diagnosis.checks[-1].verdict is Verdict.SKIPPED
