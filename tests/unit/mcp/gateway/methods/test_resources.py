"""Resources: their list, and which server they are read from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.mcp.errors import JsonRpcError
from gaia.testing import FakeServer
from tests.gateway.lines import asking


@pytest.mark.parametrize("stateless", [True, False])
def test_each_is_read_from_the_server_that_lists_it(stateless: bool) -> None:
    servers = {"a": FakeServer("a", resources={"x:1": "from a"}), "b": FakeServer("b", resources={"x:2": "from b"})}

    async def use() -> None:
        async with asking(servers, stateless=stateless) as lines:
            listed = await lines.ask("resources/list")
            assert [resource["uri"] for resource in listed["resources"]] == ["x:1", "x:2"]
            for uri, text in (("x:1", "from a"), ("x:2", "from b")):
                assert (await lines.ask("resources/read", {"uri": uri}))["contents"][0]["text"] == text
            assert (await lines.ask("resources/templates/list"))["resourceTemplates"] == []

    asyncio.run(use())


def test_of_two_with_one_uri_the_first_server_has_it() -> None:
    servers = {"a": FakeServer("a", resources={"x:1": "from a"}), "b": FakeServer("b", resources={"x:1": "from b"})}

    async def use() -> None:
        async with asking(servers) as lines:
            assert len((await lines.ask("resources/list"))["resources"]) == 1
            assert (await lines.ask("resources/read", {"uri": "x:1"}))["contents"][0]["text"] == "from a"

    asyncio.run(use())


def test_a_result_says_that_it_must_not_be_kept_if_its_server_does_not_say_more() -> None:
    async def use() -> None:
        async with asking({"a": FakeServer("a", resources={"x:1": ""})}) as lines:
            result = await lines.ask("resources/read", {"uri": "x:1"})
            assert (result["ttlMs"], result["cacheScope"]) == (0, "private")

    asyncio.run(use())


@pytest.mark.parametrize(("stateless", "code"), [(True, -32602), (False, -32002)])
def test_one_that_no_server_has_is_not_found(stateless: bool, code: int) -> None:
    servers = {"a": FakeServer("a", resources={"x:1": ""}), "b": FakeServer("b", resources={"x:2": ""})}

    async def use() -> None:
        async with asking(servers, stateless=stateless) as lines:
            assert (await lines.ask("resources/read", {"uri": "x:3"}))["code"] == code

    asyncio.run(use())


@pytest.mark.parametrize(("data", "code"), [({"uri": "x:1"}, -32002), (None, -32602)])
def test_what_a_server_of_the_stateless_era_does_not_find_has_the_code_of_the_clients_era(data: Any, code: int) -> None:
    """-32602 alone may say something else of the request."""

    def missing() -> str:
        raise JsonRpcError(-32602, "none", data)

    async def use() -> None:
        server = FakeServer("a", resources={"x:1": missing}, protocol="2026-07-28")
        async with asking({"a": server}, stateless=False) as lines:
            assert (await lines.ask("resources/read", {"uri": "x:1"}))["code"] == code

    asyncio.run(use())


def test_a_mistake_after_the_answer_of_the_first_server_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"a": FakeServer("a", resources={"x:1": ""}), "b": FakeServer("b", resources={"x:2": ""})}

    async def use() -> None:
        async with asking(servers) as lines:
            await lines.ask("resources/list")
            monkeypatch.setattr("gaia.mcp.gateway.methods.features._in_words_of", lambda *_: 1 / 0)
            assert (await lines.ask("resources/read", {"uri": "x:3"}))["code"] == -32603

    asyncio.run(use())
