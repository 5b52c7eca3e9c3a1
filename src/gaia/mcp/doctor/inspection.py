"""One inspection of a server (start, handshake, tools, pings, stop), and the verdicts on its results."""

from __future__ import annotations

import reprlib
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.ping import ping
from gaia.mcp.doctor import diagnosis
from gaia.mcp.doctor.diagnosis import Check, failed, ok, skipped, warned
from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.mcp.protocol.exchange import drive, paginate
from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, ChannelListener, Outgoing
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.naming import assign, namespaced
from gaia.mcp.tools.tool_catalog import size_within_limits
from gaia.mcp.transports.base import ChannelTransport


@dataclass
class Inspection:
    """Facts about a server. Durations are in seconds. None stands for an unreached step."""

    error: str | None = None
    pid: int | None = None
    start_seconds: float | None = None
    """Seconds to start the process, or to reach the endpoint."""
    handshake_seconds: float | None = None
    status: ServerStatus | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    definitions: list[Any] | None = None
    """The tools as the server lists them, unfiltered."""
    denied: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    unmatched: list[str] = field(default_factory=list)
    list_seconds: float | None = None
    list_error: str | None = None
    pings: list[float] = field(default_factory=list)
    ping_error: str | None = None

    @property
    def server(self) -> str:
        known = [str(self.server_info[key]) for key in ("name", "version") if key in self.server_info]
        return " ".join(known) or "a server without a name"

    @property
    def ping(self) -> float | None:
        return statistics.median(self.pings) if self.pings else None


def inspect_server(client: MCPClient, pings: int = 5) -> Inspection:
    """Inspect a server that is not connected. It is stopped when this returns or raises."""
    seen = Inspection()
    try:
        watch = _Stopwatch(client)
        ready = client.connect()
        ended = time.perf_counter()
        if watch.opened is not None:
            seen.start_seconds, seen.pid = watch.opened - watch.began, watch.pid
        seen.handshake_seconds = (watch.listing or ended) - (watch.opened or watch.began)
        if ready:
            seen.server_info, seen.capabilities = client.server_info, client.capabilities
            _list(client, seen)
            _ping(client, seen, pings)
        else:
            seen.error = client.last_error or "the reason is not known"
        seen.status = client.status
    finally:
        client.disconnect()
    return seen


def _list(client: MCPClient, seen: Inspection) -> None:
    if "tools" not in seen.capabilities:
        seen.definitions = []
        return
    began = time.perf_counter()
    try:
        seen.definitions = drive(
            paginate("tools/list", "tools"), lambda step: client.request(step.method, step.params, timeout=step.timeout)
        )
    except MCPError as error:
        seen.list_error = error.message
        return
    finally:
        seen.list_seconds = time.perf_counter() - began
    seen.denied, seen.blocked = client.denied_tools, frozenset(client.blocked_tools)
    seen.unmatched = client.tool_filter.unmatched(client.name, names_of(seen.definitions))


def _ping(client: MCPClient, seen: Inspection, times: int) -> None:
    for _ in range(times):
        began = time.perf_counter()
        try:
            ping(client)
        except MCPError as error:
            seen.ping_error = error.message
            return
        finally:
            seen.pings.append(time.perf_counter() - began)


class _Stopwatch:
    """Readings of ``time.perf_counter()`` during a client's first connection; None if a part did not happen."""

    def __init__(self, client: MCPClient) -> None:
        self.began = time.perf_counter()
        self.opened: float | None = None
        self.listing: float | None = None
        """When the tools were requested, and so the handshake was over."""
        self.pid: int | None = None
        transport = client.transport
        if isinstance(transport, ChannelTransport):
            self._open_channel = transport.open
            # Replaced in this object only, to which the client already refers.
            transport.open = self._open  # type: ignore[method-assign]

    def _open(self, listener: ChannelListener, name: str) -> Channel:
        channel = self._open_channel(listener, name)
        self.opened, self.pid, send = time.perf_counter(), channel.pid, channel.send

        def timed_send(item: Outgoing) -> bool:
            if self.listing is None and isinstance(item, Call) and item.method == "tools/list":
                self.listing = time.perf_counter()
            return send(item)

        channel.send = timed_send  # type: ignore[method-assign]
        return channel


_SHOWN = 5
_SLOW_PING = 0.25
_SLOW_LIST = 2.0
_AUTHORS = "Tell the authors of the server."


def judge(name: str, config: Mapping[str, Any], seen: Inspection, *, stdio: bool) -> Iterator[Check]:
    """The verdicts, in order. Stops after a failed check, except among the checks of tools."""
    if stdio:
        if seen.start_seconds is None:
            error, (program, *_) = seen.error or "", str(config.get("command", "")).split()
            missing = "was not found on the server's PATH" in error
            yield failed(
                "start", error, diagnosis.for_missing_program(program) if missing else diagnosis.for_environment(config)
            )
            return
        yield ok("start", f"pid {seen.pid}", seen.start_seconds)
        yield _check_output(seen)
    if seen.error is not None:
        remedies = [
            diagnosis.for_handshake(name, config, seen.error, stdio=stdio),
            diagnosis.for_environment(config) if stdio else None,
        ]
        yield failed("handshake", seen.error, "\n".join(filter(None, remedies)) or None)
        return
    yield _check_handshake(seen)
    yield _check_tools(seen)
    yield check_schemas(seen.definitions or [])
    yield check_names(name, seen.definitions or [])
    yield _check_latency(seen)


def _check_output(seen: Inspection) -> Check:
    status = seen.status
    if status is not None and status.noise_lines:
        lines = "1 line" if status.noise_lines == 1 else f"{status.noise_lines} lines"
        detail = f"{lines} ({status.noise_bytes} bytes) on standard output that are no messages"
        return warned("output", detail, "They are ignored, but logs belong on standard error. Tell the authors.")
    return ok("output", "nothing but messages on standard output")


def _check_handshake(seen: Inspection) -> Check:
    revision = seen.status.protocol_version if seen.status is not None else None
    era = "handshake" if revision in HANDSHAKE_REVISIONS else "stateless"
    return ok("handshake", f"{seen.server}, protocol revision {revision} ({era} era)", seen.handshake_seconds)


def _check_tools(seen: Inspection) -> Check:
    if seen.list_error is not None:
        remedy = "It answers some requests and not others, which is for the authors of the server to mend."
        return failed("tools", seen.list_error, remedy)
    if "tools" not in seen.capabilities:
        return warned("tools", "the server offers no tools", "It may offer resources or prompts; agents use tools.")
    count = len(seen.definitions or ())
    denied = f", {len(seen.denied)} of them denied by filters" if seen.denied else ""
    detail = f"{count} tools{denied}"
    if seen.unmatched:
        detail += f"; these patterns match none: {', '.join(map(repr, seen.unmatched))}"
        return warned("tools", detail, "Are they misspelt?", seen.list_seconds)
    if count == len(seen.denied):
        return warned("tools", detail, "There is nothing that an agent could call.", seen.list_seconds)
    return ok("tools", detail, seen.list_seconds)


def _check_latency(seen: Inspection) -> Check:
    if seen.ping is None or seen.ping_error is not None:
        return failed("latency", seen.ping_error or "no sign of life", "The server is stuck; tell its authors.")
    detail = f"ping {seen.ping * 1000:.1f} ms (median of {len(seen.pings)})"
    if seen.ping > _SLOW_PING or (seen.list_seconds or 0) > _SLOW_LIST:
        return warned("latency", detail, "Every call will take at least this long.", seen.ping)
    return ok("latency", detail, seen.ping)


def names_of(definitions: Iterable[Any]) -> list[str]:
    found = (tool.get("name") for tool in definitions if isinstance(tool, dict))
    return [name for name in found if isinstance(name, str) and name]


def check_schemas(definitions: Sequence[Any]) -> Check:
    """Check that models can use the tools: each has a description and a valid JSON Schema."""
    if not definitions:
        return skipped("schemas", "no tools")
    broken = [problem for tool in definitions if (problem := _broken(tool)) is not None]
    if broken:
        return failed("schemas", _listed(broken), f"Agents cannot use what has no usable schema. {_AUTHORS}")
    said = {tool["name"]: tool.get("description") for tool in definitions}
    silent = [name for name, words in said.items() if not (isinstance(words, str) and words.strip())]
    if silent:
        detail = f"without a description: {_listed(silent)}"
        return warned("schemas", detail, f"A model has to guess what they are for. {_AUTHORS}")
    return ok("schemas", f"{len(definitions)} valid, all with a description")


def check_names(server: str, definitions: Sequence[Any]) -> Check:
    names = names_of(definitions)
    if not names:
        return skipped("names", "no tools")
    if doubled := [name for name, count in Counter(names).items() if count > 1]:
        return failed("names", f"listed more than once: {_listed(doubled)}", f"Only the last one counts. {_AUTHORS}")
    changed = [name for name in names if namespaced(server, name) != f"mcp_{server}_{name}"]
    if changed:
        shown = [f"{name} becomes {namespaced(server, name)}" for name in changed]
        reason = "Models take names of at most 64 letters, digits, _ and -"
        return warned("names", _listed(shown), f"{reason}. A shorter name for the server may help.")
    return ok("names", f"{len(names)} different")


def colliding(tools: Mapping[str, Sequence[str]]) -> dict[str, Check]:
    """For each server whose tool names collide, a check of them. `tools` holds the names by server."""
    pairs = [(server, name) for server, names in tools.items() for name in dict.fromkeys(names)]
    final = {pair: name for name, pair in assign(pairs, tools.keys()).items()}
    found: dict[str, list[str]] = {}
    for server, name in pairs:
        if final[server, name] != namespaced(server, name):
            found.setdefault(server, []).append(f"{name} becomes {final[server, name]}")
    remedy = "A tool of another server would have the same name. Rename one of the servers."
    return {server: warned("names", _listed(shown), remedy) for server, shown in found.items()}


def _broken(tool: Any) -> str | None:
    if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str) or not name:
        return f"not a tool with a name: {reprlib.repr(tool)}"
    try:
        size_within_limits(tool)
    except InvalidResponse as error:
        return f"{reprlib.repr(name)}: {error.message}"
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return f"{name}: inputSchema is missing" if schema is None else f"{name}: inputSchema is not an object"
    # Specification, "Tools": the arguments are an object, and the schema declares that.
    if schema.get("type") != "object":
        return f'{name}: inputSchema has no "type": "object"'
    for key in ("inputSchema", "outputSchema"):
        if tool.get(key) is not None:
            try:
                JsonSchema(tool[key])
            except SchemaUnusable as error:
                return f"{name}: {key} is no JSON Schema: {error}"
    return None


def _listed(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
