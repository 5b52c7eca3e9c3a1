"""`gaia mcp doctor` and `gaia mcp test-client`: find out why a server does not work, and suggest a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import check_table, step_table
from gaia.cli.servers import ServerName, complete_name, entry_of, make_client, say_that_there_are_none, waiting_for
from gaia.cli.terminal import FAILED
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.doctor import Check
    from gaia.mcp.doctor.inspection import Inspection

_SUMMARIES = {
    "ok": ("works.", "bold green"),
    "warn": ("works, with warnings.", "bold yellow"),
    "fail": ("does not work.", "bold red"),
}

_CHECKS_OF_STEPS = {"spawn": "start", "handshake": "handshake", "list": "tools", "ping": "latency"}


@with_options("trust", "config", "as_json", "trace", "debug")
def doctor(
    options: Options,
    name: Annotated[
        str | None, typer.Argument(help="The server; all if left out.", autocompletion=complete_name)
    ] = None,
) -> None:
    """Find out why a server does not work: configuration, program, start, handshake, tools, latency.

    Each check has a verdict and, where something is wrong, what to do about it. Without a name all servers are
    examined, and tools whose names they share are found. The exit status is 1 if a check fails; warnings do not count.

    Examples:
      gaia mcp doctor
      gaia mcp doctor time
      gaia mcp doctor --json
    """
    import msgspec

    from gaia.mcp.doctor import Verdict, diagnose_all

    servers = load_to_start(options)
    chosen = servers.get_entries() if name is None else {name: entry_of(servers, name)}
    if not chosen and not options.json:
        say_that_there_are_none(servers, options)
        return
    with waiting_for("Examining", options) as show_progress:

        def report(server: str, check: Check) -> None:
            show_progress(f"Examining {one_line(server)}: {check.name} {check.verdict}")

        found = diagnose_all(chosen, report)
    failed = any(diagnosis.verdict is Verdict.FAIL for diagnosis in found)
    if options.json:
        rows = [
            {"server": one.server, "verdict": one.verdict, "checks": msgspec.to_builtins(one.checks)} for one in found
        ]
        terminal.print_json({"ok": not failed, "servers": rows})
    else:
        for number, diagnosis in enumerate(found):
            if number:
                terminal.show()
            words, style = _SUMMARIES[diagnosis.verdict]
            terminal.say(f"{one_line(diagnosis.server)} {words}", style)
            terminal.show(check_table(diagnosis.checks))
    if failed:
        raise typer.Exit(FAILED)


@with_options("trust", "config", "as_json", "trace", "debug")
def test_client(options: Options, name: ServerName) -> None:
    """Connect to a server, step by step, and time each step: spawn, handshake, list, ping.

    Says at which step it fails, why, and what may help. The exit status is 0 only if every step succeeds.

    Examples:
      gaia mcp test-client time
    """
    from gaia.mcp.doctor.inspection import inspect_server, judge

    servers = load_to_start(options)
    entry = entry_of(servers, name)
    client = make_client(name, servers, options)
    with waiting_for(f"Testing {name}", options):
        seen = inspect_server(client, pings=1)
    steps, warnings = _steps(seen), _warnings(name, entry, seen, options)
    failed = next((step for step in steps if not step["ok"]), None)
    hint = None
    if failed is not None:
        checks = {check.name: check for check in judge(name, entry, seen, stdio=bool(entry.get("command")))}
        check = checks.get(_CHECKS_OF_STEPS[failed["name"]])
        hint = None if check is None else check.remedy
    if options.json:
        error = None if failed is None else failed["detail"]
        document = {"server": name, "ok": failed is None, "steps": steps, "error": error, "hint": hint}
        terminal.print_json(document | {"warnings": warnings})
    else:
        # An error may have many lines, so it is printed below the table.
        terminal.show(step_table([step if step["ok"] else step | {"detail": "failed"} for step in steps]))
        for warning in warnings:
            terminal.say(f"Note: {warning}", "yellow")
        verdict = f"{name} works." if failed is None else f"{name} does not work: the step {failed['name']!r} failed."
        terminal.say(verdict, "bold green" if failed is None else "bold red")
        if failed is not None:
            terminal.say(failed["detail"])
        if hint is not None:
            terminal.say(hint)
    if failed is not None:
        raise typer.Exit(FAILED)


def _steps(seen: Inspection) -> list[dict[str, Any]]:
    status = seen.status
    denied = f", {len(seen.denied)} more denied by filters" if seen.denied else ""
    process = "nothing to start: it is reached over HTTP" if seen.pid is None else f"pid {seen.pid}"
    agreed = f"{seen.server}, protocol {status and status.protocol_version}"
    listed = f"{status and status.tool_count} tools{denied}"
    tools = "the server offers no tools" if seen.list_seconds is None else listed
    steps = [
        ("spawn", seen.start_seconds, None, process),
        ("handshake", seen.handshake_seconds, seen.error, agreed),
        ("list", seen.list_seconds or 0.0, seen.list_error, tools),
        ("ping", sum(seen.pings), seen.ping_error, "answered"),
    ]
    if seen.start_seconds is None:
        steps = [("spawn", seen.handshake_seconds, seen.error, "")]
    elif seen.error is not None:
        del steps[2:]
    return [
        {"name": name, "ok": error is None, "seconds": seconds, "detail": detail if error is None else error}
        for name, seconds, error, detail in steps
    ]


def _warnings(name: str, entry: dict[str, Any], seen: Inspection, options: Options) -> list[str]:
    from gaia.mcp.client.server_transport import secret_in_arguments
    from gaia.mcp.config.server_config import ServerConfig, remarks_on_keys

    found = remarks_on_keys(entry)
    found += [
        f"every user of this machine can read the value of {variable} in the server's arguments; pass it in env"
        for variable in secret_in_arguments(ServerConfig.from_dict(name, entry))
    ]
    if seen.blocked:
        remedy = options.command("approve", name)
        found.append(f"{len(seen.blocked)} tools are blocked until you approve them: {remedy}")
    if seen.status is not None and (lines := seen.status.noise_lines):
        found.append(
            f"it wrote {lines} lines to its standard output that are no messages; logs belong on standard error"
        )
    return found
