"""Turns of a scripted endpoint, whose model makes calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.adapters.contract import Step
from tests.servers.scripted_llm import Reply

Json = dict[str, Any]
Turn = Reply | Callable[[Json], Reply]


def turn(*calls: tuple[str, Json | str], after: Callable[[], object] | None = None) -> Turn:
    """The model makes the calls, when `after` has returned."""

    def reply(_request: Json) -> Reply:
        if after is not None:
            after()
        return Reply(calls=calls)

    return reply


def turns_of(*steps: Step) -> Iterator[Turn]:
    """A turn for each call of a contract's steps."""
    before = None
    for step in steps:
        if callable(step):
            before = step
        else:
            yield turn(step, after=before)
            before = None
