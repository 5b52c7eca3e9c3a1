"""What can be served, has each method of the protocol with its parameters."""

from __future__ import annotations

import inspect

import pytest

from gaia.agents.base import MCPAgent
from gaia.mcp.mcp_bridge import MCPBridge
from gaia.mcp.server.offering import Offering

METHODS = [name for name, member in vars(Offering).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize("cls", [MCPAgent, MCPBridge])
@pytest.mark.parametrize("name", METHODS)
def test_agents_and_bridges_have_each_method_with_its_parameters(name: str, cls: type) -> None:
    assert inspect.signature(getattr(cls, name)) == inspect.signature(getattr(Offering, name))
