"""Many servers, callers and kills for minutes or hours: nothing is lost, and nothing grows.

    python -m tests.soak [--minutes 5] [--servers 20] [--callers 32] [--seed N] [--json]

Ends with 0 if all went well, and with 1 if a call was lost, answered wrongly or written twice, if a server did not come
back, or if memory, threads or descriptors grew. Ctrl-C ends it early, with the figures so far.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gaia.mcp import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from tests import leak_check
from tests.chaos.faults import ScriptedServer
from tests.servers.state_file import read_state
from tests.soak.figures import Figures, Recoveries, Sample, Tally, rss_in_thirds, summary
from tests.soak.load import POLICY, Load, Target
from tests.waiting import wait_until

WARM_UP = 60.0
"""Seconds until memory is looked at: by then allocators, caches and statistics have their size. A soak that is not at
least twice as long is not judged by it."""

TOLERANCE = 0.10
"""How much the memory may grow from the first third after the warm-up to the last: what is under way differs from
moment to moment. A leak of some bytes for each call comes to more, the sooner the longer a soak is."""

CALLBACK_THREADS = 4
"""They start when they are needed first, and stay."""

SAMPLE_EVERY = 2.0
"""Seconds."""

RECOVERY_LIMIT = 60.0
"""Seconds within which all servers have to be well once nobody kills them any more."""


def main() -> int:
    options = parse()
    console = Console(stderr=True)
    console.print(f"seed {options.seed}; Ctrl-C ends it early")
    before = leak_check.Holdings.now()
    with tempfile.TemporaryDirectory(prefix="gaia-soak-") as folder:
        figures = soak(Path(folder), options, console)
    figures.wrong += [f"left behind: {what}" for what in leak_check.leaked_since(before).describe()]
    if options.json:
        json.dump(figures.to_json(), sys.stdout, indent=2)
        print()
    else:
        show(figures, Console())
    return 1 if figures.wrong else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def soak(folder: Path, options: argparse.Namespace, console: Console) -> Figures:
    config = MCPConfig(folder / "servers.json", create=True)
    servers = [ScriptedServer(f"s{number}", folder) for number in range(options.servers)]
    for server in servers:
        config.add_server(server.name, server.configuration(healthInterval=5, healthTimeout=2, timeout=10))
    figures = Figures(options.minutes, options.servers, options.callers, options.seed)
    with MCPClientManager(config, restart_policy=POLICY) as manager:
        manager.load_from_config()
        targets = list(make_targets(manager, servers))
        load = Load(manager, targets, options.callers, options.seed)
        began = time.monotonic()
        calm = Sample.now(began)
        load.start()
        try:
            samples = watch(options.minutes * 60, targets, console)
            figures.minutes = (time.monotonic() - began) / 60
            load.stop_killing()
            # While callers still call: a recovery is an answer.
            recovered = wait_until(lambda: not any(target.recoveries.is_waiting for target in targets), RECOVERY_LIMIT)
        finally:
            load.stop()
        recovered = recovered and wait_until(
            lambda: all(target.client.is_connected() for target in targets), RECOVERY_LIMIT
        )
        if not recovered:
            figures.wrong.append(f"not all servers came back: {manager.status()}")
        figures.restarts = sum(status.restarts for status in manager.status())
        add_holdings(figures, calm, began)
    add_memory(figures, samples)
    add_calls(figures, targets)
    return figures


def make_targets(manager: MCPClientManager, servers: list[ScriptedServer]) -> Iterator[Target]:
    for server in servers:
        client = manager.get_client(server.name)
        if client is None:
            raise SystemExit(f"{server.name} could not be started: {manager.status()}")
        yield Target(client, server, Tally(), Recoveries())


def watch(seconds: float, targets: list[Target], console: Console) -> list[Sample]:
    """Take samples until the time is over, and show how it goes."""
    samples: list[Sample] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns, console=console) as progress, suppress(KeyboardInterrupt):
        task = progress.add_task("", total=seconds)
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(min(SAMPLE_EVERY, seconds - passed))
            samples.append(Sample.now(began))
            calls = sum(target.tally.begun for target in targets)
            kills = sum(target.recoveries.kills.total() for target in targets)
            description = f"{calls:,} calls, {kills} kills, {samples[-1].rss / 2**20:.1f} MiB"
            progress.update(task, completed=passed, description=description)
    return samples


def add_holdings(figures: Figures, calm: Sample, began: float) -> None:
    """Compare threads and descriptors with those before the first call, as soon as the last restart is over."""
    threads = calm.threads + CALLBACK_THREADS

    def is_calm() -> bool:
        now = Sample.now(began)
        figures.threads = calm.threads, now.threads
        figures.descriptors = calm.descriptors, now.descriptors
        return now.threads <= threads and now.descriptors <= calm.descriptors

    if not wait_until(is_calm, RECOVERY_LIMIT):
        figures.wrong.append("threads or descriptors were left by servers that are gone")


def add_calls(figures: Figures, targets: list[Target]) -> None:
    outcomes, kills = Counter[str](), Counter[str]()
    seconds: dict[str, list[float]] = {}
    for target in targets:
        outcomes += target.tally.outcomes
        kills += target.recoveries.kills
        for how, values in target.recoveries.seconds.items():
            seconds.setdefault(how, []).extend(values)
        figures.calls += target.tally.begun
        figures.wrong += target.tally.contradictions(read_state(target.server.state_file).calls)
    figures.outcomes, figures.kills = dict(outcomes.most_common()), dict(kills)
    figures.recoveries = {how: summary(values) for how, values in sorted(seconds.items())}
    figures.lost = figures.calls - outcomes.total()
    if figures.lost:
        figures.wrong.append(f"{figures.lost} calls never ended")
    figures.wrong += [f"{count} calls: {outcome}" for outcome, count in outcomes.items() if outcome.isupper()]


def add_memory(figures: Figures, samples: list[Sample]) -> None:
    figures.rss_peak = max((sample.rss for sample in samples), default=0)
    warm = [sample for sample in samples if sample.seconds >= WARM_UP]
    if not warm or warm[-1].seconds < 2 * WARM_UP:
        return
    figures.rss_warm, figures.rss_end = rss_in_thirds(warm)
    if figures.rss_end > figures.rss_warm * (1 + TOLERANCE):
        figures.wrong.append(f"memory grew by more than {TOLERANCE:.0%}")


def show(figures: Figures, console: Console) -> None:
    table = Table(show_header=False)
    rate = figures.calls / (figures.minutes * 60)
    table.add_row("time", f"{figures.minutes:.1f} min, {figures.servers} servers, {figures.callers} callers")
    table.add_row("calls", f"{figures.calls:,} ({rate:.0f}/s), {figures.lost} lost")
    table.add_row("outcomes", ", ".join(f"{outcome} {count:,}" for outcome, count in figures.outcomes.items()))
    table.add_row("kills", ", ".join(f"{how} {count}" for how, count in figures.kills.items()))
    table.add_row("restarts", str(figures.restarts))
    for how, one in figures.recoveries.items():
        shown = ", ".join(f"{name} {value:.2f} s" for name, value in one.items() if name != "count")
        table.add_row(f"recovery, {how}", f"{one['count']:.0f} times: {shown}")
    mib = [f"{size / 2**20:.1f} MiB" for size in (figures.rss_warm, figures.rss_end, figures.rss_peak)]
    judged = f"{mib[0]} warm, {mib[1]} in the end, " if figures.rss_warm else "too short to be judged, "
    table.add_row("memory", f"{judged}{mib[2]} at most")
    table.add_row("threads", "{} at first, {} in the end".format(*figures.threads))
    table.add_row("descriptors", "{} at first, {} in the end".format(*figures.descriptors))
    table.add_row("verdict", "[bold red]" + "\n".join(figures.wrong) if figures.wrong else "[bold green]well")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
