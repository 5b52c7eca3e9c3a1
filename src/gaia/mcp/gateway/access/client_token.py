"""Tokens of clients: how they are made, and what is kept of them."""

from __future__ import annotations

import hashlib
import re
import secrets

_PREFIX = "gaia_"
"""So that scanners for leaked secrets can find it."""

_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new_token() -> str:
    """A new token: 256 random bits, in letters, digits, ``_`` and ``-``."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str | bytes) -> str:
    """What is kept of a token.

    A plain hash is enough: nothing can be guessed of 256 random bits. A slow one, as for passwords, would cost each
    request a tenth of a second.
    """
    return "sha256:" + hashlib.sha256(token.encode() if isinstance(token, str) else token).hexdigest()


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None
