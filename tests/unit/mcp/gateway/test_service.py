"""The service in its parts; `tests/gateway/test_service.py` runs it as a process."""

import asyncio
import gc
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway import Gateway, service
from gaia.mcp.gateway.operations.status import ReloadStatus
from gaia.mcp.gateway.service import Service
from gaia.serving.options import HttpOptions
from gaia.serving.service_manager import ServiceManager
from tests.waiting import PATIENCE


def test_a_refused_reload_is_in_the_status_and_told_to_the_service_manager(tmp_path: Path) -> None:
    async def use() -> None:
        gateway = Gateway({})
        service = Service(gateway, ServiceManager(str(tmp_path / "notify")))
        service.reloaded(ReloadStatus(at=5.0, error="a.json: it is wrong"))
        assert gateway.last_reload is not None
        assert (gateway.last_reload.at, gateway.last_reload.error) == (5.0, "a.json: it is wrong")

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(PATIENCE)
        asyncio.run(use())
        assert told.recv(200) == b"READY=1\nSTATUS=still as it was: a.json: it is wrong"


async def test_a_gateway_that_cannot_start_is_not_ready() -> None:
    class Failing(Gateway):
        async def start(self) -> None:
            raise RuntimeError("no audit")

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    try:
        await Service(Failing({})).application({"type": "lifespan"}, receive, send)
    except RuntimeError:
        sent.append("raised")
    assert sent == ["lifespan.startup.failed", "raised"]


def test_while_it_runs_the_collector_leaves_alone_what_stays() -> None:
    counts: dict[str, int] = {}
    messages = ["lifespan.startup", "lifespan.shutdown"]

    async def receive() -> Any:
        return {"type": messages.pop(0)}

    async def send(message: Any) -> None:
        counts[message["type"]] = gc.get_freeze_count()

    asyncio.run(Service(Gateway({})).application({"type": "lifespan"}, receive, send))

    assert counts["lifespan.startup.complete"] > 0
    assert gc.get_freeze_count() == 0


def test_a_hangup_before_it_serves_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    monkeypatch.setattr(service, "run_http", lambda *_, **__: handlers.append(signal.getsignal(signal.SIGHUP)))
    before = signal.getsignal(signal.SIGHUP)
    try:
        Service(Gateway({})).run(HttpOptions(), lambda _: None)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert callable(handlers[0])


def test_an_audit_that_cannot_be_written_is_told_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listened: list[Any] = []
    monkeypatch.setattr(service, "run_http", lambda *words, **_: listened.append(words))
    with pytest.raises(ConfigError, match="the audit cannot be written"):
        Service(Gateway({}, audit=tmp_path)).run(HttpOptions(), lambda _: None)
    assert listened == []
