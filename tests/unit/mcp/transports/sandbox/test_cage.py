"""Which engine a server gets, and what is said where none can enforce its sandbox."""

from __future__ import annotations

import marshal
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.sandbox import Sandbox
from tests.sandboxes import linux, require, without_bubblewrap
from tests.unit.mcp.transports.conftest import Listener
from tests.unit.mcp.transports.sandbox.test_bubblewrap import confinement

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import cage as cage_module
from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.cage import Cage, Engine, Limits, cage
from tests.waiting import PATIENCE

pytestmark = linux


@pytest.fixture
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is one, which is never run."""
    monkeypatch.setattr(cage_module, "find_bubblewrap", lambda: ("/usr/bin/bwrap", True))


@pytest.fixture
def landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that only the kernel has something."""
    without_bubblewrap(monkeypatch)
    monkeypatch.setattr("gaia.mcp.transports.sandbox.kernel.landlock_version", lambda: 7)


def made(environment: dict[str, str] | None = None, configured: dict[str, str] | None = None, **keys: Any) -> Cage:
    found = cage(Sandbox(**keys), ["/bin/cat", "x"], environment or {"PATH": "/bin"}, "/usr", configured)
    found.remove()
    return found


def plan_of(found: Cage) -> dict[str, Any]:
    plan: dict[str, Any] = marshal.loads(bytes.fromhex(found.argv[found.argv.index("/bin/cat") - 1]))
    return plan


def test_bubblewrap_is_the_engine_of_choice(bubblewrap: None) -> None:
    found = made()
    assert found.engine == "bubblewrap"
    assert found.argv[:5] == ["/bin/sh", "-c", "trap '' TERM && shift 0 && exec \"$@\"", "sandbox", "/usr/bin/bwrap"]
    assert found.argv[-2:] == ["/bin/cat", "x"]
    assert plan_of(found)["landlock"] is None


def test_landlock_is_the_other(landlock: None) -> None:
    found = made()
    assert found.engine == "landlock"
    assert found.scratch is not None
    assert not os.path.exists(found.scratch)
    assert plan_of(found)["landlock"]["tcp"] is False
    assert found.environment["HOME"] == found.environment["TMPDIR"] == found.scratch


@pytest.mark.parametrize(
    ("engine", "status", "ending"),
    [
        ("bubblewrap", 0, Ending(exit_code=0)),
        ("bubblewrap", 1, Ending(exit_code=1)),
        ("bubblewrap", 128 + 9, Ending(signal="SIGKILL")),
        ("bubblewrap", 255, Ending(exit_code=255)),
        ("landlock", 128 + 9, Ending(exit_code=128 + 9)),
    ],
)
def test_the_end_of_a_server_is_read_from_the_status_of_what_waited_for_it(
    engine: Engine, status: int, ending: Ending
) -> None:
    found = Cage([], {}, engine, confinement(), Limits())
    assert found.ending_of_server(Ending(exit_code=status)) == ending
    assert found.ending_of_server(Ending(signal="SIGTERM")) == Ending(signal="SIGTERM")


def test_an_end_names_the_limits_that_were_reached() -> None:
    groups: Any = SimpleNamespace(used_up=lambda: ("memory",))
    found = Cage([], {}, "landlock", confinement(), Limits(groups))
    assert "had used up what its sandbox allows: memory" in str(found.ending_of_server(Ending(signal="SIGKILL")))
    assert found.ending_of_server(Ending(exit_code=0)) == Ending(exit_code=0)
    without = Cage([], {}, "bubblewrap", confinement(), Limits())
    assert without.ending_of_server(Ending(exit_code=128 + 24)).used_up == ("cpuSeconds",)


def test_control_groups_are_entered_first(landlock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Any = SimpleNamespace(members=["/a b/procs", "/c/procs"], remove=lambda: None)
    monkeypatch.setattr(cage_module, "limits_of", lambda *_, **__: Limits(groups))
    found = made()
    script = 'echo 0 > "$1" && echo 0 > "$2" && shift 2 && exec "$@"'
    assert found.argv[:6] == ["/bin/sh", "-c", script, "sandbox", "/a b/procs", "/c/procs"]


@pytest.mark.parametrize(("version", "domain"), [(6, {"files": None, "tcp": True, "signals": False}), (5, None)])
def test_with_the_network_abstract_sockets_are_kept_apart(
    bubblewrap: None, monkeypatch: pytest.MonkeyPatch, version: int, domain: dict[str, Any] | None
) -> None:
    """By Landlock, or by none of the kind."""
    monkeypatch.setattr(cage_module, "landlock_version", lambda: version)
    families: list[tuple[int, ...]] = []
    monkeypatch.setattr(cage_module, "filter_program", lambda _, kinds, **__: families.append(tuple(kinds)) or b"")
    assert plan_of(made(network=True))["landlock"] == domain
    assert (1 in families[0]) is (domain is not None)


@pytest.mark.parametrize("engine", ["bubblewrap", "landlock"])
def test_inherited_settings_that_lead_nowhere_are_left_out(
    engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`uvx` and others fail on a certificate or an index that they are told of and cannot read."""
    request.getfixturevalue(engine)
    monkeypatch.setattr(
        cage_module, "confinement_of", lambda *_, **__: confinement(hidden=(str(tmp_path),), private=("/tmp",))
    )
    hidden = tmp_path / "ca.pem"
    hidden.touch()
    settings = {
        "SSL_CERT_FILE": str(hidden),
        "NODE_EXTRA_CA_CERTS": "/usr",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128",
        "UV_CACHE_DIR": "/of/host",
        "NPM_CONFIG_CACHE": "/of/host",
    }
    environment = {"PATH": "/bin", "SHELL": str(hidden), **settings}
    found = made(dict(environment)).environment
    assert found["SHELL"] == str(hidden)
    assert found["NODE_EXTRA_CA_CERTS"] == "/usr"
    assert found["HTTP_PROXY"] == "http://proxy:3128"
    assert found.keys().isdisjoint({"SSL_CERT_FILE", "HTTPS_PROXY", "NPM_CONFIG_CACHE"})
    assert "/of/host" not in found.values()
    assert settings.items() <= made(dict(environment), settings).environment.items(), "what is configured counts"


def test_a_proxy_with_a_password_is_for_servers_with_a_network_and_caches_are_private(bubblewrap: None) -> None:
    environment = {"PATH": "/bin", "HTTPS_PROXY": "http://me:hunter2@proxy:3128"}
    assert "HTTPS_PROXY" not in made(dict(environment)).environment
    assert "HTTPS_PROXY" in made(dict(environment), network=True).environment
    found = made({"PATH": "/bin", "TMPDIR": "/of/host", "npm_config_cache": "/mine"}, {"npm_config_cache": "/mine"})
    assert found.environment["TMPDIR"] == "/tmp"
    assert found.environment["XDG_CACHE_HOME"] == "/tmp/cache"
    assert found.environment["npm_config_cache"] == "/mine"


def test_where_nothing_can_be_enforced_all_reasons_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch)
    monkeypatch.setattr("gaia.mcp.transports.sandbox.kernel.landlock_version", lambda: 0)
    with pytest.raises(StartFailed, match=r"bubblewrap is not installed; Landlock of version 6 .*leave out"):
        made()


def test_what_one_engine_cannot_enforce_is_left_to_no_other(
    landlock: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gaia.mcp.transports.sandbox.cage._MEMBERSHIP", tmp_path / "missing")
    before = set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(StartFailed, match='"processes" needs a control group'):
        made(processes=8)
    assert not [name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("gaia-sandbox")]


def test_a_directory_that_has_gone_is_an_error_of_the_start(bubblewrap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError("gone")

    monkeypatch.setattr("os.getcwd", gone)
    with pytest.raises(StartFailed, match="the sandbox cannot be made: gone"):
        cage(Sandbox(), ["/bin/cat"], {}, None)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ("gaia.mcp.transports.sandbox.confinement.PRIVATE", (), "bubblewrap needs a directory /tmp"),
        ("platform.machine", lambda: "sparc", "this machine is sparc"),
        ("sys.frozen", True, "needs a Python interpreter"),
    ],
    ids=["a machine without /tmp", "an unknown machine", "an application without an interpreter"],
)
def test_what_the_sandbox_lacks_is_said(
    bubblewrap: None, monkeypatch: pytest.MonkeyPatch, place: str, value: object, problem: str
) -> None:
    monkeypatch.setattr(place, value, raising=False)
    monkeypatch.setattr("gaia.mcp.transports.sandbox.kernel.landlock_version", lambda: 0)
    with pytest.raises(StartFailed, match=problem):
        made()


def test_on_other_systems_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    transport = StdioTransport(sys.executable, [], sandbox=Sandbox)
    with pytest.raises(StartFailed, match="a sandbox needs Linux"):
        transport.open(Listener(), "test")


@pytest.mark.process
def test_a_server_that_cannot_be_run_leaves_nothing(tmp_path: Path) -> None:
    """Neither its private directory nor its control group."""
    require("landlock")
    with pytest.MonkeyPatch.context() as patch:
        without_bubblewrap(patch)
        before = set(os.listdir(tempfile.gettempdir()))
        transport = StdioTransport(sys.executable, ["a\0b"], sandbox=Sandbox)
        with pytest.raises(StartFailed):
            transport.open(Listener(), "test")
        after = set(os.listdir(tempfile.gettempdir())) - before
        assert not [name for name in after if name.startswith("gaia-sandbox")]


@pytest.mark.process
def test_what_the_launcher_cannot_do_is_said_by_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("landlock")
    without_bubblewrap(monkeypatch)
    monkeypatch.setattr(cage_module, "filter_program", lambda *_, **__: b"nonsense")
    transport = StdioTransport("/bin/cat", [], sandbox=Sandbox)
    listener = Listener()
    channel = transport.open(listener, "test")
    assert listener.ended.wait(PATIENCE)
    ending = channel.close(0.0)
    assert ending.exit_code == 126
    assert "sandbox: " in transport.stderr_tail()
    assert "seccomp" in transport.stderr_tail()


def test_unusable_is_not_an_error_of_the_client() -> None:
    assert not issubclass(Unusable, StartFailed)
