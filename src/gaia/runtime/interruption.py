"""Ends something exactly once, although threads race and a signal handler may raise an exception at any line.

Such an exception, for example of Ctrl-C, may interrupt a thread that ends a call, and no other thread would finish the
work. So these functions finish it and then raise the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def end_once(claim: dict[None, tuple[Any, ...]], outcome: tuple[Any, ...], conclude: Callable[..., object]) -> bool:
    """Call ``conclude(*outcome)``, unless another thread has ended the same thing; then return False.

    `claim` belongs to the thing, and is empty until it ends. It is not a lock: a thread that is interrupted in the
    middle of its claim has to find out whether it was made. After an interruption `conclude` is called again.
    """
    try:
        if claim.setdefault(None, outcome) is not outcome:
            return False
        conclude(*outcome)
    except BaseException:
        if claim.get(None) is outcome:
            conclude(*outcome)
        raise
    return True


def completed(step: Callable[[], T]) -> T:
    """Run `step`, and once more if it is interrupted."""
    try:
        return step()
    except BaseException:
        step()
        raise
