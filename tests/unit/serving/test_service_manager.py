"""What systemd is told, over a socket of the test's own."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.serving.service_manager import ServiceManager
from tests.waiting import PATIENCE


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def test_each_message_is_a_datagram(told: socket.socket, tmp_path: Path) -> None:
    manager = ServiceManager(str(tmp_path / "notify"))
    manager.ready("2 servers")
    manager.alive()
    manager.reloading()
    manager.stopping()

    assert told.recv(100) == b"READY=1\nSTATUS=2 servers"
    assert told.recv(100) == b"WATCHDOG=1"
    assert told.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert told.recv(100) == b"STOPPING=1"


def test_an_abstract_socket_is_found() -> None:
    name = f"gaia-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(PATIENCE)
        ServiceManager(f"@{name}").ready()
        assert listening.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_happens(tmp_path: Path) -> None:
    ServiceManager().ready()
    ServiceManager(str(tmp_path / "nothing")).ready()


def test_servers_do_not_inherit_the_socket_and_a_watchdog_may_be_for_another_process() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "PATH": "/bin"}
    assert ServiceManager.of_environment(environment).watchdog_seconds == 3
    assert environment == {"PATH": "/bin"}
    for other in ({}, {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}):
        assert ServiceManager.of_environment(other).watchdog_seconds is None
