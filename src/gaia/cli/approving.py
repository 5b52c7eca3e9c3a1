"""`gaia mcp approve`: what has changed about a server's tools, and the approval of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gaia.cli import terminal
from gaia.cli.command_errors import FAILED, CommandFailed, unknown_name
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import difference_text
from gaia.cli.servers import complete_name, connected, entry_of
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client.pinning.gate import Review
    from gaia.mcp.client.pinning.lock_file import Pin

__all__ = ["approve"]


@dataclass(frozen=True)
class _Change:
    tool: str
    kind: Literal["new", "changed", "removed"]
    lines: list[str]


@with_options("trust", "config", "as_json", "debug")
def approve(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
    tools: Annotated[
        list[str] | None, typer.Option("--tool", metavar="TOOL", help="Only this tool. Repeatable.")
    ] = None,
    assume_yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
) -> None:
    r"""Show what a server says of its tools that was not approved yet, and approve it.

    The server is started to list its tools; no tool is called. Characters that would not be seen are shown as
    \u{...}. With "pinTools": "block" in its configuration, tools that are new or have changed cannot be used before
    this. The exit status is 1 if something was left unapproved.
    """
    from gaia.mcp.client.pinning.gate import compare
    from gaia.mcp.client.pinning.lock_file import pin_of, pins_of

    servers = load_to_start(options)
    # Nothing is to be approved by its first use here: that is what is being asked.
    with connected(name, options, servers, pinTools="off") as client:
        pins = {tool.name: pin_of(tool) for tool in client.list_tools()}
        listed, problem = {*pins, *client.denied_tools}, client.last_error
    if not listed and problem is not None:
        raise CommandFailed(f"server {name!r} does not list its tools: {problem}", error_type="server_unavailable")
    store = pins_of(servers, name)
    approved = store.read() or {}
    for tool in tools or ():
        if tool not in pins and tool not in approved:
            raise unknown_name("tool", tool, {*pins, *approved}, place=f" on server {name!r}")
    changes = [
        change
        for change in _changes(compare(approved, pins, listed), approved, pins)
        if not tools or change.tool in tools
    ]
    if not options.json:
        _show(name, changes, len(pins))
    agreed = not changes or assume_yes or _agreed(len(changes), options)
    if agreed and changes:
        new = {change.tool: pins[change.tool] for change in changes if change.kind != "removed"}
        store.approve(new, [change.tool for change in changes if change.kind == "removed"])
    if options.json:
        found = [{"tool": change.tool, "kind": change.kind, "diff": change.lines} for change in changes]
        terminal.print_json({"server": name, "changes": found, "approved": agreed, "file": str(store.file)})
    elif changes:
        _conclude(name, entry_of(servers, name), store.file, agreed=agreed)
    if not agreed:
        raise typer.Exit(FAILED)


def _changes(review: Review, approved: dict[str, Pin], pins: dict[str, Pin]) -> list[_Change]:
    from gaia.mcp.client.difference import difference

    def lines(tool: str) -> list[str]:
        old, new = approved.get(tool), pins.get(tool)
        return difference(None if old is None else old.definition, None if new is None else new.definition)

    return [
        *(_Change(tool, "changed", lines(tool)) for tool in review.changed),
        *(_Change(tool, "new", lines(tool)) for tool in review.added),
        *(_Change(tool, "removed", []) for tool in review.removed),
    ]


def _show(name: str, changes: list[_Change], count: int) -> None:
    from gaia.untrusted_text import escaped

    if not changes:
        terminal.say(f"{name}: all {count} tools are as they were approved.")
    for change in changes:
        terminal.say(f"{change.kind}: {escaped(change.tool)}", "bold yellow")
        if change.lines:
            terminal.show(difference_text(change.lines))


def _agreed(count: int, options: Options) -> bool:
    if options.json or not terminal.can_ask():
        return False
    return terminal.yes(f"Approve {'this change' if count == 1 else f'these {count} changes'}?")


def _conclude(name: str, entry: dict[str, Any], file: object, *, agreed: bool) -> None:
    if agreed:
        terminal.say(f"Approved; saved in {file}", "green")
        if entry.get("pinTools", "off") == "off":
            hint = f'Nothing is compared with this until the entry of {name} has "pinTools": "warn" or "block".'
            terminal.say(hint, "dim")
    else:
        terminal.say("Nothing was approved. Use --yes to approve without being asked.")
