"""`diagnose`: runs a server's checks in order."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import msgspec

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.config.config_variables import expand
from gaia.mcp.config.server_config import ServerConfig, remarks_on_keys, without_name
from gaia.mcp.doctor.diagnosis import Check, Diagnosis, Verdict, failed, ok, skipped, warned
from gaia.mcp.doctor.endpoint import check_endpoint
from gaia.mcp.doctor.inspection import Inspection, colliding, inspect_server, judge, names_of
from gaia.mcp.doctor.placement import check_placement
from gaia.mcp.doctor.programs import check_program, check_sandbox
from gaia.mcp.errors import ConfigError

_TALK = ("handshake", "tools", "schemas", "names", "latency")
COMMAND_CHECKS = ("config", "command", "versions", "start", "output", *_TALK)
PLACED_CHECKS = ("config", "placement", *_TALK)
URL_CHECKS = ("config", "address", "connection", "http", *_TALK)

NOT_REACHED = "not reached"

_AT_ONCE = 4
_ASK_AGAIN_SECONDS = 0.05

OnCheck = Callable[[Check], object]


def diagnose(name: str, config: Mapping[str, Any], on_check: OnCheck | None = None) -> Diagnosis:
    """Examine one server: `config` is its entry of ``mcpServers``. The server is started, and stopped again.

    `on_check` is called with each finding, in this thread. Takes some seconds, and up to the entry's ``startTimeout``
    if the server does not answer. A server that does not work raises nothing.
    """
    return _Examination(name, config, on_check).run()


def diagnose_all(
    servers: Mapping[str, Mapping[str, Any]], on_check: Callable[[str, Check], object] | None = None
) -> list[Diagnosis]:
    """Examine several servers concurrently, and look for tool names that they share.

    `on_check` is called with the server's name and each finding, in one of several threads.
    """
    examinations = [
        _Examination(name, config, None if on_check is None else functools.partial(on_check, name))
        for name, config in servers.items()
    ]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mcp-doctor") as pool:
        futures = [pool.submit(examination.run) for examination in examinations]
        try:
            found = [future.result() for future in futures]
        except BaseException:
            # After Ctrl-C, do not wait for servers that do not answer.
            for future in futures:
                future.cancel()
            while wait(futures, _ASK_AGAIN_SECONDS).not_done:
                for examination in examinations:
                    examination.abort()
            raise
    shared = colliding({diagnosis.server: diagnosis.tools for diagnosis in found})
    return [_with_shared_names(diagnosis, shared.get(diagnosis.server)) for diagnosis in found]


class _Examination:
    """The examination of one server. `run` is called once. Any thread may call `abort`, also repeatedly."""

    def __init__(self, name: str, config: Mapping[str, Any], on_check: OnCheck | None) -> None:
        self._name = name
        self._config = config
        self._on_check: OnCheck = on_check or (lambda _: None)
        self._client: MCPClient | None = None
        self._inspection: Inspection | None = None

    def run(self) -> Diagnosis:
        checks = []
        for check in self._complete():
            checks.append(check)
            self._on_check(check)
        seen = self._inspection or Inspection()
        tools = [tool for tool in names_of(seen.definitions or ()) if tool not in seen.denied]
        return Diagnosis(self._name, tuple(checks), tuple(tools))

    def abort(self) -> None:
        if self._client is not None:
            self._client._engine.request_disconnect()

    def _complete(self) -> Iterator[Check]:
        """Every check of this kind of server once, in order. Unreached checks are skipped."""
        entry = self._config if isinstance(self._config, dict) else {}
        by_url = entry.get("url") and not entry.get("command")
        is_placed = isinstance(entry.get("placement"), dict)
        missing = list(URL_CHECKS if by_url else PLACED_CHECKS if is_placed else COMMAND_CHECKS)
        if not (by_url or is_placed) and entry.get("sandbox"):
            missing.insert(missing.index("start"), "sandbox")
        for check in self._checks():
            while missing[0] != check.name:
                # For example the connection, if there is a proxy.
                yield skipped(missing.pop(0), "does not apply")
            missing.remove(check.name)
            yield check
        for left in missing:
            yield skipped(left, NOT_REACHED)

    def _checks(self) -> Iterator[Check]:
        name, config = self._name, self._config
        try:
            server = ServerConfig.from_dict(name, config)
            expanded = expand(server, os.environ)
        except ConfigError as error:
            yield failed("config", without_name(error.message, name), "Mend the entry in its file.")
            return
        yield _check_config(config, server)
        stdio = server.transport == "stdio" and server.placement is None
        for check in _preparations(name, config, expanded):
            yield check
            if check.verdict is Verdict.FAIL and check.name != "versions":
                return
        try:
            # Without pins, every tool is visible and none is approved.
            self._client = MCPClient.from_config(name, {**config, "pinTools": "off"})
        except ValueError as error:
            yield failed("handshake", str(error), None)
            return
        self._inspection = inspect_server(self._client)
        yield from judge(name, config, self._inspection, stdio=stdio)


def _preparations(name: str, config: Mapping[str, Any], server: ServerConfig) -> Iterator[Check]:
    """The checks before this kind of server is started. `server` is expanded."""
    if server.placement is not None:
        yield check_placement(server.placement)
    elif server.transport == "stdio":
        yield from check_program(server)
        if server.sandbox_settings is not None:
            yield check_sandbox(name, config, server)
    elif server.in_process is None:
        yield from check_endpoint(server.url or "", server.headers or {})


def _with_shared_names(diagnosis: Diagnosis, shared: Check | None) -> Diagnosis:
    own = diagnosis.check("names")
    if shared is None or own is None or own.verdict is not Verdict.OK:
        return diagnosis
    checks = tuple(shared if check is own else check for check in diagnosis.checks)
    return msgspec.structs.replace(diagnosis, checks=checks)


def _check_config(config: Mapping[str, Any], server: ServerConfig) -> Check:
    if unknown := remarks_on_keys(config):
        return warned("config", "; ".join(unknown), "Unknown keys are ignored: mend or remove them.")
    if server.disabled:
        return warned("config", "it is disabled, so no agent starts it", 'Remove "disabled" to use it.')
    return ok("config", "valid")
