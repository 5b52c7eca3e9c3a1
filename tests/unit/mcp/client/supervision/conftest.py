"""Servers under supervision whose time is a test's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fake_clock import FakeClock
from tests.supervised import Supervised


@pytest.fixture
def supervise(fake_clock: FakeClock) -> Iterator[Callable[..., Supervised]]:
    """Make a supervised server; the keywords are those of `Supervised`. It is stopped after the test."""
    made: list[Supervised] = []

    def make(**settings: Any) -> Supervised:
        made.append(Supervised(fake_clock, **settings))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(supervise: Callable[..., Supervised]) -> Supervised:
    """A server with the default policy that is ready."""
    return supervise().started()
