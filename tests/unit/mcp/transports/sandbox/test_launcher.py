"""What runs before the server in its process, called in this one with a C library that only takes notes."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sandboxes import linux

pytest.importorskip("resource")
from gaia.mcp.transports.sandbox import launcher

pytestmark = linux


class Library:
    """Calls of the C library, and what they return: `refused` is the number of one system call, or a name."""

    def __init__(self, refused: int | str | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refused = refused

    def _called(self, name: str, *arguments: Any) -> int:
        self.calls.append((name, *arguments))
        return -1 if self.refused in (name, arguments[0]) else 3

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._called(name, *arguments)


@pytest.fixture
def nothing_happens(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Neither this process nor its descriptors change."""
    seen = SimpleNamespace(limits={}, ran=None, closed=None)
    monkeypatch.setattr("resource.setrlimit", seen.limits.__setitem__)
    monkeypatch.setattr("os.closerange", lambda *span: setattr(seen, "closed", span))
    monkeypatch.setattr("os.execve", lambda *arguments: setattr(seen, "ran", arguments))
    return seen


def test_the_server_is_the_last_thing_that_happens(
    nothing_happens: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: library)
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    plan = {
        "limits": {"RLIMIT_CPU": 5},
        "landlock": {"files": [], "tcp": False, "signals": True},
        "filter": bytes(8).hex(),
        "unset": ["LC_CTYPE"],
    }
    launcher.main(plan, ["/bin/server", "x"])
    assert nothing_happens.closed[0] == 3
    program, argv, environment = nothing_happens.ran
    assert (program, argv) == ("/bin/server", ["/bin/server", "x"])
    assert b"LC_CTYPE" not in environment
    assert b"PATH" in environment
    # No new rights before the filter, which an ordinary user could not install otherwise.
    names = [call[1] for call in library.calls if call[0] == "prctl" and call[1] != 24]
    assert names == [38, 22]


def test_a_soft_limit_of_processor_time_comes_before_the_hard_one(
    nothing_happens: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    launcher.limit({"RLIMIT_CPU": 5, "RLIMIT_DATA": 100})
    assert nothing_happens.limits == {resource.RLIMIT_CPU: (5, 6), resource.RLIMIT_DATA: (100, 100)}
    monkeypatch.setattr("resource.getrlimit", lambda _: (3, 3))
    launcher.limit({"RLIMIT_CPU": 5})
    assert nothing_happens.limits[resource.RLIMIT_CPU] == (3, 3)


def test_rules_are_for_files_or_directories(tmp_path: Path) -> None:
    library = Library()
    (tmp_path / "file").touch()
    files = [[str(tmp_path), "write"], [str(tmp_path / "file"), "write"], [str(tmp_path / "gone"), "read"]]
    launcher.restrict(library, files=files, tcp=True, signals=False)  # type: ignore[arg-type]
    created, folder, file, entered = library.calls
    assert struct.unpack("=QQQ", created[2]) == (0xFFFF, 0, 1)
    rights = [struct.unpack("=Qi", rule[4])[0] for rule in (folder, file)]
    # Devices are never made, and what is no directory has no entries.
    assert rights == [0xFFFF & ~(1 << 6 | 1 << 11), 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15]
    assert entered[1] == 446


def test_without_files_only_sockets_and_signals_are_kept_apart() -> None:
    library = Library()
    launcher.restrict(library, files=None, tcp=False, signals=True)  # type: ignore[arg-type]
    assert struct.unpack("=QQQ", library.calls[0][2]) == (0, 3, 3)


@pytest.mark.parametrize(
    ("refused", "named"), [(444, "create_ruleset"), (445, "add_rule for /"), (446, "restrict_self")]
)
def test_what_the_kernel_refuses_is_an_error(refused: int, named: str) -> None:
    with pytest.raises(OSError, match=f"landlock_{named}"):
        launcher.restrict(Library(refused), files=[["/", "read"]], tcp=False, signals=True)  # type: ignore[arg-type]


def test_so_are_capabilities_and_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EINVAL)
    with pytest.raises(OSError, match=f"capabilities: {os.strerror(errno.EINVAL)}"):
        launcher.drop_capabilities(Library("capset"))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="seccomp"):
        launcher.install_filter(Library(22), bytes(8))  # type: ignore[arg-type]
