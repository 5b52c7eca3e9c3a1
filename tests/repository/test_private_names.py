"""What this package uses of others without their promise: a release that changes it is told here, by name.

A test that fails says which module depends on it. Adapt that module, or lower the upper bound in pyproject.toml.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from opentelemetry import propagate

from gaia.telemetry import content, propagation
from tests.waiting import PATIENCE

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))

BOUNDED = re.compile(r"(jsonschema|mcp|uvicorn|opentelemetry-[a-z-]+)(?![\w-])")
"""The packages whose private or undocumented names are used."""


def requirements() -> list[str]:
    project, groups = PYPROJECT["project"], PYPROJECT["dependency-groups"]
    lists: list[list[Any]] = [project["dependencies"], *project["optional-dependencies"].values(), *groups.values()]
    return [requirement for one in lists for requirement in one if isinstance(requirement, str)]


@pytest.mark.parametrize("requirement", sorted({one for one in requirements() if BOUNDED.match(one)}))
def test_packages_that_are_used_through_private_names_have_an_upper_bound(requirement: str) -> None:
    assert re.search(r"<\d", requirement), f"{requirement}: the next major release may break it; add a bound like <3"


@pytest.mark.process
@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("gaia.telemetry.spans.tracing_is_off", "opentelemetry.trace._TRACER_PROVIDER"),
        ("gaia.telemetry.metrics.metering_is_off", "_real_instrument of OpenTelemetry's proxy instruments"),
    ],
)
def test_whether_opentelemetry_is_set_up_can_be_seen(function: str, name: str) -> None:
    """In a process of its own, because providers are set once and for all."""
    module, _, called = function.rpartition(".")
    program = f"""if True:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        from {module} import {called}
        print({called}())
        trace.set_tracer_provider(TracerProvider())
        metrics.set_meter_provider(MeterProvider())
        print({called}())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    told = f"{function} looks at {name}, which has changed: every call now pays for what is not recorded"
    assert done.stdout.split() == ["True", "False"], told


def test_the_standard_propagators_can_be_recognised() -> None:
    told = "gaia.telemetry.propagation looks at its `_propagators`, which has changed: every traced call now asks it"
    assert propagation.is_standard(propagate._load_propagators()), f"CompositePropagator: {told}"


def test_the_variables_of_the_environment_can_be_looked_up_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "gaia.telemetry.content looks at `os.environ._data`, which has changed: every traced call now takes 2 µs more"
    )
    assert content._ENCODED_VARIABLE not in getattr(os.environ, "_data", content._ALWAYS), told
    monkeypatch.setenv(content.CAPTURE_VARIABLE, "true")
    assert content._ENCODED_VARIABLE in getattr(os.environ, "_data", ()), told


def test_the_connection_of_a_served_session_can_be_reached() -> None:
    connection = Mock(spec=Connection, protocol_version="2025-11-25")
    session = ServerSession(Mock(), connection)
    told = "gaia.mcp.server.changes keeps subscriptions and log levels by it"
    assert getattr(session, "_connection", None) is connection, f"ServerSession._connection of mcp is gone; {told}"
    assert {"state", "exit_stack"} <= Connection.__annotations__.keys(), f"mcp's Connection has changed; {told}"


@pytest.mark.parametrize("method", ["handle_exit", "capture_signals"])
def test_signals_of_the_http_server_can_be_overridden(method: str) -> None:
    told = "gaia.serving.http overrides it, so that a signal ends the server and not the process"
    assert callable(getattr(uvicorn.Server, method, None)), f"uvicorn.Server.{method} is gone; {told}"
