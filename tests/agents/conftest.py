"""The specification calls one of its agents TestMCPAgent; pytest would take the class for tests and warn."""

from __future__ import annotations

import pytest

from gaia.agents.base import Agent


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """An agent is not a test, whatever its name: collect nothing from it."""
    return [] if isinstance(obj, type) and issubclass(obj, Agent) else None
