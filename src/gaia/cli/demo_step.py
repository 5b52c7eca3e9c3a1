"""One step of `gaia mcp demo`, with or without a cluster: what was shown, and whether it went as it should."""

from __future__ import annotations

from typing import Any, NamedTuple

from gaia.cli import terminal

_GONE_SECONDS = 5.0


class Step(NamedTuple):
    """One thing that was shown, and whether it went as it should."""

    name: str
    ok: bool
    lines: list[str]
    """For people. The first is the step's title."""
    facts: dict[str, Any]
    """For programs."""


def show_step(step: Step) -> None:
    from rich.padding import Padding
    from rich.text import Text

    title, *rest = step.lines
    mark = terminal.text("✓" if step.ok else "✗", "bold green" if step.ok else "bold red")
    terminal.show(Text.assemble(mark, " ", terminal.text(title, "bold")))
    for line in rest:
        # Padding, so that what does not fit in one line is indented too.
        shown = Padding(terminal.text(line, "dim" if line.startswith("span ") else ""), (0, 0, 0, 4), expand=False)
        terminal.show(shown)


def nothing_left(started: set[Any]) -> Step:
    """Whether every process that ever ran for the demo is gone: the servers of each generation, and their guard."""
    import psutil

    _, alive = psutil.wait_procs(started, timeout=_GONE_SECONDS)
    left = sorted(process.pid for process in alive)
    pids = sorted(process.pid for process in started)
    verdict = f"still running: {left}" if left else f"none of the {len(pids)} processes is left ({list_text(pids)})"
    return Step("stop", not left, ["Stop", verdict], {"pids": pids, "left": left})


def list_text(items: Any) -> str:
    return ", ".join(str(item) for item in items)
