"""When a call's line is written, when its answer leaves, and what becomes of both if the disk is full or slow."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.gateway.access import audit as module
from gaia.mcp.gateway.access.audit import Audit, AuditEntry, digest_of, shown_uri
from gaia.mcp.gateway.access.audit_file import AuditFile
from tests.gateway.fake_loop import FakeLoop
from tests.waiting import PATIENCE, wait_until

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Disk(AuditFile):
    """A file whose writes fail, take time or wait when a test says so."""

    problem: OSError | None = None
    seconds = 0.0
    loop: FakeLoop | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def write(self, lines: bytes) -> None:
        if self.loop is not None:
            self.loop.now += self.seconds
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        if self.problem is not None:
            raise self.problem
        super().write(lines)


class PostingLoop(FakeLoop):
    """Runs what threads have posted when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[tuple[Any, ...]] = []

    def call_soon_threadsafe(self, callback: Any, *arguments: Any) -> None:
        self.posted.append((callback, *arguments))

    def run_posted(self) -> None:
        assert wait_until(lambda: bool(self.posted))
        callback, *arguments = self.posted.pop(0)
        callback(*arguments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def loop() -> PostingLoop:
    return PostingLoop()


@pytest.fixture
def disk(path: Path, loop: PostingLoop) -> Disk:
    disk = Disk(path)
    disk.loop = loop
    return disk


@pytest.fixture
def audit(disk: Disk, loop: PostingLoop) -> Iterator[Audit]:
    audit = Audit(disk, loop)
    yield audit
    disk.problem = None
    disk.gate.set()
    audit.close(PATIENCE)


def entry(target: str = "now", **values: Any) -> AuditEntry:
    fixed = {"time": NOON, "client": "ann", "method": "tools/call", "outcome": "ok", "delivery": "answered"}
    return AuditEntry(**{**fixed, "target": target, "seconds": 0.5, **values})


class Answers(list[str]):
    """Those that have left."""

    def of(self, name: str) -> Any:
        return lambda: self.append(name)


def targets(path: Path) -> list[str]:
    return [json.loads(line)["target"] for line in path.read_text().splitlines()]


def test_a_line_is_there_before_the_answer_leaves(audit: Audit, path: Path) -> None:
    seen: list[dict[str, Any]] = []
    audit.record(
        entry(server="time", address="127.0.0.1", arguments=digest_of(b"{}"), arguments_bytes=2, answer_bytes=7),
        lambda: seen.append(json.loads(path.read_text())),
    )
    assert seen == [
        {
            "time": "2026-06-01T12:00:00Z",
            "client": "ann",
            "address": "127.0.0.1",
            "method": "tools/call",
            "server": "time",
            "target": "now",
            "arguments": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            "arguments_bytes": 2,
            "outcome": "ok",
            "delivery": "answered",
            "seconds": 0.5,
            "answer_bytes": 7,
        }
    ]


@pytest.mark.parametrize(
    "target",
    ['x"}\n{"target": "forged', "a\u2028b", "\u202egnp.exe", "\x7f\x9b2J", "\u2066x\u2069", "日本\U0001f600"],
)
def test_nothing_that_ends_a_line_or_turns_text_is_there_as_it_is(audit: Audit, path: Path, target: str) -> None:
    audit.record(entry(target), lambda: None)
    assert targets(path) == [target]
    assert path.read_text().rstrip("\n").isascii()
    assert path.read_text().rstrip("\n").isprintable()


class TestFullDisk:
    FULL = OSError(28, "No space left on device")

    def test_calls_under_way_are_answered_and_new_ones_refused(self, audit: Audit, disk: Disk, path: Path) -> None:
        answers = Answers()
        disk.problem = self.FULL
        for name in "ab":
            audit.record(entry(name), answers.of(name))
        assert answers == ["a", "b"]
        error = audit.refusal()
        assert error is not None
        assert (error.error_type, error.delivery) == ("audit", "not_sent")
        assert "No space left on device" in error.message
        assert path.read_bytes() == b""

    def test_all_lines_are_written_when_there_is_room_again(
        self, audit: Audit, disk: Disk, path: Path, loop: PostingLoop
    ) -> None:
        answers = Answers()
        disk.problem = self.FULL
        for name in "abc":
            audit.record(entry(name), answers.of(name))
        loop.advance(1.0)
        assert audit.refusal() is not None
        disk.problem = None
        assert audit.refusal() is not None, "not tried again for each call"
        loop.advance(1.0)
        assert audit.refusal() is None
        assert targets(path) == ["a", "b", "c"]
        audit.record(entry("d"), answers.of("d"))
        assert targets(path) == ["a", "b", "c", "d"]

    def test_a_bounded_number_is_kept_and_an_attempt_makes_no_room_and_is_not_logged_again(
        self,
        audit: Audit,
        disk: Disk,
        path: Path,
        loop: PostingLoop,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(module, "MAX_KEPT", 2)
        disk.problem = self.FULL
        for name in "abcd":
            audit.record(entry(name), lambda: None)
            loop.advance(1.0)
            assert audit.failure() is not None
        disk.problem = None
        loop.advance(1.0)
        assert audit.failure() is audit.refusal() is None
        assert targets(path) == ["a", "b"]
        assert audit.lost_lines == 2
        assert caplog.text.count("audit_failed") == 1

    def test_what_is_kept_is_written_at_the_end(self, audit: Audit, disk: Disk, path: Path) -> None:
        disk.problem = self.FULL
        audit.record(entry("a"), lambda: None)
        disk.problem = None
        audit.close()
        assert targets(path) == ["a"]


class TestSlowDisk:
    @pytest.fixture
    def answers(self, audit: Audit, disk: Disk) -> Answers:
        """A disk that was slow once, and waits for the gate."""
        answers = Answers()
        disk.seconds = 1.0
        audit.record(entry("slow"), answers.of("slow"))
        disk.seconds = 0.0
        disk.gate.clear()
        disk.entered.clear()
        return answers

    def test_a_thread_writes_and_answers_wait_for_their_lines(
        self, audit: Audit, disk: Disk, answers: Answers, path: Path, loop: PostingLoop
    ) -> None:
        for name in "abc":
            audit.record(entry(name), answers.of(name))
        assert disk.entered.wait(PATIENCE)
        assert answers == ["slow"]
        assert audit.refusal() is None
        disk.gate.set()
        loop.run_posted()
        assert answers == ["slow", "a"]
        loop.run_posted()
        assert answers == ["slow", "a", "b", "c"]
        assert targets(path) == ["slow", "a", "b", "c"]

    def test_when_it_is_fast_again_the_loop_writes(
        self, audit: Audit, disk: Disk, answers: Answers, loop: PostingLoop
    ) -> None:
        audit.record(entry("a"), answers.of("a"))
        disk.gate.set()
        loop.run_posted()
        audit.record(entry("b"), answers.of("b"))
        assert answers == ["slow", "a", "b"]

    def test_a_disk_that_does_not_answer_counts_as_failed_and_answers_leave(
        self, audit: Audit, disk: Disk, answers: Answers, path: Path, loop: PostingLoop
    ) -> None:
        for name in "ab":
            audit.record(entry(name), answers.of(name))
        loop.advance(module.STALLED_SECONDS)
        assert answers == ["slow", "a", "b"]
        assert audit.refusal() is not None
        audit.record(entry("c"), answers.of("c"))
        assert answers == ["slow", "a", "b", "c"]
        audit.reopen()
        disk.gate.set()
        loop.run_posted()
        assert audit.refusal() is None
        assert targets(path) == ["slow", "a", "b", "c"]

    def test_a_failure_in_the_thread_is_one_like_others(
        self, audit: Audit, disk: Disk, answers: Answers, path: Path, loop: PostingLoop
    ) -> None:
        disk.problem = TestFullDisk.FULL
        for name in "ab":
            audit.record(entry(name), answers.of(name))
        disk.gate.set()
        loop.run_posted()
        assert answers == ["slow", "a", "b"]
        assert audit.refusal() is not None
        disk.problem = None
        loop.advance(1.0)
        assert audit.refusal() is None
        assert targets(path) == ["slow", "a", "b"]

    def test_the_end_writes_what_waits_and_lets_answers_leave(
        self, audit: Audit, disk: Disk, answers: Answers, path: Path
    ) -> None:
        for name in "abc":
            audit.record(entry(name), answers.of(name))
        disk.gate.set()
        audit.close(PATIENCE)
        assert sorted(answers) == ["a", "b", "c", "slow"]
        assert targets(path) == ["slow", "a", "b", "c"]


def test_a_file_that_was_moved_away_is_made_again_and_reopening_that_fails_is_a_failure(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.record(entry("a"), lambda: None)
    path.rename(path.with_name("moved"))
    audit.reopen()
    audit.record(entry("b"), lambda: None)
    assert targets(path) == ["b"]
    monkeypatch.setattr(AuditFile, "reopen", Mock(side_effect=PermissionError(13, "Permission denied")))
    audit.reopen()
    assert audit.refusal() is not None
    assert digest_of(b"") is None, "no arguments"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://user:secret@x.example/a?token=secret#b", "https://x.example/a"),
        ("file:///home/a", "file:///home/a"),
        ("memo:one", "memo:one"),
        ("http://[", "(not a URI)"),
        ("x:" + "y" * 1000, "x:" + "y" * 254),
    ],
)
def test_nothing_secret_of_a_uri_is_shown(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown
