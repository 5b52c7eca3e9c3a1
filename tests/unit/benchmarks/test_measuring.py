"""The harness at work: tiny rounds, real drivers, and a real server, the small one that comes with the package."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import contenders, driver_process, echo_server, environments, gate
from benchmarks.contenders import (
    AWAITED,
    AWAITED_TRACED,
    FLOOR,
    GAIA,
    GATEWAY,
    GATEWAY_GUARDED,
    GATEWAY_TRACED,
    HTTP_CLIENT,
    METERED,
    OVER_HTTP,
    OWN_SPAN,
    PIPE_AND_HTTP,
    PIPE_WITH_JSON,
    PIPE_WITH_THREAD,
    PLACED,
    RAW_HTTP,
    RAW_SOCKET,
    SEPARATE_GAIA,
    SOCKET_WITH_JSON,
    SPAN_AROUND_CALL,
    STANDBY,
    TRACED,
    TRANSPORT,
    UNSAMPLED,
    UNSAMPLED_SPAN_AROUND_CALL,
    WITH_CONTENT,
    WITHOUT_CONTENT,
    Contender,
)
from benchmarks.driver_process import DriverFailed, DriverProcess
from benchmarks.http_echo_server import HttpEchoServer
from benchmarks.measures import (
    adapters,
    awaited,
    footprint,
    gateway,
    http,
    latency,
    recovery,
    sandbox,
    start,
    steps,
    throughput,
    tracing,
)
from benchmarks.results import Run
from benchmarks.session import Case, Effort, Session
from gaia.mcp import demo_server
from tests.sandboxes import require
from tests.servers.processes import is_alive
from tests.unit.benchmarks.runs import run_of

pytestmark = pytest.mark.slow

SERVER = [sys.executable, "-I", str(demo_server.__file__)]
ASYNC = Contender("async", "async", "mcp_driver.py")
PORTAL = Contender("portal", "portal", "mcp_driver.py", arguments=("--portal",))


@pytest.fixture
def session() -> Session:
    return Session(run_of(), [FLOOR, GAIA], SERVER, Effort(quick=True, rounds=1))


@pytest.fixture
def http_server(starts_processes: None) -> Iterator[HttpEchoServer]:
    try:
        with HttpEchoServer(events=True) as server:
            yield server
    except echo_server.NoCompiler as reason:
        pytest.skip(str(reason))


@pytest.fixture
def echo_program(starts_processes: None) -> Path:
    try:
        return echo_server.build()
    except echo_server.NoCompiler as reason:
        pytest.skip(str(reason))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway is measured as it is installed here: an environment of its own takes a while to make."""
    monkeypatch.setattr(driver_process, "interpreter_for", lambda _: Path(sys.executable))
    monkeypatch.setattr(driver_process, "variables_for", lambda _: dict(os.environ))


@pytest.mark.process
class TestDrivers:
    @pytest.mark.parametrize("contender", [FLOOR, GAIA, ASYNC, PORTAL], ids=lambda contender: contender.key)
    def test_do_what_the_harness_says(self, contender: Contender) -> None:
        with DriverProcess(contender, SERVER) as driver:
            assert driver.load() > 0
            assert driver.connect(2) > 0
            latencies, processor = driver.call(64, 3)
            assert len(latencies) == 3
            assert min(latencies) > 0
            assert processor >= 0
            assert driver.crowd(callers=3, servers=2, seconds=0.05) > 0
            servers = driver.servers()
            assert len(servers) == 2
            assert driver.disconnect() > 0
        assert not any(is_alive(server.pid) for server in servers)

    @pytest.mark.parametrize("contender", [PIPE_WITH_JSON, PIPE_WITH_THREAD, TRANSPORT], ids=lambda each: each.key)
    def test_do_some_steps_of_a_call(self, contender: Contender) -> None:
        with DriverProcess(contender, SERVER) as driver:
            driver.load()
            driver.connect(1)
            assert len(driver.call(64, 3)[0]) == 3

    @pytest.mark.parametrize(
        "contender", [RAW_SOCKET, SOCKET_WITH_JSON, HTTP_CLIENT, OVER_HTTP, TRANSPORT, ASYNC], ids=lambda each: each.key
    )
    def test_call_servers_over_http(self, contender: Contender, http_server: HttpEchoServer) -> None:
        with DriverProcess(contender, [http_server.url]) as driver:
            driver.load()
            driver.connect(1)
            assert len(driver.call(64, 3)[0]) == 3
            assert len(driver.call(128 * 1024, 3)[0]) == 3
            assert driver.crowd(callers=3, servers=1, seconds=0.05) > 0
            assert driver.disconnect() > 0

    def test_say_which_servers_outlive_their_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with DriverProcess(FLOOR, SERVER) as driver:
            driver.load()
            driver.connect(1)
            left = driver.servers()
            monkeypatch.setattr(driver, "servers", lambda: left)
            with pytest.raises(DriverFailed, match="1 servers are left"):
                driver.disconnect()

    def test_start_a_server_again_as_the_floor_of_a_recovery(self) -> None:
        with DriverProcess(FLOOR, SERVER) as driver:
            driver.load()
            driver.connect(1)
            (before,) = driver.servers()
            assert driver.recover(give_up=10) > 0
            (after,) = driver.servers()
            assert after.pid != before.pid

    def test_see_a_server_come_back(self) -> None:
        with DriverProcess(GAIA, SERVER) as driver:
            driver.load()
            driver.connect(1)
            assert 0 < driver.recover(give_up=10) < 10

    def test_say_that_a_client_does_not_recover(self) -> None:
        with DriverProcess(ASYNC, SERVER) as driver:
            driver.load()
            driver.connect(1)
            with pytest.raises(
                DriverFailed, match=r"no good answer within 0\.2 s; the last error: .*Connection closed"
            ):
                driver.recover(give_up=0.2)

    def test_say_what_failed(self) -> None:
        with DriverProcess(GAIA, SERVER) as driver:
            driver.load()
            with pytest.raises(DriverFailed, match="call: AttributeError"):
                driver.call(64, 1)

    def test_that_end_show_their_last_words(self) -> None:
        missing = Contender("none", "none", "no_such_driver.py")
        last_words = pytest.raises(DriverFailed, match=r"the driver ended: .*no_such_driver")
        with DriverProcess(missing, SERVER) as driver, last_words:
            driver.load()


@pytest.mark.process
class TestMeasures:
    def test_of_latency(self, session: Session) -> None:
        latency.measure(session)

        row = session.run.find("latency: 64 B, two cores: p99")
        assert row is not None
        assert row.values.keys() == {FLOOR.key, GAIA.key}
        assert all(len(values) == 1 and values[0] > 0 for values in row.values.values())
        assert session.run.find("processor time: of one call: 1 MiB, two cores") is not None

    def test_of_throughput(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(throughput, "_SECONDS", 0.02)
        throughput.measure(session)

        assert len(session.run.rows) == 9
        assert all(row.more_is_better and len(row.values) == 2 for row in session.run.rows)

    def test_of_awaited_calls(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(awaited, "_SECONDS", 0.02)
        monkeypatch.setattr(awaited, "_CALLERS", 20)
        awaited.measure(session)

        plain = session.run.find("asyncio: 64 B, two cores: p50")
        traced = session.run.find("asyncio: 64 B, one core, traced: p50")
        crowd = session.run.find("asyncio: 20 tasks at once: calls")
        assert plain is not None
        assert plain.values.keys() == {GAIA.key, AWAITED.key}
        assert traced is not None
        assert traced.values.keys() == {TRACED.key, AWAITED_TRACED.key}
        assert crowd is not None
        assert crowd.values.keys() == {AWAITED.key}

    def test_of_tracing(self, session: Session) -> None:
        tracing.measure(session)

        spans = {SPAN_AROUND_CALL.key, UNSAMPLED_SPAN_AROUND_CALL.key}
        traced = {contender.key for contender in (UNSAMPLED, TRACED, WITHOUT_CONTENT, WITH_CONTENT, METERED)}
        for where in ("one core", "two cores"):
            rows = session.run.tables()["tracing", f"64 B, {where}, traced"]
            assert [row.column for row in rows] == ["p50", "p99", "processor time"]
            assert all(row.values.keys() == {FLOOR.key, GAIA.key, *traced} for row in rows)
            added = session.run.find(f"tracing: added to the p50 of a call of 64 B: {where}")
            assert added is not None
            assert added.values.keys() == {OWN_SPAN.key, *spans, *traced}

    def test_of_http(self, session: Session, http_server: HttpEchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http, "_SECONDS", 0.02)
        monkeypatch.setattr(http, "_CASES", {"event-stream answers": (http._SMALL,)})
        http.measure(session)

        tables = session.run.tables()
        columns = [row.column for row in tables["http", "event-stream answers, 64 B, two cores"]]
        assert columns == ["p50", "p95", "p99", "processor time"]
        assert [row.column for row in tables["http", "event-stream answers, calls per second"]] == [
            "1 caller",
            "32 callers",
            "128 callers",
        ]
        wanted = {RAW_SOCKET.key, HTTP_CLIENT.key, GAIA.key}
        assert all(row.values.keys() == wanted for row in session.run.rows)

    @pytest.mark.parametrize("section", [gateway.HANDSHAKE, gateway.STATELESS])
    def test_of_gateways(
        self, installed: None, echo_program: Path, section: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gateway, "_SECONDS", 0.02)
        monkeypatch.setattr(gateway, "_CASES", (Case("64 B", 64, calls=8, rounds=1),))
        monkeypatch.setattr(gateway, "_CROWDS", (1, 32))
        session = Session(run_of(), [RAW_HTTP, GATEWAY], [str(echo_program)], Effort(quick=True, rounds=1))
        gateway._measure_calls(session, section)
        gateway._measure_starts(session, section)

        assert session.run.failures == {}
        contenders = {row.key: set(row.values) for row in session.run.rows}
        assert contenders == {
            f"{section}: 64 B: p50": {PIPE_AND_HTTP.key, GATEWAY.key},
            f"{section}: 64 B: p99": {PIPE_AND_HTTP.key, GATEWAY.key},
            f"{section}: calls per second: 1 session": {RAW_HTTP.key, GATEWAY.key},
            f"{section}: calls per second: 32 sessions": {RAW_HTTP.key, GATEWAY.key},
            f"{section}: processor time of a call: 32 sessions": {GATEWAY.key},
            f"{section}: start: first good answer": {GATEWAY.key},
            f"{section}: memory: 1 session": {GATEWAY.key},
            f"{section}: memory: 32 sessions": {GATEWAY.key},
        }

    def test_of_servers_that_are_killed_behind_a_gateway(self, installed: None, echo_program: Path) -> None:
        session = Session(run_of(), [RAW_HTTP, GATEWAY], [str(echo_program)], Effort(quick=True, rounds=1))
        gateway.measure_killed_servers(session)

        assert session.run.failures == {}
        idle, under_way, told = session.run.rows
        assert idle.values.keys() == {FLOOR.key, GATEWAY.key}
        assert under_way.values.keys() == {GATEWAY.key}
        assert told.values == {GATEWAY.key: [32]}

    def test_of_a_runaway_client(self, installed: None, echo_program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gateway, "_RUNAWAY_CALLS", 20)
        session = Session(run_of(), [GATEWAY, GATEWAY_GUARDED], [str(echo_program)], Effort(quick=True, rounds=1))
        gateway.measure_runaway_client(session)

        assert session.run.failures == {}
        compared = [key for keys in gate._MAX_TIMES_ANOTHER_ROW for key in keys[:2]]
        assert {row.key for row in session.run.rows} >= set(compared)
        assert len(session.run.rows) == 4
        assert all(row.values.keys() == {GATEWAY_GUARDED.key} for row in session.run.rows)

    def test_of_many_agents(self, installed: None, monkeypatch: pytest.MonkeyPatch, starts_processes: None) -> None:
        monkeypatch.setattr(gateway, "_QUICK_AGENTS", 1)
        monkeypatch.setattr(gateway, "_SERVERS", 2)
        monkeypatch.setattr(gateway, "SEPARATE_SDK", ASYNC)
        session = Session(run_of(), [GATEWAY], SERVER, Effort(quick=True, rounds=1))
        gateway.measure_many_agents(session)

        processes = session.run.find("gateway, many agents: processes for 1 agents with 2 servers each: processes")
        assert processes is not None
        # The gateway, its guard, and two servers with one each; the official client has no helpers.
        assert processes.values == {GATEWAY.key: [6], SEPARATE_GAIA.key: [5], ASYNC.key: [2]}

    def test_of_the_steps(self, session: Session, http_server: HttpEchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps, "_PATHS", {GAIA: steps._STDIO[:2], OVER_HTTP: steps._PATHS[OVER_HTTP][:2]})
        steps.measure(session)

        assert [row.column for row in session.run.rows] == [steps._WIRE, steps._JSON, steps._WHOLE]
        assert all(row.values.keys() == {GAIA.key, OVER_HTTP.key} for row in session.run.rows)

    def test_of_the_start(self, session: Session) -> None:
        start.measure(session)

        assert [row.column for row in session.run.rows] == [
            "import",
            "server, handshake, first call",
            "from starting Python to the first answer",
        ]
        assert all(len(row.values) == 2 for row in session.run.rows)

    def test_of_the_sandbox(self, session: Session) -> None:
        require("bubblewrap")
        sandbox.measure(session)
        assert session.run.failures == {}
        for column in ("server, handshake, first call", "one call of 64 B, p50"):
            row = session.run.find(f"sandbox: servers in a sandbox: {column}")
            assert row is not None
            assert set(row.values) == {"gaia-mcp", "gaia-mcp-sandbox"}

    def test_of_the_footprint(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(footprint, "_ROUNDS", {1: 1, 2: 1})
        monkeypatch.setattr(footprint, "_FURTHER_ENDS", 0)
        monkeypatch.setattr(footprint, "_SIZES", {"1 KiB": 1024})
        footprint.measure(session)

        threads = [row.values[GAIA.key] for row in session.run.rows if row.table == "threads"]
        assert threads == [[7.0], [12.0]], "five for each server, the main one, and the one for deadlines"
        memory = session.run.find("footprint: memory: 1 server")
        assert memory is not None
        assert memory.values[FLOOR.key] < memory.values[GAIA.key]
        for key in (
            "start and end: 2 servers: start",
            "start and end: 2 servers: end",
            "footprint: memory of one server more: from 1 to 2 servers",
            "footprint: peak memory, by the size of a call: 1 KiB",
        ):
            row = session.run.find(key)
            assert row is not None
            assert row.values.keys() == {FLOOR.key, GAIA.key}

    def test_of_recovery(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recovery, "_CASES", recovery._CASES[:1])
        monkeypatch.setattr(recovery, "_contenders", lambda session: [FLOOR, GAIA])
        recovery.measure(session)

        assert [row.column for row in session.run.rows] == ["next good answer", "killed again at once"]
        assert all(row.values.keys() == {FLOOR.key, GAIA.key} for row in session.run.rows)

    def test_leave_out_a_contender_that_fails_and_say_why(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recovery, "_CASES", recovery._CASES[:1])
        broken = Contender("broken", "broken", "no_such_driver.py")
        session = Session(session.run, [broken, FLOOR], SERVER, Effort(quick=True, rounds=1))
        recovery.measure(session)

        assert "no_such_driver" in session.run.failures["recovery"]["broken"]
        assert session.run.rows[0].values.keys() == {FLOOR.key}


class TestSteps:
    """What is made of the figures of one round."""

    def test_are_differences(self) -> None:
        session = Session(run_of(), [], SERVER, Effort())
        order = (FLOOR, PIPE_WITH_JSON, PIPE_WITH_THREAD, TRANSPORT, GAIA, UNSAMPLED, WITHOUT_CONTENT, TRACED)
        steps._add(session, {contender: float(2**index) for index, contender in enumerate(order)})

        added = {row.column: row.values[TRACED.key][0] for row in session.run.rows if TRACED.key in row.values}
        assert list(added.values()) == [1, 1, 2, 4, 8, 16, 32, 64, 128]
        assert list(added)[-1] == steps._WHOLE
        assert sum(list(added.values())[:-1]) == added[steps._WHOLE]

    def test_of_which_a_contender_is_missing_are_left_out(self) -> None:
        session = Session(run_of(), [], SERVER, Effort())
        steps._add(session, {step.contender: 1.0 for step in steps._PATHS[OVER_HTTP]})

        assert {contender for row in session.run.rows for contender in row.values} == {OVER_HTTP.key}


class TestFailures:
    def test_of_a_whole_measure_are_said_and_the_others_go_on(self) -> None:
        def measure(session: Session) -> None:
            raise echo_server.NoCompiler("no C compiler")

        session = Session(run_of(), [FLOOR, GAIA], SERVER, Effort())
        program._measure(session, "http", measure)

        assert session.run.failures == {"http": {"raw-pipe": "no C compiler", "gaia-mcp": "no C compiler"}}

    def test_take_only_the_contender_out_of_the_section(self) -> None:
        session = Session(run_of(), [FLOOR, GAIA], SERVER, Effort())
        with session.turn("latency", GAIA):
            raise OSError("no descriptors")

        assert session.able("latency") == [FLOOR]
        assert session.able("latency", [GAIA, STANDBY]) == [STANDBY]
        assert session.able("http") == [FLOOR, GAIA]
        assert session.run.failures["latency"][GAIA.key] == "no descriptors"


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def server(self, starts_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recovery, "_CASES", recovery._CASES[:1])
        try:
            echo_server.build()
        except echo_server.NoCompiler as reason:
            pytest.skip(str(reason))

    @pytest.mark.process
    def test_measures_prints_and_saves(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "run.json"
        arguments = ["--no-peers", "--quick", "--rounds", "1", "--only", "recovery", "--json", str(file)]

        assert program.main(arguments) == 0
        shown = capsys.readouterr()
        assert "recovery: after kill -9" in shown.out
        assert "recovery: after kill -9" in shown.err
        assert Run.load(file).command == (
            "python -m benchmarks --only recovery --contender raw-pipe --contender gaia-mcp --quick --rounds 1"
        )

    @pytest.mark.process
    def test_compares_with_a_stored_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "before.json"
        run_of(("recovery: after kill -9: next good answer", "seconds", {"gaia-mcp": [1e-6]})).save(file)
        arguments = ["--no-peers", "--rounds", "1", "--only", "recovery", "--compare", str(file)]

        assert program.main(arguments) == 1
        assert "worse: recovery: after kill -9: next good answer" in capsys.readouterr().err

    @pytest.mark.process
    def test_fails_the_check_where_a_bar_is_missed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("benchmarks.gate._AT_MOST", (("start: cold start: import", GAIA, 1e-9),))

        assert program.main(["--no-peers", "--rounds", "1", "--only", "start", "--check"]) == 1
        assert "missed: start: cold start: import" in capsys.readouterr().err

    @pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--rounds", "0"], ["--contender", "nobody"]])
    def test_refuses_what_it_does_not_know(self, arguments: list[str]) -> None:
        with pytest.raises(SystemExit) as exit_info:
            program.main(arguments)
        assert exit_info.value.code == 2

    def test_refuses_a_comparison_with_something_else(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "junk.json").write_text(json.dumps({"rows": []}))

        assert program.main(["--compare", str(tmp_path / "junk.json")]) == 2
        assert "does not have the results of a run" in capsys.readouterr().err

    def test_needs_a_compiler(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def build() -> Path:
            raise echo_server.NoCompiler("no C compiler")

        monkeypatch.setattr(echo_server, "build", build)

        assert program.main([]) == 3
        assert "no C compiler" in capsys.readouterr().err

    @pytest.mark.process
    def test_names_peers_that_cannot_be_installed(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def create(folder: Path, **_: object) -> None:
            """An environment without a pip of its own, which takes seconds to make."""
            (folder / "bin").mkdir(parents=True)
            (folder / "bin" / "python").symlink_to(sys.executable)

        monkeypatch.setattr("venv.create", create)
        monkeypatch.setattr(environments, "CACHE", tmp_path)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        peer = Contender("mcp", "mcp, async", "mcp_driver.py", ("no-such-package-of-anybody",))
        monkeypatch.setattr(program, "ALL", (peer,))
        for others in ("FRAMEWORKS", "GATEWAYS"):
            monkeypatch.setattr(program, others, ())

        assert program.main(["setup"]) == 0
        assert "mcp, async is missing: the installation of no-such-package-of-anybody failed" in capsys.readouterr().err


def test_each_contender_has_a_driver_and_a_key_of_its_own() -> None:
    folder = Path(contenders.__file__).parent / "drivers"

    assert all((folder / contender.driver).is_file() for contender in contenders.SHOWN)
    assert len({contender.key for contender in contenders.SHOWN}) == len(contenders.SHOWN)


def test_only_peers_get_an_environment_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")

    assert environments.variables_for(GAIA)["PYTHONPATH"] == "src"
    assert all("PYTHONPATH" not in environments.variables_for(peer) for peer in contenders.PEERS)
    assert environments.interpreter_for(GAIA) == Path(sys.executable)


@pytest.mark.process
class TestAdapters:
    def test_calls_and_recoveries_of_frameworks_are_measured(self, session: Session) -> None:
        # Any client will do.
        session.frameworks = [GAIA]
        adapters.measure(session)

        figures = {row.column: row.values[GAIA.key] for row in session.run.rows}
        assert set(figures) == {"p50 of a call", "next good answer", "killed again at once"}
        assert all(min(values) > 0 for values in figures.values())

    def test_what_calls_take_is_known_of_one_that_does_not_recover(self, session: Session) -> None:
        session.frameworks = [GAIA]
        session.fail("adapters", GAIA, "it did not recover")
        adapters.measure(session)

        assert [row.column for row in session.run.rows] == ["p50 of a call"]


@pytest.mark.process
class TestPlacement:
    def test_placed_servers_are_called_killed_and_shared(self) -> None:
        with DriverProcess(PLACED, SERVER) as driver:
            has_ray = driver.ask(do="begin", argv=SERVER)["ray"] is not None
            for way in ("local", "process", *(["ray", "actor"] if has_ray else [])):
                assert len(driver.ask(do="call", way=way, size=64, count=3)["latencies"]) == 3
                assert driver.ask(do="crowd", way=way, callers=2, seconds=0.05)["calls"] > 0
            assert driver.ask(do="hosts")["process"]["rss"] > 0
            for what in ("server", "host"):
                assert driver.ask(do="kill", way="process", what=what)["seconds"] > 0
            driver.ask(do="share", argv=SERVER, name=f"benchmark-{os.getpid()}")
            assert min(driver.ask(do="progress", count=2, seconds=0.05)["latencies"]) >= 0.05


def test_frameworks_are_installed_only_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[list[Contender]] = []

    def prepared(run: Run, contenders: list[Contender]) -> list[Contender]:
        wanted.append(contenders)
        return []

    monkeypatch.setattr(program, "_prepared", prepared)
    monkeypatch.setattr(echo_server, "build", lambda: Path("echo-server"))
    measures = ("latency", "adapters", "gateway", "placement")
    for words in (*(["--only", measure] for measure in measures), ["--no-peers"]):
        program.main(["setup", *words])

    latency_only, frameworks_only, gateways_only, placement_only, own = wanted
    assert latency_only == list(contenders.ALL)
    assert frameworks_only == list(contenders.FRAMEWORKS)
    assert gateways_only == list(contenders.GATEWAYS)
    assert placement_only == [FLOOR, GAIA]
    assert own == [FLOOR, GAIA, RAW_HTTP, GATEWAY, GATEWAY_GUARDED, GATEWAY_TRACED]
