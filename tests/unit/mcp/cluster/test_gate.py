from typing import Any

import pytest

from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.rpc.call import Call

LINK: Any = object()


@pytest.mark.parametrize(
    ("method", "tool", "is_taken"),
    [("tools/call", "add", True), ("tools/call", "rm", False), ("tools/list", None, False), ("ping", None, True)],
)
def test_what_differs_at_a_host_is_neither_called_nor_listed_there(
    method: str, tool: str | None, is_taken: bool
) -> None:
    gate = Gate(LINK, "one", HostClock())
    call = Call(1, method, {}, 0.0, 30.0, tool=tool)
    assert gate.takes(call)
    gate.differing = {"rm"}
    assert gate.takes(call) is is_taken
