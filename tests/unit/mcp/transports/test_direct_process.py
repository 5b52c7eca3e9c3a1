"""A server process that is a child of this one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.stdio_channel import StdioChannel
from tests.unit.mcp.transports.conftest import Configure, Listener, direct, posix
from tests.waiting import PATIENCE


@direct
class TestEnding:
    def test_it_says_how_the_process_ended_without_waitid_too(
        self, parent: str, fault_server: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on macOS before Python 3.13."""
        monkeypatch.delattr(os, "waitid", raising=False)
        listener = Listener()
        channel = StdioTransport(**fault_server(exit_at_start={"code": 42})).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending(exit_code=42)

    @posix
    def test_it_is_unknown_if_the_application_reaps_our_children(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object) -> None:
            raise ChildProcessError

        monkeypatch.setattr(os, "waitid", gone)
        channel, listener = open_channel(exit_at_start=None)
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending()
        assert str(Ending()) == "closed its output"
