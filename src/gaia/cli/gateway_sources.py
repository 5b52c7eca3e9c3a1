"""The files that `gaia mcp gateway` runs with, and how they are read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaia.cli.options import Options
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.clients_file import ClientsFile, read_clients_file
from gaia.mcp.gateway.operations.reloader import Source
from gaia.serving.options import UnsafeOptions

if TYPE_CHECKING:
    from gaia.mcp.gateway import Gateway

_APPLY_SECONDS = 60.0
"""For servers to be replaced, before the files are looked at again; the change goes on in the background."""


class GatewaySources:
    """The servers and the clients."""

    def __init__(self, options: Options, config: MCPConfig, clients_file: Path | None, *, is_local: bool) -> None:
        """`is_local` says that only this machine can reach the gateway.

        Raises ConfigError for a file of clients that cannot be used, and `UnsafeOptions`.
        """
        self._options = options
        self._clients_file = clients_file
        self._is_local = is_local
        self.config = config
        self.clients = self._read_clients()

    def of(self, gateway: Gateway) -> list[Source]:
        """What is read again while `gateway` runs."""
        sources = [Source(lambda: _files_of(self.config), lambda: self._load_servers(gateway))]
        if (file := self._clients_file) is not None:
            sources.append(Source(lambda: [file], lambda: self._load_clients(gateway)))
        return sources

    def _load_servers(self, gateway: Gateway) -> Callable[[], Any]:
        config = MCPConfig(self._options.config_file, trust_local=False, create=False)
        if config.untrusted is not None:
            raise ConfigError(f"{config.untrusted.path} has changed and is not trusted; run `gaia mcp trust` there")
        problems = [
            problem for name, problem in config.problems.items() if config.get_server(name).get("disabled") is not True
        ]
        if problems:
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
        clients = None if self._clients_file is None else read_clients_file(self._clients_file)
        if not self._is_local:
            if clients is None:
                raise UnsafeOptions("the gateway can be reached from other machines: say with --clients who may use it")
            if clients.anonymous is not None:
                raise UnsafeOptions(
                    f"the gateway can be reached from other machines, and {self._clients_file} lets in requests "
                    "without a token: add a client, or take out `anonymous`"
                )
        return clients


def _files_of(config: MCPConfig) -> list[Path]:
    """Those that were read, and those that would be if they were there."""
    report = config.load_report
    found = [config.config_file, *(report[key]["path"] for key in ("global", "local") if key in report)]
    return list(dict.fromkeys(Path(file) for file in found if file is not None))
