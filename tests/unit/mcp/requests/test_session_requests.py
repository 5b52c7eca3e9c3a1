import inspect

import pytest

from gaia.mcp.client.bound_session import BoundSession
from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.client.session import SupervisedSession
from gaia.mcp.requests.session_requests import Requests

METHODS = [name for name, member in inspect.getmembers(Requests, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [BoundSession, DirectSession, SupervisedSession])
def test_requests_can_be_made_over_each_kind_of_session(kind: type) -> None:
    # The most frequent ones are attributes of the instances, with nothing in between.
    missing = [name for name in METHODS if not hasattr(kind, name) and f"self.{name} = " not in inspect.getsource(kind)]
    assert METHODS
    assert missing == []
