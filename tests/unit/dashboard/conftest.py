"""What the tests of the dashboard's API share."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.served_dashboard import Served, served_dashboard, trace_with


@pytest.fixture(autouse=True)
def tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tool calls have spans."""
    trace_with(TracerProvider(), monkeypatch)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Connect to servers and serve their dashboard: ``serve(demo={"command": …})``."""
    with contextlib.ExitStack() as stack:
        yield lambda **servers: stack.enter_context(served_dashboard(tmp_path, servers))


@pytest.fixture
def demo(serve: Callable[..., Served], demo_server: dict[str, Any]) -> Served:
    """The demo server, one of whose tools is denied."""
    return serve(demo=demo_server | {"disabledTools": ["counter"]})
