"""The client that @modelcontextprotocol/conformance judges: what a user of gaia-mcp could write, and nothing else.

The suite names the scenario and the revision in the environment and gives the server's URL as the last argument. What
some scenarios know beforehand, a client id for example, comes as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from filelock import FileLock

if __name__ == "__main__" and (turn := os.environ.get("GAIA_CONFORMANCE_TURN")):
    # The suite starts all its clients at once. On a small machine none of them would be in time. The lock is held until
    # the process ends, for which it has to be kept.
    TURN = FileLock(turn)
    TURN.acquire()

import httpx2

from gaia.mcp.client import (
    AuthorizationRequest,
    ElicitationAnswer,
    ElicitationRequest,
    MCPClient,
    MCPClientManager,
)

CIMD = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite expects of clients that have one."""

MCP_ENDPOINT = "/mcp"


def log_in(request: AuthorizationRequest) -> str | None:
    """What a person in a browser would do at an authorization server that asks no questions."""
    response = httpx2.get(request.url, follow_redirects=False)
    location: str | None = response.headers.get("location")
    return location


def main() -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    url = sys.argv[-1]
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        with MCPClientManager({}, on_elicitation=fill_in, on_authorization=log_in) as manager:
            client = manager.add_server("conformance", {**server(scenario, url, context), "protocol": protocol()})
            play(scenario, client, context)
    return 0


def server(scenario: str, url: str, context: dict[str, Any]) -> dict[str, Any]:
    """The server's entry: its URL, or a bridge on stdio that leads there."""
    if bridge := os.environ.get("GAIA_CONFORMANCE_BRIDGE"):
        return {"command": sys.executable, "args": [bridge, url]}
    return {"url": url, **auth(scenario, url, context)}


def protocol() -> str:
    return os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or "auto"


def auth(scenario: str, url: str, context: dict[str, Any]) -> dict[str, Any]:
    """The ``auth`` of the server's entry: what its operator would have configured."""
    if not scenario.startswith("auth/"):
        return {}
    credentials = {"clientId": context.get("client_id"), "clientSecret": context.get("client_secret")}
    if scenario == "auth/pre-registration":
        return {"auth": {"type": "oauth", **credentials, "issuer": context["issuer"]}}
    if scenario == "auth/client-credentials-basic":
        return {"auth": {"type": "client_credentials", **credentials, "issuer": issuer_of(url)}}
    if scenario == "auth/client-credentials-jwt":
        return {
            "auth": {
                "type": "private_key_jwt",
                "clientId": context["client_id"],
                "privateKey": context["private_key_pem"],
                "algorithm": context["signing_algorithm"],
                "issuer": issuer_of(url),
            }
        }
    if scenario == "auth/wif-jwt-bearer":
        return {
            "auth": {
                "type": "workload_identity",
                "clientId": context["client_id"],
                "assertion": context["valid_jwt"],
                "issuer": issuer_of(url),
            }
        }
    if scenario == "auth/basic-cimd":
        return {"auth": {"type": "oauth", "clientMetadataUrl": CIMD}}
    return {}


def issuer_of(url: str) -> str:
    """The authorization server that the credentials are from: operators know it, the suite does not tell it."""
    origin = url.removesuffix(MCP_ENDPOINT)
    metadata = httpx2.get(f"{origin}/.well-known/oauth-protected-resource{MCP_ENDPOINT}").json()
    return str(metadata["authorization_servers"][0])


def fill_in(request: ElicitationRequest) -> ElicitationAnswer:
    """Accept every form as it is: the defaults are filled in."""
    return request.accept({"confirmed": True} if "confirmed" in request.requested_schema.get("properties", {}) else {})


def play(scenario: str, client: MCPClient, context: dict[str, Any]) -> None:
    tools = {tool.name: tool for tool in client.list_tools()}
    if scenario == "tools_call":
        client.call_tool("add_numbers", {"a": 5, "b": 3})
    elif scenario == "json-schema-2020-12-preservation":
        schema = tools["json_schema_2020_12_tool"].input_schema
        for name in tools.keys() - {"json_schema_2020_12_tool"}:
            client.call_tool(name, {"schema": schema})
    elif scenario == "http-custom-headers":
        for call in context["toolCalls"]:
            client.call_tool(call["name"], call["arguments"])
    elif scenario == "http-standard-headers":
        for name in tools:
            client.call_tool(name, {})
        for resource in client.list_resources():
            client.read_resource(resource["uri"])
        for prompt in client.list_prompts():
            client.get_prompt(prompt["name"])
    elif scenario == "sep-2322-client-request-state":
        together(client, list(tools))
    else:
        for name in tools:
            client.call_tool(name, {})


def together(client: MCPClient, names: list[str]) -> None:
    """Call all tools at once."""
    futures = [client.submit_tool(name, {}) for name in names]
    for future in futures:
        future.result(30)


if __name__ == "__main__":
    sys.exit(main())
