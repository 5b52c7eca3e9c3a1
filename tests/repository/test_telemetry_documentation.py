"""docs/telemetry.md names everything that is recorded."""

import typing
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider

import gaia.mcp.errors
from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.observation.lifecycle_spans import LossReason
from gaia.telemetry import attributes
from gaia.telemetry.content import MODES
from gaia.telemetry.metrics import Instruments

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")


def error_types() -> set[str]:
    """Of all exceptions; an answer of the server is told by its code instead."""
    kinds = [getattr(gaia.mcp.errors, name) for name in gaia.mcp.errors.__all__]
    errors = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, MCPError)]
    return {error.error_type for error in errors if error is not MCPError and not issubclass(error, JsonRpcError)}


def names() -> list[str]:
    found = [value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)]
    # The page writes `gaia.mcp.process.exit_code`, `.signal`.
    return [name.replace("gaia.mcp.process.", ".") for name in found]


@pytest.mark.parametrize("name", names())
def test_every_attribute(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize("word", sorted(error_types()))
def test_every_type_of_error(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("word", [*typing.get_args(LossReason), *MODES])
def test_every_reason_and_mode(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_every_metric() -> None:
    provider = MeterProvider()
    instruments = Instruments(provider.get_meter("test"))
    recorded = [one.instrument.name for one in vars(instruments).values()]
    assert len(recorded) >= 8
    for name in [*recorded, "gaia.mcp.client.calls.queued", "gaia.mcp.client.calls.in_flight"]:
        assert f"`{name}`" in PAGE
