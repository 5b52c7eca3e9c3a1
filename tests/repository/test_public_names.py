"""What users may import. A name that goes missing here breaks somebody's program."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.waiting import PATIENCE

PUBLIC_NAMES = {
    "gaia": {"AgentConsole", "CancelScope", "SilentConsole", "__version__", "current_scope"},
    "gaia.agents.base": {
        "Agent",
        "AgentResult",
        "ApiAgent",
        "ConfirmationRequest",
        "LLMError",
        "LLMSettings",
        "MCPAgent",
    },
    "gaia.api": {"serve_api"},
    "gaia.mcp.server": {"serve_http", "serve_stdio"},
    "gaia.mcp": {
        "AnswerLost",
        "AppliedConfig",
        "AudioContent",
        "AuthorizationRequest",
        "CallCancelled",
        "CallFuture",
        "CallTimeout",
        "ConfigError",
        "ContentBlock",
        "CurrentCall",
        "Delivery",
        "ElicitationAnswer",
        "ElicitationCompleted",
        "ElicitationRequest",
        "EmbeddedResource",
        "Event",
        "EventsDropped",
        "GaveUp",
        "HandshakeFailed",
        "HttpError",
        "ImageContent",
        "InputMissing",
        "InvalidResponse",
        "JsonRpcError",
        "MCPClient",
        "MCPClientManager",
        "MCPClientMixin",
        "MCPConfig",
        "MCPError",
        "MCPTool",
        "MCPTransport",
        "NeedsAuthorization",
        "NotConnected",
        "NotOffered",
        "Overloaded",
        "PinnedClient",
        "PlacementStatus",
        "PromptsChanged",
        "ResourceContents",
        "ResourceLink",
        "ResourceUpdated",
        "ResourcesChanged",
        "RecyclingLimits",
        "ReplicaChanged",
        "ReplicaStatus",
        "RestartPolicy",
        "Restarted",
        "SamplingRequest",
        "ServerCrashed",
        "ServerLog",
        "ServerState",
        "ServerStatus",
        "ServerUnavailable",
        "SessionLost",
        "StandbyStatus",
        "StartFailed",
        "StateChanged",
        "StdioTransport",
        "TextContent",
        "ToolDefinitionsChanged",
        "ToolDenied",
        "ToolFailed",
        "ToolFilter",
        "ToolNotApproved",
        "ToolResult",
        "ToolsChanged",
        "UnknownTool",
        "UrlElicitationRequired",
        "current_call",
    },
    "gaia.adapters.anthropic": {"anthropic_tools", "run_tool_call", "run_tool_call_async"},
    "gaia.adapters.arguments": {
        "accepts_null",
        "arguments_model",
        "flat_properties",
        "inlined_schema",
        "without_nulls",
    },
    "gaia.adapters.calls_in_doubt": {"CallsInDoubt"},
    "gaia.adapters.openai": {"openai_tools", "run_tool_call", "run_tool_call_async"},
    "gaia.adapters.results": {
        "InvalidArguments",
        "Shown",
        "content_for_model",
        "description_for_model",
        "input_schema",
        "name_for_model",
        "parse_arguments",
        "parts_for_model",
        "text_for_model",
    },
    "gaia.adapters.selection": {"Approve", "Manager", "ToolSelection", "once_per_tool"},
    "gaia.dashboard": {"Dashboard"},
    "gaia.mcp.gateway": {"Gateway"},
    "gaia.testing": {
        "CassetteMismatch",
        "FakeCall",
        "FakeClock",
        "FakePrompt",
        "FakeServer",
        "FakeTool",
        "Replay",
        "record",
        "replay",
        "use_cassette",
    },
    "gaia.mcp.aio": {
        "AsyncMCPClient",
        "AsyncMCPClientManager",
        "AsyncPinnedClient",
        "EventStream",
        "cancel_on_disconnect",
    },
    "gaia.mcp.doctor": {"Check", "Diagnosis", "Verdict", "diagnose", "diagnose_all"},
    "gaia.mcp.client": {
        "AuthorizationRequest",
        "ElicitationAnswer",
        "ElicitationRequest",
        "MCPClient",
        "MCPClientManager",
        "MCPTool",
        "ToolResult",
    },
    "gaia.mcp.transports": {"ChannelTransport", "MCPTransport", "StdioTransport"},
    "gaia.mcp.errors": {
        "AnswerLost",
        "CallCancelled",
        "CallTimeout",
        "ConfigError",
        "Delivery",
        "HandshakeFailed",
        "HttpError",
        "InputMissing",
        "InvalidResponse",
        "JsonRpcError",
        "MCPError",
        "NeedsAuthorization",
        "NotConnected",
        "NotOffered",
        "Overloaded",
        "ServerCrashed",
        "ServerUnavailable",
        "SessionLost",
        "StartFailed",
        "ToolDenied",
        "ToolFailed",
        "ToolNotApproved",
        "UnknownTool",
        "UrlElicitationRequired",
        "answered_error",
        "error_of",
    },
}
"""The packages' `__all__`, whole."""

PUBLIC_PATHS = [
    "gaia.agents.base.agent.Agent",
    "gaia.agents.base.mcp_agent.MCPAgent",
    "gaia.agents.base.tools._TOOL_REGISTRY",
    "gaia.agents.base.tools.get_tool_display_name",
    "gaia.agents.base.tools.tool",
    "gaia.agents.base.mcp_context.MCPCapabilityMissing",
    "gaia.agents.base.mcp_context.MCPContext",
    "gaia.agents.base.mcp_context.MCPRequestCancelled",
    "gaia.mcp.client.config.MCPConfig",
    "gaia.mcp.client.mcp_client.MCPClient",
    "gaia.mcp.client.mcp_client_manager.MCPClientManager",
    "gaia.mcp.client.transports.base.MCPTransport",
    "gaia.mcp.client.transports.stdio.StdioTransport",
    "gaia.mcp.mcp_bridge.MCPBridge",
    "gaia.mcp.mixin.MCPClientMixin",
    "gaia.serving.options.HttpOptions",
]
"""Deeper paths that programs import from."""

HEAVY_MODULES = ["asyncio", "filelock", "jsonschema", "psutil", "rich", "structlog", "tenacity", "typer"]
"""What costs much to import, and is needed by rare paths or by the command line only."""


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_a_package_exports_exactly_its_public_names(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) == PUBLIC_NAMES[package]
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("path", PUBLIC_PATHS)
def test_a_public_path_can_be_imported(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(module), name) is not None


def test_one_class_has_one_identity_whatever_path_it_is_imported_by() -> None:
    mcp, client = importlib.import_module("gaia.mcp"), importlib.import_module("gaia.mcp.client")
    assert mcp.MCPClient is client.MCPClient is importlib.import_module("gaia.mcp.client.mcp_client").MCPClient
    assert mcp.MCPClientManager is client.MCPClientManager
    assert mcp.MCPClientMixin is importlib.import_module("gaia.mcp.mixin").MCPClientMixin


@pytest.mark.parametrize("package", ["gaia.mcp", "gaia.testing"])
def test_names_that_are_loaded_on_first_use_are_listed_alike_everywhere(package: str) -> None:
    """`__all__` is for `import *`, the imports under TYPE_CHECKING for type checkers, the table for everyone else."""
    module = importlib.import_module(package)
    (block,) = [
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    checked = {alias.name: node.module for node in block if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(checked) == set(module.__all__)
    for name, home in checked.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    assert list(module.__all__) == sorted(module.__all__, key=str)
    assert set(module.__all__) <= set(dir(module))


def test_all_errors_can_be_imported_where_the_client_is() -> None:
    errors = importlib.import_module("gaia.mcp.errors")
    # Applications catch errors; only the client makes one from a server's answer.
    assert set(errors.__all__) - {"answered_error", "error_of"} <= PUBLIC_NAMES["gaia.mcp"]


def test_all_events_can_be_imported_where_the_client_is() -> None:
    events = importlib.import_module("gaia.mcp.supervision.events")
    kinds = {
        name
        for name in events.__all__
        if isinstance(one := getattr(events, name), type) and issubclass(one, events.Event)
    }
    assert kinds <= PUBLIC_NAMES["gaia.mcp"]


@pytest.mark.process
def test_importing_the_package_loads_none_of_its_names() -> None:
    program = "import sys; import gaia.mcp; print(*sorted(name for name in sys.modules if name.startswith('gaia')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stderr, run.stdout.split()) == (
        0,
        "",
        ["gaia", "gaia.mcp", "gaia.runtime", "gaia.runtime.lazy_names"],
    )


@pytest.mark.process
@pytest.mark.parametrize("package", ["gaia.mcp", "gaia.mcp.client"])
def test_the_client_imports_nothing_heavy(package: str) -> None:
    # A new interpreter, because this one has loaded all of them for other tests. The classes are looked up too, in
    # case a package loads them on first use.
    program = (
        f"import sys; from {package} import MCPClient, MCPClientManager;"
        f"print(*sorted({set(HEAVY_MODULES)!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stderr, run.stdout.split()) == (0, "", [])


@pytest.mark.process
def test_a_program_that_places_no_server_does_not_pay_for_placement(demo_server: dict[str, Any]) -> None:
    program = (
        "import json, sys; from gaia.mcp.client import MCPClientManager;"
        "manager = MCPClientManager({'it': json.loads(sys.argv[1])});"
        "manager.load_from_config(); print(manager.call_tool('mcp_it_add', {'a': 1, 'b': 2}).is_error);"
        "manager.disconnect_all();"
        "print(*sorted(name for name in sys.modules if name == 'ray' or '.placement.' in name))"
    )
    argv = [sys.executable, "-c", program, json.dumps(demo_server)]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stdout.split()) == (0, ["False"])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        importlib.import_module("gaia").nonsense  # noqa: B018 - the look-up is the subject
