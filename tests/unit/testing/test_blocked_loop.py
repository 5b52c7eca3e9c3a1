"""A wait on the thread of an event loop keeps the loop from running."""

import asyncio

from gaia.testing.fake_clock import blocked_loop


def test_the_error_says_what_to_do_on_an_event_loop() -> None:
    async def on_a_loop() -> str:
        return blocked_loop("clock.advance_until")

    assert "await asyncio.to_thread(clock.advance_until, …)" in asyncio.run(on_a_loop())


def test_it_says_nothing_elsewhere() -> None:
    async def in_a_thread() -> str:
        return await asyncio.to_thread(blocked_loop, "clock.advance_until")

    assert blocked_loop("clock.advance_until") == asyncio.run(in_a_thread()) == ""
