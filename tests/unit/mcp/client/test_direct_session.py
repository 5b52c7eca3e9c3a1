"""A session over a transport with the four methods alone: in the caller's thread, and with typed errors."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    NotConnected,
    Overloaded,
    ServerCrashed,
)
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity
from gaia.mcp.protocol.gateway_answers import GATEWAY_NAME, NOT_SENT, details_of, failed_result
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.transports.base import MCPTransport
from gaia.runtime.clock import SystemClock
from gaia.runtime.deadlines import deadlines_of
from gaia.testing import FakeClock
from tests.supervised import made

Json = dict[str, Any]
Session = DirectSession
Make = Callable[..., DirectSession]
CALL = RequestExchange("tools/call", {"name": "echo"})


class Scripted(MCPTransport):
    """Answers each method with what the test has put into `answers`: a response, or an exception to raise."""

    def __init__(self) -> None:
        self.up = False
        self.sent: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {
            "initialize": {"result": {"protocolVersion": "2025-11-25", "capabilities": {}}},
            "server/discover": {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}},
            "tools/call": {"result": {"content": []}},
        }

    def connect(self) -> bool:
        self.up = True
        return True

    def disconnect(self) -> None:
        self.up = False

    def is_connected(self) -> bool:
        return self.up

    def send_request(self, *arguments: Any) -> Any:
        self.sent.append(arguments)
        answer = self.answers[arguments[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def transport() -> Scripted:
    return Scripted()


@pytest.fixture
def make(transport: Scripted, fake_clock: FakeClock) -> Make:
    def make(protocol: str = "handshake") -> DirectSession:
        identity = ClientIdentity("tester", "1")
        return DirectSession("own", transport, identity, Negotiation(protocol), Observer("own"), fake_clock)

    return make


@pytest.fixture
def session(make: Make) -> DirectSession:
    session = make()
    assert session.connect()
    return session


class TestConnecting:
    def test_the_handshake_gives_the_profile(self, session: Session, transport: Scripted) -> None:
        assert session.profile is not None
        assert session.profile.protocol_version == "2025-11-25"
        assert [method for method, *_ in transport.sent] == ["initialize"]
        assert session.last_error is None

    def test_a_transport_that_is_not_up_says_so(self, make: Make, transport: Scripted, mocker: Any) -> None:
        mocker.patch.object(transport, "connect", return_value=False)
        session = make()
        assert not session.connect()
        assert session.last_error == "the transport could not connect"
        assert transport.sent == []

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            *((kind("no route"), "no route") for kind in (RuntimeError, OSError, ValueError)),
            # An error without a text is named by its type.
            (TimeoutError(), "TimeoutError"),
        ],
    )
    def test_one_that_raises_is_not_connected(
        self, make: Make, transport: Scripted, mocker: Any, error: Exception, said: str
    ) -> None:
        mocker.patch.object(transport, "connect", side_effect=error)
        session = make()
        assert not session.connect()
        assert session.last_error == said

    def test_a_failed_handshake_disconnects_the_transport(self, make: Make, transport: Scripted) -> None:
        transport.answers["initialize"] = {"error": {"code": -32000, "message": "not you"}}
        session = make()
        assert not session.connect()
        assert session.last_error == "not you"
        assert not transport.up
        assert session.state is ServerState.CREATED

    def test_it_is_closed_when_disconnected_and_ready_when_connected_again(self, session: Session) -> None:
        session.disconnect()
        assert session.state is ServerState.CLOSED
        assert session.connect()
        assert session.state is ServerState.READY


class TestRequests:
    def test_params_are_left_out_where_there_are_none(self, session: Session, transport: Scripted) -> None:
        transport.answers["tools/list"] = {"result": {"tools": []}}
        assert made(session, RequestExchange("tools/list")) == {"tools": []}
        assert made(session, CALL) == {"content": []}
        assert transport.sent[-2:] == [("tools/list",), ("tools/call", {"name": "echo"})]

    def test_in_the_stateless_era_each_carries_the_revision(self, make: Make, transport: Scripted) -> None:
        session = make("stateless")
        assert session.connect()
        made(session, CALL)
        _, params = transport.sent[-1]
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    def test_in_the_stateless_era_the_type_of_a_result_is_checked(self, make: Make, transport: Scripted) -> None:
        transport.answers["tools/call"] = {"result": {"resultType": "task"}}
        session = make("stateless")
        session.connect()
        with pytest.raises(InvalidResponse, match="'task'"):
            made(session, CALL)

    def test_without_a_connection_nothing_is_sent(self, make: Make, transport: Scripted) -> None:
        with pytest.raises(NotConnected, match="own"):
            made(make(), CALL)
        assert transport.sent == []

    @pytest.mark.parametrize(
        ("raised", "kind", "delivery"),
        [
            (TimeoutError(), CallTimeout, "unknown"),
            (ValueError("no response"), InvalidResponse, "unknown"),
            (RuntimeError("pipe broken"), ServerCrashed, "unknown"),
            (ConnectionResetError("reset"), ServerCrashed, "unknown"),
            (Overloaded("full", delivery="not_sent"), Overloaded, "not_sent"),
        ],
    )
    def test_exceptions_of_the_transport_are_typed(
        self, session: Session, transport: Scripted, raised: Exception, kind: type[MCPError], delivery: str
    ) -> None:
        transport.answers["tools/call"] = raised
        with pytest.raises(kind) as error:
            made(session, CALL)
        assert error.value.delivery == delivery

    @pytest.mark.parametrize("response", [None, "text", [], {}, {"result": None}, {"result": []}, {"error": "text"}])
    def test_what_is_no_response_is_invalid(self, session: Session, transport: Scripted, response: Any) -> None:
        transport.answers["tools/call"] = response
        with pytest.raises(InvalidResponse, match="neither a result nor an error"):
            made(session, CALL)

    @pytest.mark.parametrize(("error", "code"), [({"code": -1, "message": "no"}, -1), ({"code": "x"}, 0), ({}, 0)])
    def test_an_error_object_is_a_json_rpc_error_however_sloppy_it_is(
        self, session: Session, transport: Scripted, error: Json, code: int
    ) -> None:
        transport.answers["tools/call"] = {"error": error}
        with pytest.raises(JsonRpcError) as caught:
            made(session, CALL)
        assert caught.value.code == code

    def test_figures_count_failures_and_errors_of_tools(self, session: Session, transport: Scripted) -> None:
        made(session, CALL)
        transport.answers["tools/call"] = {"result": {"isError": True}}
        made(session, CALL)
        transport.answers["tools/call"] = RuntimeError("pipe broken")
        with pytest.raises(ServerCrashed):
            made(session, CALL)
        status = session.status(tool_count=4)
        assert (status.calls, status.errors, status.tool_count, status.last_error) == (3, 2, 4, "pipe broken")

    def test_a_gateway_tells_of_failures_in_two_ways(self, session: Session, transport: Scripted) -> None:
        info = {"name": GATEWAY_NAME, "version": "1"}
        transport.answers["initialize"]["result"]["serverInfo"] = info
        session.connect()
        error = {"code": NOT_SENT, "message": "full", "data": details_of("a", Overloaded("full"), "not_sent")}
        transport.answers["tools/call"] = {"error": error}
        with pytest.raises(Overloaded) as refused:
            made(session, CALL)
        assert refused.value.delivery == "not_sent"
        transport.answers["tools/call"] = {"result": failed_result("x", details_of("a", ServerCrashed("x"), "unknown"))}
        with pytest.raises(ServerCrashed) as lost:
            made(session, CALL)
        assert lost.value.delivery == "unknown"


class TestSubmittedCalls:
    def test_one_has_ended_in_the_thread_that_submits_it(self, session: Session) -> None:
        done: list[Call] = []
        call = session.new_call(CALL, done.append)
        call.start(deadlines_of(SystemClock()))
        assert done == [call]
        assert call.result == {"content": []}

    def test_one_that_was_cancelled_meanwhile_has_no_result(self, session: Session, transport: Scripted) -> None:
        call = session.new_call(CALL)
        assert call.cancel(CallCancelled("not wanted any more"))
        call.start(deadlines_of(SystemClock()))
        assert isinstance(call.error, CallCancelled)
        assert not call.cancel(CallCancelled("again"))

    def test_without_a_connection_it_is_a_misuse(self, make: Make) -> None:
        with pytest.raises(NotConnected):
            make().require_connected()
