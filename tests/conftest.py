"""What every test gets: a home and a working directory of its own, and a check that it leaks nothing."""

import asyncio
import importlib.util
import inspect
import itertools
import json
import logging
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from opentelemetry import trace

import gaia
from gaia.mcp.aio import threads as aio_threads
from gaia.runtime import handover, log, loop_work
from gaia.testing import FakeClock
from tests import leak_check
from tests.servers import fault_server as fault_server_module
from tests.servers.fault_server import Scenario
from tests.servers.processes import program
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from tests.tracing import Metering, Tracing

# Where a program looks for the user's files before it looks into the home directory.
USER_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "APPDATA", "LOCALAPPDATA")

# What a terminal or a CI service may set, and what changes how texts are drawn.
TERMINAL_VARIABLES = ("COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

# What leads requests elsewhere. Servers inherit it, and so does what the doctor and the documentation's commands start.
NETWORK_VARIABLES = re.compile(
    r"(ALL|FTP|HTTPS?|NO|WSS?)_PROXY|NODE_EXTRA_CA_CERTS|(CURL|REQUESTS)_CA_BUNDLE|SSL_CERT_FILE|(NPM_CONFIG|PIP|UV)_.*",
    re.IGNORECASE,
)


# pytest-timeout is the limit; on a busy machine any single example may take long. Tests may be repeated, which gives
# each repetition an instance of its class.
hypothesis.settings.register_profile(
    "fixed",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.differing_executors],
)
hypothesis.settings.register_profile(
    "random",
    hypothesis.settings.get_profile("fixed"),
    derandomize=False,
    max_examples=500,
)
# For the Pythons that run only a part of the tests: nearly all that examples find does not depend on the Python.
hypothesis.settings.register_profile("fewer", hypothesis.settings.get_profile("fixed"), max_examples=20)
hypothesis.settings.load_profile("fixed")

FIXED_CHAOS_SEED = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """For `tests/chaos`; options are only known in time when they are here."""
    group = parser.getgroup("chaos", "faults by chance")
    group.addoption("--chaos-seed", type=int, help="which schedules of faults")
    group.addoption("--chaos-examples", type=int, help="how many schedules each test tries; seconds' worth by default")


# Before Hypothesis looks at its options. Workers of pytest-xdist get the options of the process that started them.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seeds: the same for each run, or new ones with ``--hypothesis-profile random``."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job begins so, and with it all that the tests start. Ctrl-C must mean what it does.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGQUIT") and signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    option = config.option
    is_random = option.hypothesis_profile == "random"
    if option.chaos_seed is None:
        option.chaos_seed = random.randrange(2**32) if is_random else FIXED_CHAOS_SEED
    if is_random and option.hypothesis_seed is None:
        option.hypothesis_seed = str(option.chaos_seed)


def pytest_report_header(config: pytest.Config) -> str:
    """The seeds, as options with which a run repeats this one."""
    option = config.option
    seeds = f"seeds: --chaos-seed {option.chaos_seed}"
    if option.hypothesis_profile != "random":
        return seeds
    return f"{seeds} --hypothesis-profile random --hypothesis-seed {option.hypothesis_seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what their fixtures do, before ``-m`` selects by the markers."""
    for item in items:
        for fixture, marker in (("starts_processes", "process"), ("starts_programs", "slow")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


def pytest_collection_finish() -> None:
    """From here on each process is some test's."""
    leak_check.count_process_starts()


@pytest.fixture(scope="session")
def starts_processes() -> None:
    """What fixtures that start processes ask for: the tests that use them are marked ``process``."""


@pytest.fixture(scope="session")
def starts_programs(starts_processes: None) -> None:
    """What fixtures that start all of `gaia` as a process ask for: the tests that use them are marked ``slow``, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def process_marker(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process and is not marked ``process``."""
    yield
    started = leak_check.processes_started()
    if started and request.node.get_closest_marker("process") is None:
        pytest.fail(f"the test started a process ({', '.join(started)}): mark it with `process`", pytrace=False)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves a thread, a descriptor, a process or a tracer provider behind.

    It is the first fixture to be set up and the last to be torn down, so what fixtures hold is checked too.
    """
    before, traces = leak_check.Holdings.now(), trace._TRACER_PROVIDER
    yield
    if trace._TRACER_PROVIDER is not traces:
        pytest.fail("the test set the tracer provider of the process, for all tests after it", pytrace=False)
    if leaked := leak_check.leaked_since(before):
        description = leaked.describe()
        leak_check.kill(leaked.children)
        pytest.fail("\n".join(["the test leaked:", *description]), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def short_idle_times() -> Iterator[None]:
    """Threads without work end after a moment. `no_leaks` would wait a quarter of a second for them after each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handover, "_IDLE_SECONDS", 0.02)
        for pool in (aio_threads._threads, aio_threads._stopping, loop_work._orphans):
            patch.setattr(pool, "_idle_seconds", 0.02)
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New home directories, one each time."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(scope="session", autouse=True)
def absolute_python_path(pytestconfig: pytest.Config) -> Iterator[None]:
    """Keep ``PYTHONPATH=src pytest`` working for subprocesses: a test's working directory is not where pytest began."""
    with pytest.MonkeyPatch.context() as patch:
        if path := os.environ.get("PYTHONPATH"):
            began = pytestconfig.invocation_params.dir
            patch.setenv("PYTHONPATH", os.pathsep.join(str(began / entry) for entry in path.split(os.pathsep)))
        yield


@pytest.fixture(autouse=True)
def home(no_leaks: None, homes: Iterator[Path], tmp_path: Path) -> Iterator[Path]:
    """The empty home directory of this test, which works in `tmp_path`: no test sees or touches the user's files.

    Not a folder of `tmp_path`, which is the test's own. `Path.home` and ``~`` follow the environment.
    """
    directory = next(homes)
    directory.mkdir()
    # A patch of its own: a test that undoes its patches stays where it is.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))
        patch.setenv("USERPROFILE", str(directory))
        for name in USER_FOLDERS:
            patch.delenv(name, raising=False)
        patch.chdir(tmp_path)
        yield directory


@pytest.fixture(scope="session")
def no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder."""
    return tmp_path_factory.mktemp("no_certificates")


@pytest.fixture(autouse=True)
def plain_terminal() -> Iterator[None]:
    """Commands draw as wide and as colourful as their streams say, and not as this machine's variables do."""
    with pytest.MonkeyPatch.context() as patch:
        for name in TERMINAL_VARIABLES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def authorities(no_certificates: Path) -> Iterator[None]:
    """Trust no certificates: each HTTP client reads all of the system's, which takes longer than most tests.

    Proxies and package indexes of this machine are left out, too. Tests that use the network outside of it have a
    fixture of this name that does nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if NETWORK_VARIABLES.fullmatch(name):
                patch.delenv(name)
        patch.setenv("SSL_CERT_DIR", str(no_certificates))
        yield


@pytest.fixture(autouse=True)
def own_log_settings() -> Iterator[None]:
    """What a test sets on gaia's logger, `debug=True` for one, is not there in the next test."""
    logger = logging.getLogger("gaia")
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def empty_registry() -> Iterator[None]:
    """The process's tool registry without what other modules have registered, which is there again after the test."""
    from gaia.agents.base.tools import _TOOL_REGISTRY

    before = _TOOL_REGISTRY.copy()
    _TOOL_REGISTRY.clear()
    yield
    _TOOL_REGISTRY.clear()
    _TOOL_REGISTRY.update(before)


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> "Tracing":
    """The spans that this process records during the test."""
    from tests.tracing import Tracing

    return Tracing.installed(monkeypatch)


@pytest.fixture
def metering(monkeypatch: pytest.MonkeyPatch) -> "Metering":
    """The metrics that this process records during the test."""
    from tests.tracing import Metering

    return Metering(monkeypatch)


@pytest.fixture
def connect() -> "Iterator[Callable[..., MCPClient]]":
    """Connect to a server: ``connect(config, key=value)``, with more keys of its configuration.

    The client is disconnected after the test.
    """
    from gaia.mcp.client import MCPClient

    clients: list[MCPClient] = []

    def connect(config: dict[str, Any], name: str = "fault", **keys: Any) -> MCPClient:
        client = MCPClient.from_config(name, {**config, **keys})
        clients.append(client)
        assert client.connect(), client.last_error
        return client

    yield connect
    for client in clients:
        client.disconnect()


class CompleteLog(pytest.LogCaptureFixture):
    """Has what engine threads have emitted so far, too: it reaches handlers on another thread, a moment later."""

    @property
    def handler(self) -> Any:
        log.flush(PATIENCE)
        return super().handler


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    # pytest has made it, and resets its levels in the end.
    caplog.__class__ = CompleteLog
    return caplog


@pytest.fixture
def log_events(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
    """The fields of each log event of a name that was logged so far, from info on: ``log_events("config_saved")``."""
    caplog.set_level(logging.INFO, "gaia")

    def fields_of(name: str) -> list[dict[str, Any]]:
        events = [getattr(record, "event_fields", {}) for record in caplog.records]
        return [
            {key: value for key, value in event.items() if key != "event"}
            for event in events
            if event.get("event") == name
        ]

    return fields_of


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still until the test lets time pass."""
    return FakeClock()


@pytest.fixture
def fault_server(starts_processes: None) -> Callable[..., dict[str, Any]]:
    """Make the configuration of a scripted server: the keywords are the fields of `Scenario`, as JSON.

    ``fault_server(faults=[{"tool": "echo", "crash": "mid_line"}], state_file=tmp_path / "state")``
    """

    def configure(**scenario: Any) -> dict[str, Any]:
        text = json.dumps(scenario, default=os.fspath)
        # A mistake is reported here, where the test is, and not by a server that does not start.
        Scenario.from_json(json.loads(text))
        # Isolated and without site-packages: it starts in half the time.
        return {"command": sys.executable, "args": ["-I", "-S", program(fault_server_module), text]}

    return configure


@pytest.fixture
def demo_server(starts_processes: None) -> dict[str, Any]:
    """The configuration of the demo server, run as a file so that it needs neither a path nor an installation."""
    specification = importlib.util.find_spec("gaia.mcp.demo_server")
    assert specification is not None
    assert specification.origin is not None
    return {"command": sys.executable, "args": ["-I", specification.origin]}


@pytest.fixture
def feature_server(starts_processes: None) -> dict[str, Any]:
    """The configuration of the demo server with more features: resources, a prompt, a list of tools that grows."""
    file = Path(__file__).parent / "servers" / "feature_server.py"
    source = Path(gaia.__file__).parents[1]
    return {"command": sys.executable, "args": ["-P", str(file)], "env": {"PYTHONPATH": str(source)}}
