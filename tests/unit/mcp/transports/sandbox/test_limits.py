"""Control groups where they can be made, limits of each process otherwise, and an error where neither will do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandboxes import linux
from tests.unit.mcp.transports.sandbox.test_bubblewrap import confinement

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import cage as limits
from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.cage import ControlGroups, limits_of

pytestmark = linux

Hierarchy = Callable[..., Path]


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    """Pretend that control groups are mounted: folders, with what the kernel would make in a new one."""

    def mount(membership: str, *folders: str, controllers: str = "") -> Path:
        root = tmp_path / "cgroup"
        for folder in folders:
            (root / folder).mkdir(parents=True)
            (root / folder / "cgroup.procs").touch()
            (root / folder / "cgroup.subtree_control").write_text(controllers)
        (tmp_path / "membership").write_text(membership)
        monkeypatch.setattr(limits, "_ROOT", root)
        monkeypatch.setattr(limits, "_MEMBERSHIP", tmp_path / "membership")
        make = Path.mkdir

        def made(path: Path, *arguments: object) -> None:
            make(path)
            for file in ("cgroup.procs", "memory.swap.max"):
                (path / file).touch()

        monkeypatch.setattr(Path, "mkdir", made)

        def removed(path: Path) -> None:
            for file in path.iterdir():
                file.unlink()
            os.rmdir(path)

        monkeypatch.setattr(Path, "rmdir", removed)
        return root

    return mount


def values(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.name != "cgroup.procs"}


def test_of_version_2_one_group_holds_all_and_what_was_used_up_is_what_the_kernel_counted(hierarchy: Hierarchy) -> None:
    root = hierarchy("0::/app.slice/app.scope\n", "app.slice", "app.slice/app.scope", controllers="memory pids")
    groups = ControlGroups({"pids": 8, "memory": 2**26})
    (folder,) = (root / "app.slice").glob("gaia-mcp-*")
    assert values(folder) == {"pids.max": "8", "memory.max": str(2**26), "memory.swap.max": "0"}
    assert groups.members == [str(folder / "cgroup.procs")]
    assert groups.used_up() == ()
    (folder / "memory.events").write_text("low 0\nmax 7\noom 1\noom_kill 0\n")
    (folder / "pids.events").write_text("max 2\n")
    assert groups.used_up() == ("processes",)
    (folder / "memory.events").write_text("low 0\nmax 7\noom 1\noom_kill 1\n")
    assert groups.used_up() == ("memory", "processes")
    groups.remove()
    assert groups.used_up() == ()
    assert not folder.exists()


def test_of_version_1_each_controller_has_its_own_and_the_file_is_another(hierarchy: Hierarchy) -> None:
    root = hierarchy("8:pids:/x\n4:memory:/elsewhere\n0::/\n", "pids/x", "memory")
    groups = ControlGroups({"pids": 8, "memory": 2**26})
    assert [values(folder)["pids.max"] for folder in (root / "pids" / "x").glob("gaia-mcp-*")] == ["8"]
    # The path of a host, of which a container sees its own part.
    (folder,) = (root / "memory").glob("gaia-mcp-*")
    assert values(folder)["memory.limit_in_bytes"] == str(2**26)
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert groups.used_up() == ("memory",)
    groups.remove()


def test_groups_of_hosts_that_were_killed_are_removed(hierarchy: Hierarchy) -> None:
    root = hierarchy("8:pids:/\n", "pids")
    left = root / "pids" / "gaia-mcp-999999999-abc"
    left.mkdir()
    groups = ControlGroups({"pids": 8})
    assert not left.exists()
    groups.remove()


@pytest.mark.parametrize(
    ("membership", "controllers"),
    [("0::/a/b\n", "cpu"), ("", ""), ("1:name=systemd:/\n", "")],
    ids=["controller not passed on", "no groups", "no such controller"],
)
def test_where_none_can_be_made_that_is_an_error(hierarchy: Hierarchy, membership: str, controllers: str) -> None:
    hierarchy(membership, "a", "a/b", controllers=controllers)
    with pytest.raises(OSError, match="controller"):
        ControlGroups({"memory": 2**26})


def test_what_was_made_before_an_error_is_removed(hierarchy: Hierarchy) -> None:
    root = hierarchy("8:pids:/\n", "pids")
    with pytest.raises(OSError, match="controller memory"):
        ControlGroups({"pids": 8, "memory": 2**26})
    assert list((root / "pids").glob("gaia-mcp-*")) == []


def test_a_group_that_stays_busy_is_left(hierarchy: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy("8:pids:/\n", "pids")
    groups = ControlGroups({"pids": 8})

    def busy(_: Path) -> None:
        raise OSError("busy")

    monkeypatch.setattr(Path, "rmdir", busy)
    monkeypatch.setattr(limits, "_EMPTY_SECONDS", 0.02)
    groups.remove()
    monkeypatch.undo()


class TestWithoutControlGroups:
    @pytest.fixture(autouse=True)
    def none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "_MEMBERSHIP", tmp_path / "missing")

    def test_memory_is_limited_for_each_process(self) -> None:
        found = limits_of(confinement(memory=2**26, cpu_seconds=5), in_namespaces=False)
        assert found.of_process == {"RLIMIT_CPU": 5, "RLIMIT_DATA": 2**26}
        assert found.groups is None

    def test_processes_are_counted_in_a_user_namespace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.getuid", lambda: 1000)
        assert limits_of(confinement(processes=8), in_namespaces=True).of_process == {"RLIMIT_NPROC": 9}

    def test_for_root_the_system_counts_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.getuid", lambda: 0)
        with pytest.raises(Unusable, match=r'"processes" needs a control group .* a user other than root'):
            limits_of(confinement(processes=8), in_namespaces=True)

    def test_without_a_user_namespace_all_of_the_user_would_count(self) -> None:
        with pytest.raises(Unusable, match=r'"processes" needs a control group .* or bubblewrap'):
            limits_of(confinement(processes=8), in_namespaces=False)


def test_nothing_asked_for_is_nothing_made() -> None:
    found = limits_of(confinement(), in_namespaces=False)
    assert (found.groups, found.of_process) == (None, {})
