"""Reserves standard input and output for a protocol."""

from __future__ import annotations

import os
import sys


def take_descriptors() -> tuple[int, int]:
    """Private copies of descriptors 0 and 1, which children do not inherit.

    Descriptor 1 then leads to standard error, and descriptor 0 to nothing. So prints and reads of the program, of C
    libraries and of child processes cannot disturb the protocol.
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
