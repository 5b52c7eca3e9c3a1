"""What an application offers to servers: declared as it was given, and answered by its own code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal
from gaia.mcp.protocol.server_questions import root_list
from gaia.mcp.supervision.client_features import ClientFeatures, Roots
from tests.supervised import Supervised
from tests.unit.mcp.supervision.conftest import FORM, HELLO, LINK


def answer(features: ClientFeatures, method: str, params: Any) -> dict[str, Any]:
    question = features.question("web", method, params)
    return question.result_of(question.ask())


class TestCapabilities:
    @pytest.mark.parametrize(
        ("features", "declared"),
        [
            ({}, {}),
            ({"on_elicitation": print}, {"elicitation": {"form": {}}}),
            ({"on_elicitation": print, "elicitation_modes": ("url",)}, {"elicitation": {"url": {}}}),
            (
                {"on_elicitation": print, "elicitation_modes": ("form", "url")},
                {"elicitation": {"form": {}, "url": {}}},
            ),
            ({"elicitation_modes": ("url",)}, {}),
            ({"on_sampling": print}, {"sampling": {}}),
            ({"on_sampling": print, "sampling_tools": True}, {"sampling": {"tools": {}}}),
            ({"roots": Roots([])}, {"roots": {"listChanged": True}}),
        ],
    )
    def test_exactly_what_is_given_is_declared(
        self, supervise: Callable[..., Supervised], features: Any, declared: Any
    ) -> None:
        channel = supervise(features=ClientFeatures(**features)).started().transport.channel()
        assert channel.wait_for("initialize")["params"]["capabilities"] == declared

    @pytest.mark.parametrize("modes", [(), ("poem",), ("form", "poem")])
    def test_modes_that_do_not_exist_are_an_error(self, modes: Any) -> None:
        with pytest.raises(ValueError, match="elicitation_modes"):
            ClientFeatures(elicitation_modes=modes)

    def test_what_one_client_lacks_comes_from_its_manager(self) -> None:
        mine, others = ClientFeatures(on_elicitation=print), ClientFeatures(on_elicitation=repr, on_sampling=repr)
        both = mine.or_else(others)
        assert (both.on_elicitation, both.on_sampling) == (print, repr)

    @pytest.mark.parametrize(
        ("features", "method"),
        [
            (ClientFeatures(on_elicitation=print), "elicitation/create"),
            (ClientFeatures(on_sampling=print), "sampling/createMessage"),
            (ClientFeatures(roots=Roots([])), "roots/list"),
        ],
    )
    def test_a_server_may_ask_what_is_given_and_nothing_else(self, features: ClientFeatures, method: str) -> None:
        asked = ("elicitation/create", "sampling/createMessage", "roots/list", "ping", "")
        assert [one for one in asked if features.offers(one)] == [method]

    def test_settings_stay_with_the_function_that_they_are_for(self) -> None:
        mine = ClientFeatures(elicitation_modes=("url",), on_sampling=print)
        others = ClientFeatures(on_elicitation=repr, on_sampling=repr, sampling_tools=True, roots=Roots([]))
        both = mine.or_else(others)
        assert both.capabilities == {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}


class TestAnswer:
    def test_the_function_is_told_which_server_asks(self) -> None:
        servers: list[str] = []
        features = ClientFeatures(on_elicitation=lambda request: servers.append(request.server))
        assert answer(features, "elicitation/create", FORM) == {"action": "cancel"}
        assert servers == ["web"]

    @pytest.mark.parametrize(
        ("method", "params"),
        [("elicitation/create", LINK), ("elicitation/create", {}), ("sampling/createMessage", {**HELLO, "tools": []})],
    )
    def test_a_request_that_is_not_as_it_should_be_does_not_reach_it(self, method: str, params: Any) -> None:
        features = ClientFeatures(on_elicitation=pytest.fail, on_sampling=pytest.fail)
        with pytest.raises(Refusal) as refusal:
            features.question("web", method, params)
        assert refusal.value.code == INVALID_PARAMS

    def test_what_the_function_raises_is_its_own(self) -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            answer(ClientFeatures(on_sampling=fail), "sampling/createMessage", HELLO)


class TestRoots:
    @pytest.mark.parametrize("source", ["/folder", ["http://host/"], [5], [{"name": "no uri"}]])
    def test_what_is_no_root_is_an_error_and_changes_nothing(self, source: Any) -> None:
        roots = Roots(["file:///before"])
        for use in (Roots, roots.replace):
            with pytest.raises(ValueError, match="roots: "):
                use(source)
        assert root_list(roots.listed()) == {"roots": [{"uri": "file:///before"}]}

    def test_a_list_counts_as_it_was_when_it_was_given(self, tmp_path: Path) -> None:
        source: list[Any] = [tmp_path]
        roots = Roots(source)
        source.append("http://host/")
        assert root_list(roots.listed()) == {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}

    def test_an_iterator_lasts_for_more_than_one_request(self) -> None:
        roots = Roots(iter(["file:///a"]))
        assert [root_list(roots.listed()) for _ in range(2)] == [{"roots": [{"uri": "file:///a"}]}] * 2

    def test_a_function_is_called_for_each_request_and_not_before(self) -> None:
        folders = iter(["file:///a", "file:///b"])
        roots = Roots(lambda: [next(folders)])
        assert [root_list(roots.listed())["roots"][0]["uri"] for _ in range(2)] == ["file:///a", "file:///b"]


class TestAsyncFunctions:
    def test_are_known_before_they_are_called(self) -> None:
        async def ask(request: object) -> None: ...

        class Asks:
            async def __call__(self, request: object) -> None: ...

        for function in (ask, Asks(), partial(ask)):
            features = ClientFeatures(on_elicitation=function, on_sampling=print)
            assert features.is_async("elicitation/create")
            assert not features.is_async("sampling/createMessage")

    def test_may_list_roots(self) -> None:
        async def roots() -> list[str]:
            return []

        assert ClientFeatures(roots=Roots(roots)).is_async("roots/list")
        assert not ClientFeatures(roots=Roots(list)).is_async("roots/list")
