"""Listing and using tools, prompts and resources, and completion."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gaia.mcp.errors import JsonRpcError
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.features import complete
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.testing import FakeServer, FakeTool
from tests.gateway.lines import Lines, asking
from tests.unit.mcp.gateway.clients.test_pending_request import Replies
from tests.waiting import PATIENCE


def read() -> str:
    """Read."""
    return "text"


@pytest.mark.parametrize("stateless", [True, False])
async def test_a_tool_is_listed_as_the_server_sent_it_under_its_name_here_and_another_unknown(stateless: bool) -> None:
    tool = FakeTool(read, title="Read it", _meta={"vendor/x": 1})
    async with asking({"files": FakeServer("files", tools=[tool])}, stateless=stateless) as lines:
        (listed,) = (await lines.ask("tools/list"))["tools"]
        assert (listed["name"], listed["title"], listed["_meta"]) == ("files_read", "Read it", {"vendor/x": 1})
        error = await lines.ask("tools/call", {"name": "files_write"})
        assert (error["code"], error["message"]) == (-32602, "Unknown tool: files_write")
        assert (await lines.ask("tools/call"))["code"] == -32602


async def test_names_that_two_servers_would_share_stay_apart() -> None:
    servers = {"a": FakeServer("a", tools=[{"name": "b_c"}]), "a_b": FakeServer("a_b", tools=[{"name": "c"}])}

    async with asking(servers) as lines:
        names = [tool["name"] for tool in (await lines.ask("tools/list"))["tools"]]
        assert len(set(names)) == 2
        assert all(len(name) <= 64 for name in names)
        for name in names:
            assert "content" in await lines.ask("tools/call", {"name": name, "arguments": {}})
    assert [len(server.calls) for server in servers.values()] == [1, 1]


async def test_a_call_for_a_server_that_cannot_start_says_why_and_the_others_work() -> None:
    broken = FakeServer("broken", tools=[read])
    broken.fail_starts(times=1_000, reason="no such program")

    async with asking({"broken": broken, "files": FakeServer("files", tools=[read])}) as lines:
        assert [tool["name"] for tool in (await lines.ask("tools/list"))["tools"]] == ["files_read"]
        error = await lines.ask("tools/call", {"name": "broken_read"})
        assert error["data"] == {"server": "broken", "errorType": "server_unavailable", "delivery": "not_sent"}
        assert "the server has not received it" in error["message"]


async def test_a_call_that_the_server_did_not_survive_says_that_it_may_have_acted() -> None:
    server = FakeServer("files", tools=[read])
    server.crash(tool="read")

    async with asking({"files": server}) as lines:
        lost = await lines.ask("tools/call", {"name": "files_read"})
        assert (lost["isError"], lost["_meta"][FAILURE_KEY]["delivery"]) == (True, "unknown")
        again = await lines.ask("tools/call", {"name": "files_read"})
        assert again["content"][0]["text"] == "text"


async def test_the_list_is_known_while_the_server_is_down() -> None:
    server = FakeServer("files", tools=[read])

    gateway = Gateway({"files": server})
    async with asking(gateway) as lines:
        before = await lines.ask("tools/list")
        server.fail_starts(times=1_000)
        server.crash()
        other = Lines(gateway, stateless=True)
        assert await other.ask("tools/list") == before


def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


async def test_prompts_of_several_servers_are_listed_and_got_and_another_unknown() -> None:
    servers = {"a": FakeServer("a", prompts=[greet]), "b": FakeServer("b", prompts=[greet], protocol="2026-07-28")}

    async with asking(servers) as lines:
        listed = await lines.ask("prompts/list")
        assert [prompt["name"] for prompt in listed["prompts"]] == ["a_greet", "b_greet"]
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        got = await lines.ask("prompts/get", {"name": "b_greet", "arguments": {"name": "Ada"}})
        assert got["messages"][0]["content"]["text"] == "Hello Ada"
        error = await lines.ask("prompts/get", {"name": "greet"})
        assert (error["code"], error["message"]) == (-32602, "Unknown prompt: greet")


@pytest.mark.parametrize(("stateless", "not_found"), [(True, -32602), (False, -32002)])
async def test_each_resource_is_read_from_the_first_server_that_lists_it(stateless: bool, not_found: int) -> None:
    servers = {
        "a": FakeServer("a", resources={"x:1": "from a", "x:3": "from a"}),
        "b": FakeServer("b", resources={"x:2": "from b", "x:3": "from b"}),
    }

    async with asking(servers, stateless=stateless) as lines:
        listed = await lines.ask("resources/list")
        assert sorted(resource["uri"] for resource in listed["resources"]) == ["x:1", "x:2", "x:3"]
        for uri, text in (("x:1", "from a"), ("x:2", "from b"), ("x:3", "from a")):
            result = await lines.ask("resources/read", {"uri": uri})
            assert result["contents"][0]["text"] == text
            assert not stateless or (result["ttlMs"], result["cacheScope"]) == (0, "private"), "it is not to be kept"
        assert (await lines.ask("resources/templates/list"))["resourceTemplates"] == []
        assert (await lines.ask("resources/read", {"uri": "x:4"}))["code"] == not_found


@pytest.mark.parametrize(("data", "code"), [({"uri": "x:1"}, -32002), (None, -32602)])
async def test_what_a_server_of_the_stateless_era_does_not_find_has_the_code_of_the_clients_era(
    data: Any, code: int
) -> None:
    """-32602 alone may say something else of the request."""

    def missing() -> str:
        raise JsonRpcError(-32602, "none", data)

    server = FakeServer("a", resources={"x:1": missing}, protocol="2026-07-28")
    async with asking({"a": server}, stateless=False) as lines:
        assert (await lines.ask("resources/read", {"uri": "x:1"}))["code"] == code


async def test_a_mistake_after_the_answer_of_the_first_server_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"a": FakeServer("a", resources={"x:1": ""}), "b": FakeServer("b", resources={"x:2": ""})}

    async with asking(servers) as lines:
        await lines.ask("resources/list")
        monkeypatch.setattr("gaia.mcp.gateway.methods.features._in_words_of", lambda *_: 1 / 0)
        assert (await lines.ask("resources/read", {"uri": "x:3"}))["code"] == -32603


async def test_references_are_checked() -> None:
    async with asking({}) as lines:
        assert (await lines.ask("completion/complete", {"ref": {"type": "ref/other"}}))["code"] == -32602
        unknown = {"type": "ref/prompt", "name": "no_one"}
        assert "Unknown prompt" in (await lines.ask("completion/complete", {"ref": unknown}))["message"]
        unknown = {"type": "ref/resource", "uri": "x:{y}?token=secret"}
        message = (await lines.ask("completion/complete", {"ref": unknown}))["message"]
        assert message == "Unknown resource template: x:{y}"


def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of the requests that are passed on, each of which succeeds."""
    found: list[dict[str, Any]] = []

    def relay(request: PendingRequest, _server: Any, params: dict[str, Any], _target: Any) -> None:
        found.append(params)
        request.succeed(b"{}")

    monkeypatch.setattr("gaia.mcp.gateway.methods.features.relay", relay)
    return found


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (
            '"type":"ref/prompt","name":"f_secret","name":"f_review","Name":"secret"',
            {"type": "ref/prompt", "name": "review"},
        ),
        (
            '"type":"ref/resource","uri":"file:///b","uri":"file:///a","Uri":"file:///b"',
            {"type": "ref/resource", "uri": "file:///a"},
        ),
    ],
)
async def test_the_server_gets_the_reference_that_was_checked(
    relayed: list[dict[str, Any]], given: str, sent: dict[str, str]
) -> None:
    server = FakeServer("f", prompts=[review], resources={"file:///a": "a"})
    async with asking({"f": server}, stateless=False) as lines:
        lines.client.received(
            f'{{"jsonrpc":"2.0","id":99,"method":"completion/complete","params":{{"ref":{{{given}}}}}}}'.encode()
        )
        async with asyncio.timeout(PATIENCE):
            while not relayed:
                await asyncio.sleep(0)
    assert relayed == [{"ref": sent}]


def test_of_a_template_that_stands_for_hidden_resources_these_are_not_completed(relayed: list[dict[str, Any]]) -> None:
    view = SimpleNamespace(
        templates=lambda: SimpleNamespace(routes={"db:///{table}/{+row}": (SimpleNamespace(name="db"), "")}),
        when_resources_known=lambda act: act(),
        sees_resource=Profile("p", resources=ToolFilter(None, ["db:///keys/*"])).allows_resource,
        checks=Checks(),
    )

    def ask(argument: str, context: str) -> dict[str, Any]:
        given = {
            "ref": b'{"type":"ref/resource","uri":"db:///{table}/{+row}"}',
            "argument": argument.encode(),
            "context": context.encode(),
        }
        params = {key: msgspec.Raw(value) for key, value in given.items()}
        replies = Replies()
        request = PendingRequest(1, "completion/complete", params, {}, replies, cast("View", view), None)
        later(request, lambda: complete(request))()
        [message] = replies.messages
        return cast("dict[str, Any]", message)

    users = '{"arguments":{"table":"keys","table":"users","Table":"keys"},"Arguments":{"table":"keys"}}'
    assert "result" in ask('{"name":"row","value":"1","Value":"2"}', users)
    assert relayed.pop()["context"] == {"arguments": {"table": "users", "Table": "keys"}}
    for argument, context in (
        ('{"name":"row","value":"1"}', '{"arguments":{"table":"keys"}}'),
        ('{"name":"table","value":"keys/"}', "{}"),
        ('{"name":"row","value":"../keys/"}', users),
        ('{"name":"row","value":7}', users),
    ):
        assert ask(argument, context)["error"]["code"] == -32602
    assert relayed == []


@pytest.mark.slow
async def test_the_server_knows_the_prompt_by_its_own_name(feature_server: dict[str, Any]) -> None:
    async with asking({"f": feature_server}) as lines:
        (name, *_) = [prompt["name"] for prompt in (await lines.ask("prompts/list"))["prompts"]]
        assert name.startswith("f_")
        argument = {"name": "language", "value": ""}
        params = {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}
        assert "completion" in await lines.ask("completion/complete", params)
