"""Results are compared after they were passed on: one at a time, and no more than there is room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import Mock

from gaia.daemon_pool import PoolExhausted
from gaia.mcp.gateway.upstream.output_checks import OutputChecks


class Threads:
    """Has done nothing of what was submitted before it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], object]] = []
        self.submit = Mock(side_effect=self.tasks.append)

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop()()


def test_all_that_wait_are_checked_on_one_thread() -> None:
    threads: Any = Threads()
    checks, seen = OutputChecks(threads), list[Mapping[str, Any]]()
    checks.add(seen.append, b'{"a":1}')
    checks.add(seen.append, b'{"no":JSON')
    checks.add(seen.append, b'{"b":2}')
    assert (len(threads.tasks), seen) == (1, [])
    threads.run()
    assert seen == [{"a": 1}, {"b": 2}]
    checks.add(seen.append, b'{"c":3}')
    threads.run()
    assert seen[-1] == {"c": 3}


def test_what_there_is_no_room_for_is_left_out() -> None:
    threads: Any = Threads()
    checks, seen = OutputChecks(threads), list[Mapping[str, Any]]()
    for _ in range(1000):
        checks.add(seen.append, b"{}")
    threads.run()
    assert 1 < len(seen) < 1000
    seen.clear()
    for _ in range(10):
        checks.add(seen.append, b'{"a":"%b"}' % (b"x" * 3_000_000))
    threads.run()
    assert len(seen) == 1


def test_without_a_thread_they_wait_for_the_next_one() -> None:
    threads: Any = Threads()
    checks, seen = OutputChecks(threads), list[Mapping[str, Any]]()
    submit, threads.submit = threads.submit, Mock(side_effect=PoolExhausted)
    checks.add(seen.append, b"{}")
    threads.submit = submit
    checks.add(seen.append, b"{}")
    threads.run()
    assert len(seen) == 2
