"""Servers in sandboxes for tests: by either engine, as far as this machine has it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.sandbox import Sandbox
from gaia.mcp.transports.sandbox.bubblewrap import Unusable, find_bubblewrap
from gaia.mcp.transports.sandbox.kernel import landlock_version

SERVER = Path(__file__).parent / "servers" / "probing_server.py"
ENGINES = ("bubblewrap", "landlock")

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about sandboxes of Linux")


def require(engine: str) -> None:
    """Skip the test if this machine does not have the engine."""
    if not sys.platform.startswith("linux"):
        pytest.skip("sandboxes are for Linux")
    if engine == "bubblewrap":
        try:
            find_bubblewrap()
        except Unusable as reason:
            pytest.skip(str(reason))
    elif landlock_version() < 6:
        pytest.skip("the kernel has no Landlock of version 6")


def without_bubblewrap(patch: pytest.MonkeyPatch) -> None:
    """From now on sandboxes are made by Landlock."""

    def missing() -> tuple[str, bool]:
        raise Unusable("bubblewrap is not installed")

    patch.setattr("gaia.mcp.transports.sandbox.cage.find_bubblewrap", missing)


def probing(**keys: Any) -> dict[str, Any]:
    """The configuration of the server that attempts what it is told, in a sandbox with these keys."""
    args = ["-I", "-S", str(SERVER)]
    return {"command": sys.executable, "args": args, "sandbox": {**keys, "read": [str(SERVER), *keys.get("read", ())]}}


class Probe:
    """A server in a sandbox that attempts what the test tells it. Closed by `close`."""

    def __init__(self, cwd: Path, **keys: Any) -> None:
        import msgspec

        configuration = probing(**keys)
        sandbox = msgspec.convert(configuration["sandbox"], Sandbox)
        self.transport = StdioTransport(
            configuration["command"], configuration["args"], cwd=os.fspath(cwd), sandbox=lambda: sandbox
        )
        assert self.transport.connect()
        # Only now it is all there, and not still being started.
        self.result("")

    def attempt(self, code: str) -> dict[str, Any]:
        """``{"result": …}``, or ``{"error": name, "errno": number}``."""
        response = self.transport.send_request("tools/call", {"name": "attempt", "arguments": {"code": code}})
        outcome: dict[str, Any] = json.loads(response["result"]["content"][0]["text"])
        return outcome

    def result(self, code: str) -> Any:
        outcome = self.attempt(code)
        assert "result" in outcome, outcome
        return outcome["result"]

    def close(self) -> None:
        self.transport.disconnect()
