"""The matrix: faces, wires and both eras. A test asks for `situation`, and marks what it needs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract import wires
from tests.contract.faces import FACES, Face
from tests.contract.server import ContractServer
from tests.contract.wires import ERAS

Json = dict[str, Any]

WIRES: dict[str, Any] = {
    "memory": lambda server, _: wires.in_memory(server),
    "replicas": lambda server, _: wires.replicated(server),
    "stdio": lambda server, _: wires.over_stdio(server),
    "http_json": functools.partial(wires.over_http, streams=False),
    "http_sse": functools.partial(wires.over_http, streams=True),
    "placed": lambda server, _: wires.placed(server),
    "direct": lambda server, _: wires.direct(server),
}

DRIVERS = {"client", "submit", "async_client", "gateway"}
"""One face for each driver of a request. They use every wire; the other faces route, or word, what these do."""


class Situation:
    """A server, a wire to it, and faces that use it."""

    def __init__(self, face: type[Face], wire: str, era: str, stack: contextlib.ExitStack) -> None:
        self.wire = wire
        self.era = era
        self.server = ContractServer(ERAS[era])
        self._face = face
        self._stack = stack

    @property
    def is_http(self) -> bool:
        return self.wire.startswith("http")

    def check_starts(self, tool: str, expected: list[int]) -> None:
        """Which starts of the server the calls of a tool have reached; of replicas, whether it was another one each."""
        found = self.server.generations(tool)
        if self.wire == "replicas":
            assert len(found) == len(expected)
            places = range(1, len(expected))
            assert all(found[at - 1] != found[at] for at in places if expected[at - 1] != expected[at])
        else:
            assert found == expected

    def connect(self, on_question: Callable[[Any], Any] | None = None, **keys: Any) -> Face:
        """A connected face; `keys` are further ones of the server's entry."""
        entry = self._stack.enter_context(WIRES[self.wire](self.server, ERAS[self.era]))
        settings = {"protocol": self.era, "restart": {"initialDelay": 0.01, "maxDelay": 0.01}}
        return self._stack.enter_context(self._face({**entry, **settings, **keys}, on_question=on_question))


def combinations(needs: frozenset[str]) -> Iterator[tuple[type[Face], str, str]]:
    for face in FACES:
        if not all(getattr(face, need, True) for need in needs):
            continue
        if face.name == "async_scope" and "cancellation" not in needs:
            continue
        for wire in WIRES:
            if wire != "memory" and face.name not in DRIVERS:
                continue
            # A transport of four methods has no supervisor, and answers one request after the other.
            if wire == "direct" and (needs or not face.takes_transports):
                continue
            if (wire.startswith("http") or wire == "replicas") and "own_server" in needs:
                continue
            # The way of a call in this program is that over HTTP, and each test starts a program.
            if wire == "placed" and face.name != "client":
                continue
            for era in ERAS:
                if era in needs or needs.isdisjoint(ERAS):
                    yield face, wire, era


def marks_of(face: type[Face], wire: str) -> list[pytest.MarkDecorator]:
    starts = wire in ("stdio", "placed") or face.name == "stdio_gateway"
    return [pytest.mark.process] * starts + [pytest.mark.slow] * (wire == "placed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "situation" not in metafunc.fixturenames:
        return
    needs = frozenset(word for mark in metafunc.definition.iter_markers("needs") for word in mark.args)
    found = [
        pytest.param((face, wire, era), id=f"{face.name}-{wire}-{era}", marks=marks_of(face, wire))
        for face, wire, era in combinations(needs)
    ]
    metafunc.parametrize("situation", found, indirect=True)


@pytest.fixture
def situation(request: pytest.FixtureRequest) -> Iterator[Situation]:
    with contextlib.ExitStack() as stack:
        yield Situation(*request.param, stack)
