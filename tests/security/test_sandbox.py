"""What a hostile server attempts from within its sandbox, by real processes in either engine."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.clients_file import add_client
from gaia.mcp.gateway.upstream.sealing import read_state_key
from gaia.runtime.private_files import keep_private
from tests.sandboxes import ENGINES, Probe, probing, require, without_bubblewrap
from tests.servers.processes import wait_for_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")]

KEY = "PRIVATE KEY OF THE TEST"
DENIED = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS, errno.ESRCH}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The engine that the servers of a test get."""
    require(request.param)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "landlock":
            without_bubblewrap(patch)
        yield request.param


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A home with a key, a working directory, a directory to write to, and one that nothing was said about."""
    base = tmp_path_factory.mktemp("places").resolve()
    found = {name: base / name for name in ("home", "work", "shared", "other")}
    for folder in found.values():
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    (found["home"] / ".ssh").mkdir()
    (found["home"] / ".ssh" / "id_x").write_text(KEY)
    return found


@pytest.fixture(scope="module")
def probe(engine: str, places: dict[str, Path]) -> Iterator[Probe]:
    """One server of the default profile, which may write to one directory, and to read the whole home was opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(places["home"]))
        started = Probe(places["work"], read=[str(places["home"])], write=[str(places["shared"])])
        yield started
        started.close()


def denied(outcome: dict[str, Any]) -> bool:
    return outcome.get("errno") in DENIED


class TestFiles:
    def test_a_key_is_not_read_even_where_the_home_was_opened(self, probe: Probe, places: dict[str, Path]) -> None:
        assert probe.result(f"result = open({str(places['home'] / 'file')!r}).read()") == "home"
        assert denied(probe.attempt(f"open({str(places['home'] / '.ssh' / 'id_x')!r})"))

    def test_nor_is_a_secret_that_is_replaced_while_the_server_runs(self, engine: str, tmp_path: Path) -> None:
        """What is mounted over a file is gone then, as with `npm login`."""
        home = tmp_path.resolve()
        (home / ".npmrc").write_text(KEY)
        (home / "notes").write_text("notes")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(home))
            started = Probe(home, read=[str(home)])
        try:
            (home / "new").write_text(KEY)
            (home / "new").rename(home / ".npmrc")
            assert denied(started.attempt(f"open({str(home / '.npmrc')!r})"))
            assert started.result(f"result = open({str(home / 'notes')!r}).read()") == "notes"
        finally:
            started.close()

    def test_the_key_is_not_reached_by_a_link_of_its_own(self, probe: Probe, places: dict[str, Path]) -> None:
        key, link = places["home"] / ".ssh" / "id_x", places["shared"] / "link"
        assert probe.attempt(f"import os; os.symlink({str(key)!r}, {str(link)!r})").get("error") is None
        assert denied(probe.attempt(f"open({str(link)!r})"))
        link.unlink()

    def test_what_lies_in_tmp_of_the_host_is_not_read(self, probe: Probe, places: dict[str, Path]) -> None:
        assert denied(probe.attempt(f"open({str(places['other'] / 'file')!r})"))

    def test_the_working_directory_is_read_only(self, probe: Probe, places: dict[str, Path]) -> None:
        assert probe.result("result = open('file').read()") == "work"
        assert denied(probe.attempt("open('file', 'w')"))
        assert denied(probe.attempt("open('new', 'w')"))
        assert denied(probe.attempt("import os; os.remove('file')"))
        assert denied(probe.attempt("import os; os.chmod('file', 0o777)"))
        assert denied(probe.attempt("import os; os.utime('file', (0, 0))"))
        assert denied(probe.attempt("import os; os.rename('file', 'moved')"))
        assert denied(probe.attempt(f"import os; os.link('file', {str(places['shared'] / 'hard')!r})") | {"errno": 1})
        assert [path.name for path in places["work"].iterdir()] == ["file"]

    def test_the_system_is_read_only_and_its_passwords_are_not_read_by_servers_of_root(self, probe: Probe) -> None:
        for attempt in ("'/etc/gaia-sandbox-test', 'w'", "'/usr/gaia-sandbox-test', 'w'", "'/etc/shadow'"):
            assert denied(probe.attempt(f"open({attempt})")), attempt

    def test_it_writes_where_it_may(self, probe: Probe, places: dict[str, Path]) -> None:
        target = places["shared"] / "of the server"
        probe.result(f"open({str(target)!r}, 'w').write('done')")
        assert target.read_text() == "done"
        target.unlink()

    def test_its_temporary_files_are_its_own(self, probe: Probe) -> None:
        code = "import os, tempfile; f = tempfile.NamedTemporaryFile(delete=False); f.write(b'x'); result = f.name"
        name = probe.result(code)
        assert probe.result(
            f"import os; result = os.listdir({os.path.dirname(name)!r}).count({os.path.basename(name)!r})"
        )
        assert not os.path.exists(name) or "gaia-sandbox-" in name

    def test_devices_of_the_machine_are_closed(self, probe: Probe) -> None:
        probe.result("open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(1)")
        for device in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm"):
            assert denied(probe.attempt(f"open({device!r}, 'rb')")), device


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No files of the program are known yet."""
    monkeypatch.setattr("gaia.runtime.private_files._files", {})


@pytest.mark.usefixtures("registry", "engine")
class TestFilesOfTheProgram:
    """The directory that they lie in was opened for the server, or is its working directory."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path.resolve() / "folder"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "deep").write_text("deep")
        (folder / "file").write_text("file")
        (folder / "link").symlink_to("file")
        return folder

    @staticmethod
    def reads(probe: Probe, path: Path) -> bool:
        outcome = probe.attempt(f"result = len(open({str(path)!r}).read())")
        assert denied(outcome) or outcome.get("result", 0) > 0, outcome
        return "result" in outcome

    @pytest.mark.parametrize("way", ["cwd", "read"])
    def test_what_it_is_configured_with_is_not_read(self, folder: Path, way: str) -> None:
        config, clients, key, audit = (folder / name for name in ("servers.json", "clients.json", "key", "audit.jsonl"))
        MCPConfig(config, create=True).add_server("other", {"command": "true", "env": {"TOKEN": KEY}})
        add_client(clients, "ann")
        key.write_text(KEY * 2)
        key.chmod(0o600)
        read_state_key(key)
        full = folder / "audit.jsonl.1"
        full.write_text(KEY)
        record = AuditFile(audit)
        try:
            record.write(b"{}")
            with contextlib.closing(
                Probe(folder) if way == "cwd" else Probe(folder / "inner", read=[str(folder)])
            ) as started:
                for file in (config, clients, key, audit, full, folder / ".audit.jsonl.lock"):
                    assert file.exists()
                    assert not self.reads(started, file), file
                for file in (folder / "file", folder / "link", folder / "inner" / "deep"):
                    assert self.reads(started, file), file
                assert "file" in started.result(f"import os; result = os.listdir({str(folder)!r})")
                assert denied(started.attempt(f"open({str(folder / 'new')!r}, 'w')"))
        finally:
            record.close()

    def test_nor_when_it_is_replaced_or_made_while_the_server_runs(self, folder: Path) -> None:
        clients, later = folder / "clients.json", folder / "later.json"
        add_client(clients, "ann")
        keep_private(later)
        with contextlib.closing(Probe(folder)) as started:
            add_client(clients, "bob")
            later.write_text(KEY)
            (folder / "later.json.1").write_text(KEY)
            assert not any(self.reads(started, file) for file in (clients, later, folder / "later.json.1"))

    def test_nor_by_a_link_and_not_what_the_link_says_later(self, folder: Path) -> None:
        """As in a volume of Kubernetes."""
        for version in ("..1", "..2"):
            (folder / version).mkdir()
            (folder / version / "clients.json").write_text("{}" + KEY)
        (folder / "..data").symlink_to("..1")
        (folder / "clients.json").symlink_to("..data/clients.json")
        keep_private(folder / "clients.json")
        with contextlib.closing(Probe(folder)) as started:
            (folder / "..3").mkdir()
            (folder / "..3" / "clients.json").write_text(KEY)
            (folder / "..data").unlink()
            (folder / "..data").symlink_to("..3")
            for file in ("clients.json", "..1/clients.json", "..3/clients.json"):
                assert not self.reads(started, folder / file), file

    def test_one_that_the_entry_names_is_read(self, folder: Path) -> None:
        (folder / "pins.json").write_text("{}")
        (folder / "other.json").write_text("{}")
        keep_private(folder / "pins.json")
        keep_private(folder / "other.json")
        with contextlib.closing(Probe(folder, read=[str(folder / "pins.json")])) as started:
            assert self.reads(started, folder / "pins.json")
            assert not self.reads(started, folder / "other.json")

    @pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="makes a directory that is shown by default")
    def test_it_is_not_read_where_everything_is_shown(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gaia-test-", dir="/srv") as name:
            folder = Path(name).resolve()
            folder.chmod(0o755)
            for file, mode in (("servers.json", 0o644), ("environment", 0o600), ("readme", 0o644)):
                (folder / file).write_text(KEY)
                (folder / file).chmod(mode)
            (folder / "tool").mkdir(mode=0o700)
            (folder / "tool" / "file").write_text("file")
            keep_private(folder / "servers.json")
            with contextlib.closing(Probe(folder / "tool")) as started:
                assert not self.reads(started, folder / "servers.json")
                assert not self.reads(started, folder / "environment"), "which others could not read either"
                assert self.reads(started, folder / "readme")
                assert self.reads(started, folder / "tool" / "file")


class TestProcesses:
    def test_the_environment_of_the_host_is_not_read(self, probe: Probe) -> None:
        """Nor its arguments, memory and open files."""
        for what in ("environ", "cmdline", "mem", "maps", "fd/0", "root/etc/shadow", "cwd/file"):
            assert denied(probe.attempt(f"open('/proc/{os.getpid()}/{what}', 'rb').read(1)")), what
        assert "python" in probe.result("result = open('/proc/self/cmdline').read()"), "its own are"

    def test_the_host_gets_no_signal(self, probe: Probe) -> None:
        assert denied(probe.attempt(f"import os; os.kill({os.getpid()}, 0)"))
        limits = f"import resource; resource.prlimit({os.getpid()}, resource.RLIMIT_CORE, (0, 0))"
        assert denied(probe.attempt(limits)), "nor other limits"

    def test_the_memory_of_the_host_is_not_read(self, probe: Probe) -> None:
        code = f"""
            import ctypes, os
            library = ctypes.CDLL(None, use_errno=True)
            buffer = ctypes.create_string_buffer(8)
            class Vector(ctypes.Structure):
                _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
            local = Vector(ctypes.addressof(buffer), 8)
            remote = Vector({id(probe)}, 8)
            if library.process_vm_readv({os.getpid()}, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) < 0:
                raise OSError(ctypes.get_errno(), "denied")
        """
        assert denied(probe.attempt(textwrap.dedent(code)))

    def test_it_inherits_its_three_pipes_only(self, probe: Probe) -> None:
        code = "import os; d = os.open('/proc/self/fd', os.O_RDONLY); result = sorted(map(int, os.listdir(d)))"
        assert probe.result(code)[:4] == [0, 1, 2, 3]
        assert len(probe.result("import os; result = os.listdir('/proc/self/fd')")) <= 5

    def test_it_has_no_rights_of_root(self, probe: Probe) -> None:
        kinds = "('CapInh', 'CapPrm', 'CapEff', 'CapAmb')"
        code = f"result = [l.split()[1] for l in open('/proc/self/status') if l.startswith({kinds})]"
        assert {int(mask, 16) for mask in probe.result(code)} == {0}
        assert probe.result("result = [l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')]") == [
            "NoNewPrivs:\t1\n"
        ]

    def test_a_user_namespace_gives_it_nothing(self, probe: Probe) -> None:
        code = """
            import ctypes, os
            child = os.fork()
            if child == 0:
                library = ctypes.CDLL(None)
                new = library.unshare(0x10000000 | 0x00020000)
                os._exit(0 if new == 0 and library.mount(b"none", b"/etc", b"tmpfs", 0, None) == 0 else 13)
            result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        """
        assert probe.result(textwrap.dedent(code)) == 13

    def test_keys_of_the_session_and_the_terminal_are_out_of_reach_without_a_way_around_the_filter(
        self, probe: Probe
    ) -> None:
        code = """
            import ctypes, platform
            library = ctypes.CDLL(None, use_errno=True)
            keyctl = {"x86_64": 250, "aarch64": 219}[platform.machine()]
            if library.syscall(%s) < 0:
                raise OSError(ctypes.get_errno(), "denied")
        """
        assert probe.attempt(textwrap.dedent(code % "keyctl, 0, -3, 0"))["errno"] == errno.EPERM
        assert probe.attempt("import fcntl; fcntl.ioctl(0, 0x5412, b'x')")["errno"] == errno.EPERM
        uring = "425, 1, ctypes.create_string_buffer(120)"
        assert probe.attempt(textwrap.dedent(code % uring))["errno"] == errno.ENOSYS


class TestKernel:
    def test_its_settings_cannot_be_changed(self, probe: Probe) -> None:
        # With `core_pattern` root has the kernel run a program outside of every namespace.
        setting = "/proc/sys/kernel/core_pattern"
        assert probe.result(f"result = open({setting!r}).read()")
        assert probe.attempt(f"open({setting!r}, 'r+').close()")["errno"] in DENIED

    def test_attributes_of_a_file_that_is_only_read_cannot_be_changed(self, probe: Probe) -> None:
        change = "import fcntl; file = open('/usr/bin/env', 'rb'); flags = bytearray(8); "
        change += "fcntl.ioctl(file, 0x80086601, flags); fcntl.ioctl(file, 0x40086602, bytes(flags))"
        assert probe.attempt(change)["errno"] in {*DENIED, errno.ENOTTY, errno.EOPNOTSUPP}


class TestNetwork:
    @pytest.fixture
    def listening(self) -> Iterator[int]:
        """The port of a service of this machine."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server.getsockname()[1]

    CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 5).close()"

    def test_a_service_of_this_machine_is_not_reached(self, probe: Probe, listening: int) -> None:
        assert probe.attempt(self.CONNECT.format(port=listening))["errno"] in {*DENIED, errno.ECONNREFUSED}

    def test_no_datagram_reaches_a_socket_in_a_hidden_place(self, probe: Probe, places: dict[str, Path]) -> None:
        path = places["other"] / "datagrams"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
            service.bind(str(path))
            pair = "import socket; own, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); "
            attempt = probe.attempt(f"{pair}own.sendto(b'x', {str(path)!r})")
        path.unlink()
        assert attempt["errno"] in DENIED

    def test_pairs_of_sockets_work(self, probe: Probe) -> None:
        code = "import socket; a, b = socket.socketpair(); a.send(b'x'); result = b.recv(1).decode()"
        assert probe.result(code) == "x"

    def test_nothing_leaves_by_datagrams(self, probe: Probe) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(0.2)
            port = receiver.getsockname()[1]
            probe.attempt(f"import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port}))")
            with pytest.raises(TimeoutError):
                receiver.recv(1)

    @pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET", "AF_ALG"])
    def test_no_other_kind_of_socket_is_made(self, probe: Probe, family: str) -> None:
        assert (
            probe.attempt(f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)")["errno"] == errno.EACCES
        )

    @pytest.mark.parametrize("abstract", [True, False], ids=["abstract", "in a directory"])
    @pytest.mark.parametrize("network", [True, False], ids=["network", "no network"])
    def test_a_socket_of_another_program_is_not_reached(
        self, engine: str, places: dict[str, Path], network: bool, abstract: bool
    ) -> None:
        name = f"\0gaia-{os.getpid()}" if abstract else str(places["other"] / "service")
        with socket.socket(socket.AF_UNIX) as service:
            service.bind(name)
            service.listen()
            probe = Probe(places["work"], network=network)
            outcome = probe.attempt(f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})")
            probe.close()
        if not abstract:
            os.remove(name)
        assert outcome["errno"] in {*DENIED, errno.ECONNREFUSED}

    def test_with_the_network_the_service_is_reached(
        self, engine: str, places: dict[str, Path], listening: int
    ) -> None:
        probe = Probe(places["work"], network=True)
        outcome = probe.attempt(self.CONNECT.format(port=listening))
        probe.close()
        assert outcome == {"result": None}


class TestLimits:
    def test_memory(self, engine: str, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """A control group ends the process, and without one a limit of the process refuses the memory."""
        with contextlib.closing(Probe(places["work"], memory="64M")) as probe:
            assert probe.result("x = bytearray(8 * 1024**2); result = len(x)") == 8 * 1024**2
            outcome = _outcome(probe, "x = bytearray(256 * 1024**2)")
        assert "MemoryError" in outcome or (
            "SIGKILL" in outcome and outcome.endswith("it had used up what its sandbox allows: memory")
        )
        monkeypatch.setattr("gaia.mcp.transports.sandbox.cage._MEMBERSHIP", places["work"] / "missing")
        with contextlib.closing(Probe(places["work"], memory="64M")) as probe:
            assert "MemoryError" in _outcome(probe, "x = bytearray(256 * 1024**2)")

    def test_processes(self, engine: str, places: dict[str, Path]) -> None:
        try:
            probe = Probe(places["work"], processes=8)
        except AssertionError as refused:
            pytest.skip(str(refused))
        code = """
            import os, signal
            children = []
            try:
                for _ in range(40):
                    child = os.fork()
                    if child == 0:
                        signal.pause()
                    children.append(child)
            except BlockingIOError:
                pass
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)
            result = len(children)
        """
        count = probe.result(textwrap.dedent(code))
        probe.close()
        assert count == 7

    def test_processor_time(self, engine: str, places: dict[str, Path]) -> None:
        probe = Probe(places["work"], cpuSeconds=1)
        with pytest.raises(MCPError, match="SIGXCPU"):
            probe.attempt("while True: pass")
        probe.close()


class TestTheEnd:
    STRAY = """
        import os, signal, subprocess, sys
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], env={}, start_new_session=True)
        result = child.pid
    """

    def test_a_child_that_left_everything_behind_ends_with_its_server(
        self, engine: str, places: dict[str, Path]
    ) -> None:
        probe = Probe(places["work"])
        before = set(psutil.pids())
        probe.result(textwrap.dedent(self.STRAY))
        strays: list[int] = []

        def found() -> bool:
            # Its arguments can be read a moment after it has begun.
            strays[:] = [pid for pid in psutil.pids() if pid not in before and _runs(pid, "time.sleep(300)")]
            return bool(strays)

        assert wait_until(found)
        (stray,) = strays
        probe.close()
        assert wait_for_end(stray)

    def test_a_server_has_its_time_to_end_well(
        self, engine: str, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What waits for the server outside the sandbox must not end before it."""
        monkeypatch.setattr("gaia.mcp.transports.base._DEFAULT_GRACE", 0.05)
        target = places["shared"] / "ended well"
        code = f"""
            import signal, sys, time
            def end(*_):
                time.sleep(1.2)
                open({str(target)!r}, "w").write("x")
                sys.exit(0)
            signal.signal(signal.SIGTERM, end)
            import threading
            threading.Thread(target=time.sleep, args=(300,)).start()
        """
        probe = Probe(places["work"], write=[str(places["shared"])])
        probe.result(textwrap.dedent(code))
        probe.close()
        assert target.exists()
        target.unlink()

    def test_a_server_that_is_killed_comes_back_in_its_sandbox(self, engine: str, places: dict[str, Path]) -> None:
        with MCPClient.from_config("probing", probing() | {"restart": {"initialDelay": 0.01}}) as client:
            assert client.connect(), client.last_error
            first = client.status.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            code = "open('/proc/self/status').read(); open('/gaia-sandbox-test', 'w')"
            assert wait_until(lambda: client.status.pid not in (None, first))
            text = client.call_tool("attempt", {"code": code})["content"][0]["text"]
            assert '"errno"' in text

    def test_it_dies_with_its_host(self, engine: str, places: dict[str, Path]) -> None:
        host = """
            import sys, time, pytest
            from pathlib import Path
            from tests import sandboxes
            if sys.argv[1] == "landlock":
                sandboxes.without_bubblewrap(pytest.MonkeyPatch())
            probe = sandboxes.Probe(Path(sys.argv[2]))
            print(probe.transport._process.pid, flush=True)
            time.sleep(300)
        """
        command = [sys.executable, "-c", textwrap.dedent(host), engine, str(places["work"])]
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *sys.path])
        # A host that is killed leaves the private directory of its server behind.
        environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(places["other"])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            leader = int(process.stdout.readline())
            everything = [leader, *(child.pid for child in psutil.Process(leader).children(recursive=True))]
            process.kill()
        assert all(wait_for_end(pid) for pid in everything)


def _runs(pid: int, words: str) -> bool:
    try:
        return any(words in argument for argument in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def _outcome(probe: Probe, code: str) -> str:
    """What came of an attempt, which may be the end of the server."""
    try:
        return str(probe.attempt(code))
    except MCPError as ended:
        return str(ended)
