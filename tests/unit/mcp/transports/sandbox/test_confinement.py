"""From the keys of a sandbox to what is hidden, shown and writable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia.mcp.errors import StartFailed
from gaia.mcp.transports.sandbox import Sandbox, memory_bytes
from gaia.runtime.private_files import keep_private
from tests.sandboxes import linux

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox.confinement import Confinement, confinement_of

pytestmark = linux


@pytest.fixture
def work(home: Path) -> Path:
    """A project in the home."""
    folder = home.resolve() / "work"
    folder.mkdir()
    (home / ".ssh").mkdir()
    return folder


def confinement(cwd: Path, **keys: Any) -> Confinement:
    return confinement_of(Sandbox(**keys), ["/bin/sh"], "/bin", str(cwd))


def test_the_working_directory_is_shown(work: Path) -> None:
    found = confinement(work)
    assert found.read == (str(work),)
    assert found.write == ()
    assert found.shows(str(work / "file"))
    assert not found.shows(str(work.parent))
    assert found.shows("/usr/lib")


@pytest.mark.parametrize("place", ["..", "../.."])
def test_a_home_is_not_shown_because_it_is_the_working_directory(work: Path, place: str) -> None:
    found = confinement((work / place).resolve())
    assert found.read == ()
    assert not found.shows(str(work))


def test_secrets_stay_hidden_in_what_is_opened_or_the_working_directory_unless_they_are_named(work: Path) -> None:
    key = work.parent / ".ssh"
    found = confinement(work, write=["~"])
    assert str(key) in found.masked
    assert not found.shows(str(key / "id"))
    assert found.writes(str(work))
    assert not confinement(key).shows(str(key / "id"))
    found = confinement(work, read=["~/.ssh"])
    assert found.shows(str(key / "id"))
    assert str(key) not in found.masked


def test_the_more_special_path_counts(work: Path) -> None:
    (work / "data" / "fixed").mkdir(parents=True)
    found = confinement(work, write=["data", "data"], read=["data", "data/fixed"])
    assert found.write == (str(work / "data"),)
    assert str(work / "data" / "fixed") in found.read
    assert str(work / "data") not in found.read


@pytest.mark.parametrize("name", ["a b", "ä", "'", '"', "$(x)", "a\nb", "--bind", "-"])
def test_any_name_will_do(work: Path, name: str) -> None:
    (work / name).mkdir()
    assert confinement(work, write=[str(work / name)]).write == (str(work / name),)


@pytest.mark.parametrize("key", ["read", "write"])
def test_a_path_that_does_not_exist_is_an_error(work: Path, key: str) -> None:
    with pytest.raises(StartFailed, match=f"sandbox.{key}: missing does not exist"):
        confinement(work, **{key: ["missing"]})


@pytest.mark.parametrize("path", ["/", "/proc", "/proc/self", "/dev", "/dev/null", "/sys"])
def test_the_kernels_own_places_are_not_opened(work: Path, path: str) -> None:
    with pytest.raises(StartFailed, match="cannot be opened for a server in a sandbox"):
        confinement(work, write=[path])


def test_a_link_is_followed_and_there_in_the_sandbox_unless_it_lies_in_what_is_shown(work: Path) -> None:
    (work.parent / "notes").mkdir()
    (work.parent / "link").symlink_to("notes")
    found = confinement(work, read=[str(work.parent / "link")])
    assert str(work.parent / "notes") in found.read
    assert (str(work.parent / "link"), "notes") in found.links
    (work / "notes").mkdir()
    (work / "link").symlink_to("notes")
    assert confinement(work, read=["link"]).links == ()


def test_a_link_that_the_server_may_replace_is_refused(work: Path) -> None:
    (work / "data").mkdir()
    (work / "data" / "link").symlink_to(work.parent)
    with pytest.raises(StartFailed, match="which the server may change"):
        confinement(work, write=["data"], read=["data/link"])


def test_files_of_this_program_are_not_shown(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})
    (work / "data").mkdir()
    for file in (work / "servers.json", work.parent / "elsewhere.json", work.parent / ".ssh" / "key"):
        file.write_text("{}")
        keep_private(file)
    keep_private("/dev/fd/3")
    keep_private("/proc/self/fd/3")
    found = confinement(work, write=["data"])
    assert found.left_out == (str(work / "servers.json"),)
    assert not found.shows(str(work / "servers.json"))
    assert found.shows(str(work / "data"))
    assert confinement(work, read=["servers.json"]).left_out == ()


def test_a_server_that_could_replace_one_is_not_started(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})
    keep_private(work / "data" / "servers.json")
    with pytest.raises(StartFailed, match=r"/work holds data/servers\.json: this program is configured with"):
        confinement(work, write=["."])
    (work / "data").mkdir()
    (work / "data" / "servers.json").write_text("{}")
    assert confinement(work, write=["."], read=["data/servers.json"]).left_out == ()


def test_all_that_a_server_could_replace_is_named_at_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})
    (work / "data").mkdir()
    for name in ("audit.jsonl", ".audit.jsonl.lock", "audit.jsonl.1", "data/clients.json"):
        (work / name).touch()
    keep_private(work / "audit.jsonl")
    keep_private(work / "data" / "clients.json")
    with pytest.raises(StartFailed) as refused:
        confinement(work, write=[".", "data"])
    assert refused.value.message == (
        f"sandbox.write: {work} holds .audit.jsonl.lock, audit.jsonl, audit.jsonl.1, data/clients.json; "
        f"{work}/data holds clients.json: this program is configured with these files or writes them, and the server "
        "could replace them; keep them elsewhere, or name a narrower directory"
    )


@pytest.mark.parametrize("key", ["read", "write"])
def test_files_of_this_program_in_a_directory_of_credentials_are_hidden_with_it(
    work: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})
    own = work.parent / ".gaia" / "mcp_servers.json"
    own.parent.mkdir(exist_ok=True)
    own.write_text("{}")
    keep_private(own)
    found = confinement(work, **{key: ["~"]})
    assert not found.shows(str(own))
    assert str(own.parent) in found.masked


def test_limits_are_numbers(work: Path) -> None:
    found = confinement(work, memory="64M", processes=3, cpu_seconds=2, network=True)
    assert (found.memory, found.processes, found.cpu_seconds, found.network) == (64 * 1024**2, 3, 2, True)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("512M", 512 * 1024**2), ("2g", 2 * 1024**3), ("20480KiB", 20480 * 1024), ("1GB", 1024**3), (2**25, 2**25)],
)
def test_sizes(size: str | int, expected: int) -> None:
    assert memory_bytes(size) == expected


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"memory": "512X"}, "memory: expected bytes"),
        ({"memory": "-1"}, "memory: expected bytes"),
        ({"memory": 512}, "memory: must be at least 16M"),
        ({"processes": 0}, "processes: must be 1 or more"),
        ({"cpuSeconds": -1}, "cpu_seconds: must be 1 or more"),
        ({"read": [" "]}, "read: ' ' is no path"),
        ({"write": ["a\0b"]}, "write: "),
        ({"wirte": []}, "unknown field `wirte`"),
        ({"network": "yes"}, "Expected `bool`"),
    ],
)
def test_what_cannot_be_meant_is_an_error(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(keys, Sandbox)


def test_the_default_opens_nothing() -> None:
    assert msgspec.convert({}, Sandbox) == Sandbox(
        read=[], write=[], network=False, memory=None, processes=None, cpu_seconds=None
    )
