"""`StateSeal`: encrypts the state that a client keeps for the gateway between two rounds of a request.

The ``requestState`` of a result that requires input comes back in the next request. The client may have changed it, or
received it from another client (2026-07-28, "Multi Round-Trip Requests"). So it is encrypted, and authenticated
together with its request.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import shlex
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from gaia.mcp.errors import ConfigError
from gaia.runtime.json_file import read_bytes, who_else_writes

KEY_BYTES = 32

_NONCE_BYTES = 12
_SECONDS = 900.0

_NOT_BOUND = ("_meta", "inputResponses", "requestState")
"""Members of the params that may differ between the rounds of a request."""


class SealBroken(Exception):
    """The state was not made for this request, or has expired. The message is for the client."""


class StateSeal:
    """Seals and opens states with AES-GCM. Thread-safe."""

    def __init__(self, key: bytes | None = None) -> None:
        """Gateways with the same `key` of 32 bytes accept each other's states. None: a new key."""
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"the key of request states must have {KEY_BYTES} bytes, not {len(key)}")
        self._key = key or os.urandom(KEY_BYTES)

    def seal(self, payload: Mapping[str, Any], binding: bytes) -> str:
        """A text that `open` accepts with the same `binding`, for 15 minutes."""
        nonce = os.urandom(_NONCE_BYTES)
        encoded = orjson.dumps([time.time() + _SECONDS, payload])
        return base64.urlsafe_b64encode(nonce + _cipher(self._key).encrypt(nonce, encoded, binding)).decode()

    def open(self, state: object, binding: bytes) -> dict[str, Any]:
        """The sealed payload. Raises `SealBroken`."""
        from cryptography.exceptions import InvalidTag

        try:
            if not isinstance(state, str):
                raise SealBroken("requestState: not a string of this gateway")
            sealed = base64.b64decode(state, altchars=b"-_", validate=True)
            nonce, encrypted = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            expires, payload = orjson.loads(_cipher(self._key).decrypt(nonce, encrypted, binding))
        except (binascii.Error, InvalidTag, ValueError):
            text = "requestState: it was not given to this client for this request; send the request anew, without it"
            raise SealBroken(text) from None
        if time.time() > expires:
            raise SealBroken("requestState: it has expired; send the request anew, without it")
        opened: dict[str, Any] = payload
        return opened


def read_state_key(file: Path) -> bytes:
    """The key that several gateways share, from a private file of at least 32 random characters. Raises ConfigError."""
    if (others := who_else_writes(file)) is not None:
        raise ConfigError(f"{file}: {others}")
    text = read_bytes(file).strip()
    if len(text) < KEY_BYTES:
        command = f"(umask 077; openssl rand -base64 {KEY_BYTES} > {shlex.quote(str(file))})"
        raise ConfigError(f"{file}: not a key of at least {KEY_BYTES} characters; make one with: {command}")
    if file.stat().st_mode & stat.S_IROTH:
        command = f"chmod o-r {shlex.quote(str(file))}"
        raise ConfigError(f"{file}: every user of this machine can read the key; run: {command}")
    # The cipher needs 32 bytes, independent of the form of the text.
    return hashlib.sha256(text).digest()


def binding_of(server: str, identity: str, method: str, params: Mapping[str, Any]) -> bytes:
    """A hash of the server, the client and the request, without the members that differ between rounds."""
    original = {key: value for key, value in params.items() if key not in _NOT_BOUND}
    about, encoded = orjson.dumps([server, identity, method]), orjson.dumps(original)
    # Decoded and sorted, because a client may change the order of members or the escapes. If decoding fails, for
    # example because a number is too large, the bytes must be equal.
    with contextlib.suppress(ValueError, TypeError):
        encoded = orjson.dumps(orjson.loads(encoded), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(about + encoded).digest()


def _cipher(key: bytes) -> Any:
    # Imported late, because most gateways never seal a state and the import is slow.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
