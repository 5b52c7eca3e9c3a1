"""The command line of bubblewrap, and whether it works here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import linux

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import bubblewrap
from gaia.mcp.transports.sandbox.bubblewrap import Unusable, find_bubblewrap, wrapped
from gaia.mcp.transports.sandbox.confinement import Confinement

pytestmark = linux


def confinement(**values: Any) -> Confinement:
    nothing: dict[str, Any] = dict.fromkeys(("read", "write", "masked", "links", "hidden", "private", "left_out"), ())
    numbers: dict[str, Any] = dict.fromkeys(("memory", "processes", "cpu_seconds"))
    return Confinement(**{**nothing, **numbers, "cwd": "/usr", "network": False, **values})


@pytest.fixture
def asked_anew() -> Iterator[None]:
    find_bubblewrap.cache_clear()
    yield
    find_bubblewrap.cache_clear()


def follows(argv: list[str], *words: str) -> bool:
    return any(tuple(argv[start : start + len(words)]) == words for start in range(len(argv)))


def test_places_are_made_before_what_lies_in_them() -> None:
    found = confinement(hidden=("/srv",), read=("/srv/u/a",), write=("/srv/u/a/data",), masked=("/srv/u/a/.ssh",))
    argv = wrapped(found, "/usr/bin/bwrap", True)
    order = [argv.index(place) for place in ("/srv", "/srv/u/a", "/srv/u/a/data")]
    assert order == sorted(order)
    assert follows(argv, "--bind", "/srv/u/a/data", "/srv/u/a/data")
    assert follows(argv, "--ro-bind", "/srv/u/a", "/srv/u/a")
    assert argv.index("--remount-ro", order[-1]) > order[-1]
    assert follows(argv, "--remount-ro", "/srv")


def test_what_is_private_has_a_size_and_can_be_written_to() -> None:
    argv = wrapped(confinement(hidden=("/tmp",), private=("/tmp",), memory=2**25), "bwrap", False)
    assert follows(argv, "--perms", "1777", "--size", str(2**25), "--tmpfs", "/tmp")
    assert not follows(argv, "--remount-ro", "/tmp")
    assert "--disable-userns" not in argv


def test_secrets_that_are_files_are_empty() -> None:
    assert follows(
        wrapped(confinement(masked=("/etc/passwd",)), "bwrap", True), "--ro-bind", "/dev/null", "/etc/passwd"
    )


def test_a_directory_with_a_file_of_this_program_is_shown_entry_by_entry(tmp_path: Path) -> None:
    base = str(tmp_path.resolve())
    for name in ("a", "own", "inner"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    own = (f"{base}/own", f"{base}/inner/own")
    argv = wrapped(confinement(read=(base, f"{base}/inner"), write=(f"{base}/a",), left_out=own), "bwrap", True)
    assert f"{base}/own" not in argv
    assert follows(argv, "--symlink", "a", f"{base}/link")
    assert not follows(argv, "--ro-bind", base, base)
    steps = ["--tmpfs", base], ["--ro-bind-try", f"{base}/a", f"{base}/a"], ["--bind", f"{base}/a", f"{base}/a"]
    places = [next(n for n in range(len(argv)) if argv[n : n + len(step)] == step) for step in steps]
    assert places == sorted(places)
    inner = [argv[n - 1] for n in range(len(argv)) if argv[n] == f"{base}/inner" and argv[n - 1].startswith("--")]
    assert inner == ["--ro-bind-try", "--tmpfs", "--remount-ro"]


def test_the_root_itself_can_be_shown_entry_by_entry() -> None:
    argv = wrapped(confinement(left_out=("/none.json", "/none/a.json")), "bwrap", True)
    assert not follows(argv, "--ro-bind", "/", "/")
    assert follows(argv, "--ro-bind-try", "/usr", "/usr") or follows(argv, "--ro-bind-try", "/etc", "/etc")
    assert not follows(argv, "--ro-bind-try", "/proc", "/proc")
    assert follows(argv, "--remount-ro", "/")
    assert "/none" not in argv, "there is no such directory"


def test_links_are_made_as_they_are() -> None:
    assert follows(wrapped(confinement(links=(("/run/a", "../b"),)), "bwrap", True), "--symlink", "../b", "/run/a")


@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_the_hosts_or_none(network: bool) -> None:
    argv = wrapped(confinement(network=network), "bwrap", True)
    assert ("--unshare-net" in argv) is not network
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc"} <= set(argv)


def test_a_missing_one_is_said(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unusable, match="bubblewrap is not installed"):
        find_bubblewrap()


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'No permissions to create a new namespace' >&2; exit 1", "does not work here .No permissions"),
        ("exec sleep 300", "does not work here: .*timed out"),
    ],
)
def test_one_that_does_not_work_is_said_with_what_to_do(
    asked_anew: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(bubblewrap, "_PROBE_SECONDS", 0.5)
    with pytest.raises(Unusable, match=problem):
        find_bubblewrap()


def test_one_that_works_is_tried_once(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        runs.append(argv)
        return subprocess.CompletedProcess(argv, 0, b"--disable-userns", b"")

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/bwrap")
    monkeypatch.setattr("subprocess.run", run)
    assert find_bubblewrap() == find_bubblewrap() == ("/usr/bin/bwrap", True)
    assert len(runs) == 2
    assert "--disable-userns" in runs[1]
