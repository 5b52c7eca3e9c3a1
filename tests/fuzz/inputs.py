"""What the bytes of an input mean."""

from __future__ import annotations

from tests.fuzz.wire import DIALECTS, Wire

PIECES = (1, 2, 7, 64, 1 << 20)
"""Bytes that arrive at once."""


def run(data: bytes) -> None:
    """Feed a connection with the input, and check everything. Raises AssertionError, or whatever breaks."""
    if not data:
        return
    choice, written = data[0], data[1:]
    wire = Wire(DIALECTS[choice % len(DIALECTS)])
    size = PIECES[choice // len(DIALECTS) % len(PIECES)]
    for start in range(0, len(written), size):
        wire.receive(written[start : start + size])
    wire.close()
    wire.check()
    for line in written.splitlines():
        Wire.check_decoding(line)
