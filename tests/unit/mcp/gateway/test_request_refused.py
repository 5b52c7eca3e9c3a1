from __future__ import annotations

from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.protocol.messages import INVALID_PARAMS


def test_a_refusal_is_what_clients_get_and_not_an_error_of_http() -> None:
    refused = RequestRefused(INVALID_PARAMS, "name: missing")
    assert (refused.code, str(refused), refused.data, refused.status) == (INVALID_PARAMS, "name: missing", None, 200)
