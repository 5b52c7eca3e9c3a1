"""The filter, run by an interpreter of its instructions: what each system call gets."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.kernel import INTERNET, LOCAL, filter_program

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


def test_sockets_are_those_that_are_named() -> None:
    program = filter_program("x86_64", (*LOCAL, *INTERNET), alone=False)
    assert [verdict(program, X86_64, 41, family) for family in (1, 2, 10, 16)] == [0, 0, 0, 0]
    assert verdict(program, X86_64, 41, 40) == errno.EACCES
    # The kernel takes the family as an int: what stands in the upper half is nothing.
    assert verdict(program, X86_64, 41, 1 << 32 | 40) == errno.EACCES
    assert verdict(filter_program("x86_64", (), alone=True), X86_64, 41, 2) == errno.EACCES


def test_a_pair_of_sockets_leads_to_no_others() -> None:
    program = filter_program("x86_64", (), alone=True)
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    assert [verdict(program, X86_64, 53, 1, kind) for kind in kinds] == [0, 0]
    assert verdict(program, X86_64, 53, 1, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) == errno.EACCES


def test_the_limits_of_others_are_theirs() -> None:
    program = filter_program("x86_64", (), alone=True)
    assert verdict(program, X86_64, 302, 0) == 0
    assert verdict(program, X86_64, 302, 1) == errno.EPERM
    assert verdict(filter_program("x86_64", (), alone=False), X86_64, 302, 1) == 0


def test_nothing_is_typed_into_terminals() -> None:
    program = filter_program("x86_64", (), alone=False)
    assert verdict(program, X86_64, 16, 0, 0x5412) == errno.EPERM
    assert verdict(program, X86_64, 16, 0, 0x5413) == 0


@pytest.mark.parametrize(("machine", "architecture", "keyctl"), [("x86_64", X86_64, 250), ("aarch64", AARCH64, 219)])
def test_numbers_are_those_of_the_machine(machine: str, architecture: int, keyctl: int) -> None:
    program = filter_program(machine, (), alone=True)
    assert verdict(program, architecture, keyctl) == errno.EPERM
    assert verdict(program, architecture, 425) == errno.ENOSYS
    assert verdict(program, architecture, 0) == 0


def test_calls_of_another_machine_do_not_exist() -> None:
    program = filter_program("x86_64", (), alone=False)
    assert verdict(program, 0x40000003, 1) == errno.ENOSYS
    assert verdict(program, X86_64, 0x40000000 | 41) == errno.ENOSYS


def test_an_unknown_machine_is_said() -> None:
    with pytest.raises(Unusable, match="this machine is riscv64"):
        filter_program("riscv64", (), alone=False)
