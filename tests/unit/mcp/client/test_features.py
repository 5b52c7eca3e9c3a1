"""What servers offer besides tools, and what clients want to hear of it."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.client.features import ServerFeatures
from gaia.mcp.errors import JsonRpcError, NotOffered
from gaia.mcp.protocol.exchange import Send
from gaia.mcp.supervision.events import PromptsChanged, ResourcesChanged, ResourceUpdated
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.testing import FakeClock
from tests.fake_transport import FakeTransport, handshake_answers, stateless_answers
from tests.recorder import Recorder
from tests.waiting import wait_until

Json = dict[str, Any]
Connect = Callable[..., tuple[MCPClient, FakeTransport]]

EVERYTHING = {
    "tools": {},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}
LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def connect(fake_clock: FakeClock) -> Iterator[Connect]:
    clients: list[MCPClient] = []

    def connect(stateless: bool = False, capabilities: Json = EVERYTHING) -> tuple[MCPClient, FakeTransport]:
        answers = stateless_answers() if stateless else handshake_answers()
        opening = "server/discover" if stateless else "initialize"
        first = answers[opening]
        answers[opening] = lambda request: {**(first(request) or {}), "capabilities": capabilities}
        for method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            answers[method] = lambda _: {}
        answers["completion/complete"] = lambda request: {"completion": {"values": [], "asked": request["params"]}}
        transport = FakeTransport(answers=answers)
        client = MCPClient(
            "fake",
            transport,
            protocol="stateless" if stateless else "handshake",
            clock=fake_clock,
            restart_policy=RestartPolicy(jitter=0.0),
            health_interval=1_000_000.0,
        )
        clients.append(client)
        assert client.connect(), client.last_error
        return client, transport

    yield connect
    for client in clients:
        client.disconnect()


def restart(transport: FakeTransport) -> None:
    """The first restart of a server that ran well waits for nothing."""
    transport.channel().end(exit_code=1)


class TestSubscriptionsOfTheHandshakeEra:
    def test_a_change_of_a_subscribed_resource_is_an_event(self, connect: Connect) -> None:
        client, transport = connect()
        told = Recorder()
        client.subscribe(told)
        client.subscribe_resource("file:///a")
        assert transport.channel().wait_for("resources/subscribe")["params"] == {"uri": "file:///a"}
        transport.channel().notify("notifications/resources/updated", {"uri": "file:///a"})
        assert told.wait_for(ResourceUpdated) == ResourceUpdated("fake", "file:///a")

    def test_a_restarted_server_is_told_anew(self, connect: Connect) -> None:
        client, transport = connect()
        client.subscribe_resource("file:///a")
        client.subscribe_resource("file:///b")
        client.unsubscribe_resource("file:///a")
        client.set_logging_level("warning")
        restart(transport)
        again = transport.channel(2)
        assert again.wait_for("logging/setLevel")["params"] == {"level": "warning"}
        assert again.wait_for("resources/subscribe")["params"] == {"uri": "file:///b"}
        assert len(again.requests("resources/subscribe")) == 1

    def test_a_refusal_is_an_error_and_nothing_to_repeat(self, connect: Connect) -> None:
        client, transport = connect()
        transport.channel().take_over("resources/subscribe")
        channel = transport.channel()
        channel._answers["resources/subscribe"] = lambda request: channel.answer_error(request, -32002, "no such")
        with pytest.raises(JsonRpcError, match="no such"):
            client.subscribe_resource("file:///a")
        assert client._engine.subscriptions.resources == ()

    @pytest.mark.parametrize(
        ("method", "event"),
        [
            ("notifications/resources/list_changed", ResourcesChanged("fake")),
            ("notifications/prompts/list_changed", PromptsChanged("fake")),
        ],
    )
    def test_other_offers_are_events(self, connect: Connect, method: str, event: Any) -> None:
        client, transport = connect()
        told = Recorder()
        client.subscribe(told)
        transport.channel().notify(method, {})
        assert told.wait_for(type(event)) == event

    @pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}])
    def test_an_update_of_nothing_is_ignored(self, connect: Connect, params: Json) -> None:
        client, transport = connect()
        told = Recorder()
        client.subscribe(told)
        transport.channel().notify("notifications/resources/updated", params)
        transport.channel().notify("notifications/prompts/list_changed", {})
        told.wait_for(PromptsChanged)
        assert told.of(ResourceUpdated) == []


class TestSubscriptionsOfTheStatelessEra:
    def test_resources_are_part_of_what_is_listened_to(self, connect: Connect) -> None:
        client, transport = connect(stateless=True)
        told = Recorder()
        client.subscribe(told)
        client.subscribe_resource("file:///a")
        listening = transport.channel().wait_for("subscriptions/listen", 2)
        assert listening["params"]["notifications"]["resourceSubscriptions"] == ["file:///a"]
        assert transport.channel().requests("resources/subscribe") == []
        params = {"uri": "file:///a", "_meta": {SUBSCRIPTION: listening["id"]}}
        transport.channel().notify("notifications/resources/updated", params)
        assert told.wait_for(ResourceUpdated) == ResourceUpdated("fake", "file:///a")
        restart(transport)
        again = transport.channel(2).wait_for("subscriptions/listen")
        assert again["params"]["notifications"]["resourceSubscriptions"] == ["file:///a"]

    def test_an_update_of_no_subscription_is_ignored(self, connect: Connect) -> None:
        client, transport = connect(stateless=True)
        told = Recorder()
        client.subscribe(told)
        listening = transport.channel().wait_for("subscriptions/listen")
        transport.channel().notify("notifications/resources/list_changed", {"_meta": {SUBSCRIPTION: 12345}})
        transport.channel().notify("notifications/prompts/list_changed", {"_meta": {SUBSCRIPTION: listening["id"]}})
        told.wait_for(PromptsChanged)
        assert told.of(ResourcesChanged) == []


class TestLogLevel:
    def test_in_the_stateless_era_it_is_part_of_each_request(self, connect: Connect) -> None:
        client, transport = connect(stateless=True)
        transport.answers["prompts/list"] = lambda _: {"prompts": []}
        transport.channel()._answers["prompts/list"] = lambda _: {"prompts": []}

        def level() -> Any:
            client.list_prompts()
            channel = transport.channel(transport.starts)
            return channel.requests("prompts/list")[-1]["params"]["_meta"].get(LEVEL)

        assert level() is None
        client.set_logging_level("error")
        assert wait_until(lambda: level() == "error")
        assert transport.channel().requests("logging/setLevel") == []
        restart(transport)
        assert transport.channel(2)
        assert level() == "error"

    @pytest.mark.parametrize("level", ["", "loud", "Warning"])
    def test_it_is_one_of_eight_words(self, connect: Connect, level: str) -> None:
        client, _ = connect()
        with pytest.raises(ValueError, match="expected one of debug, info"):
            client.set_logging_level(level)


class TestCompletion:
    def test_arguments_that_have_values_go_along(self, connect: Connect) -> None:
        client, _ = connect()
        ref, argument = {"type": "ref/prompt", "name": "p"}, {"name": "city", "value": "Pa"}
        asked = client.complete(ref, argument, context={"country": "France"})["completion"]["asked"]
        assert asked == {"ref": ref, "argument": argument, "context": {"arguments": {"country": "France"}}}
        assert "context" not in client.complete(ref, argument)["completion"]["asked"]


class TestWhatIsNotOffered:
    @pytest.mark.parametrize("stateless", [False, True])
    @pytest.mark.parametrize(
        "capabilities", [{}, {"resources": {}}, {"resources": []}, {"resources": {"subscribe": False}}]
    )
    def test_it_is_not_asked_for(self, connect: Connect, stateless: bool, capabilities: Json) -> None:
        client, transport = connect(stateless, capabilities)
        with pytest.raises(NotOffered, match="changes of its resources"):
            client.subscribe_resource("file:///a")
        with pytest.raises(NotOffered, match="log messages"):
            client.set_logging_level("info")
        assert transport.channel().requests("resources/subscribe") == []


class TestTemplates:
    @staticmethod
    def ask(connect: Connect, code: int) -> list[Json]:
        client, transport = connect()
        channel = transport.channel()
        channel._answers["resources/templates/list"] = lambda request: channel.answer_error(request, code, "no")
        return client.list_resource_templates()

    def test_a_server_with_resources_need_not_know_the_method(self, connect: Connect) -> None:
        assert self.ask(connect, -32601) == []

    def test_any_other_error_is_one(self, connect: Connect) -> None:
        with pytest.raises(JsonRpcError, match="no"):
            self.ask(connect, -32602)


class TestThePartAlone:
    """The exchanges of `ServerFeatures`, without anything that makes their requests."""

    @pytest.fixture
    def requests(self) -> Mock:
        return Mock(**{"session.profile": None})

    def test_a_prompt_is_requested_by_its_name_which_traces_are_told(self, requests: Mock) -> None:
        features = ServerFeatures(requests, Subscriptions(), Mock(blocks=False))
        exchange = features.get_prompt("greet", None)
        assert next(exchange) == Send("prompts/get", {"name": "greet", "arguments": {}}, target="greet")

    def test_what_is_wanted_before_the_first_handshake_is_told_to_the_session(self, requests: Mock) -> None:
        subscriptions = Subscriptions()
        features = ServerFeatures(requests, subscriptions, Mock())
        subscribe, set_level = features.subscribe_resource("file:///a"), features.set_logging_level("error")
        requests.is_stateless = True
        assert list(subscribe) == list(set_level) == []
        assert (subscriptions.resources, subscriptions.log_level) == (("file:///a",), "error")
        assert requests.session.subscriptions_changed.call_count == 2
        assert list(features.unsubscribe_resource("file:///b")) == []
        assert requests.session.subscriptions_changed.call_count == 2
