"""gaia-mcp beside frameworks that bring a version of the `mcp` SDK of their own: 1.x, 2.x, or none.

Nor does it need the SDK of OpenTelemetry, which some frameworks require in an older version.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from gaia.runtime.extras import EXTRAS, missing
from tests.servers.http_server import ScriptedServer
from tests.waiting import PATIENCE

PROGRAM = """
import json, sys

if "absent" in sys.argv:
    sys.modules["mcp"] = sys.modules["opentelemetry.sdk"] = None  # Imports of them fail.

from gaia.mcp import MCPClientManager

with MCPClientManager(json.loads(sys.argv[1])) as manager:
    for tool, arguments in json.loads(sys.argv[2]).items():
        print(manager.call_tool(tool, arguments).raise_for_error().text)
assert sys.modules.get("mcp") is None, "the SDK was imported"
"""


@pytest.mark.process
@pytest.mark.parametrize("sdk", ["installed", "absent"])
def test_servers_over_stdio_and_http_need_no_sdk(sdk: str, demo_server: dict[str, Any]) -> None:
    with ScriptedServer().serving() as server:
        servers = json.dumps({"demo": demo_server, "web": {"url": server.url}})
        calls = json.dumps({"mcp_demo_echo": {"text": "over stdio"}, "mcp_web_echo": {"text": "over http"}})
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, servers, calls, sdk], capture_output=True, text=True, timeout=PATIENCE
        )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["over stdio", "over http"]


@pytest.mark.skipif(missing("serve", "mcp") is None, reason="this environment has the mcp that the extras need")
@pytest.mark.parametrize("extra", ["oauth", "serve"])
def test_what_needs_another_version_of_the_sdk_names_its_extra(extra: str) -> None:
    lack = missing(extra, "mcp")
    assert lack is not None
    assert f"(extra '{extra}' of gaia-mcp)" in lack
    assert EXTRAS[extra][-1].partition(">")[0] in lack


@pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None or missing("serve", "mcp") is None,
    reason="this environment has no mcp, or the one that can serve",
)
def test_serving_with_a_version_of_the_sdk_that_a_framework_needs_says_so() -> None:
    from gaia.mcp.server import serve_stdio
    from gaia.serving.loading import ServingUnavailable

    with pytest.raises(ServingUnavailable, match=r"Serving needs mcp>=2.3,<3, and mcp [\d.]+ is installed"):
        serve_stdio(None)
