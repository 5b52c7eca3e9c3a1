"""What the kernel is told to permit: the rules of Landlock, and the filter of system calls."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

import pytest

from tests.sandboxes import linux
from tests.unit.mcp.transports.sandbox.test_bubblewrap import confinement

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import kernel
from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.kernel import INTERNET, LOCAL, filter_program

pytestmark = linux


def test_a_directory_with_something_hidden_is_permitted_by_its_entries(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for folder in ("open", "half/open", "half/secret", "closed"):
        (base / folder).mkdir(parents=True)
    (base / "link").symlink_to("closed")
    closed = [str(base / "closed"), str(base / "half" / "secret")]
    assert list(kernel._without(str(base), closed)) == [str(base / "half" / "open"), str(base / "open")]
    assert list(kernel._without(str(base / "closed"), closed)) == []
    assert list(kernel._without(str(base / "gone"), [str(base / "gone" / "x")])) == []


def test_the_rules_of_a_profile(tmp_path: Path) -> None:
    base = str(tmp_path.resolve())
    found = confinement(hidden=("/home", "/tmp"), read=(base,), write=("/srv",), masked=(os.path.join(base, "key"),))
    (tmp_path / "key").touch()
    (tmp_path / "file").touch()
    rules = list(kernel.rules_of(found, "/tmp/scratch"))
    assert ("/usr", kernel.READ) in rules
    assert (os.path.join(base, "file"), kernel.READ) in rules
    assert ("/srv", kernel.WRITE) in rules
    assert ("/tmp/scratch", kernel.WRITE) in rules
    assert ("/dev/null", kernel.USE) in rules
    permitted = {path for path, _ in rules}
    assert not permitted & {"/", "/home", "/tmp", "/proc", "/dev", os.path.join(base, "key"), base}


def test_a_directory_with_a_file_of_this_program_can_be_listed(tmp_path: Path) -> None:
    base = str(tmp_path.resolve())
    (tmp_path / "file").touch()
    own = (os.path.join(base, "servers.json"), "/none.json")
    rules = list(kernel.rules_of(confinement(hidden=("/home", "/tmp"), read=(base,), left_out=own), "/tmp/scratch"))
    assert (os.path.join(base, "file"), kernel.READ) in rules
    assert (base, kernel.LIST) in rules
    assert (base, kernel.READ) not in rules
    assert ("/", kernel.LIST) not in rules, "other names are not told"


@pytest.mark.parametrize(("version", "said"), [(0, "has none"), (5, "has version 5")])
def test_a_kernel_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch, version: int, said: str) -> None:
    monkeypatch.setattr(kernel, "landlock_version", lambda: version)
    with pytest.raises(Unusable, match=said):
        kernel.require_landlock(confinement())


def test_a_secret_cannot_be_kept_from_who_may_write_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "landlock_version", lambda: 7)
    kernel.require_landlock(confinement(write=("/a",), masked=("/b/.ssh",)))
    with pytest.raises(Unusable, match=r"keep /a/\.ssh from"):
        kernel.require_landlock(confinement(write=("/a",), masked=("/a/.ssh",)))


def test_the_version_is_a_number() -> None:
    assert kernel.landlock_version() >= 0


X86_64, AARCH64 = 0xC000003E, 0xC00000B7
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """0 if the call is allowed, else its error."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return 0 if value == ALLOW else value & ~ERRNO
        else:
            holds = accumulator == value if code == 0x15 else accumulator >= value
            at += if_true if holds else if_false


class TestFilter:
    ALONE, BESIDE = filter_program("x86_64", (), alone=True), filter_program("x86_64", (), alone=False)

    def test_sockets_are_those_that_are_named(self) -> None:
        program = filter_program("x86_64", (*LOCAL, *INTERNET), alone=False)
        assert [verdict(program, X86_64, 41, family) for family in (1, 2, 10, 16)] == [0, 0, 0, 0]
        assert verdict(program, X86_64, 41, 40) == errno.EACCES
        # The kernel takes the family as an int: what stands in the upper half is nothing.
        assert verdict(program, X86_64, 41, 1 << 32 | 40) == errno.EACCES
        assert verdict(self.ALONE, X86_64, 41, 2) == errno.EACCES

    def test_a_pair_of_sockets_leads_to_no_others(self) -> None:
        kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        assert [verdict(self.ALONE, X86_64, 53, 1, kind) for kind in kinds] == [0, 0]
        assert verdict(self.ALONE, X86_64, 53, 1, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) == errno.EACCES

    @pytest.mark.parametrize(
        ("program", "number", "arguments", "expected"),
        [
            pytest.param(ALONE, 302, (0,), 0, id="its own limits"),
            pytest.param(ALONE, 302, (1,), errno.EPERM, id="those of others"),
            pytest.param(BESIDE, 302, (1,), 0, id="those of others where they are its own"),
            pytest.param(BESIDE, 16, (0, 0x5412), errno.EPERM, id="typing into terminals"),
            pytest.param(BESIDE, 16, (0, 0x5413), 0, id="other controls of terminals"),
            pytest.param(BESIDE, 0x40000000 | 41, (), errno.ENOSYS, id="calls of x32"),
        ],
    )
    def test_calls(self, program: bytes, number: int, arguments: tuple[int, ...], expected: int) -> None:
        assert verdict(program, X86_64, number, *arguments) == expected

    def test_calls_of_another_machine_do_not_exist(self) -> None:
        assert verdict(self.BESIDE, 0x40000003, 1) == errno.ENOSYS


@pytest.mark.parametrize(("machine", "architecture", "keyctl"), [("x86_64", X86_64, 250), ("aarch64", AARCH64, 219)])
def test_numbers_are_those_of_the_machine(machine: str, architecture: int, keyctl: int) -> None:
    program = filter_program(machine, (), alone=True)
    assert verdict(program, architecture, keyctl) == errno.EPERM
    assert verdict(program, architecture, 425) == errno.ENOSYS
    assert verdict(program, architecture, 0) == 0


def test_an_unknown_machine_is_said() -> None:
    with pytest.raises(Unusable, match="this machine is riscv64"):
        filter_program("riscv64", (), alone=False)
