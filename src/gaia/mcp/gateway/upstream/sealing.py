"""`StateSeal`: encrypts the state that a client keeps for the gateway.

It is the ``requestState`` of a result that requires input (2026-07-28, "Multi Round-Trip Requests"), and for gateways
that share a key also the id of a session, and a handle. The client may have changed it, or received it from another
client. So it is encrypted, and authenticated together with what it belongs to.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from gaia.mcp.errors import ConfigError
from gaia.runtime.json_file import read_bytes, who_else_writes

KEY_BYTES = 32

MAX_ID = 4096
"""Characters of a sealed id, which a header carries. Clients and proxies refuse longer headers."""

ID_SECONDS = 7 * 24 * 3600.0
"""How long the id of a session and a handle open what they stand for at a gateway that has not seen them yet."""

_MAX_KEYS = 2
_NONCE_BYTES = 12
_STATE_SECONDS = 900.0

_NOT_BOUND = ("_meta", "inputResponses", "requestState")
"""Members of the params that may differ between the rounds of a request."""


class SealBroken(Exception):
    """The text was not sealed for this, or has expired. The message is for the client."""


class StateSeal:
    """Seals and opens states with AES-GCM. Thread-safe."""

    def __init__(self, key: bytes | Sequence[bytes] | None = None) -> None:
        """Gateways with the same `key` of 32 bytes accept each other's states. None: a new key.

        Of several keys, the first one seals, and each one opens.
        """
        keys = [key] if isinstance(key, bytes) else list(key or ())
        for one in keys:
            if len(one) != KEY_BYTES:
                raise ValueError(f"the key of request states must have {KEY_BYTES} bytes, not {len(one)}")
        self.is_shared = bool(keys)
        """Whether other gateways may have the same key."""
        self._keys = keys or [os.urandom(KEY_BYTES)]
        self._ciphers: list[Any] = []

    def seal(self, payload: Mapping[str, Any], binding: bytes, seconds: float = _STATE_SECONDS) -> str:
        """A text that `open` accepts with the same `binding`, for so many `seconds`."""
        nonce = os.urandom(_NONCE_BYTES)
        encoded = orjson.dumps([time.time() + seconds, payload])
        return base64.urlsafe_b64encode(nonce + self._all()[0].encrypt(nonce, encoded, binding)).decode()

    def open(self, state: object, binding: bytes) -> dict[str, Any]:
        """The sealed payload. Raises `SealBroken`."""
        try:
            if not isinstance(state, str):
                raise SealBroken("it is not a string of this gateway")
            sealed = base64.b64decode(state, altchars=b"-_", validate=True)
            if base64.urlsafe_b64encode(sealed).decode() != state:
                # The last character has bits that mean nothing. One text alone may stand for the payload.
                raise ValueError
            expires, payload = orjson.loads(self._decrypt(sealed, binding))
        except (binascii.Error, ValueError):
            raise SealBroken("it was not given to this client for this request") from None
        if time.time() > expires:
            raise SealBroken("it has expired")
        opened: dict[str, Any] = payload
        return opened

    def _decrypt(self, sealed: bytes, binding: bytes) -> bytes:
        """Raises ValueError."""
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._all():
            with contextlib.suppress(InvalidTag):
                decrypted: bytes = cipher.decrypt(nonce, encrypted, binding)
                return decrypted
        raise ValueError

    def _all(self) -> list[Any]:
        if not self._ciphers:
            # Imported late, because most gateways never seal a state and the import is slow.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = [AESGCM(key) for key in self._keys]
        return self._ciphers


def read_state_key(file: Path) -> list[bytes]:
    """The keys that several gateways share: one or two lines of at least 32 random characters. Raises ConfigError."""
    if (others := who_else_writes(file)) is not None:
        raise ConfigError(f"{file}: {others}")
    lines = [line for line in read_bytes(file).splitlines() if line.strip()]
    command = f"(umask 077; openssl rand -base64 {KEY_BYTES} > {shlex.quote(str(file))})"
    if not lines or any(len(line) < KEY_BYTES for line in lines):
        raise ConfigError(f"{file}: not a key of at least {KEY_BYTES} characters a line; make one with: {command}")
    if len(lines) > _MAX_KEYS:
        raise ConfigError(f"{file}: has {len(lines)} keys; write two lines: the key to seal with, and one more to open")
    if file.stat().st_mode & stat.S_IROTH:
        command = f"chmod o-r {shlex.quote(str(file))}"
        raise ConfigError(f"{file}: every user of this machine can read the key; run: {command}")
    # The cipher needs 32 bytes, independent of the form of the text.
    return [hashlib.sha256(line.strip()).digest() for line in lines]


def binding_of(server: str, identity: str, method: str, params: Mapping[str, Any]) -> bytes:
    """A hash of the server, the client and the request, without the members that differ between rounds."""
    original = {key: value for key, value in params.items() if key not in _NOT_BOUND}
    about, encoded = orjson.dumps([server, identity, method]), orjson.dumps(original)
    # Decoded and sorted, because a client may change the order of members or the escapes. If decoding fails, for
    # example because a number is too large, the bytes must be equal.
    with contextlib.suppress(ValueError, TypeError):
        encoded = orjson.dumps(orjson.loads(encoded), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(about + encoded).digest()
