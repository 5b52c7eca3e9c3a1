"""`gaia mcp list --ray` and `gaia mcp placement`: the servers of all programs on a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import plain_table
from gaia.cli.servers import ServerName, waiting_for
from gaia.cli.terminal import FAILED, CommandFailed, usage_error
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.cluster.ray_view import RayView
    from gaia.mcp.cluster.report import NodeRoom, PlacedHost
    from gaia.mcp.config.placement import Placement

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="A Ray cluster, such as 10.0.0.1:6379; auto is the one of this machine."
    ),
]

_END_SECONDS = 60.0
_NO_PLACE = "no place"
"""The state of a server whose host has not answered: it was not placed yet, or it is lost."""
_ID_LENGTH = 8


@contextlib.contextmanager
def cluster_at(address: str | None, options: Options) -> Iterator[RayView]:
    """Join the cluster at `address`, or at ``RAY_ADDRESS``. Raises CommandFailed if that or Ray is missing."""
    from gaia.mcp.errors import StartFailed
    from gaia.runtime.extras import missing

    absent = missing("ray", "ray")
    if absent is not None:
        raise usage_error(f"this needs {absent}", error_type="not_installed")
    with waiting_for("Joining the Ray cluster", options):
        from gaia.mcp.cluster.ray_view import RayView

        try:
            view = RayView(address)
        except StartFailed as error:
            raise CommandFailed(
                error.message,
                hint="`ray start --head` starts a cluster, and prints the address for --ray and RAY_ADDRESS.",
                error_type="no_cluster",
            ) from error
    try:
        yield view
    finally:
        view.close()


def list_placed(address: str, options: Options) -> None:
    with cluster_at(address, options) as view:
        hosts = view.hosts()
    if options.json:
        terminal.print_json({"servers": [_document(host) for host in hosts]})
    elif hosts:
        terminal.show(_hosts_table(hosts))
        _say_errors(hosts)
    else:
        terminal.say(f"No servers are placed on the Ray cluster at {address}")
        terminal.say('A server with "placement": {"engine": "ray"} in its entry is placed when it is used.', "dim")


@with_options("config", "as_json", "debug")
def placement(
    options: Options,
    name: ServerName,
    ray: RayOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End it on its node, also if programs use it: for detached servers.")
    ] = False,
) -> None:
    """Show where a server runs on a Ray cluster, and why not: node, actor, resources, and the programs that use it.

    The cluster is that of --ray, else of RAY_ADDRESS, else of the placement in the server's entry, if it has one. For
    each node it is shown what is free there of what the server needs. The exit status is 0 if the server runs.

    Examples:
      gaia mcp placement browser
      gaia mcp placement browser --ray 10.0.0.1:6379 --json
      gaia mcp placement browser --stop
    """
    wanted = _wanted(name, options)
    address = ray or (None if wanted is None else wanted.address)
    with cluster_at(address, options) as view:
        hosts = [host for host in view.hosts() if host.server == _shared_name(name, wanted)]
        if stop:
            _stop(view, name, hosts, options)
            return
        nodes = view.nodes()
        demand = _demand_of(wanted, hosts)
        reason = _reason(view, hosts, wanted, demand, nodes)
    runs = any(host.report is not None and host.report.state == "ready" for host in hosts)
    if options.json:
        document = {
            "server": name,
            "runs": runs,
            "reason": reason,
            "demand": demand,
            "hosts": [_document(host) for host in hosts],
            "nodes": [_node_document(node, demand) for node in nodes],
        }
        terminal.print_json(document)
    else:
        _show(name, hosts, nodes, demand, reason)
    if not runs:
        raise typer.Exit(FAILED)


def _wanted(name: str, options: Options) -> Placement | None:
    """The placement in the server's entry; None without a usable entry, or without a placement."""
    from gaia.mcp.config.server_config import ServerConfig

    servers = options.load_config()
    if name not in servers.get_entries() or name in servers.problems:
        return None
    return ServerConfig.from_dict(name, servers.get_server(name)).placement


def _shared_name(name: str, wanted: Placement | None) -> str:
    return name if wanted is None else wanted.name or name


def _demand_of(wanted: Placement | None, hosts: Sequence[PlacedHost]) -> dict[str, float]:
    if wanted is not None:
        return wanted.demand
    return next((dict(host.report.resources) for host in hosts if host.report is not None), {})


def _reason(
    view: RayView,
    hosts: Sequence[PlacedHost],
    wanted: Placement | None,
    demand: dict[str, float],
    nodes: Sequence[NodeRoom],
) -> str | None:
    from gaia.mcp.cluster.report import shortage

    if not hosts:
        missing = None if wanted is None else shortage(demand, nodes, view.free())
        return "no program has placed it" if missing is None else f"no program has placed it, and {missing}"
    if any(host.report is None for host in hosts):
        return shortage(demand, nodes, view.free()) or "Ray has not started its actor yet, or its actor does not answer"
    failed = next((host.report for host in hosts if host.report is not None and host.report.state != "ready"), None)
    return None if failed is None else failed.error or f"the server is {failed.state}"


def _stop(view: RayView, name: str, hosts: Sequence[PlacedHost], options: Options) -> None:
    if not hosts:
        raise CommandFailed(f"no program has placed {name!r} on this cluster", error_type="not_placed")
    own = [host.report for host in hosts if host.report is not None and not host.report.shared]
    if own:
        drivers = ", ".join(user.driver for report in own for user in report.users) or "a program"
        raise usage_error(
            f"{name!r} belongs to a program that uses it, and ends with it: {drivers}",
            'Only servers with "lifetime": "detached" are ended by --stop.',
            "not_detached",
        )
    with waiting_for(f"Stopping {name}", options):
        left = [host.actor for host in hosts if not view.end(host.actor, host.server, _END_SECONDS)]
    if left:
        raise CommandFailed(
            f"{name!r} could not be stopped: its actor {left[0]} is still there", error_type="not_ended"
        )
    users = sum(len(host.report.users) for host in hosts if host.report is not None)
    words = f"Stopped {name}" + (f", which {users} programs were using" if users > 1 else "")
    terminal.answer(options.json, {"server": name, "stopped": True, "users": users}, words)


def _show(
    name: str, hosts: Sequence[PlacedHost], nodes: Sequence[NodeRoom], demand: dict[str, float], reason: str | None
) -> None:
    if hosts:
        terminal.show(_hosts_table(hosts))
        if any(host.report is not None for host in hosts):
            terminal.show(_users_table(hosts))
    if reason is not None:
        terminal.say(f"{one_line(name)} does not run: {one_line(reason)}", "red")
    terminal.show()
    terminal.show(_nodes_table(nodes, demand))


def _hosts_table(hosts: Sequence[PlacedHost]) -> Any:
    table = plain_table("server", "state", "node", "actor", "driver", "age", right=("age",))
    for host in hosts:
        report = host.report
        cells = (
            (_NO_PLACE, "-", "-", "-")
            if report is None
            else (report.state, f"{report.node} {_short(report.node_id)}", _drivers(host), _age(report.seconds))
        )
        state, node, driver, age = cells
        style = "green" if state == "ready" else "yellow"
        row = (one_line(host.server), state, node, _short(host.actor), driver, age)
        table.add_row(*(terminal.text(cell, style if cell is state else "") for cell in row))
    return table


def _users_table(hosts: Sequence[PlacedHost]) -> Any:
    table = plain_table("used by", "calls", "last heard of", "resources", right=("calls", "last heard of"))
    for host in hosts:
        if host.report is None:
            continue
        occupied = _amounts(host.report.resources)
        for user in host.report.users:
            silent = f"{user.silent:.1f} s ago"
            table.add_row(*map(terminal.text, (one_line(user.driver), user.in_flight, silent, occupied)))
    return table


def _nodes_table(nodes: Sequence[NodeRoom], demand: dict[str, float]) -> Any:
    from gaia.mcp.cluster.report import amount_text, node_shortages

    table = plain_table("node", "free", "too little" if demand else "")
    for node in nodes:
        shown = {name: pair for name, pair in node.shown.items() if not demand or name in demand}
        free = ", ".join(
            f"{name} {'?' if left is None else amount_text(name, left)} of {amount_text(name, total)}"
            for name, (left, total) in shown.items()
        )
        lacks = ", ".join(node_shortages(demand, node))
        table.add_row(
            terminal.text(f"{node.node} {_short(node.node_id)}"),
            terminal.text(free or "-"),
            terminal.text(lacks, "red"),
        )
    return table


def _say_errors(hosts: Sequence[PlacedHost]) -> None:
    for host in hosts:
        if host.report is not None and host.report.state != "ready" and host.report.error:
            terminal.say(f"{one_line(host.server)}: {host.report.error}", "red")


def _drivers(host: PlacedHost) -> str:
    users = [] if host.report is None else host.report.users
    if len(users) > 1:
        return f"{len(users)} programs"
    return one_line(users[0].driver) if users else "-"


def _document(host: PlacedHost) -> dict[str, Any]:
    import msgspec

    report = host.report
    document = {"server": host.server, "actor": host.actor, "state": _NO_PLACE}
    return document if report is None else document | {**msgspec.to_builtins(report), "server": host.server}


def _node_document(node: NodeRoom, demand: dict[str, float]) -> dict[str, Any]:
    from gaia.mcp.cluster.report import node_shortages

    resources = {name: {"free": free, "total": total} for name, (free, total) in node.shown.items()}
    lacks = node_shortages(demand, node)
    return {"node": node.node, "node_id": node.node_id, "resources": resources, "missing": lacks}


def _amounts(resources: dict[str, float]) -> str:
    from gaia.mcp.cluster.report import amount_text

    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in sorted(resources.items())) or "-"


def _short(identifier: str | None) -> str:
    return (identifier or "-")[:_ID_LENGTH]


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
