"""What the driver needs of an engine: hosts, and messages to them that are answered later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.config.placement import Placement
from gaia.mcp.rpc.channel import Outgoing

OnAnswer = Callable[[Any, BaseException | None], None]
"""``on_answer(answer, failure)``: on a thread of the engine, or of the caller; must be quick, and never raise."""


class HostLost(Exception):
    """The host cannot be reached at the moment; the message may or may not have been acted on."""


class HostGone(HostLost):
    """The host is gone for good."""


class ClusterLeft(HostGone):
    """The program is not in the cluster any more."""

    def __init__(self) -> None:
        super().__init__("this program has left the cluster; connect again to have it placed anew")


class HostLink(Protocol):
    """The way to one host. Thread-safe; no method waits for the host."""

    def greet(self, settings: bytes, on_answer: OnAnswer) -> None:
        """Sent once, and kept while the first host has no place, be it for years. Fails with `HostLost`."""

    def call(self, asked: bytes, on_answer: OnAnswer, call: Outgoing) -> None:
        """Sent once. Fails with `HostLost`. The thread that waits for `call` may be left to receive the answer."""

    def poll(self, incarnation: str, acknowledged: int, on_answer: OnAnswer) -> None: ...

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        """Any other message, by the name of the host's method. Sent once."""

    @property
    def actor_id(self) -> str: ...

    @property
    def is_left(self) -> bool:
        """Whether the program has left the cluster, and is in no other one."""

    def why_not_placed(self) -> str:
        """Why there is no host yet, for people. May take some milliseconds."""

    def kill(self) -> None:
        """End the host for good, and with it what is left of its server."""

    def withdraw(self) -> None:
        """End the host for good if it has no place; otherwise it is left to those that use it. May take milliseconds.

        Others that wait for the same host are told that it is gone.
        """


class Engine(Protocol):
    def start(self, name: str, placement: Placement) -> HostLink:
        """Have a host started where the placement allows it. Joins the cluster, which may take seconds.

        Raises `StartFailed` if there is no cluster.
        """
