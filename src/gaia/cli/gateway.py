"""`gaia mcp gateway`: serves all configured servers at one endpoint, and manages its clients."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from gaia.cli import terminal
from gaia.cli.options import Options, add_command, help_of, with_options
from gaia.cli.serving import (
    AllowHostOption,
    AllowOriginOption,
    HostOption,
    MaxBodyOption,
    PortOption,
    announce,
    each,
    log_without_waiting,
    refuse_options,
    run_server,
)
from gaia.cli.terminal import USAGE, CommandFailed
from gaia.cli.trusting import load_to_start
from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.operations.client_config import FILES, ClientProgram, config_for_stdio, config_for_url
from gaia.serving.options import HttpOptions, UnsafeOptions

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.gateway import Gateway
    from gaia.mcp.gateway.access.clients_file import ClientsFile
    from gaia.mcp.gateway.operations.reloader import Source

DEFAULT_PORT = 8765
_MODULES = ("uvicorn", "httptools", "starlette", "cryptography", "jwt", "prometheus_client")
"""Modules of the extra. uvloop is optional."""
_UNSAFE_HINT = "`gaia mcp gateway add-client NAME --clients FILE` makes a file for --clients."

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def gateway_http_options(
    host: HostOption = HttpOptions.host,
    port: PortOption = DEFAULT_PORT,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    trusted_proxy: Annotated[
        list[str] | None,
        Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="A proxy whose X-Forwarded-For counts: an address or a network.",
            callback=each(_is_network, "an IP address or a network such as 10.0.0.0/8"),
        ),
    ] = None,
    max_body: MaxBodyOption = HttpOptions.max_body,
    max_connections: Annotated[int, Option(min=1, help="How many connections there may be.")] = 1000,
    grace: Annotated[
        float, Option(min=0, metavar="SECONDS", help="How long calls may take to end when the gateway is told to.")
    ] = 30.0,
    drain_delay: Annotated[
        float,
        Option(
            min=0,
            metavar="SECONDS",
            help="How long a gateway that was told to end goes on accepting calls; see the docs.",
        ),
    ] = 0.0,
) -> HttpOptions:
    return HttpOptions(
        host,
        port,
        None,
        tuple(allow_host or ()),
        tuple(allow_origin or ()),
        # The check of --clients decides whether other machines may call the gateway, see `GatewaySources`.
        allow_anonymous=True,
        trusted_proxies=tuple(trusted_proxy or ()),
        max_body=max_body,
        max_connections=max_connections,
        shutdown_delay=drain_delay,
        shutdown_grace=grace,
    )


_HTTP_ONLY = {*signature(gateway_http_options).parameters, "clients", "name", "state_key"} - {"max_body", "grace"}


@with_options("trust", "config", "trace", "debug", http=gateway_http_options)
def gateway(
    options: Options,
    *,
    stdio: Annotated[bool, Option("--stdio", help="Serve one client on standard input and output.")] = False,
    http: HttpOptions,
    clients: Annotated[
        Path | None, Option("--clients", metavar="PATH", help="Who may use the gateway, see add-client.")
    ] = None,
    max_sessions: Annotated[int, Option(min=1, help="How many sessions there may be.")] = 1000,
    audit: Annotated[
        Path | None, Option("--audit", metavar="PATH", help="Write a line of JSON about each call to this file.")
    ] = None,
    name: Annotated[
        str | None, Option(metavar="NAME", help="Of this gateway, where a load balancer has several.")
    ] = None,
    state_key: Annotated[
        Path | None,
        Option(
            "--state-key", metavar="PATH", help="A secret that gateways behind one load balancer share; see the docs."
        ),
    ] = None,
    print_client_config: Annotated[
        ClientProgram | None, Option(help="Print what to paste for this client, and exit.")
    ] = None,
) -> None:
    """Put all servers that are not disabled behind one MCP endpoint, until the process is told to end.

    Examples:
      gaia mcp gateway
      gaia mcp gateway --stdio --config team.json
      gaia mcp gateway --print-client-config claude
      gaia mcp gateway --host 0.0.0.0 --clients clients.json --audit audit.jsonl
      gaia mcp gateway add-client ci --clients clients.json
    """
    if options.subcommand is not None:
        return
    if stdio:
        why = "for a gateway over HTTP only, and --stdio uses standard input and output"
        refuse_options(_HTTP_ONLY, options, why, "Leave this or --stdio out.")
    if print_client_config is not None:
        terminal.note(f"For {FILES[print_client_config]}:", "dim")
        if stdio:
            sys.stdout.write(config_for_stdio(print_client_config, _stdio_command(options, audit)))
        else:
            url = f"http://{_public_host(http)}:{http.port}/mcp"
            sys.stdout.write(config_for_url(print_client_config, url, with_token=clients is not None))
        return

    def run() -> None:
        from gaia.serving.loading import require

        require(*_MODULES, extra="gateway")
        log_without_waiting()
        with contextlib.ExitStack() as held:
            with _collector_paused():
                config = load_to_start(options)
                sources = GatewaySources(options, config, clients, is_local=http.is_loopback)
                if any("command" in server for server in config.get_servers().values()):
                    from gaia.mcp.transports.fork_server import fork_server

                    # The fork server starts while the gateway is imported.
                    fork_server.prepare(sources)
                    held.callback(fork_server.let_go, sources)
                if not config.get_entries():
                    from gaia.cli.servers import say_that_there_are_none

                    # Servers may be added while the gateway runs.
                    say_that_there_are_none(config, options, console=terminal.err())
                if stdio:
                    serve = _over_stdio(sources, http, audit)
                else:
                    serve = _over_http(sources, http, state_key, max_sessions=max_sessions, name=name, audit=audit)
            serve()

    run_server(run, options, unsafe_hint=_UNSAFE_HINT)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause garbage collection, which takes a seventh of the import time and finds almost nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _over_http(
    sources: GatewaySources, http: HttpOptions, state_key: Path | None, **settings: Any
) -> Callable[[], None]:
    from gaia.mcp.gateway import Gateway
    from gaia.mcp.gateway.service import Service
    from gaia.mcp.gateway.upstream.sealing import read_state_key
    from gaia.serving.service_manager import ServiceManager

    manager = ServiceManager.of_environment()
    key = None if state_key is None else read_state_key(state_key)
    try:
        gateway = Gateway(sources.config, clients=sources.clients, max_body=http.max_body, state_key=key, **settings)
    except ValueError as error:
        raise CommandFailed(str(error), exit_code=USAGE) from error
    say = announce("MCP gateway")
    service = Service(gateway, manager, sources.of(gateway))
    return lambda: service.run(http, lambda url: say(f"{url}/mcp"))


def _over_stdio(sources: GatewaySources, http: HttpOptions, audit: Path | None) -> Callable[[], None]:
    from gaia.mcp.gateway import Gateway
    from gaia.mcp.gateway.stdio import serve_stdio

    gateway = Gateway(sources.config, audit=audit)
    return lambda: serve_stdio(gateway, sources.of(gateway), grace=http.shutdown_grace)


def _stdio_command(options: Options, audit: Path | None) -> list[str]:
    # The PATH of a client that a desktop has started seldom contains this environment's `gaia`.
    script = Path(sys.executable).with_name("gaia")
    command = [str(script) if script.is_file() else "gaia", "mcp", "gateway", "--stdio"]
    files = {"--config": options.config_file, "--audit": audit}
    return command + [word for name, file in files.items() if file is not None for word in (name, str(file.absolute()))]


def _public_host(http: HttpOptions) -> str:
    """The host for a client's URL. A client cannot connect to an address that stands for all interfaces."""
    if http.allow_hosts:
        return http.allow_hosts[0]
    host = "localhost" if http.host in ("0.0.0.0", "::") else http.host  # noqa: S104 - compared, not listened on
    return f"[{host}]" if ":" in host else host


@with_options("as_json", "debug")
def add_client(
    options: Options,
    name: Annotated[str, Argument(help="The client, such as a person or a program.")],
    clients: Annotated[Path, Option("--clients", metavar="PATH", help="The file to add it to.")] = Path("clients.json"),
    profile: Annotated[str, Option(help="What it may see and do: a profile of the file.")] = "everything",
    replace: Annotated[bool, Option("--replace", help="Give a client that exists a new token.")] = False,
) -> None:
    """Add a client to the file of a gateway, and print its token, which is kept nowhere.

    A gateway that runs takes the change over within seconds.

    Examples:
      gaia mcp gateway add-client ci
      gaia mcp gateway add-client ci --clients team/clients.json --profile read-only
    """
    from gaia.mcp.gateway.access.clients_file import add_client as add

    token = add(clients, name, profile, replace=replace)
    if options.json:
        terminal.print_json({"client": name, "profile": profile, "file": str(clients), "token": token})
        return
    terminal.note(f"The token of {name!r}, which is shown only now:")
    terminal.say(token)
    terminal.note(f"{clients} has its hash. The client sends it as: Authorization: Bearer <token>", "dim")


app.callback(**help_of(gateway))(gateway)
add_command(app, "add-client", add_client)

_APPLY_SECONDS = 60.0
"""How long a reload waits for servers to be replaced. The change then continues in the background."""


class GatewaySources:
    """The configuration files of a running gateway. Reads servers and clients at the start and after changes."""

    def __init__(self, options: Options, config: MCPConfig, clients_file: Path | None, *, is_local: bool) -> None:
        """`is_local`: only this machine can reach the gateway. Raises `UnsafeOptions` and ConfigError."""
        self._options = options
        self._clients_file = clients_file
        self._is_local = is_local
        self.config = config
        self.clients = self._read_clients()

    def of(self, gateway: Gateway) -> list[Source]:
        from gaia.mcp.gateway.operations.reloader import Source

        sources = [Source(lambda: _files_of(self.config), lambda: self._load_servers(gateway))]
        if (file := self._clients_file) is not None:
            sources.append(Source(lambda: [file], lambda: self._load_clients(gateway)))
        return sources

    def _load_servers(self, gateway: Gateway) -> Callable[[], Any]:
        from gaia.mcp.client.config import MCPConfig

        config = MCPConfig(self._options.config_file, trust_local=False, create=False)
        if config.untrusted is not None:
            raise ConfigError(f"{config.untrusted.path} has changed and is not trusted; run `gaia mcp trust` there")
        is_off = {name for name in config.problems if config.get_server(name).get("disabled") is True}
        if problems := [problem for name, problem in config.problems.items() if name not in is_off]:
            raise ConfigError("; ".join(problems))

        def apply() -> Any:
            self.config = config
            return gateway.manager.apply(config, timeout=_APPLY_SECONDS)

        return apply

    def _load_clients(self, gateway: Gateway) -> Callable[[], Any]:
        clients = self._read_clients()
        assert clients is not None, "there is a file"
        return lambda: gateway.change_clients_soon(clients)

    def _read_clients(self) -> ClientsFile | None:
        from gaia.mcp.gateway.access.clients_file import read_clients_file

        clients = None if self._clients_file is None else read_clients_file(self._clients_file)
        reached = "the gateway can be reached from other machines"
        if clients is None and not self._is_local:
            raise UnsafeOptions(f"{reached}: say with --clients who may use it")
        if clients is not None and clients.anonymous is not None and not self._is_local:
            why = f"{self._clients_file} lets in requests without a token"
            raise UnsafeOptions(f"{reached}, and {why}: add a client, or take out `anonymous`")
        return clients


def _files_of(config: MCPConfig) -> list[Path]:
    report = config.load_report
    found = [config.config_file, *(report[key]["path"] for key in ("global", "local") if key in report)]
    return list(dict.fromkeys(Path(file) for file in found if file is not None))
