"""A client's way to its server: the supervised session, and which kind of session a transport gets."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia import __version__
from gaia.mcp.client.client_options import ClientOptions, ClientSetup, SharedServices
from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.client.session import Session, SupervisedSession, new_session
from gaia.mcp.errors import CallTimeout, NotConnected, StartFailed
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.mcp.transports.base import MCPTransport
from gaia.testing import FakeClock
from tests.fake_transport import FakeTransport
from tests.supervised import made
from tests.waiting import PATIENCE, wait_until

Make = Callable[..., Session]
CALL = RequestExchange("tools/call", {"name": "echo"})


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport(timeout=30.0)


@pytest.fixture
def observer() -> Observer:
    return Observer("fake")


@pytest.fixture
def callbacks() -> Iterator[CallbackPool]:
    pool = CallbackPool("fake")
    yield pool
    pool.close()


@pytest.fixture
def make(fake_clock: FakeClock, callbacks: CallbackPool, observer: Observer) -> Iterator[Make]:
    sessions: list[Session] = []

    def make(transport: MCPTransport, **options: Any) -> Session:
        services = SharedServices(
            callbacks=callbacks, server_request_threads=Mock(), steps=Mock(), clock=fake_clock, rng=random.Random(1)
        )
        settings = ClientOptions(
            **{"protocol": "handshake", "health_interval": 1e6, "restart_policy": RestartPolicy(jitter=0.0), **options}
        )
        hooks = Mock(subscriptions=Subscriptions(), **{"refusal_of.return_value": None})
        setup = ClientSetup(
            name="fake",
            transport=transport,
            options=settings,
            services=services,
            hooks=hooks,
            server_requests=Mock(),
            observer=observer,
            callbacks=callbacks.group("fake"),
        )
        sessions.append(new_session(setup))
        return sessions[-1]

    yield make
    for session in sessions:
        session.disconnect()


@pytest.fixture
def session(make: Make, transport: FakeTransport) -> Session:
    session = make(transport)
    assert session.connect(), session.last_error
    return session


class TestMaking:
    def test_any_other_is_used_directly_in_the_handshake_era(self, make: Make, observer: Observer) -> None:
        transport = Mock(spec=MCPTransport)
        transport.send_request.return_value = {"result": {"capabilities": {}}}
        session = make(transport, protocol="auto")
        assert isinstance(session, DirectSession)
        assert session.connect()
        assert transport.send_request.call_args_list[0].args[0] == "initialize"
        assert observer.redact is str

    def test_one_with_channels_is_supervised_and_the_server_told_who_the_client_is(
        self, session: Session, transport: FakeTransport, observer: Observer
    ) -> None:
        assert isinstance(session, SupervisedSession)
        initialize = transport.channel().wait_for("initialize")
        assert initialize["params"]["clientInfo"] == {"name": "GAIA MCP Client", "version": __version__}
        assert observer.network == {"network.transport": "pipe"}, "which spans name"


class TestConnecting:
    def test_a_ready_server_is_not_started_again_unless_it_was_disconnected(
        self, session: Session, transport: FakeTransport
    ) -> None:
        assert session.connect()
        assert session.is_connected()
        assert transport.starts == 1
        session.disconnect()
        assert session.state is ServerState.CLOSED
        assert session.connect()
        assert transport.starts == 2

    def test_threads_that_connect_at_once_start_one_server(self, make: Make, transport: FakeTransport) -> None:
        session = make(transport)
        start, results = threading.Barrier(4), []

        def connect() -> None:
            start.wait(PATIENCE)
            results.append(session.connect())

        threads = [threading.Thread(target=connect) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert results == [True] * 4
        assert transport.starts == 1

    def test_a_failure_leaves_no_thread_and_no_attempt_and_the_next_one_is_made_at_once(
        self, make: Make, transport: FakeTransport, fake_clock: FakeClock
    ) -> None:
        transport.start_errors.append(StartFailed("no such program"))
        session = make(transport)
        assert not session.connect()
        assert (session.state, session.last_error) == (ServerState.FAILED, "no such program")
        assert not session.keeps_trying
        assert not any("supervisor" in thread.name for thread in threading.enumerate())
        assert fake_clock.deadlines() == []
        assert session.connect()
        assert session.last_error is None

    def test_one_whose_start_was_interrupted_is_ended_before_the_next_is_started(
        self, make: Make, transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = make(transport)
        assert isinstance(session, SupervisedSession)
        interrupted = session.supervisor
        assert isinstance(interrupted, Supervisor)
        is_stopping, stop = threading.Event(), interrupted.stop
        monkeypatch.setattr(transport, "prepare", lambda _: is_stopping.wait(PATIENCE))
        monkeypatch.setattr(interrupted, "_settled", Mock(**{"wait.side_effect": KeyboardInterrupt}))
        monkeypatch.setattr(interrupted, "stop", lambda: (is_stopping.set(), stop()))
        with pytest.raises(KeyboardInterrupt):
            session.connect()
        assert session.state is ServerState.CREATED
        assert session.connect()
        assert session.supervisor is not interrupted
        assert interrupted.state is ServerState.CLOSED

    def test_a_server_that_is_tried_again_goes_on_being_so_whatever_becomes_of_another_connect(
        self, make: Make, transport: FakeTransport, fake_clock: FakeClock
    ) -> None:
        transport.start_errors.extend([StartFailed("down"), StartFailed("still down")])
        session = make(transport)
        assert not session.connect(keep_trying=True)
        assert not session.connect()
        assert session.keeps_trying
        fake_clock.wait_for_waiter(fake_clock.monotonic() + session.status(0).retry_in)
        fake_clock.advance(1.0)
        transport.channel(1).wait_for("tools/list")
        assert wait_until(session.is_connected)

    def test_so_does_one_that_was_ready_before(self, make: Make, transport: FakeTransport) -> None:
        session = make(transport, restart_policy=RestartPolicy(max_restarts=0))
        assert session.connect()
        transport.channel().end(exit_code=1)
        assert wait_until(lambda: session.state is ServerState.FAILED)
        transport.start_errors.append(StartFailed("down"))
        assert not session.connect()
        assert session.keeps_trying

    def test_disconnecting_ends_it(self, make: Make, transport: FakeTransport, fake_clock: FakeClock) -> None:
        transport.start_errors.append(StartFailed("down"))
        session = make(transport)
        assert not session.connect(keep_trying=True)
        session.disconnect()
        assert not session.keeps_trying
        fake_clock.advance(1000.0)
        assert transport.starts == 0
        transport.start_errors.append(StartFailed("down"))
        assert not session.connect()
        assert not session.keeps_trying

    def test_a_server_that_is_being_restarted_counts_as_connected(
        self, session: Session, transport: FakeTransport, fake_clock: FakeClock
    ) -> None:
        # The first restart is immediate.
        transport.channel().end(exit_code=1)
        transport.channel(2).wait_for("tools/list")
        assert wait_until(session.is_connected)
        transport.channel(2).end(exit_code=1)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 0.5)
        assert session.state is ServerState.RESTARTING
        assert session.connect()
        assert not session.is_connected()
        assert transport.starts == 2

    def test_the_probe_leaves_time_for_the_handshake_whatever_the_timeout(
        self, make: Make, fake_clock: FakeClock
    ) -> None:
        transport = FakeTransport()
        del transport.answers["initialize"]
        session = make(transport, protocol="auto", start_timeout=2.0)
        thread = threading.Thread(target=session.connect)
        thread.start()
        start = fake_clock.monotonic()
        fake_clock.wait_for_waiter(start + 1.0)
        fake_clock.advance(1.0)
        transport.channel().wait_for("initialize")
        fake_clock.wait_for_waiter(start + 2.0)
        fake_clock.advance(1.0)
        thread.join(PATIENCE)
        assert session.last_error == "not ready within its startTimeout of 2 s: initialize was not answered"

    def test_a_short_timeout_of_calls_does_not_shorten_the_start(self, make: Make, fake_clock: FakeClock) -> None:
        transport = FakeTransport(timeout=5.0)
        initialize = transport.answers.pop("initialize")
        session = make(transport, protocol="auto")
        thread = threading.Thread(target=session.connect)
        thread.start()
        start = fake_clock.monotonic()
        fake_clock.wait_for_waiter(start + 5.0)
        fake_clock.advance(5.0)
        request = transport.channel().wait_for("initialize")
        fake_clock.wait_for_waiter(start + 60.0)
        fake_clock.advance(1.0)
        transport.channel().answer(request, initialize(request))
        thread.join(PATIENCE)
        assert session.is_connected()
        assert session.timeout == 5.0


class TestDisconnecting:
    def test_before_connecting_it_leaves_the_session_usable(self, make: Make, transport: FakeTransport) -> None:
        session = make(transport)
        session.request_disconnect()
        session.disconnect()
        assert session.state is ServerState.CREATED
        assert session.connect()

    def test_it_ends_a_connect_that_another_thread_waits_in(self, make: Make, transport: FakeTransport) -> None:
        del transport.answers["initialize"]
        session = make(transport)
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(session.connect()))
        thread.start()
        transport.channel().wait_for("initialize")
        session.disconnect()
        thread.join(PATIENCE)
        assert results == [False]
        assert session.state is ServerState.CLOSED

    def test_calls_are_refused_after_it(self, session: Session) -> None:
        session.disconnect()
        with pytest.raises(NotConnected):
            made(session, CALL)
        with pytest.raises(NotConnected, match="call connect"):
            session.require_connected()


class TestRequests:
    def test_one_is_answered_and_counted(self, session: Session, transport: FakeTransport) -> None:
        transport.channel().answer_calls()
        assert made(session, CALL) == {"content": "echo"}
        status = session.status(tool_count=2)
        assert (status.calls, status.errors, status.tool_count, status.pid) == (1, 0, 2, 1001)

    @pytest.mark.parametrize(("timeout", "seconds"), [(None, 30.0), (5.0, 5.0)])
    def test_the_transports_timeout_is_the_default(
        self, session: Session, fake_clock: FakeClock, timeout: float | None, seconds: float
    ) -> None:
        errors: list[BaseException] = []
        request = RequestExchange("tools/call", {"name": "echo"}, CallOptions(timeout))

        def call() -> None:
            with pytest.raises(CallTimeout) as error:
                made(session, request, fake_clock)
            errors.append(error.value)

        thread = threading.Thread(target=call)
        thread.start()
        fake_clock.wait_for_waiter(fake_clock.monotonic() + seconds)
        fake_clock.advance(seconds)
        thread.join(PATIENCE)
        assert len(errors) == 1

    def test_calls_before_connecting_are_refused(self, make: Make, transport: FakeTransport) -> None:
        session = make(transport)
        with pytest.raises(NotConnected):
            made(session, CALL)
        with pytest.raises(NotConnected):
            session.require_connected()
        assert transport.starts == 0

    def test_statistics_outlive_a_supervisor(self, session: Session, transport: FakeTransport) -> None:
        transport.channel().answer_calls()
        made(session, CALL)
        session.disconnect()
        session.connect()
        assert session.status(tool_count=0).calls == 1

    def test_a_notification_is_sent_if_the_server_is_there(self, session: Session, transport: FakeTransport) -> None:
        session.notify("notifications/roots/list_changed")
        transport.channel().wait_for("notifications/roots/list_changed")
        session.disconnect()
        session.notify("notifications/roots/list_changed")
        assert len(transport.channel().requests("notifications/roots/list_changed")) == 1
