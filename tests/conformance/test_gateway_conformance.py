"""The server scenarios of @modelcontextprotocol/conformance through a gateway, with `ConformanceAgent` behind it.

The agent is reached over stdio and over HTTP, in the era that it prefers and after a handshake.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_conformance import REQUIRED, checks_of, required_scenarios
from tests.gateway.gateway_process import gateway_process
from tests.serving.served import command, environment, http_server

AGENT = "tests.conformance.agent:ConformanceAgent"


@contextlib.contextmanager
def agent_entry(transport: str) -> Iterator[dict[str, object]]:
    """An entry of a configuration for the agent."""
    if transport == "http":
        with http_server(AGENT) as served:
            yield {"url": served.url}
        return
    program, *arguments = command("mcp", "serve", AGENT)
    yield {"command": program, "args": arguments, "env": {"PYTHONPATH": environment()["PYTHONPATH"]}}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("protocol", ["auto", "2025-11-25"])
@pytest.mark.parametrize("revision", REQUIRED)
def test_a_gateway_passes_what_the_revision_requires(
    suite: list[str], revision: str, protocol: str, transport: str, tmp_path: Path
) -> None:
    scenarios = required_scenarios(suite, revision)
    results = tmp_path / "results"
    with agent_entry(transport) as entry:
        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"agent": {**entry, "protocol": protocol}}}))
        with gateway_process("--config", str(config)) as gateway:
            url = f"http://127.0.0.1:{gateway.port}/mcp/agent"
            run = subprocess.run(
                [*suite, "server", "--url", url, "--requirements", revision, "--output-dir", str(results)],
                capture_output=True,
                text=True,
                timeout=240,
            )
    if protocol != "auto" and revision >= "2026-07-28":
        # These leave calls in the middle, for which the agent goes on waiting. To whose call its next question belongs,
        # an agent of the handshake era does not say, so the gateway refuses to ask any client.
        scenarios = [scenario for scenario in scenarios if not scenario.startswith("input-required-result-")]
    checks = {scenario: checks_of(results, scenario) for scenario in scenarios}
    failed = {scenario: counts for scenario, counts in checks.items() if counts["FAILURE"] or counts["WARNING"]}
    passed = sum(counts["SUCCESS"] for counts in checks.values())
    print(f"{revision} through a gateway, agent over {transport} ({protocol}): {passed} checks passed")
    assert not failed, run.stdout
    assert [scenario for scenario, counts in checks.items() if not counts["SUCCESS"]] == []
    if len(scenarios) == REQUIRED[revision][0]:
        assert run.returncode == 0, run.stdout
        assert passed >= REQUIRED[revision][1]
