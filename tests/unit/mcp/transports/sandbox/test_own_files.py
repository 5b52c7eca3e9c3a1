"""Which paths a sandbox hides because this program is configured with what is there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from gaia.mcp.errors import StartFailed
from gaia.runtime.private_files import keep_private
from tests.sandboxes import linux

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import places
from gaia.mcp.transports.sandbox.places import can_be_left_out, entries_without, hidden_files

pytestmark = linux


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def hidden(folder: Path, named: Iterable[Path] = (), opened: Iterable[Path] = ()) -> list[str]:
    found = hidden_files(map(str, named), map(str, opened), lambda path: "covered" not in path)
    assert all(path.startswith(f"{folder}/") for path in found)
    return [path.removeprefix(f"{folder}/") for path in found]


def make(folder: Path, *names: str, mode: int = 0o644) -> None:
    for name in names:
        (folder / name).write_text("")
        (folder / name).chmod(mode)


def test_a_file_and_those_that_belong_to_it_by_their_names(folder: Path) -> None:
    make(folder, "a.json", "a.json.1", ".a.json.lock", "a.json~", ".a.json.x.tmp", "a.jsonl", "ba.json", "b")
    keep_private(folder / "a.json")
    assert hidden(folder) == [".a.json.lock", ".a.json.x.tmp", "a.json", "a.json.1", "a.json~"]


def test_a_file_that_is_not_there_yet(folder: Path) -> None:
    keep_private(folder / "a.json")
    keep_private(folder / "none" / "b.json")
    assert hidden(folder) == ["a.json", "none/b.json"]


def test_what_not_all_can_read_beside_one_unless_the_place_was_opened(folder: Path) -> None:
    make(folder, "a.json", "open")
    make(folder, "environment", mode=0o600)
    (folder / "program").mkdir(mode=0o700)
    keep_private(folder / "a.json")
    assert hidden(folder, opened=[folder / "program" / "bin"]) == ["a.json", "environment"]
    assert hidden(folder, opened=[folder]) == ["a.json"]


def test_what_is_named_or_not_shown_is_left_out(folder: Path) -> None:
    make(folder, "a.json", "a.json.1")
    for name in ("a.json", "covered"):
        keep_private(folder / name)
    assert hidden(folder, named=[folder / "a.json"]) == []
    assert hidden(folder, named=[folder / "a.json.1"]) == ["a.json"]


def test_a_link_and_what_it_leads_to(folder: Path) -> None:
    (folder / "v1").mkdir()
    make(folder / "v1", "a.json")
    (folder / "now").symlink_to("v1")
    (folder / "a.json").symlink_to("now/a.json")
    keep_private(folder / "a.json")
    assert hidden(folder) == ["a.json", "v1/a.json"]
    assert hidden(folder, named=[folder / "v1" / "a.json"]) == []


def test_the_other_paths_of_a_file_that_is_mounted_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = folder / "mountinfo"
    mounts = [
        ("8:1", "/", "/"),
        ("8:2", "/", str(folder / "disk")),
        ("8:2", "/etc", str(folder / "with\\040space")),
        ("8:2", "/etc/a.json", str(folder / "single")),
        ("8:2", "/var", str(folder / "var")),
        ("8:3", "/", str(folder / "other")),
    ]
    table.write_text("".join(f"1 2 {device} {root} {point} rw - ext4 x rw\n" for device, root, point in mounts))
    monkeypatch.setattr(places, "_MOUNTS", str(table))
    keep_private(folder / "disk" / "etc" / "a.json")
    assert hidden(folder) == ["disk/etc/a.json", "single", "with space/a.json"]
    monkeypatch.setattr(places, "_MOUNTS", str(folder / "none"))
    assert hidden(folder) == ["disk/etc/a.json"]


def test_the_entries_of_a_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, "b", "a", "c")
    assert entries_without(str(folder), [str(folder / "b")]) == [str(folder / "a"), str(folder / "c")]
    assert entries_without(str(folder / "none"), []) == []
    assert can_be_left_out(str(folder / "a"))
    monkeypatch.setattr(places, "_MAX_ENTRIES", 2)
    assert not can_be_left_out(str(folder / "a"))
    with pytest.raises(StartFailed, match="keep them in a directory of their own"):
        entries_without(str(folder), [])
