"""What was recorded of a server, in a form that each recording of the same calls has: masked and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gaia.mcp.rpc.channel import Ending
from gaia.runtime.redaction import MASK, mask_strings
from gaia.testing.cassette import Failure, RecordedEnding, RecordedExchange, Start, Step, is_greeting, is_listing

Redact = Callable[[str], str]

_STATE = "requestState"
"""What a server of the stateless era has the client send back unread. It is different each time."""


def stable_start(
    exchanges: Iterable[RecordedExchange], greeting: Iterable[Step], ending: Ending | None, redact: Redact
) -> Start | None:
    """One start of a server for a cassette. `exchanges` are in the order in which they were made.

    `greeting` is what the server sent before the first call, and `ending` how it ended, if it ended by itself. None
    if it ended before it was asked for anything, and if the client stopped it in the middle of the greeting: another
    recording may have no such start.
    """
    kept = [_masked(exchange, redact) for exchange in exchanges if not _is_by_chance(exchange)]
    if not kept or (ending is None and not _is_open(kept)):
        return None
    kept.sort(key=lambda exchange: exchange.key)
    return Start(
        meanwhile=[_masked_step(step, redact) for step in greeting],
        exchanges=_without_repetitions(kept),
        end=None if ending is None else _recorded_ending(ending, redact),
    )


def _is_by_chance(exchange: RecordedExchange) -> bool:
    """Whether another recording of the same calls may not have it.

    That is the probe that a server of another era refuses, since a client that has been ready knows better; and a
    listing that was under way in the end.
    """
    if exchange.request == "server/discover":
        return exchange.result is None
    is_missing = exchange.result is None and exchange.error is None and exchange.failed is None
    return is_listing(exchange.request) and is_missing and not exchange.crashed


def _is_open(exchanges: Iterable[RecordedExchange]) -> bool:
    """Whether the server has said who it is, and listed its tools if it has any."""
    greeting = next((one.result for one in exchanges if is_greeting(one.request) and one.result is not None), None)
    if greeting is None:
        return False
    capabilities = greeting.get("capabilities")
    has_tools = isinstance(capabilities, dict) and "tools" in capabilities
    return not has_tools or any(not is_greeting(one.request) for one in exchanges)


def _masked(exchange: RecordedExchange, redact: Redact) -> RecordedExchange:
    failed = exchange.failed
    is_missing = exchange.result is None and exchange.error is None and failed is None
    return RecordedExchange(
        request=exchange.request,
        params=_params(mask_strings(exchange.params, redact)),
        meanwhile=[_masked_step(step, redact) for step in exchange.meanwhile],
        afterwards=[_masked_step(step, redact) for step in exchange.afterwards],
        result=_stateless(mask_strings(exchange.result, redact)),
        error=mask_strings(exchange.error, redact),
        failed=None if failed is None else Failure(**mask_strings(msgspec.structs.asdict(failed), redact)),
        crashed=is_missing and exchange.crashed,
        unanswered=is_missing and not exchange.crashed,
    )


def _params(params: dict[str, Any]) -> dict[str, Any]:
    """The params with their members in a fixed order: those of answers, for example, come as they are given."""
    ordered: dict[str, Any] = _stateless({key: _sorted(value) for key, value in params.items()})
    return ordered


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value


def _stateless(members: Any) -> Any:
    """`members` with nothing in particular as the state."""
    return {**members, _STATE: MASK} if members and _STATE in members else members


def _masked_step(step: Step, redact: Redact) -> Step:
    return msgspec.structs.replace(
        step, params=mask_strings(step.params, redact), answer=mask_strings(step.answer, redact)
    )


def _recorded_ending(ending: Ending, redact: Redact) -> RecordedEnding:
    return RecordedEnding(
        exit_code=ending.exit_code,
        signal=ending.signal,
        used_up=ending.used_up,
        cause=None if ending.cause is None else redact(ending.cause),
        renewable=ending.renewable,
        unauthorized=ending.unauthorized,
    )


def _without_repetitions(exchanges: list[RecordedExchange]) -> list[RecordedExchange]:
    """Without a listing that says the same as the one before: how often tools are listed is a matter of time."""
    return [
        exchange
        for before, exchange in zip([None, *exchanges], exchanges, strict=False)
        if before != exchange or not is_listing(exchange.request)
    ]
