"""Measures what definitions of 120 tools cost at a step of an agent, and writes the table of `docs/adapters/index.md`.

    python -m tests.adapters.step_page

It measures the frameworks that this environment has, and leaves the rows of the others as they are.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gaia
from gaia.adapters.selection import ToolSelection
from gaia.mcp import MCPClientManager
from tests.adapters import steps
from tests.servers import many_tools_server

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "index.md"
HEAD = "| 120 tools | its own client, a step | gaia-mcp, the first step | a further step | 20 agents, 5 steps each |"
TITLES = {
    "langchain": "LangChain",
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "OpenAI Agents SDK",
    "google_adk": "Google ADK",
    "strands": "Strands Agents",
    "llama_index": "LlamaIndex",
    "crewai": "CrewAI",
    "smolagents": "smolagents",
    "openai": "OpenAI's API",
    "anthropic": "Anthropic's API",
}
_AGENTS, _STEPS, _REPEATED, _ROUNDS = 20, 5, 50, 3


async def measured(framework: str, manager: MCPClientManager) -> list[float | None]:
    """The columns of a row, in seconds. None: the framework has no client of its own, or lists its tools only once."""
    make = getattr(steps, framework)
    # Imports and warm-up.
    await make(manager)()
    rounds = [await _round(make, manager) for _ in range(_ROUNDS)]
    first, together = (min(figures) for figures in zip(*rounds, strict=True))
    # As an agent does that lasts. APIs without agents are given a selection that lasts.
    step = make(ToolSelection(manager))
    further = statistics.median([await _seconds(step) for _ in range(_REPEATED)])
    return [await _own(framework), first, further, together]


async def _round(make: Callable[..., steps.Step], manager: MCPClientManager) -> tuple[float, float]:
    """The first step of all, and the steps of all agents together."""
    # Definitions end with the tools of one process of the server.
    manager.restart("many")
    first = await _seconds(make(manager))
    agents = [make(manager) for _ in range(_AGENTS)]
    began = time.perf_counter()
    for agent in agents:
        for _ in range(_STEPS):
            await agent()
    return first, time.perf_counter() - began


async def _own(framework: str) -> float | None:
    if (connected := getattr(steps, f"{framework}_own", None)) is None:
        return None
    async with AsyncExitStack() as stack:
        step = await connected([sys.executable, many_tools_server.__file__], stack)
        await step()
        return statistics.median([await _seconds(step) for _ in range(_STEPS)])


async def _seconds(step: steps.Step) -> float:
    began = time.perf_counter()
    await step()
    return time.perf_counter() - began


def row(framework: str, columns: list[float | None]) -> str:
    cells = ["" if seconds is None else _milliseconds(seconds * 1000) for seconds in columns]
    return f"| {TITLES[framework]} | {' | '.join(cells)} |"


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def with_rows(page: str, rows: dict[str, str]) -> str:
    """The page with these rows in the place of those of the same frameworks."""
    before, rest = page.split(HEAD, 1)
    table, after = rest.split("\n\n", 1)
    rule, *lines = table.strip().splitlines()
    known = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    known |= {TITLES[framework]: line for framework, line in rows.items()}
    ordered = [known[title] for title in TITLES.values() if title in known]
    return "\n".join([before + HEAD, rule, *ordered, "", after])


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", AWS_DEFAULT_REGION="none")
    source = str(Path(gaia.__file__).parents[1])
    entry: dict[str, Any] = {"command": sys.executable, "args": [many_tools_server.__file__]}
    os.environ["PYTHONPATH"] = source
    rows = {}
    with MCPClientManager({"many": {**entry, "env": {"PYTHONPATH": source}}}) as manager:
        manager.require()
        for framework, module in steps.FRAMEWORKS.items():
            try:
                is_there = find_spec(module) is not None
            except ModuleNotFoundError:
                is_there = False
            if is_there:
                rows[framework] = row(framework, asyncio.run(measured(framework, manager)))
                print(rows[framework])
    PAGE.write_text(with_rows(PAGE.read_text("utf-8"), rows), "utf-8")


if __name__ == "__main__":
    main()
