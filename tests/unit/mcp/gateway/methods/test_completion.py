"""Completion goes to the server of the prompt or the template."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.features import complete
from gaia.mcp.gateway.views.view import View
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.testing import FakeServer
from tests.gateway.lines import asking
from tests.unit.mcp.gateway.clients.test_pending_request import Replies
from tests.waiting import PATIENCE


def test_references_are_checked() -> None:
    async def use() -> None:
        async with asking({}) as lines:
            assert (await lines.ask("completion/complete", {"ref": {"type": "ref/other"}}))["code"] == -32602
            unknown = {"type": "ref/prompt", "name": "no_one"}
            assert "Unknown prompt" in (await lines.ask("completion/complete", {"ref": unknown}))["message"]
            unknown = {"type": "ref/resource", "uri": "x:{y}?token=secret"}
            message = (await lines.ask("completion/complete", {"ref": unknown}))["message"]
            assert message == "Unknown resource template: x:{y}"

    asyncio.run(use())


def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


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
def test_the_server_gets_the_reference_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, given: str, sent: dict[str, str]
) -> None:
    relayed: list[dict[str, Any]] = []

    def relay(request: PendingRequest, _server: Any, params: dict[str, Any], _target: Any) -> None:
        relayed.append(params)
        request.succeed(b"{}")

    monkeypatch.setattr("gaia.mcp.gateway.methods.features.relay", relay)

    async def use() -> None:
        server = FakeServer("f", prompts=[review], resources={"file:///a": "a"})
        async with asking({"f": server}, stateless=False) as lines:
            lines.client.received(
                f'{{"jsonrpc":"2.0","id":99,"method":"completion/complete","params":{{"ref":{{{given}}}}}}}'.encode()
            )
            async with asyncio.timeout(PATIENCE):
                while not relayed:
                    await asyncio.sleep(0)

    asyncio.run(use())
    assert relayed == [{"ref": sent}]


def test_of_a_template_that_stands_for_hidden_resources_these_are_not_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relayed: list[dict[str, Any]] = []

    def relay(request: PendingRequest, _server: Any, params: dict[str, Any], _target: Any) -> None:
        relayed.append(params)
        request.succeed(b"{}")

    monkeypatch.setattr("gaia.mcp.gateway.methods.features.relay", relay)
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
def test_the_server_knows_the_prompt_by_its_own_name(feature_server: dict[str, Any]) -> None:
    async def use() -> None:
        async with asking({"f": feature_server}) as lines:
            (name, *_) = [prompt["name"] for prompt in (await lines.ask("prompts/list"))["prompts"]]
            assert name.startswith("f_")
            argument = {"name": "language", "value": ""}
            params = {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}
            assert "completion" in await lines.ask("completion/complete", params)

    asyncio.run(use())
