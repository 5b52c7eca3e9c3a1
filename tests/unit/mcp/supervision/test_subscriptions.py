"""Listening for changes in the stateless era."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import HttpError
from gaia.mcp.supervision.events import ResourceUpdated
from tests.fake_transport import FakeChannel
from tests.supervised import Supervised

Json = dict[str, Any]
Supervise = Callable[..., Supervised]

LISTEN = "subscriptions/listen"
CHANGED = "notifications/tools/list_changed"
ID = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise(stateless=True, health_interval=30.0).started()


def announce(server: Supervised, subscription: Any, generation: int = 1) -> None:
    server.transport.channel(generation).notify(CHANGED, {"_meta": {ID: subscription}})


class TestListening:
    def test_what_the_server_can_tell_is_asked_for_once_it_is_ready(self, server: Supervised) -> None:
        request = server.transport.channel().wait_for(LISTEN)
        assert request["params"]["notifications"] == {"toolsListChanged": True}
        assert request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    def test_it_is_no_call_in_flight_and_has_no_deadline(self, server: Supervised) -> None:
        server.transport.channel().wait_for(LISTEN)
        assert server.in_flight == 0
        server.pass_time(30.0)
        server.transport.channel().wait_for("server/discover", 2)
        assert server.transport.channel().requests("notifications/cancelled") == []

    def test_a_change_that_is_told_leads_to_a_listing(self, server: Supervised) -> None:
        listening = server.transport.channel().wait_for(LISTEN)
        server.transport.tools.append({"name": "new"})
        announce(server, listening["id"])
        assert {"name": "new"} in server.wait_for_listing(2)

    def test_so_does_the_acknowledgement_because_nobody_told_what_changed_before(self, server: Supervised) -> None:
        channel = server.transport.channel()
        listening = channel.wait_for(LISTEN)
        channel.notify("notifications/subscriptions/acknowledged", {"_meta": {ID: listening["id"]}})
        server.wait_for_listing(2)

    @pytest.mark.parametrize("subscription", [None, "1", 999, True])
    def test_what_belongs_to_no_subscription_of_ours_is_ignored(self, server: Supervised, subscription: Any) -> None:
        listening = server.transport.channel().wait_for(LISTEN)
        announce(server, subscription)
        server.settle()
        assert len(server.listings) == 1
        announce(server, listening["id"])
        server.wait_for_listing(2)

    def test_after_a_restart_it_listens_again(self, server: Supervised) -> None:
        server.transport.channel().wait_for(LISTEN)
        server.transport.channel().end(exit_code=1)
        second = server.transport.channel(2).wait_for(LISTEN)
        announce(server, second["id"], generation=2)
        server.wait_for_listing(3)


class TestEnding:
    @pytest.mark.parametrize("how", ["result", "cancelled", "both"])
    def test_one_that_the_server_ends_is_renewed_soon_and_then_ever_later(self, server: Supervised, how: str) -> None:
        channel = server.transport.channel()
        listening = channel.wait_for(LISTEN)
        if how != "result":
            channel.notify("notifications/cancelled", {"requestId": listening["id"]})
        if how != "cancelled":
            channel.answer(listening, {"resultType": "complete", "_meta": {ID: listening["id"]}})
        server.settle()
        assert len(channel.requests(LISTEN)) == 1, "a gateway that stops would have to wait for it"
        server.pass_time(0.5)
        assert channel.wait_for(LISTEN, 2)["id"] != listening["id"]
        for nth, pause in ((2, 1.0), (3, 2.0)):
            channel.answer(channel.wait_for(LISTEN, nth), {"resultType": "complete"})
            server.settle()
            assert len(channel.requests(LISTEN)) == nth
            server.pass_time(pause)
            channel.wait_for(LISTEN, nth + 1)

    def test_one_that_ends_with_its_server_is_not_renewed(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.wait_for(LISTEN)
        channel.end(exit_code=1)
        server.transport.channel(2).wait_for(LISTEN)
        server.settle()
        assert len(channel.requests(LISTEN)) == 1
        assert server.clock.monotonic() + 0.5 not in server.clock.deadlines()

    def refuse(self, server: Supervised, error: int) -> FakeChannel:
        """By a status of HTTP, or a code of JSON-RPC."""
        channel = server.transport.channel()
        if error < 0:
            channel.answer_error(channel.wait_for(LISTEN), error, "no")
        else:
            channel.fail(channel.wait_for(LISTEN), HttpError("no", status=error))
        server.settle()
        assert len(channel.requests(LISTEN)) == 1
        return channel

    @pytest.mark.parametrize("error", [-32601, 404, 405, 501])
    def test_a_server_that_refuses_is_not_asked_again(self, server: Supervised, error: int) -> None:
        channel = self.refuse(server, error)
        server.pass_time(30.0)
        channel.wait_for("server/discover", 2)
        assert len(channel.requests(LISTEN)) == 1

    @pytest.mark.parametrize("error", [-32603, 429, 500, 503])
    def test_trouble_for_a_while_is_no_refusal(self, server: Supervised, error: int) -> None:
        channel = self.refuse(server, error)
        server.pass_time(0.5)
        announce(server, channel.wait_for(LISTEN, 2)["id"])
        server.wait_for_listing(2)

    def test_a_cancellation_of_anything_else_means_nothing(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.wait_for(LISTEN)
        channel.notify("notifications/cancelled", {"requestId": 12345})
        channel.notify("notifications/cancelled", {})
        server.settle()
        server.pass_time(30.0)
        channel.wait_for("server/discover", 2)
        assert len(channel.requests(LISTEN)) == 1


class TestOtherResources:
    """The client wants to be told of other resources, so the request is made anew."""

    @pytest.fixture
    def server(self, supervise: Supervise) -> Supervised:
        server = supervise(stateless=True, health_interval=30.0)
        offered = {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {"subscribe": True}}}
        server.transport.answers["server/discover"] = lambda _: offered
        server.subscriptions.add_resource("file:///1")
        return server.started()

    def want(self, server: Supervised, number: int) -> Json:
        """The request for the changes of one more resource."""
        if number > 1:
            server.subscriptions.add_resource(f"file:///{number}")
            server.supervisor.subscriptions_changed()
        return server.transport.channel().wait_for(LISTEN, number)

    def acknowledge(self, server: Supervised, request: Json, notifications: Json | None = None) -> None:
        params = {"_meta": {ID: request["id"]}, "notifications": notifications}
        server.transport.channel().notify("notifications/subscriptions/acknowledged", params)

    def update(self, server: Supervised, request: Json, uri: str) -> None:
        params = {"uri": uri, "_meta": {ID: request["id"]}}
        server.transport.channel().notify("notifications/resources/updated", params)

    def cancelled(self, server: Supervised) -> list[int]:
        return [one["params"]["requestId"] for one in server.transport.channel().requests("notifications/cancelled")]

    def test_the_old_request_tells_of_changes_until_the_new_one_is_acknowledged(self, server: Supervised) -> None:
        first = self.want(server, 1)
        self.acknowledge(server, first)
        second = self.want(server, 2)
        self.update(server, first, "file:///1")
        assert server.wait_for(ResourceUpdated).uri == "file:///1"
        assert self.cancelled(server) == []
        self.acknowledge(server, second)
        server.settle()
        assert self.cancelled(server) == [first["id"]]

    def test_so_does_the_last_acknowledged_of_several(self, server: Supervised) -> None:
        first = self.want(server, 1)
        self.acknowledge(server, first)
        second = self.want(server, 2)
        third = self.want(server, 3)
        self.update(server, first, "file:///1")
        assert server.wait_for(ResourceUpdated).uri == "file:///1"
        assert self.cancelled(server) == [second["id"]]
        self.acknowledge(server, third)
        server.settle()
        assert self.cancelled(server) == [second["id"], first["id"]]

    @pytest.mark.parametrize(
        ("notifications", "agreed"),
        [(None, True), ({}, False), ({"resourceSubscriptions": [1, "file:///2"]}, True)],
    )
    def test_it_is_told_whether_the_server_has_agreed_to_one(
        self, server: Supervised, notifications: Json | None, agreed: bool
    ) -> None:
        told: list[tuple[str, object]] = []
        for uri in ("file:///2", "file:///3"):
            server.subscriptions.when_decided(uri, functools.partial(lambda uri, error: told.append((uri, error)), uri))
        self.acknowledge(server, self.want(server, 2), notifications)
        server.settle()
        assert [(uri, error is None) for uri, error in told] == [("file:///2", agreed)]

    def test_a_refusal_is_told_once_unless_it_is_not_waited_for(self, server: Supervised) -> None:
        told: list[object] = []
        server.subscriptions.when_decided("file:///2", told.append)
        server.subscriptions.when_decided("file:///2", told.append)()
        channel = server.transport.channel()
        channel.answer_error(self.want(server, 2), -32603, "not this one")
        channel.answer_error(self.want(server, 3), -32603, "nor this one")
        server.settle()
        assert [str(error) for error in told] == ["not this one"]

    def test_it_is_given_up_if_the_server_acknowledges_nothing(self, server: Supervised) -> None:
        first = self.want(server, 1)
        self.want(server, 2)
        server.pass_time(30.0)
        server.settle()
        assert self.cancelled(server) == [first["id"]]


def test_the_handshake_era_needs_no_subscription(supervise: Supervise) -> None:
    server = supervise().started()
    server.transport.channel().notify(CHANGED, {})
    server.wait_for_listing(2)
    assert server.transport.channel().requests(LISTEN) == []
