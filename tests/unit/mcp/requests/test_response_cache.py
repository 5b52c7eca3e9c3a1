"""Answers that may be used again: for how long, for what, and when not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.supervision.events import (
    PromptsChanged,
    ResourcesChanged,
    ResourceUpdated,
    ServerState,
    StateChanged,
)
from gaia.testing import FakeClock
from tests.fake_transport import FakeTransport, handshake_answers, stateless_answers
from tests.waiting import wait_until

Json = dict[str, Any]
READ = "resources/read"
A: Json = {"uri": "file:///a"}
FRESH: Json = {"contents": [], "ttlMs": 5000, "cacheScope": "private"}


@pytest.fixture
def cache(fake_clock: FakeClock) -> ResponseCache:
    return ResponseCache(fake_clock)


def keep(cache: ResponseCache, method: str, params: Json | None = None, answer: Json = FRESH) -> None:
    cache.keeper(method, params)(answer)


class TestTime:
    def test_an_answer_is_fresh_for_as_long_as_it_says(self, cache: ResponseCache, fake_clock: FakeClock) -> None:
        keep(cache, READ, A)
        fake_clock.advance(4.999)
        assert cache.get(READ, A) == FRESH
        fake_clock.advance(0.001)
        assert cache.get(READ, A) is None

    @pytest.mark.parametrize("ttl", [0, -1, None, "5000", True, float("nan"), []])
    def test_anything_but_a_positive_number_is_no_time(self, cache: ResponseCache, ttl: Any) -> None:
        keep(cache, READ, A, {"contents": [], "ttlMs": ttl})
        keep(cache, "tools/list", None, {"tools": []})
        assert cache.get(READ, A) is cache.get("tools/list", None) is None


class TestKeys:
    def test_only_what_the_specification_names_is_kept(self, cache: ResponseCache) -> None:
        for method in ("tools/call", "prompts/get", "completion/complete", "nonsense"):
            keep(cache, method)
            assert cache.get(method, None) is None

    def test_other_params_have_other_answers_and_metadata_and_order_make_no_difference(
        self, cache: ResponseCache
    ) -> None:
        keep(cache, READ, {"a": 1, "b": 2, "_meta": {"traceparent": "x"}})
        assert cache.get(READ, {"b": 2, "a": 1}) == FRESH
        assert cache.get(READ, {"a": 1, "b": 3}) is None
        assert cache.get("resources/list", {"a": 1, "b": 2}) is None
        assert cache.get(READ, {"a": 1, "b": 2, "more": 1}) is None

    def test_who_changes_an_answer_changes_only_his_own(self, cache: ResponseCache) -> None:
        keep(cache, READ, A)
        found = cache.get(READ, A)
        assert found is not None
        found["contents"].append("changed")
        assert cache.get(READ, A) == FRESH

    def test_there_is_a_limit(self, cache: ResponseCache) -> None:
        for number in range(300):
            keep(cache, READ, {"uri": str(number)})
        assert cache.get(READ, {"uri": "0"}) is None
        assert cache.get(READ, {"uri": "299"}) == FRESH


MIB = 1024 * 1024


def long_answer(size: int) -> Json:
    return {"contents": [{"uri": "file:///a", "text": "x" * size}], "ttlMs": 60_000}


class TestMemory:
    def kept(self, cache: ResponseCache, count: int) -> list[int]:
        return [number for number in range(count) if cache.get(READ, {"uri": str(number)}) is not None]

    def test_the_answers_used_last_are_kept_up_to_a_size(self, cache: ResponseCache) -> None:
        for number in range(20):
            keep(cache, READ, {"uri": str(number)}, long_answer(MIB))
            cache.get(READ, {"uri": "0"})
        assert self.kept(cache, 20) == [0, *range(6, 20)]

    def test_an_answer_that_is_larger_or_cannot_be_encoded_is_not_kept_and_takes_no_other_s_place(
        self, cache: ResponseCache
    ) -> None:
        keep(cache, READ, {"uri": "0"}, long_answer(MIB))
        answers = [long_answer(17 * MIB), *({"contents": [value], "ttlMs": 60_000} for value in (2**70, "\ud800"))]
        for number, answer in enumerate(answers, 1):
            keep(cache, READ, {"uri": str(number)}, answer)
        assert self.kept(cache, 4) == [0]

    def test_what_was_asked_counts_too(self, cache: ResponseCache) -> None:
        for number in range(20):
            keep(cache, READ, {"uri": str(number), "more": "x" * MIB})
        assert sum(cache.get(READ, {"uri": str(n), "more": "x" * MIB}) is not None for n in range(20)) == 15

    def test_answers_that_are_replaced_or_forgotten_make_room(self, cache: ResponseCache) -> None:
        for _ in range(50):
            keep(cache, READ, A, long_answer(MIB))
        for number in range(10):
            keep(cache, READ, {"uri": str(number)}, long_answer(MIB))
        assert self.kept(cache, 10) == list(range(10))
        for _ in range(3):
            cache.forget()
            for number in range(15):
                keep(cache, READ, {"uri": str(number)}, long_answer(MIB))
        assert self.kept(cache, 15) == list(range(15))


class TestForgetting:
    @pytest.mark.parametrize(
        ("event", "kept"),
        [
            (ResourceUpdated("s", "file:///a"), {"resources/list", "resources/templates/list", "prompts/list"}),
            (ResourceUpdated("s", "file:///a/part"), {"resources/list", "resources/templates/list", "prompts/list"}),
            (ResourceUpdated("s", "file:///z"), {READ, "resources/list", "resources/templates/list", "prompts/list"}),
            (ResourcesChanged("s"), {READ, "prompts/list"}),
            (PromptsChanged("s"), {READ, "resources/list", "resources/templates/list"}),
            (StateChanged("s", ServerState.READY, ServerState.RESTARTING, 1), set()),
        ],
    )
    def test_each_event_forgets_what_it_is_about(self, cache: ResponseCache, event: Any, kept: set[str]) -> None:
        methods = (READ, "resources/list", "resources/templates/list", "prompts/list")
        for method in methods:
            keep(cache, method, A)
        cache.happened(event)
        assert {method for method in methods if cache.get(method, A)} == kept

    def test_an_answer_that_was_under_way_is_not_kept(self, cache: ResponseCache) -> None:
        keeper = cache.keeper("resources/list", None)
        cache.happened(ResourcesChanged("s"))
        keeper(FRESH)
        assert cache.get("resources/list", None) is None


@pytest.fixture
def connect(fake_clock: FakeClock) -> Iterator[Callable[..., tuple[MCPClient, FakeTransport]]]:
    clients: list[MCPClient] = []

    def connect(answers: Json, *, stateless: bool = True) -> tuple[MCPClient, FakeTransport]:
        transport = FakeTransport(answers={**(stateless_answers() if stateless else handshake_answers()), **answers})
        protocol = "stateless" if stateless else "handshake"
        clients.append(MCPClient("fake", transport, protocol=protocol, clock=fake_clock))
        assert clients[-1].connect()
        return clients[-1], transport

    yield connect
    for client in clients:
        client.disconnect()


class TestClient:
    def test_a_fresh_answer_saves_the_request_except_in_the_handshake_era(
        self, connect: Any, fake_clock: FakeClock
    ) -> None:
        client, transport = connect({READ: lambda _: FRESH})
        for _ in range(3):
            assert client.read_resource("file:///a") == FRESH
        assert len(transport.channel().requests(READ)) == 1
        fake_clock.advance(6.0)
        client.read_resource("file:///a")
        assert len(transport.channel().requests(READ)) == 2
        client, transport = connect({READ: lambda _: FRESH}, stateless=False)
        for _ in range(2):
            client.read_resource("file:///a")
        assert len(transport.channel().requests(READ)) == 2

    def test_the_pages_of_a_list_are_kept_one_by_one(self, connect: Any, fake_clock: FakeClock) -> None:
        def page(request: Json) -> Json:
            if "cursor" in request["params"]:
                return {"prompts": [{"name": "two"}], "ttlMs": 1000}
            return {"prompts": [{"name": "one"}], "nextCursor": "2", "ttlMs": 60_000}

        client, transport = connect({"prompts/list": page})
        for _ in range(2):
            assert [prompt["name"] for prompt in client.list_prompts()] == ["one", "two"]
        assert len(transport.channel().requests("prompts/list")) == 2
        fake_clock.advance(2.0)
        client.list_prompts()
        requests = transport.channel().requests("prompts/list")
        assert [request["params"].get("cursor") for request in requests] == [None, "2", "2"]

    def test_a_cursor_that_means_nothing_any_more_starts_the_list_anew(
        self, connect: Any, fake_clock: FakeClock
    ) -> None:
        cursors = iter(["old", "new"])
        client, transport = connect(
            {"prompts/list": lambda _: {"prompts": [], "nextCursor": next(cursors), "ttlMs": 60_000}}
        )
        channel = transport.channel()
        answer = channel._answers["prompts/list"]

        def refuse(request: Json) -> Json | None:
            cursor = request["params"].get("cursor")
            if cursor is None:
                return answer(request)  # type: ignore[no-any-return]
            if cursor == "new" or len(channel.requests("prompts/list")) == 2:
                return {"prompts": [{"name": "last"}], "ttlMs": 1}
            channel.answer_error(request, -32602, "no such cursor")
            return None

        channel._answers["prompts/list"] = refuse
        client.list_prompts()
        fake_clock.advance(1.0)
        assert client.list_prompts() == [{"name": "last"}]
        cursors_sent = [request["params"].get("cursor") for request in channel.requests("prompts/list")]
        assert cursors_sent == [None, "old", "old", None, "new"]

    def test_a_notification_makes_it_ask_again(self, connect: Any) -> None:
        client, transport = connect({"prompts/list": lambda _: {"prompts": [], "ttlMs": 60_000}})
        client.list_prompts()
        channel = transport.channel()
        listening = channel.wait_for("subscriptions/listen")
        meta = {"io.modelcontextprotocol/subscriptionId": listening["id"]}
        channel.notify("notifications/prompts/list_changed", {"_meta": meta})
        assert wait_until(lambda: client.list_prompts() == [] and len(channel.requests("prompts/list")) == 2)

    def test_what_answers_went_into_is_not_kept(self, connect: Any) -> None:
        client, transport = connect({})
        channel = transport.channel()

        def read(request: Json) -> Json:
            if "requestState" in request["params"]:
                return FRESH
            return {"resultType": "input_required", "requestState": "again"}

        channel._answers[READ] = read
        for _ in range(2):
            assert client.read_resource("file:///a") == FRESH
        assert len(channel.requests(READ)) == 4
