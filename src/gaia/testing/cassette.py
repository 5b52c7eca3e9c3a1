"""The file of a cassette: requests to servers, their answers, and how the servers ended; JSON that can be reviewed.

A cassette is a table, not a log. The requests of one start of a server are sorted by method, tool and arguments, and
only equal requests keep their order. So the file does not depend on the order of threads. Ids, process ids, times and
output on stderr are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from gaia.mcp import errors
from gaia.mcp.errors import ConfigError, MCPError
from gaia.mcp.rpc.channel import Ending
from gaia.runtime import json_file
from gaia.runtime.redaction import MASK, mask_strings

SUBSCRIBE, SUBSCRIBED = "subscriptions/listen", "notifications/subscriptions/acknowledged"
"""Not recorded: a client of the stateless era sends this request at an arbitrary time; this notification follows."""

_VERSION = 1
_EXAMPLE = '{"cassette": 1, "servers": {…}}'


class _Part(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of the file. Default values are left out; unknown keys are an error."""


class Step(_Part):
    """A message that a server sends on its own: a notification, or a request to the client."""

    notification: str | None = None
    request: str | None = None
    params: dict[str, Any] = {}
    subscribed: bool = False
    answer: dict[str, Any] | None = None
    """``{"result": …}`` or ``{"error": …}``; None without an answer, and for answers that depend on the machine."""


class Failure(_Part):
    type: str
    message: str
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, error: MCPError) -> Failure:
        details = {
            key: value
            for key, value in vars(error).items()
            if key != "delivery" and (value is None or isinstance(value, str | int | float | dict | list))
        }
        return cls(type=type(error).__name__, message=error.message, details=details)

    def error(self) -> MCPError:
        kind = getattr(errors, self.type, None)
        kind = kind if isinstance(kind, type) and issubclass(kind, MCPError) else MCPError
        error = kind.__new__(kind)
        error.args = (self.message,)
        error.__dict__.update({"delivery": "unknown", **self.details})
        return error


class RecordedExchange(_Part):
    """A request of the client, and its outcome, which is exactly one of the last five fields.

    `meanwhile` are messages of the server before the answer, and `afterwards` after it, up to the next request.
    `crashed`: the server ended before it answered. `unanswered`: the client gave up.
    """

    request: str
    params: dict[str, Any] = {}
    """Without ``_meta``, and empty for the greeting, which describes the client."""
    meanwhile: list[Step] = []
    afterwards: list[Step] = []
    result: dict[str, Any] | None = None
    error: Any = None
    failed: Failure | None = None
    crashed: bool = False
    unanswered: bool = False

    @property
    def is_call(self) -> bool:
        """Whether the application made the request. Clients greet and list by themselves."""
        return not (is_greeting(self.request) or is_listing(self.request))

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.error is not None or self.failed is not None

    @property
    def key(self) -> tuple[int, str, list[tuple[str, str]]]:
        rank = 0 if is_greeting(self.request) else 1 if is_listing(self.request) else 2
        return rank, self.request, [(key, json.dumps(value, sort_keys=True)) for key, value in self.params.items()]


class RecordedEnding(Ending, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a server ended by itself."""


class Start(_Part):
    failed: str | None = None
    """Why the server could not be started. The other fields are then empty."""
    meanwhile: list[Step] = []
    """Messages of the server before it received any request except for its tools."""
    exchanges: list[RecordedExchange] = []
    end: RecordedEnding | None = None
    """None if the client stopped the server, or if the recording ended."""


class RecordedServer(_Part):
    settings: dict[str, Any] = {}
    """The keys of its entry that configure the client, such as ``enabledTools``."""
    starts: list[Start] = []


class Cassette(_Part):
    VERSION: ClassVar[int] = _VERSION

    cassette: int
    servers: dict[str, RecordedServer] = {}

    @classmethod
    def read(cls, file: Path) -> Cassette:
        """Read and check a file. Raises ConfigError, with the place, if it is no cassette, and FileNotFoundError."""
        if not file.exists():
            raise FileNotFoundError(
                f"there is no cassette {os.fspath(file)}; record it first: with gaia.testing.record(manager, path)"
            )
        document = json_file.read(file, _EXAMPLE)
        if (version := document.get("cassette")) != _VERSION:
            raise ConfigError(
                f"{file}: the version of the cassette is {version!r}, and this gaia-mcp understands {_VERSION}; "
                "record it again"
            )
        try:
            cassette = json_file.convert(document, cls, accept_halves=True)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{file}: not a cassette: {error}; correct it there, or record it again") from error
        for name, server in cassette.servers.items():
            for number, start in enumerate(server.starts):
                for problem in _problems(start):
                    raise ConfigError(
                        f"{file}: server {name!r}, starts[{number}]: {problem}; correct it there, or record it again"
                    )
        return cassette

    def write(self, file: Path) -> None:
        """Replace the file atomically; readable for its owner only. Raises OSError."""
        target = Path(os.path.realpath(file))
        target.parent.mkdir(parents=True, exist_ok=True)
        # JSON has neither NaN nor infinity, which some servers send.
        document = json.loads(json.dumps(msgspec.to_builtins(self)), parse_constant=lambda _: None)
        json_file.write(target, document)


def _problems(start: Start) -> Iterator[str]:
    """Errors in a start that was edited by hand, because of which a client would wait until its deadline."""
    steps = list(start.meanwhile)
    for exchange in start.exchanges:
        outcomes = [one is not None for one in (exchange.result, exchange.error, exchange.failed)]
        if sum((*outcomes, exchange.crashed, exchange.unanswered)) != 1:
            yield f"{exchange.request}: expected one of result, error, failed, crashed and unanswered"
        if exchange.crashed and start.end is None:
            yield f"{exchange.request} has crashed the server, and there is no end"
        steps += [*exchange.meanwhile, *exchange.afterwards]
    if any((step.notification is None) == (step.request is None) for step in steps):
        yield "a step: expected one of notification and request"


def is_listing(method: str) -> bool:
    """Whether the method lists a server's offer. Time and number of such requests vary."""
    return method.endswith("/list")


def is_greeting(method: str) -> bool:
    return method in ("initialize", "server/discover")


def without_meta(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The params without ``_meta``, which has tokens, trace ids and the client's version."""
    return {key: value for key, value in (params or {}).items() if key != "_meta"}


Redact = Callable[[str], str]

_STATE = "requestState"
"""The state that a client sends back to a server of the stateless era. It differs each time."""


def stable_start(
    exchanges: Iterable[RecordedExchange], greeting: Iterable[Step], ending: Ending | None, redact: Redact
) -> Start | None:
    """A start of a server for a cassette. `exchanges` are in the order of the requests.

    `greeting` are the server's messages before the first call. `ending` is set if the server ended by itself. None if
    the server ended before any request, or if the client stopped it during the greeting, because another recording may
    lack such a start.
    """
    kept = sorted(
        (_masked(exchange, redact) for exchange in exchanges if not _is_by_chance(exchange)), key=lambda one: one.key
    )
    if not kept or (ending is None and not _is_open(kept)):
        return None
    # The number of listings varies.
    distinct = [
        exchange
        for before, exchange in zip([None, *kept], kept, strict=False)
        if before != exchange or not is_listing(exchange.request)
    ]
    end = None
    if ending is not None:
        known = {**msgspec.structs.asdict(ending), "stderr_tail": ""}
        end = RecordedEnding(**known | {"cause": None if ending.cause is None else redact(ending.cause)})
    return Start(meanwhile=_masked_steps(greeting, redact), exchanges=distinct, end=end)


def _is_by_chance(exchange: RecordedExchange) -> bool:
    """Whether another recording may lack this exchange: an open listing, or a probe that the server refused."""
    if exchange.request == "server/discover":
        return exchange.result is None
    return is_listing(exchange.request) and not exchange.is_over and not exchange.crashed


def _is_open(exchanges: Iterable[RecordedExchange]) -> bool:
    greeting = next((one.result for one in exchanges if is_greeting(one.request) and one.result is not None), None)
    if greeting is None:
        return False
    capabilities = greeting.get("capabilities")
    has_tools = isinstance(capabilities, dict) and "tools" in capabilities
    return not has_tools or any(not is_greeting(one.request) for one in exchanges)


def _masked(exchange: RecordedExchange, redact: Redact) -> RecordedExchange:
    failed = exchange.failed
    params = mask_strings(exchange.params, redact)
    return RecordedExchange(
        request=exchange.request,
        # Clients write answers, for example, in any order.
        params=_stateless({key: json.loads(json.dumps(value, sort_keys=True)) for key, value in params.items()}),
        meanwhile=_masked_steps(exchange.meanwhile, redact),
        afterwards=_masked_steps(exchange.afterwards, redact),
        result=_stateless(mask_strings(exchange.result, redact)),
        error=mask_strings(exchange.error, redact),
        failed=None if failed is None else Failure(**mask_strings(msgspec.structs.asdict(failed), redact)),
        crashed=not exchange.is_over and exchange.crashed,
        unanswered=not exchange.is_over and not exchange.crashed,
    )


def _stateless(members: Any) -> Any:
    return {**members, _STATE: MASK} if members and _STATE in members else members


def _masked_steps(steps: Iterable[Step], redact: Redact) -> list[Step]:
    return [
        msgspec.structs.replace(one, params=mask_strings(one.params, redact), answer=mask_strings(one.answer, redact))
        for one in steps
    ]
