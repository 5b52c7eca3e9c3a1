"""The file of the audit: whole lines, a bounded size, a bounded number, one writer, private."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.audit_file import AuditFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "audit.jsonl"


@pytest.fixture
def file(path: Path) -> Iterator[AuditFile]:
    file = AuditFile(path, max_bytes=10, keep=2)
    yield file
    file.close()


def test_lines_are_appended_to_a_private_file_and_one_that_was_moved_away_is_made_again(
    file: AuditFile, path: Path
) -> None:
    file.write(b"one\n")
    file.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(path.with_name("moved"))
    file.reopen()
    file.write(b"two\n")
    assert path.read_bytes() == b"two\n"


def test_a_full_file_makes_room_and_so_many_are_kept(file: AuditFile, path: Path) -> None:
    for line in (b"1111\n", b"2222\n", b"3333\n", b"4444\n", b"5555\n", b"6666\n", b"7777\n"):
        file.write(line)
    names = {each.name: each.read_bytes() for each in path.parent.glob("audit*")}
    assert names == {"audit.jsonl": b"7777\n", "audit.jsonl.1": b"5555\n6666\n", "audit.jsonl.2": b"3333\n4444\n"}


def test_a_long_line_has_a_file_of_its_own(file: AuditFile, path: Path) -> None:
    file.write(b"1\n")
    file.write(b"x" * 20 + b"\n")
    file.write(b"2\n")
    assert path.read_bytes() == b"2\n"
    assert path.with_name("audit.jsonl.1").stat().st_size == 21


def test_without_old_files_it_begins_anew(path: Path) -> None:
    file = AuditFile(path, max_bytes=5, keep=0)
    file.write(b"1111\n")
    file.write(b"2222\n")
    file.close()
    assert [each.name for each in path.parent.glob("audit*")] == ["audit.jsonl"]
    assert path.read_bytes() == b"2222\n"


def test_one_program_writes_to_it(file: AuditFile, path: Path) -> None:
    with pytest.raises(ConfigError, match="another program writes to it"):
        AuditFile(path)
    file.close()
    again = AuditFile(path)
    again.close()


def test_a_place_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "audit.jsonl", tmp_path):
        with pytest.raises(ConfigError, match="the audit cannot be written"):
            AuditFile(place)
    with pytest.raises(ConfigError, match="folder"):
        AuditFile(Path("/"))


class FullDisk:
    """`os.write` of a disk with so many bytes of room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, bytes(data)[: self.room])
        self.room -= written
        return written


def test_of_a_line_that_does_not_fit_nothing_stays(
    file: AuditFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(7)
    monkeypatch.setattr(os, "write", disk)
    file.write(b"one\n")
    with pytest.raises(OSError, match="No space"):
        file.write(b"two\n")
    assert path.read_bytes() == b"one\n"
    disk.room = 100
    file.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_half_a_line_that_cannot_be_taken_back_is_ended(
    file: AuditFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(2)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", disk)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="No space"):
        file.write(b"one\n")
    disk.room = 100
    file.write(b"two\n")
    assert path.read_bytes() == b"on\ntwo\n"


def test_half_a_line_of_a_program_that_was_killed_is_ended(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"one\ntw")
    file = AuditFile(path)
    file.write(b"three\n")
    file.close()
    assert path.read_bytes() == b"one\ntw\nthree\n"
