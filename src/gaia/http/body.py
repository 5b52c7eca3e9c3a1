"""`LimitedBody`: decompresses the body of a response in small steps, and counts its bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from gaia.http.errors import ProtocolBroken, TooLong

MAX_ERROR_BYTES = 64 * 1024
"""The body of an unsuccessful response is cut there: it is an error message or a redirect."""

_STEP_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class LimitedBody:
    """The body of one response. Its size is the size of the decompressed data. For one thread at a time."""

    __slots__ = ("_is_cut", "_size", "_unzip", "ended", "limit")

    def __init__(self, limit: float, *, status: int, encoding: str) -> None:
        """`limit` is for a success, in bytes. Raises `ProtocolBroken` for an `encoding` that was not asked for."""
        self._is_cut = not 200 <= status < 300
        """Whether the body is cut at the limit; otherwise a longer one raises an error."""
        self.limit = min(limit, MAX_ERROR_BYTES) if self._is_cut else limit
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip"):
            # Several encodings are refused too: gzip within gzip grows to a million times its size.
            raise ProtocolBroken(f"the response has the encoding {name[:100]!r}, which was not asked for")
        self._unzip = zlib.decompressobj(_GZIP) if name.endswith("gzip") else None
        self._size = 0
        self.ended = False

    @property
    def is_plain(self) -> bool:
        return self._unzip is None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data` in small steps. Raises `TooLong` and `ProtocolBroken`."""
        for piece in self._decompressed(data):
            self._size += len(piece)
            excess = self._size - self.limit
            if excess > 0:
                self.ended = True
                if not self._is_cut:
                    raise TooLong(f"the response is longer than {self.limit} bytes")
                yield piece[: -int(excess)]
                return
            yield piece
        # Data behind the end of the compressed data would pile up in the decompressor.
        self.ended = self._unzip is not None and self._unzip.eof

    def _decompressed(self, data: bytes) -> Iterator[bytes]:
        unzip = self._unzip
        if unzip is None:
            yield data
            return
        try:
            while piece := unzip.decompress(data, _STEP_BYTES):
                yield piece
                data = unzip.unconsumed_tail
        except zlib.error as error:
            raise ProtocolBroken(f"the response cannot be decompressed: {error}") from None
