"""Files of people that hold one JSON object: reading, locking, and replacing them."""

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from filelock import FileLock

from gaia.mcp.errors import ConfigError
from gaia.runtime import json_file

EXAMPLE = '{"version": 1}'


class Shirt(msgspec.Struct):
    size: Literal["S", "M"] = "S"
    ids: dict[str, list[str]] = {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "some.json"


def lock_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.lock")


class TestReading:
    def test_a_missing_and_a_blank_file_are_empty(self, file: Path) -> None:
        assert json_file.read(file, EXAMPLE) == {}
        assert json_file.read_bytes(file) == b""
        assert json_file.decode(file, b"\xef\xbb\xbf \n", EXAMPLE) == {}

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b'{\n  "a": tru\n}', "line 2, column 8: not valid JSON"),
            ('{"é": "'.encode() + b"\xff", "line 1, column 8: not UTF-8"),
            (b'{"a": Infinity}', "not usable JSON: Infinity is not a JSON value"),
            (b'{"a": 1e400}', "not usable JSON: 1e400 is not a JSON value"),
            (b'"text"', 'expected an object like {"version": 1}'),
        ],
    )
    def test_what_is_no_object_is_an_error_with_the_place(self, file: Path, data: bytes, problem: str) -> None:
        with pytest.raises(ConfigError) as refusal:
            json_file.decode(file, data, EXAMPLE)
        assert str(refusal.value).startswith(f"{file}: {problem}")
        assert str(refusal.value).endswith("(the file was not changed)")

    @pytest.mark.parametrize(
        ("document", "place"),
        [
            ({"size": "\ud800"}, "size"),
            ({"ids": {"a": ["b", "\udcff\ud800"]}}, "ids.a[1]"),
            ({"ids": {"\ud800": ["b"]}}, r"ids.\u{d800}"),
            ({"ids": {"a": ["\udcff"]}, "size": "\udcff"}, "size"),
            ({"ids": {"a": ["\udcff"]}}, None),
        ],
    )
    def test_half_of_a_surrogate_pair_is_an_error_unless_it_is_the_byte_of_a_file_name(
        self, document: dict[str, Any], place: str | None
    ) -> None:
        if place is None:
            assert json_file.convert(document, Shirt).ids == document["ids"]
            return
        with pytest.raises(msgspec.ValidationError) as refusal:
            json_file.convert(document, Shirt)
        assert str(refusal.value) == f"half of a surrogate pair in {place}; write the whole character, or remove it"

    def test_data_of_other_programs_may_have_halves_that_are_not_compared(self) -> None:
        assert json_file.convert({"ids": {"\ud800": []}}, Shirt, accept_halves=True).ids == {"\ud800": []}
        with pytest.raises(msgspec.ValidationError, match="in size;"):
            json_file.convert({"size": "\ud800"}, Shirt, accept_halves=True)

    def test_a_file_that_cannot_be_read_says_why(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=f"{tmp_path}: cannot be read: Is a directory"):
            json_file.read(tmp_path, EXAMPLE)

    @pytest.mark.parametrize(("document", "accepted"), [({}, True), ({"version": 1}, True), ({"version": 2}, False)])
    def test_another_version_than_ours_is_refused(self, file: Path, document: dict[str, Any], accepted: bool) -> None:
        file.parent.mkdir()
        json_file.write(file, document)
        if accepted:
            assert json_file.read_version(file, EXAMPLE, 1) == document
        else:
            with pytest.raises(ConfigError, match="its version is 2, and this gaia-mcp understands 1"):
                json_file.read_version(file, EXAMPLE, 1)

    def test_decisions_of_the_user_are_not_read_from_a_file_that_others_write(self, file: Path) -> None:
        file.parent.mkdir()
        json_file.write(file, {"version": 1})
        file.chmod(0o666)
        with pytest.raises(ConfigError, match=f"{file}: every user of this machine can write to {file}"):
            json_file.read_version(file, EXAMPLE, 1)


class TestWriting:
    def test_what_is_written_is_returned_and_read_again(self, file: Path) -> None:
        file.parent.mkdir()
        document = {"größe": 1.5, "odd": "\ud800", "deep": [None, {}]}
        assert json_file.write(file, document) == file.read_bytes()
        assert json_file.read(file, EXAMPLE) == document
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        ("document", "failure"),
        [
            ({"a": float("nan")}, None),
            ({"a": object()}, None),
            ({"a": 2}, OSError(errno.ENOSPC, "No space left on device")),
            ({"a": 2}, KeyboardInterrupt()),
        ],
    )
    def test_a_failure_leaves_the_file_as_it_was_and_nothing_beside_it(
        self, file: Path, document: dict[str, Any], failure: BaseException | None, mocker: Any
    ) -> None:
        file.parent.mkdir()
        json_file.write(file, {"a": 1})
        if failure is not None:
            mocker.patch.object(os, "replace", side_effect=failure)
        with pytest.raises((ValueError, TypeError) if failure is None else type(failure)):
            json_file.write(file, document)
        assert os.listdir(file.parent) == [file.name]
        assert json_file.read(file, EXAMPLE) == {"a": 1}


class TestLocking:
    def test_the_lock_is_private_and_so_is_a_folder_that_is_made_for_it(self, file: Path) -> None:
        with json_file.locked(file) as target:
            assert target == Path(os.path.realpath(file))
            assert stat.S_IMODE(lock_of(file).stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    def test_a_symbolic_link_and_its_target_have_one_lock(self, file: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.json"
        link.symlink_to(file)
        with json_file.locked(link) as target:
            assert target == file
            assert lock_of(file).exists()
            assert not lock_of(link).exists()

    def test_a_link_in_place_of_the_lock_is_neither_followed_nor_emptied(self, file: Path, tmp_path: Path) -> None:
        """A project may contain one that leads to any file of the user."""
        victim = tmp_path / "victim"
        victim.write_text("precious")
        file.parent.mkdir()
        lock_of(file).symlink_to(victim)
        with pytest.raises(ConfigError, match="cannot be saved"), json_file.locked(file):
            raise AssertionError("not reached")
        assert victim.read_text() == "precious"

    @pytest.mark.parametrize("seconds", [0.01, 0.0, -5.0])
    def test_waiting_for_it_ends_with_an_error_that_names_it(self, file: Path, seconds: float) -> None:
        def lock_again() -> None:
            with json_file.locked(file, seconds):
                raise AssertionError("not reached")

        file.parent.mkdir()
        with FileLock(lock_of(file)), ThreadPoolExecutor(1) as other_thread:
            error = other_thread.submit(lock_again).exception()
        assert isinstance(error, ConfigError)
        assert f"another program has held {lock_of(file)} for {max(0.0, seconds):g} s" in error.message

    def test_it_is_free_after_an_error(self, file: Path) -> None:
        with pytest.raises(ZeroDivisionError), json_file.locked(file):
            raise ZeroDivisionError
        with json_file.locked(file, 0.01):
            pass

    def test_of_many_threads_one_at_a_time_changes_the_file(self, file: Path) -> None:
        start = threading.Barrier(4)

        def count(_: int) -> None:
            start.wait()
            for _ in range(5):
                with json_file.locked(file) as target:
                    number = json_file.read(file, EXAMPLE).get("number", 0)
                    json_file.write(target, {"number": number + 1})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(count, range(4)))
        assert json_file.read(file, EXAMPLE) == {"number": 20}

    def test_a_folder_that_cannot_be_made_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "folder").write_text("a file")
        with pytest.raises(ConfigError, match="cannot be saved"), json_file.locked(tmp_path / "folder" / "some.json"):
            raise AssertionError("not reached")


class TestHomeFolder:
    def test_it_is_not_made_before_it_is_needed(self, home: Path) -> None:
        assert json_file.home_folder("some.json") == home / ".gaia"
        assert not (home / ".gaia").exists()

    def test_without_a_home_directory_the_error_names_the_file(self, mocker: Any) -> None:
        mocker.patch.object(Path, "home", side_effect=RuntimeError)
        with pytest.raises(ConfigError, match=r"~/\.gaia/some\.json: there is no home directory"):
            json_file.home_folder("some.json")
