import os

import pytest

from gaia.mcp.cluster import running_servers


class Server:
    def __init__(self) -> None:
        self.done: list[str] = []

    def request_stop(self, drain: float = 0.0) -> None:
        self.done.append("asked")

    def stop(self, drain: float = 0.0) -> None:
        self.done.append("stopped")

    def after_fork(self) -> None:
        self.done.append("forked")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(running_servers, "running", {server})
    return server


def test_all_end_with_the_program(server: Server) -> None:
    running_servers._stop_all()
    assert server.done == ["asked", "stopped"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_has_none(server: Server) -> None:
    running_servers._after_fork()
    assert server.done == ["forked"]
    assert running_servers.running == set()
