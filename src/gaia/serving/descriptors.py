"""Reserves standard input and output for a protocol of lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from gaia.runtime.log import get_logger

logger = get_logger(__name__)


def take_descriptors() -> tuple[int, int]:
    """Private copies of descriptors 0 and 1, which child processes do not inherit.

    After that, descriptor 1 leads to standard error, and descriptor 0 to nothing. So prints and reads of the program,
    of C libraries and of child processes cannot disturb the protocol.
    """
    sys.stdout.flush()
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        os.dup2(2, 1)
    except OSError:
        # The process has no standard error.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    return incoming, outgoing


def read_lines(descriptor: int, most: int) -> Iterator[bytes]:
    """The input's lines without blank ones, until a line exceeds `most` bytes. Blocks, and cannot be interrupted."""
    try:
        with os.fdopen(descriptor, "rb") as stream:
            while line := stream.readline(most + 1):
                if len(line) > most:
                    logger.error("line_too_long", limit=most)
                    return
                if line := line.strip():
                    yield line
    except OSError as error:
        logger.debug("stdin_ended", error=repr(error))


def write_line(descriptor: int, line: bytes) -> None:
    """Write a whole line. Blocks while the client does not read. Raises OSError if the client has gone."""
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
