"""The leak check finds what a test leaves behind, and nothing else."""

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import conftest
from tests.leak_check import Holdings, kill, leaked_since
from tests.waiting import PATIENCE

STARTER = """
import subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-I", "-S", "-c", ""])

@pytest.fixture
def started(starts_processes):
    start()

def test_by_its_fixture(started): ...

@pytest.mark.process
def test_marked(): start()

def test_unmarked(): start()
"""


def test_nothing_is_leaked_by_a_test_that_does_nothing() -> None:
    before = Holdings.now()

    assert not leaked_since(before)


def test_a_running_thread_is_a_leak_until_it_ends() -> None:
    before = Holdings.now()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-behind")
    thread.start()

    assert leaked_since(before, patience=0).describe() == ["thread left-behind"]

    release.set()
    assert not leaked_since(before)


def test_an_open_descriptor_is_a_leak_even_under_a_number_that_was_open_before() -> None:
    number = os.open(os.devnull, os.O_RDONLY)
    before = Holdings.now()
    os.close(number)
    read_end, write_end = os.pipe()

    assert number in (read_end, write_end)
    assert {descriptor for descriptor, _target in leaked_since(before, patience=0).descriptors} == {read_end, write_end}

    os.close(read_end)
    os.close(write_end)
    assert not leaked_since(before)


def test_a_file_in_a_reference_cycle_is_collected_and_no_leak(tmp_path: Path) -> None:
    before = Holdings.now()
    gc.disable()
    try:
        cycle: list[Any] = [os.scandir(tmp_path)]
        next(cycle[0], None)
        cycle.append(cycle)
        del cycle
    finally:
        gc.enable()

    assert not leaked_since(before)


@pytest.mark.process
def test_a_running_child_and_a_zombie_are_leaks() -> None:
    before = Holdings.now()
    running = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    ended = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

    leaked = leaked_since(before, patience=0)
    assert {process.pid for process in leaked.children} == {running.pid, ended.pid}
    assert any("zombie" in line for line in leaked.describe())

    kill(leaked.children)
    assert running.stdin is not None
    running.stdin.close()
    running.wait()
    ended.wait()
    assert not leaked_since(before)


@pytest.mark.process
def test_a_test_that_starts_a_process_has_to_be_marked(tmp_path: Path) -> None:
    root = Path(conftest.__file__).parents[1]
    (tmp_path / "test_starting.py").write_text(STARTER)
    # Nothing of the run that this test belongs to: its options, or that it is a worker.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = inherited | {"PYTHONPATH": str(root)}
    options = ["-c", root / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest", "-p", "no:cacheprovider"]

    def run(*selection: str) -> str:
        command = [sys.executable, "-m", "pytest", *options, *selection, tmp_path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout + done.stderr

    everything = run()
    assert "ERROR at teardown of test_unmarked" in everything, everything
    # Some Pythons add how they do it, such as os.posix_spawn.
    assert re.search(r"the test started a process \(subprocess.Popen.*\): mark it with `process`", everything)
    assert "3 passed, 1 error" in everything, everything
    unmarked = run("-m", "not process")
    assert "1 passed, 2 deselected, 1 error" in unmarked, unmarked


MACHINE = {"COLUMNS": "40", "FORCE_COLOR": "1", "https_proxy": "http://127.0.0.1:9", "UV_CACHE_DIR": "/nonexistent"}


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    """Set before what each test gets is made."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in MACHINE.items():
            patch.setenv(name, value)
        yield


def test_settings_of_this_machine_for_terminals_and_networks_are_left_out(machine: None) -> None:
    assert not os.environ.keys() & MACHINE.keys()


def test_home_is_empty_and_the_working_directory_is_the_tests_own(home: Path, tmp_path: Path) -> None:
    assert Path.home() == home
    assert Path("~").expanduser() == home
    assert list(home.iterdir()) == []
    assert Path.cwd() == tmp_path
