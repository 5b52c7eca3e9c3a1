"""A host looks at its lease before each request, and tells programs with other settings apart."""

import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gaia.mcp.gateway import host as host_module
from gaia.mcp.gateway.host import Host
from gaia.mcp.placement.engine import Launch
from gaia.mcp.placement.lease import FIRST_SECONDS, LEASE_PATH, Beat, fingerprints
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.serving.responses import HttpRequest

LAUNCH = Launch(name="it", entry={"command": "server", "env": {"KEY": "secret"}}, token="t", lease=10.0)
CALL = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add"}}'


class Answer:
    """A response of the host."""

    is_over = False
    on_gone: Callable[[], None]

    def __init__(self) -> None:
        self.status = 0
        self.body: Any = None

    def finish(self, status: int, _headers: Any, body: bytes) -> None:
        self.status, self.body = status, msgspec.json.decode(body)


class HostAt:
    """A host whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.host = Host(LAUNCH, lambda: self.now)
        status = ServerStatus(name="it", state=ServerState.READY)
        self.host.gateway.manager.status = lambda: [status]  # type: ignore[method-assign]
        self.relayed: list[str] = []
        self.host.gateway.endpoint.handle = lambda request, _: self.relayed.append(request.path)  # type: ignore[method-assign, assignment, misc]

    def ask(self, method: str, path: str, body: bytes = b"", owner: str = "a") -> Answer:
        answer = Answer()
        headers = {b"gaia-owner": owner.encode()}
        self.host.handle(HttpRequest(method, path, headers, body, None), answer)  # type: ignore[arg-type]
        return answer

    def beat(self, owner: str = "a", **beat: Any) -> Answer:
        return self.ask("POST", LEASE_PATH, msgspec.json.encode(Beat(**beat)), owner)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals by which the host ends itself."""
    sent: list[int] = []
    monkeypatch.setattr(host_module.os, "kill", lambda _, number: sent.append(number))
    return sent


def test_a_host_that_was_stopped_makes_no_late_call(ends: list[int]) -> None:
    host = HostAt()
    clock = host.beat().body["clock"]
    host.now = 1.0
    host.beat(clock=clock, since=1.0)
    host.now = 10.9
    host.ask("POST", "/mcp/it", CALL)
    assert (host.relayed, ends) == (["/mcp/it"], [])
    host.now = 11.0
    answer = host.ask("POST", "/mcp/it", CALL)
    assert host.relayed == ["/mcp/it"]
    assert answer.status == 410, "the program takes the call back"
    assert ends == [signal.SIGTERM]
    assert host.beat(clock=clock).status == 410
    assert ends == [signal.SIGTERM], "once"


def test_an_owner_that_does_not_come_is_not_waited_for_long(ends: list[int]) -> None:
    host = HostAt()
    host.now = FIRST_SECONDS
    assert host.ask("GET", "/mcp/it").status == 410
    assert ends == [signal.SIGTERM]


def test_the_last_owner_that_leaves_ends_the_host(ends: list[int]) -> None:
    host = HostAt()
    for owner in ("a", "b"):
        host.beat(owner, clock=0.0)
    assert host.ask("DELETE", LEASE_PATH, owner="a").body["owners"] == 1
    assert ends == []
    assert host.ask("DELETE", LEASE_PATH, owner="b").body["owners"] == 0
    assert ends == [signal.SIGTERM]


def test_other_settings_are_refused_by_their_keys() -> None:
    host = HostAt()
    assert host.beat(settings=fingerprints(LAUNCH.entry, "t")).status == 200
    other = fingerprints({"command": "server", "env": {"KEY": "another"}, "cwd": "/"}, "t")
    answer = host.beat(settings=other)
    assert (answer.status, answer.body) == (409, ["cwd", "env"])


def test_what_is_no_beat_is_refused() -> None:
    assert HostAt().ask("POST", LEASE_PATH, b"[]").status == 400


def test_the_server_gets_the_values_of_the_launch_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_THIS", "value")
    entry = {"command": sys.executable, "args": ["${NOT_THIS}"], "env": {"A": "${NOT_THIS}"}, "maxPending": 3}
    launch = msgspec.structs.replace(LAUNCH, entry=entry, secrets=["secret"])
    transport = host_module._HostedServer(launch).transport(5.0)
    assert transport._expand() == (["${NOT_THIS}"], {"A": "${NOT_THIS}"}, ["secret"])
    assert transport.timeout == 5.0


@pytest.mark.parametrize(
    ("launch", "absent", "told"),
    [
        (msgspec.structs.replace(LAUNCH, version="0.0.1"), None, "and 0.0.1 here; install the same version"),
        (LAUNCH, "uvicorn, which is not installed", "a host needs uvicorn, which is not installed"),
    ],
)
def test_what_is_wrong_with_the_installation_there_is_told(
    launch: Launch, absent: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[str] = []
    monkeypatch.setattr(host_module, "_read_line", launch.line)
    monkeypatch.setattr(host_module, "_answer", lambda _port, problem: problems.append(problem))
    monkeypatch.setattr(host_module, "missing", lambda *_: absent)
    host_module.main()
    assert told in problems[0]
