"""MCP servers with the tools of well-known ones, for examples: ``stand_in_server.py PACKAGE [ARGUMENT…]``.

What a reader starts with ``uvx PACKAGE`` or ``npx -y PACKAGE`` comes from a registry, and is slow to start. These speak
the same protocol over stdio, and answer from this file alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gaia.mcp.demo_server import ADDITIVE, DESTRUCTIVE, READ_ONLY, Call, DemoServer, Tool, serve, text_result

Json = dict[str, Any]
STRING: Json = {"type": "string"}


def time_tools(_arguments: list[str]) -> list[Tool]:
    """mcp-server-time."""

    def now(_call: Call, timezone: str) -> Json:
        moment = datetime.now(ZoneInfo(timezone)).isoformat(timespec="seconds")
        return text_result(json.dumps({"timezone": timezone, "datetime": moment}))

    def convert(_call: Call, source_timezone: str, time: str, target_timezone: str) -> Json:
        hour, minute = map(int, time.split(":"))
        source = datetime.now(ZoneInfo(source_timezone)).replace(hour=hour, minute=minute, second=0, microsecond=0)
        target = source.astimezone(ZoneInfo(target_timezone))
        return text_result(json.dumps({"source": source.isoformat(), "target": target.isoformat()}))

    zones = {"source_timezone": STRING, "time": STRING, "target_timezone": STRING}
    return [
        Tool("get_current_time", "Get current time in a specific timezone", {"timezone": STRING}, READ_ONLY, now),
        Tool("convert_time", "Convert time between timezones", zones, READ_ONLY, convert),
    ]


def git_tools(_arguments: list[str]) -> list[Tool]:
    """mcp-server-git."""

    def status(_call: Call, repo_path: str) -> Json:
        return text_result(f"Repository status:\nOn branch main in {repo_path}")

    return [Tool("git_status", "Shows the working tree status", {"repo_path": STRING}, READ_ONLY, status)]


def fetch_tools(_arguments: list[str]) -> list[Tool]:
    """mcp-server-fetch."""

    def fetch(_call: Call, url: str) -> Json:
        return text_result(f"Contents of {url}:\n# Example Domain")

    return [Tool("fetch", "Fetches a URL from the internet", {"url": STRING}, READ_ONLY, fetch)]


def file_tools(arguments: list[str]) -> list[Tool]:
    """@modelcontextprotocol/server-filesystem."""
    root = Path(arguments[0]).resolve()

    def inside(path: str) -> Path:
        return root / path

    def read(_call: Call, path: str) -> Json:
        if not inside(path).is_file():
            return text_result(f"ENOENT: no such file or directory, open '{path}'") | {"isError": True}
        return text_result(inside(path).read_text(encoding="utf-8"))

    def write(_call: Call, path: str, content: str) -> Json:
        inside(path).write_text(content, encoding="utf-8")
        return text_result(f"Successfully wrote to {path}")

    def move(_call: Call, source: str, destination: str) -> Json:
        inside(source).rename(inside(destination))
        return text_result(f"Successfully moved {source} to {destination}")

    def names(_call: Call, path: str) -> Json:
        return text_result("\n".join(sorted(f"[FILE] {each.name}" for each in inside(path).iterdir())))

    two_paths = {"source": STRING, "destination": STRING}
    return [
        Tool("read_file", "Read the complete contents of a file", {"path": STRING}, READ_ONLY, read),
        Tool("read_text_file", "Read the contents of a file as text", {"path": STRING}, READ_ONLY, read),
        Tool("write_file", "Write a file", {"path": STRING, "content": STRING}, DESTRUCTIVE, write),
        Tool("move_file", "Move or rename a file", two_paths, ADDITIVE, move),
        Tool("list_directory", "List the contents of a directory", {"path": STRING}, READ_ONLY, names),
    ]


SERVERS: dict[str, Callable[[list[str]], list[Tool]]] = {
    "mcp-server-time": time_tools,
    "mcp-server-git": git_tools,
    "mcp-server-fetch": fetch_tools,
    "@modelcontextprotocol/server-filesystem": file_tools,
}


class StandIn(DemoServer):
    """Offers the tools of one package instead of the demo's."""

    def __init__(self, write: Callable[[bytes], None], tools: list[Tool]) -> None:
        super().__init__(write)
        self.tools = {tool.name: tool for tool in tools}


def main() -> int:
    """Serve the package that the first argument without a dash names."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("1.0.0")
        return 0
    while arguments and arguments[0].startswith("-"):
        del arguments[0]
    if not arguments or arguments[0] not in SERVERS:
        known = ", ".join(SERVERS)
        print(f"there is no stand-in for {' '.join(sys.argv[1:])!r} here, only for {known}", file=sys.stderr)
        return 1
    tools = SERVERS[arguments[0]](arguments[1:])
    return serve(lambda write: StandIn(write, tools))


if __name__ == "__main__":
    sys.exit(main())
