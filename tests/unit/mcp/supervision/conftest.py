"""Servers under supervision whose time is a test's, and a person whom they ask."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.runtime.cancellation import current_scope
from gaia.testing import FakeClock
from tests.supervised import Supervised
from tests.waiting import PATIENCE

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
LINK = {"mode": "url", "message": "Pay", "url": "https://example.com/pay", "elicitationId": "e-1"}
HELLO = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 10}


class Person:
    """Answers a question when the test lets it; remembers what it was asked and whether it was told to stop."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.requests: list[Any] = []
        self.threads: list[str] = []
        self.withdrawn = threading.Event()
        self.may_answer = threading.Event()

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        self.threads.append(threading.current_thread().name)
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(self.withdrawn.set)
        self.asked.release()
        assert self.may_answer.wait(PATIENCE)
        return request.accept({"name": "Ann"})

    def wait_until_asked(self) -> None:
        assert self.asked.acquire(timeout=PATIENCE)


@pytest.fixture
def person() -> Iterator[Person]:
    person = Person()
    yield person
    person.may_answer.set()


@pytest.fixture
def supervise(fake_clock: FakeClock) -> Iterator[Callable[..., Supervised]]:
    """Make a supervised server; the keywords are those of `Supervised`. It is stopped after the test."""
    made: list[Supervised] = []

    def make(**settings: Any) -> Supervised:
        made.append(Supervised(**{"clock": fake_clock, **settings}))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(supervise: Callable[..., Supervised]) -> Supervised:
    """A server with the default policy that is ready."""
    return supervise().started()
