"""What an agent's own failure looks like inside; clients are told much less."""

from __future__ import annotations

import traceback

from gaia.log import EventLogger

__all__ = ["log_failure"]


def log_failure(logger: EventLogger, event: str, error: BaseException, **fields: object) -> None:
    """Log that an agent's code raised, with the traceback: the server goes on, so nothing else would show it."""
    logger.error(event, **fields, error=repr(error), traceback="".join(traceback.format_exception(error)))
