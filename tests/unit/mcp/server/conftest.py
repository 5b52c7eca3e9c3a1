"""Served agents in this process, and requests as the SDK hands them to a server."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from gaia.agents.base.mcp_context import ServableAgent
from gaia.mcp.server.factory import create_server

STATELESS = "2026-07-28"

Use = Callable[..., None]
MakeRequest = Callable[..., Any]


@pytest.fixture
def use() -> Use:
    """Connect the official client to an agent, without a transport: ``use(agent, talk)``, with arguments of `Client`.

    ``mode="legacy"`` speaks the handshake era, ``mode="auto"`` the stateless one.
    """

    def use(agent: ServableAgent, talk: Callable[[Client], Awaitable[Any]], **arguments: Any) -> None:
        async def session() -> None:
            served = create_server(agent)
            async with served.running(), Client(served.server, **arguments) as client:
                await talk(client)

        asyncio.run(session())

    return use


@pytest.fixture
def make_request() -> MakeRequest:
    """A request of a client: `capabilities` are what it declared, `revision` is its protocol revision.

    The session's ``send_request`` is given as `answer`; what is sent to the client is in ``session.sent``.
    """

    def make_request(
        revision: str = STATELESS,
        *,
        capabilities: dict[str, Any] | None = None,
        answer: Callable[..., Awaitable[Any]] | None = None,
        can_send_request: bool = True,
        **fields: Any,
    ) -> Any:
        sent: list[Any] = []

        async def keep(message: Any, **_: Any) -> None:
            sent.append(message)

        session = SimpleNamespace(
            client_params=None,
            client_capabilities=types.ClientCapabilities.model_validate(capabilities or {}, by_name=False),
            can_send_request=can_send_request,
            send_request=answer,
            send_notification=keep,
            sent=sent,
            _connection=SimpleNamespace(state={}),
        )
        known = {"method": "tools/call", "params": {"name": "t"}, "request_id": 1, "meta": None, "request": None}
        return SimpleNamespace(session=session, protocol_version=revision, **{**known, **fields})

    return make_request
