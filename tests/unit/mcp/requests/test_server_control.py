import inspect
from typing import Any

import pytest

from gaia.mcp.cluster.placed_server import PlacedServer
from gaia.mcp.requests.server_control import ServerControl
from gaia.mcp.supervision.supervisor import Supervisor

METHODS = [
    name for name, member in vars(ServerControl).items() if inspect.isfunction(member) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", [Supervisor, PlacedServer])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "watch"])
def test_both_take_the_same_arguments(kind: Any, name: str) -> None:
    # mypy compares types, and this the names and defaults of what is given by keyword.
    wanted = inspect.signature(getattr(ServerControl, name)).parameters.values()
    given = inspect.signature(getattr(kind, name)).parameters
    assert [one.default for one in wanted] == [one.default for one in given.values()]
    by_name = [one for one in wanted if one.kind is not inspect.Parameter.POSITIONAL_ONLY]
    assert all(one.name in given for one in by_name)
