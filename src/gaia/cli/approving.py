"""`gaia mcp approve`: shows how a server's tools, prompts and instructions have changed, and approves the change."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Exit, Option

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import difference_text
from gaia.cli.servers import ServerName, connected, entry_of
from gaia.cli.terminal import FAILED, CommandFailed, unknown_name
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import escaped_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from gaia.mcp.tools.pins import Pin, PinKind


class _Change(NamedTuple):
    of: PinKind
    name: str
    kind: str
    lines: list[str]


@with_options("trust", "config", "as_json", "debug")
def approve(
    options: Options,
    name: ServerName,
    tools: Annotated[list[str] | None, Option("--tool", metavar="TOOL", help="Only this tool. Repeatable.")] = None,
    assume_yes: Annotated[bool, Option("--yes", help="Approve without asking.")] = False,
) -> None:
    r"""Show what a server says of its tools and prompts, and its instructions, that was not approved yet; approve it.

    The server is started to list its tools and prompts; no tool is called. Characters that would not be seen are shown
    as \u{...}. With "pinTools": "block" in its configuration, what is new or has changed cannot be used before this.
    The exit status is 1 if something was left unapproved.

    Examples:
      gaia mcp approve time
      gaia mcp approve time --tool get_current_time --yes
    """
    servers = load_to_start(options)
    # With pins switched on, the first connection would approve all tools before the user has seen them.
    with connected(name, options, servers, pinTools="off") as client:
        pins = _pins(client)
        listed, problem = {*pins["tools"], *client.denied_tools}, client.last_error
    if not listed and problem is not None:
        raise CommandFailed(f"server {name!r} does not list its tools: {problem}", error_type="server_unavailable")
    store = servers.pins_of(name)
    approved = {kind: store.of(kind).read() or {} for kind in pins}
    for tool in tools or ():
        if tool not in pins["tools"] and tool not in approved["tools"]:
            raise unknown_name("tool", tool, {*pins["tools"], *approved["tools"]}, place=f" on server {name!r}")
    changes = [
        change
        for kind, found in pins.items()
        for change in _changes(kind, approved[kind], found, listed if kind == "tools" else found)
        if not tools or (kind == "tools" and change.name in tools)
    ]
    if not options.json:
        _show(name, changes, len(pins["tools"]))
    agreed = not changes or assume_yes or _agreed(len(changes), options)
    if agreed:
        for kind in dict.fromkeys(change.of for change in changes):
            of_kind = [change for change in changes if change.of == kind]
            new = {change.name: pins[kind][change.name] for change in of_kind if change.kind != "removed"}
            store.of(kind).approve(new, [change.name for change in of_kind if change.kind == "removed"])
    if options.json:
        rows = [{"of": change.of, "tool": change.name, "kind": change.kind, "diff": change.lines} for change in changes]
        terminal.print_json({"server": name, "changes": rows, "approved": agreed, "file": str(store.file)})
    elif changes:
        _conclude(name, entry_of(servers, name), store.file, agreed=agreed)
    if not agreed:
        raise Exit(FAILED)


def _pins(client: MCPClient) -> dict[PinKind, dict[str, Pin]]:
    from gaia.mcp.tools.pins import pin_of, pins_of_prompts, pins_of_text

    return {
        "tools": {tool.name: pin_of(tool) for tool in client.list_tools()},
        "prompts": pins_of_prompts(client.list_prompts() if "prompts" in client.capabilities else []),
        "instructions": pins_of_text(client.instructions),
    }


def _changes(kind: PinKind, approved: dict[str, Pin], found: dict[str, Pin], listed: Collection[str]) -> list[_Change]:
    from gaia.mcp.config.trust import difference
    from gaia.mcp.tools.pins import compare

    def change(name: str, what: str) -> _Change:
        old, new = approved.get(name), found.get(name)
        lines = [] if new is None else difference(None if old is None else old.definition, new.definition)
        return _Change(kind, name, what, lines)

    review = compare(approved, found, listed)
    by_kind = {"changed": review.changed, "new": review.added, "removed": review.removed}
    return [change(name, what) for what, names in by_kind.items() for name in names]


def _show(name: str, changes: list[_Change], count: int) -> None:
    if not changes:
        terminal.say(f"{name}: all {count} tools are as they were approved.")
    for change in changes:
        what = "prompt " if change.of == "prompts" else ""
        terminal.say(f"{change.kind}: {what}{escaped_line(change.name)}", "bold yellow")
        if change.lines:
            terminal.show(difference_text(change.lines))


def _agreed(count: int, options: Options) -> bool:
    if options.json or not terminal.can_ask():
        return False
    return terminal.yes(f"Approve {'this change' if count == 1 else f'these {count} changes'}?")


def _conclude(name: str, entry: dict[str, Any], file: object, *, agreed: bool) -> None:
    if not agreed:
        terminal.say("Nothing was approved. Use --yes to approve without being asked.")
        return
    terminal.say(f"Approved; saved in {file}", "green")
    if entry.get("pinTools", "off") == "off":
        hint = f'Nothing is compared with this until the entry of {name} has "pinTools": "warn" or "block".'
        terminal.say(hint, "dim")
