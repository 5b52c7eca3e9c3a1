"""Metrics of a test."""

import pytest

from tests.tracing import Metering


@pytest.fixture
def metering(monkeypatch: pytest.MonkeyPatch) -> Metering:
    return Metering(monkeypatch)
