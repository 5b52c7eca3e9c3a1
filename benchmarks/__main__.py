"""``python -m benchmarks``: measure gaia-mcp against a raw pipe and other clients, and check the results.

Exit status: 0 on success, 1 if `--check` or `--compare` found something, 2 for a wrong command line, 3 if nothing could
be measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks import echo_server, machine, page, readme
from benchmarks.comparison import Change, compare
from benchmarks.contenders import ALL, FLOOR, FRAMEWORKS, GAIA, GATEWAY_PEERS, GATEWAYS, PEERS, Contender
from benchmarks.driver_process import DriverFailed
from benchmarks.environments import CannotInstall, interpreter_for, version_of
from benchmarks.gate import judge
from benchmarks.measures import (
    adapters,
    awaited,
    footprint,
    gateway,
    http,
    latency,
    placement,
    recovery,
    replicas,
    sandbox,
    start,
    steps,
    throughput,
    tracing,
)
from benchmarks.results import Run, UnusableResults
from benchmarks.session import Effort, Session

_MEASURES: dict[str, Callable[[Session], None]] = {
    "latency": latency.measure,
    "throughput": throughput.measure,
    "http": http.measure,
    "asyncio": awaited.measure,
    "tracing": tracing.measure,
    "steps": steps.measure,
    "start": start.measure,
    "footprint": footprint.measure,
    "recovery": recovery.measure,
    "replicas": replicas.measure,
    "sandbox": sandbox.measure,
    "gateway": gateway.measure,
    "placement": placement.measure,
    "adapters": adapters.measure,
}
_PROJECT = Path(__file__).parents[1]
_FOUND, _USAGE, _UNMEASURABLE = 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        before = None if options.compare is None else Run.load(options.compare)
        if options.load is not None:
            return _conclude(Run.load(options.load), options, before)
        server = echo_server.build()
    except UnusableResults as error:
        print(error, file=sys.stderr)
        return _USAGE
    except echo_server.NoCompiler as error:
        print(error, file=sys.stderr)
        return _UNMEASURABLE
    run = Run(command=_command(options), date=datetime.now(UTC).date().isoformat(), machine=machine.describe())
    contenders = _prepared(run, options.contenders)
    if options.action == "setup":
        return 0
    began = time.monotonic()
    session = Session(run, contenders, [str(server)], Effort(quick=options.quick, rounds=options.rounds))
    for name, measure in _MEASURES.items():
        if name in options.only:
            _measure(session, name, measure)
    run.seconds = time.monotonic() - began
    return _conclude(run, options, before)


def _measure(session: Session, name: str, measure: Callable[[Session], None]) -> None:
    """What cannot be measured here is said in the results, and the other measures go on."""
    try:
        measure(session)
    except (CannotInstall, DriverFailed, echo_server.NoCompiler, psutil.Error, OSError) as error:
        for contender in session.able(name):
            session.fail(name, contender, str(error))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "action", nargs="?", choices=["run", "setup"], default="run", help="setup: only install the peers"
    )
    names = [contender.key for contender in (*ALL, *GATEWAYS, *FRAMEWORKS)]
    parser.add_argument("--only", action="append", choices=[*_MEASURES], help="one measure; may be repeated")
    parser.add_argument("--contender", action="append", choices=names, help="one contender; may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="only gaia-mcp and the floors; installs no peers")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, for a first look")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="this many rounds of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--load", type=Path, metavar="FILE", help="measure nothing, take the results in FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit of the gate is missed")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="exit with 1 if it is worse than the run in FILE")
    parser.add_argument("--update-docs", action="store_true", help="write docs/benchmarks.* and the README's figures")
    options = parser.parse_args(arguments)
    options.only = options.only or [*_MEASURES]
    excluded = {each.key for each in (*PEERS, *GATEWAY_PEERS, *FRAMEWORKS)} if options.no_peers else set()
    wanted = options.contender or names
    options.contenders = [each for each in _measured(options.only) if each.key in wanted and each.key not in excluded]
    return options


def _measured(measures: list[str]) -> list[Contender]:
    """The contenders of these measures; no others have to be installed."""
    own = (FLOOR, GAIA)
    apart = {"gateway": GATEWAYS, "adapters": FRAMEWORKS, "replicas": own, "placement": own}
    found = dict.fromkeys(ALL if set(measures) - apart.keys() else ())
    for name, contenders in apart.items():
        found |= dict.fromkeys(contenders if name in measures else ())
    return [*found]


def _command(options: argparse.Namespace) -> str:
    """The command line that repeats the measurement, without the options for output and comparison."""
    words = ["python", "-m", "benchmarks"]
    words += [f"--only {name}" for name in options.only if len(options.only) < len(_MEASURES)]
    words += [
        f"--contender {each.key}"
        for each in options.contenders
        if len(options.contenders) < len(_measured(options.only))
    ]
    words += ["--quick"] if options.quick else []
    words += [f"--rounds {options.rounds}"] if options.rounds else []
    return " ".join(words)


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _prepared(run: Run, wanted: list[Contender]) -> list[Contender]:
    """Install the peers. Those that cannot be installed are named in the results, with the reason."""
    ready = []
    for contender in wanted:
        try:
            run.versions[contender.key] = version_of(contender, interpreter_for(contender))
            ready.append(contender)
        except CannotInstall as error:
            print(f"{contender.title} is missing: {error}", file=sys.stderr)
            run.absent[contender.key] = str(error)
    return ready


def _conclude(run: Run, options: argparse.Namespace, before: Run | None) -> int:
    for (section, title), rows in run.tables().items():
        print(f"\n{section}: {title}", *page.table(rows), sep="\n")
    findings = judge(run)
    print("\nthe gate", *page.gate_table(findings), sep="\n")
    if options.json is not None:
        run.save(options.json)
    if options.update_docs:
        page.write(run, _PROJECT / "docs")
        readme.update(run, _PROJECT / "README.md")
    regressions = [] if before is None else [change for change in compare(run, before) if change.regressed]
    for change in regressions:
        print(_words(change), file=sys.stderr)
    missed = [finding for finding in findings if not finding.accepted] if options.check else []
    for finding in missed:
        print(f"missed: {finding.what}: {finding.found}, wanted {finding.wanted}", file=sys.stderr)
    return _FOUND if missed or regressions else 0


def _words(change: Change) -> str:
    return (
        f"worse: {change.key}: {change.now:.4g}, was {change.before:.4g}; "
        f"{change.times:.2f} times, {change.tolerance:g} may be chance"
    )


if __name__ == "__main__":
    sys.exit(main())
