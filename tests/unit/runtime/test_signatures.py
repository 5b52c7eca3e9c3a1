"""What `help` shows of functions that take the keywords of a TypedDict."""

import inspect

import pytest

from gaia.mcp import MCPClient, MCPClientManager, PinnedClient
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager, AsyncPinnedClient

CALL = {"timeout": None, "on_progress": None, "reset_timeout_on_progress": None, "max_timeout": None}
FEATURES = {"on_elicitation": None, "elicitation_modes": ("form",), "on_sampling": None, "sampling_tools": False}
SETTINGS = {"lazy": False, "idle_stop": None, "health_interval": 30.0}


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        *((face.call_tool, CALL) for face in (MCPClient, MCPClientManager, PinnedClient)),
        *((face.call_tool, CALL) for face in (AsyncMCPClient, AsyncMCPClientManager, AsyncPinnedClient)),
        *((face.submit_tool, CALL) for face in (MCPClient, MCPClientManager, PinnedClient)),
        *((client, FEATURES | SETTINGS) for client in (MCPClient, AsyncMCPClient)),
        *((manager, FEATURES) for manager in (MCPClientManager, AsyncMCPClientManager)),
    ],
)
def test_names_each_keyword_with_its_default(function: object, keywords: dict[str, object]) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    shown = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert keywords.items() <= shown.items()
    assert {each.kind for each in parameters}.isdisjoint({inspect.Parameter.VAR_KEYWORD})


def test_names_the_type_of_each_keyword() -> None:
    assert inspect.signature(MCPClient.call_tool).parameters["timeout"].annotation == "float | None"
