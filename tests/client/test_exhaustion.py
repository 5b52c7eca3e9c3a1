"""When the system has no threads or descriptors left: refusals with a reason, and nobody left waiting."""

from __future__ import annotations

import errno
import logging
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError, InvalidResponse
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.policy import RestartPolicy, RestartTracker, Retry
from gaia.mcp.transports.fork_server import fork_server
from gaia.runtime.log import get_logger
from tests.servers.answers import text
from tests.servers.processes import wait_for_end
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

FaultServer = Callable[..., dict[str, Any]]


@contextmanager
def no_threads() -> Iterator[None]:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


class TestThreads:
    def test_a_client_says_that_it_has_none_and_connects_when_there_are_some(self, fault_server: FaultServer) -> None:
        client = MCPClient.from_config("fault", fault_server())
        with no_threads():
            assert not client.connect()
        assert client.last_error == "no thread for the server: can't start new thread"
        assert client.state is ServerState.FAILED
        assert client.call_tool("echo", {"text": "hi"})["delivery"] == "not_sent"
        assert client.connect()
        client.disconnect()

    def test_one_that_never_had_any_can_be_disconnected(self, fault_server: FaultServer) -> None:
        client = MCPClient.from_config("fault", fault_server())
        with no_threads():
            client.connect()
        client.disconnect()
        assert client.state is ServerState.CLOSED

    def test_a_manager_loads_what_it_can_and_shows_the_rest(self, fault_server: FaultServer, tmp_path: Path) -> None:
        config = MCPConfig(tmp_path / "servers.json", create=True)
        for name in ("one", "two"):
            config.add_server(name, fault_server())
        with MCPClientManager(config) as manager:
            with no_threads():
                manager.load_from_config()
            assert {status.name: status.state for status in manager.status()} == {
                "one": ServerState.FAILED,
                "two": ServerState.FAILED,
            }
            manager.load_from_config()
            assert sorted(manager.list_servers()) == ["one", "two"]

    def test_a_future_is_done_without_a_thread_for_its_callbacks_which_are_called_later(
        self, fault_server: FaultServer
    ) -> None:
        called: list[str] = []
        with MCPClient.from_config("fault", fault_server()) as client:
            with no_threads():
                future = client.submit_tool("echo", {"text": "hi"})
                future.add_done_callback(lambda _: called.append("without"))
                assert text(future.result(PATIENCE)) == "hi"

            def called_after_another_one() -> bool:
                # A callback of a future that is done already runs here, and needs no thread.
                client.submit_tool("echo", {"text": "hi"}).add_done_callback(lambda _: called.append("with"))
                return "without" in called

            assert wait_until(called_after_another_one)
            with no_threads():
                client.submit_tool("echo", {"text": "hi"}).add_done_callback(lambda _: called.append("at the end"))
        assert {"at the end", "with", "without"} == set(called)

    def test_a_result_is_checked_without_a_thread_for_that(self, fault_server: FaultServer) -> None:
        schema = {"type": "object", "required": ["count"]}
        tools = [{"name": "counts", "text": "5", "outputSchema": schema}]
        config = {**fault_server(tools=tools), "outputValidation": "error"}
        with MCPClient.from_config("fault", config) as client, no_threads():
            assert isinstance(client.submit_tool("counts").exception(PATIENCE), InvalidResponse)


class TestDescriptors:
    """What is imported only when something goes wrong cannot be imported if that is the lack of descriptors."""

    def test_an_event_is_logged_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "structlog", None)
        with caplog.at_level(logging.ERROR, "gaia"):
            get_logger("gaia.test").error("server_lost", server="fault")
        assert caplog.messages == ["server_lost server='fault'"]

    def test_the_wait_before_a_restart_is_the_longest_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tenacity", None)
        tracker = RestartTracker(RestartPolicy(jitter=0.0), random.Random(1))
        assert tracker.on_end(0.0) == Retry(30.0)

    def test_what_cannot_be_saved_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "filelock", None)
        with pytest.raises(ConfigError, match="cannot be saved"):
            MCPConfig(tmp_path / "servers.json", create=True).add_server("one", {"command": "true"})
        assert not (tmp_path / "servers.json").exists()

    @pytest.mark.skipif(os.name == "nt", reason="about process groups")
    def test_a_server_and_its_group_are_ended_without_looking_for_them(
        self, fault_server: FaultServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def too_many(*_: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(fork_server, "_is_supported", False)
        monkeypatch.setattr("gaia.mcp.transports.process.find_strays", too_many)
        config = fault_server(child="same_group", state_file=tmp_path / "state")
        client = MCPClient.from_config("fault", config)
        assert client.connect()
        client.disconnect()
        assert wait_until(lambda: client.state is ServerState.CLOSED)
        (grandchild,) = read_state(tmp_path / "state").children
        assert wait_for_end(grandchild)
