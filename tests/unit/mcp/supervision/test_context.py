"""What the supervisors of one server share, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.mcp.supervision.supervisor import Supervisor
from tests.fake_transport import FakeTransport
from tests.supervised import Supervised
from tests.waiting import PATIENCE


def first_messages(transport: FakeTransport, number: int) -> list[str]:
    """The methods that were sent to open the conversation on this channel."""
    channel = transport.channel(number)
    channel.wait_for("notifications/initialized")
    return [method for method in ("server/discover", "initialize") if channel.requests(method)]


def test_a_supervisor_knows_what_the_one_before_it_found_out(supervise: Callable[..., Supervised]) -> None:
    server = supervise(protocol="auto")
    started = server.in_background(server.supervisor.start)
    channel = server.transport.channel()
    channel.answer_error(channel.wait_for("server/discover"), -32601, "no such method")
    assert started.result(PATIENCE)
    assert first_messages(server.transport, 1) == ["server/discover", "initialize"]
    server.supervisor.stop()
    again = Supervisor(server.context)
    assert again.start()
    assert first_messages(server.transport, 2) == ["initialize"]
    again.stop()


def test_without_an_executor_of_its_own_span_processors_run_on_the_thread_that_ends_a_span(server: Supervised) -> None:
    threads: list[threading.Thread] = []
    server.context.executor(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
