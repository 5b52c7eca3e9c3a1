"""`gaia mcp test-client`: where a connection fails, how long each step takes, and what to do about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.command_errors import FAILED
from gaia.cli.options import ConfigOption, DebugOption, JsonOption, Options, TraceOption, TrustOption
from gaia.cli.rendering import step_table
from gaia.cli.servers import complete_name, entry_of, make_client, waiting_for
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient

__all__ = ["diagnose"]


def diagnose(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
    trust: TrustOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    trace: TraceOption = None,
    debug: DebugOption = False,
) -> None:
    """Connect to a server, step by step, and time each step: spawn, handshake, list, ping.

    Says at which step it fails, why, and what may help. The exit status is 0 only if every step succeeds.
    """
    options = Options.of(ctx, config, as_json, debug, trust, trace)
    servers = load_to_start(options)
    entry = entry_of(servers, name)
    client = make_client(name, servers, options)
    try:
        with waiting_for(f"Testing {name}", options):
            steps, warnings = _test(client), _warnings(entry, client)
    finally:
        client.disconnect()
    failed = next((step for step in steps if not step["ok"]), None)
    hint = None if failed is None else _remedy(name, failed, entry)
    if options.json:
        error = None if failed is None else failed["detail"]
        document = {"server": name, "ok": failed is None, "steps": steps, "error": error, "hint": hint}
        terminal.print_json(document | {"warnings": warnings})
    else:
        # An error may have many lines; it follows below the table.
        terminal.show(step_table([step if step["ok"] else step | {"detail": "failed"} for step in steps]))
        for warning in warnings:
            terminal.show(terminal.text(f"Note: {warning}", "yellow"))
        verdict = f"{name} works." if failed is None else f"{name} does not work: the step {failed['name']!r} failed."
        terminal.show(terminal.text(verdict, "bold green" if failed is None else "bold red"))
        if failed is not None:
            terminal.show(terminal.text(failed["detail"]))
        if hint is not None:
            terminal.show(terminal.text(hint))
    if failed is not None:
        raise typer.Exit(FAILED)


def _test(client: MCPClient) -> list[dict[str, Any]]:
    from gaia.mcp.doctor.stopwatch import Stopwatch
    from gaia.mcp.errors import JsonRpcError, MCPError

    watch = Stopwatch.on(client)
    ready = client.connect()
    steps = _connection_steps(client, watch, time.perf_counter(), ready=ready)
    if not ready:
        return steps
    began = time.perf_counter()
    try:
        client.request("ping")
    except JsonRpcError as error:
        # An error is an answer, and an answer is what a ping is for.
        steps.append(_step("ping", True, began, f"answered with an error, which is a sign of life: {error.message}"))
    except MCPError as error:
        steps.append(_step("ping", False, began, error.message))
    else:
        steps.append(_step("ping", True, began, "answered"))
    return steps


def _connection_steps(client: MCPClient, watch: Any, ended: float, *, ready: bool) -> list[dict[str, Any]]:
    """What `connect` did, taken apart by when the server had been started and when its tools were asked for."""
    error = client.last_error or "the reason is not known"
    if watch.opened is None:
        return [_step("spawn", False, watch.began, error, ended)]
    status = client.status
    steps = [_step("spawn", True, watch.began, _what_was_started(watch.pid), watch.opened)]
    listing = watch.listing
    if not ready and listing is None:
        return [*steps, _step("handshake", False, watch.opened, error, ended)]
    info = client.server_info
    server = " ".join(str(info[key]) for key in ("name", "version") if key in info) or "a server without a name"
    shaken = ended if listing is None else listing
    detail = f"{server}, protocol {status.protocol_version}"
    steps.append(_step("handshake", True, watch.opened, detail, shaken))
    if client.last_error is not None:
        steps.append(_step("list", False, shaken, error, ended))
    elif listing is None:
        steps.append(_step("list", True, shaken, "the server offers no tools", shaken))
    else:
        denied = len(client.denied_tools)
        filtered = f", {denied} more denied by filters" if denied else ""
        steps.append(_step("list", True, shaken, f"{status.tool_count} tools{filtered}", ended))
    return steps


def _step(name: str, ok: bool, began: float, detail: str, ended: float | None = None) -> dict[str, Any]:
    seconds = (time.perf_counter() if ended is None else ended) - began
    return {"name": name, "ok": ok, "seconds": seconds, "detail": detail}


def _warnings(entry: dict[str, Any], client: MCPClient) -> list[str]:
    """What does no harm yet, and is most likely not what was meant."""
    from gaia.mcp.client.launch import secret_in_arguments
    from gaia.mcp.client.server_config import ServerConfig, unknown_keys

    found = [
        f"the key {key!r} means nothing here" + ("" if similar is None else f"; did you mean {similar!r}?")
        for key, similar in unknown_keys(entry).items()
    ]
    found += [
        f"every user of this machine can read the value of {variable} in the server's arguments; pass it in env"
        for variable in secret_in_arguments(ServerConfig.from_dict(client.name, entry))
    ]
    if client.blocked_tools:
        found.append(
            f"{len(client.blocked_tools)} tools are blocked until you approve them: gaia mcp approve {client.name}"
        )
    if lines := client.status.noise_lines:
        found.append(
            f"it wrote {lines} lines to its standard output that are no messages; logs belong on standard error"
        )
    return found


def _remedy(name: str, failed: dict[str, Any], entry: dict[str, Any]) -> str | None:
    from gaia.mcp.doctor.remedies import for_handshake, for_missing_program

    match failed["name"]:
        case "spawn":
            program, *_ = str(entry.get("command", "")).split() or [""]
            return for_missing_program(program) if "was not found on the server's PATH" in failed["detail"] else None
        case "handshake":
            return for_handshake(name, entry, failed["detail"], stdio=bool(entry.get("command")))
        case _:
            return "It answers some requests and not others, which is for the authors of the server to mend."


def _what_was_started(pid: int | None) -> str:
    return "nothing to start: it is reached over HTTP" if pid is None else f"pid {pid}"
