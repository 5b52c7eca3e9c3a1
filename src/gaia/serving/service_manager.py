"""`ServiceManager`: reports the state of this process to systemd (the protocol of ``sd_notify``)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

from gaia.runtime.log import get_logger

logger = get_logger(__name__)


class ServiceManager:
    """Sends datagrams to the socket of the service manager. Does nothing without a socket.

    Sending never waits: if the service manager cannot take a message at once, the message is lost. Thread-safe.
    """

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds
        """The service manager ends the process if `alive` is not called for this long; None: no limit."""

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
        """The service manager that has started this process, if it wants reports.

        Removes its variables from `environment`, which servers inherit, so that servers cannot report for this process.
        """
        address = environment.pop("NOTIFY_SOCKET", None)
        given = {name: environment.pop(name, None) for name in ("WATCHDOG_USEC", "WATCHDOG_PID")}
        return cls(address or None, _watchdog_seconds(given))

    def ready(self, status: str = "") -> None:
        """Report that the service has started, or has read its configuration again."""
        self._tell("READY=1", *_status(status))

    def reloading(self) -> None:
        """Report that the service reads its configuration again, until `ready` is called."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        self._tell("STOPPING=1", *_status(status))

    def alive(self) -> None:
        """Report that the service still works; see `watchdog_seconds`."""
        self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        # A leading @ stands for the NUL byte of an abstract socket.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.setblocking(False)
                sending.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logger.warning("service_manager_not_told", message=lines[0], error=str(error))


def _status(text: str) -> list[str]:
    return [f"STATUS={text}"] if text else []


def _watchdog_seconds(given: Mapping[str, str | None]) -> float | None:
    microseconds, pid = given["WATCHDOG_USEC"], given["WATCHDOG_PID"]
    if microseconds is None or not microseconds.isdigit() or pid not in (None, str(os.getpid())):
        return None
    return int(microseconds) / 1_000_000 or None
