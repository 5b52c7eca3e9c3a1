"""`SharedLimits`: limits that several gateways count together, in Redis.

Each gateway leases calls at once and tokens of a bucket, and decides about its calls by what it has leased. So a call
waits for Redis only if nothing is left of the lease. While Redis does not answer, each gateway counts by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.gate import Gate
from gaia.runtime.extras import missing
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_BEAT_SECONDS = 0.25
"""How often leases are extended, and what is idle is given back."""
_RETRY_SECONDS = 0.01
"""How soon a gateway asks again that got less than it wanted."""
_ANSWER_SECONDS = 0.5
"""How long Redis may take. After that, each gateway counts by itself."""
_LEASE_SECONDS = 5.0
"""When what a killed gateway has leased is free again."""
_BATCH_SECONDS = 0.1
"""For how long the tokens of one lease last, at the rate of the limit."""

_EXCHANGE = """
local me, lease, most = 's:' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local running, wanted = tonumber(ARGV[4]), tonumber(ARGV[5])
local rate, burst, tokens, unused = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local slots, others, hungry, granted, over = 0, 0, {}, 0, 0
if most > 0 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local held, ends, waits = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')
    if held and all[i] ~= me then
      if tonumber(ends) < now then
        redis.call('HDEL', KEYS[1], all[i])
      else
        others = others + held
        if tonumber(waits) > now then table.insert(hungry, all[i]) end
      end
    end
  end
  slots = math.min(running + wanted, most - others)
  if #hungry > 0 then
    -- Gateways with waiting calls take turns of a twentieth of a second with what cannot be divided.
    table.insert(hungry, me)
    table.sort(hungry)
    local fair, turn = 0, math.floor(now / 50)
    for slot = 0, most - 1 do
      if hungry[(slot + turn) % #hungry + 1] == me then fair = fair + 1 end
    end
    slots = math.min(slots, fair)
  end
  -- Too many are under way if the gateways counted by themselves before.
  if others + running > most then over = 1 end
  slots = math.max(slots, running)
  local waits = (running + wanted > slots) and now + 200 or 0
  redis.call('HSET', KEYS[1], me, string.format('%d %d %d', slots, now + lease, waits))
end
if rate > 0 then
  local full = tonumber(redis.call('HGET', KEYS[1], 'tokens') or burst)
  local since = tonumber(redis.call('HGET', KEYS[1], 'since') or now)
  full = math.min(burst, full + unused + math.max(0, now - since) * rate / 1000)
  granted = math.floor(math.min(full + 1e-6, tokens))
  redis.call('HSET', KEYS[1], 'tokens', tostring(full - granted), 'since', now)
end
redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(2 * lease, rate > 0 and 1000 * burst / rate + 1000 or 0)))
return {slots, granted, #hungry + over}
"""


@dataclass(slots=True, eq=False)
class SharedGate:
    """What a gateway has leased of one limit. Decides in place of the gate while Redis answers."""

    key: str
    gate: Gate
    limits: SharedLimits
    slots: int = 0
    """Calls at once that are leased; those under way are among them."""
    tokens: int = 0
    is_wanted: bool = False
    is_contended: bool = False
    """Whether calls wait at another gateway, or too many are under way. A slot is given back after each call then."""
    was_used: bool = False

    @property
    def decides(self) -> bool:
        return self.limits.is_up

    def may_enter(self) -> bool:
        """Whether the lease has room for a call. If not, more is asked for."""
        limit, gate = self.gate.limit, self.gate
        has_slot = limit.concurrent is None or gate.running < min(self.slots, limit.concurrent)
        if has_slot and (limit.per_second is None or self.tokens > 0):
            return True
        self.limits.want(self)
        return False

    def enter(self) -> None:
        self.tokens = max(0, self.tokens - 1)
        self.was_used = True
        self.limits.keep(self)

    def left(self) -> None:
        if self.is_contended and self.slots > self.gate.running:
            # The next call, of this gateway or of another one, gets it by turns.
            self.slots = self.gate.running
            self.limits.want(self)

    def asks(self) -> list[Any]:
        """The arguments of an exchange."""
        limit, waiting = self.gate.limit, sum(len(lane.calls) for lanes in self.gate.waiting.values() for lane in lanes)
        rate = limit.per_second or 0.0
        burst = limit.burst or max(1.0, rate)
        tokens = min(burst, max(waiting, 1) + rate * _BATCH_SECONDS) - self.tokens if self.is_wanted and rate else 0
        unused = self.tokens if rate and not self.was_used and not self.is_wanted else 0
        self.tokens -= unused
        wanted = max(waiting, 1) if self.is_wanted else 0
        return [limit.concurrent or 0, self.gate.running, wanted, rate, burst, max(0, math.ceil(tokens)), unused]

    @property
    def is_idle(self) -> bool:
        return not (self.gate.running or self.gate.waiting or self.slots or self.tokens or self.is_wanted)


class SharedLimits:
    """For one event loop. `reopen` is called with a gate that may let more calls in."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError if the package for Redis is missing or the URL cannot be used."""
        if (lack := missing("redis", "redis")) is not None:
            raise ConfigError(f"shared: limits in Redis need {lack}")
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        try:
            self._redis: Any = Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=_ANSWER_SECONDS,
                socket_connect_timeout=_ANSWER_SECONDS,
            )
        except ValueError:
            # The URL may contain a password.
            raise ConfigError("shared: not a URL such as redis://host:6379/0") from None
        self._name = secrets.token_hex(6)
        self._gates: dict[str, SharedGate] = {}
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reopen: Callable[[Gate], None] = lambda _: None
        self.is_up = False
        """Whether Redis has answered last time. Otherwise each gateway counts by itself."""
        self._has_warned = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self.is_up = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def gate(self, key: tuple[str | None, ...], gate: Gate) -> SharedGate:
        text = json.dumps(key)
        shared = self._gates.setdefault(text, SharedGate(text, gate, self))
        shared.gate = gate
        return shared

    def keep(self, shared: SharedGate) -> None:
        self._gates[shared.key] = shared

    def want(self, shared: SharedGate) -> None:
        self.keep(shared)
        shared.is_wanted = True
        self._wanted.set()

    async def _run(self) -> None:
        try:
            script, beat, clock = self._redis.register_script(_EXCHANGE), -math.inf, asyncio.get_running_loop().time
            while True:
                if is_beat := clock() >= beat + _BEAT_SECONDS:
                    beat = clock()
                await self._exchange(script, is_beat=is_beat)
                still = any(shared.is_wanted for shared in self._gates.values())
                pause = _RETRY_SECONDS if still and self.is_up else _BEAT_SECONDS
                if not still:
                    self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await (asyncio.sleep(pause) if still else self._wanted.wait())
        finally:
            await self._redis.aclose()

    async def _exchange(self, script: Any, *, is_beat: bool) -> None:
        """Ask Redis for what calls wait for, and at each beat also extend leases and give back what is idle."""
        asked = [one for one in self._gates.values() if is_beat or one.is_wanted or not self.is_up]
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for one in asked:
                    arguments = [self._name, int(_LEASE_SECONDS * 1000), *one.asks()]
                    await script(keys=[f"gaia:limit:{one.key}"], args=arguments, client=pipeline)
                await pipeline.ping()
                answers = await asyncio.wait_for(pipeline.execute(), _ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, calls must not wait for it
            self._lost(error)
            return
        if not self.is_up:
            self.is_up = True
            if self._has_warned:
                logger.warning("gateway_shared_limits_back")
                self._has_warned = False
        for one, (slots, tokens, contended) in zip(asked, answers, strict=False):
            one.slots, one.is_contended = max(slots, one.gate.running), contended > 0
            one.tokens += tokens
            one.is_wanted = one.was_used = False
            # Asks for more if calls still wait.
            self.reopen(one.gate)
            if one.is_idle:
                self._gates.pop(one.key, None)

    def _lost(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("gateway_shared_limits_lost", error=exception_text(error))
        self.is_up = False
        for one in self._gates.values():
            one.slots = one.tokens = 0
            one.is_wanted = False
            self.reopen(one.gate)
