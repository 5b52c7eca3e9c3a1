"""The names of tools of several servers in one list: ``mcp_<server>_<tool>``.

APIs of language models accept names of at most 64 letters, digits, ``_`` and ``-``. Any other name, and a name that two
tools compete for, gets a safe form that ends in a hash of the originals. It is the same on every machine.

A plain name belongs to the known server with the longest name that it begins with, even while that server is not
connected: ``mcp_files_archive_read`` is a tool of ``files_archive``, and never becomes the `archive_read` of ``files``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

PREFIX = "mcp_"
"""The prefix of all names, except those that a gateway lists."""

_MAX_LENGTH = 64
_HASH_DIGITS = 8
_ALLOWED = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_LENGTH}}}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_BLOCKS = 6


def namespaced(server: str, tool: str) -> str:
    """``mcp_<server>_<tool>``, or its hashed form if an API would refuse that."""
    plain = f"mcp_{server}_{tool}"
    return plain if _ALLOWED.fullmatch(plain) else disambiguated(server, tool)


def disambiguated(server: str, tool: str) -> str:
    """The hashed form: other characters become ``_``, then ``_`` and 8 hexadecimal digits; at most 64 long."""
    return _hashed(server, tool, blocks=1)


def folded(servers: Iterable[str]) -> frozenset[str]:
    """Names of servers in the form that `is_of_another` compares."""
    return frozenset(server.casefold() for server in servers)


def is_of_another(name: str, server: str, servers: frozenset[str]) -> bool:
    """Whether ``mcp_<name>`` belongs to one of the `folded` `servers` instead of `server`. Ignores case."""
    own, rest = server.casefold(), name.casefold()
    # The longest name decides. Walk the few underscores of the name, not the servers: there may be hundreds.
    while "_" in rest:
        rest = rest.rpartition("_")[0]
        if rest == own:
            return False
        if rest in servers:
            return True
    return False


def owner_of(name: str, servers: Iterable[str]) -> str | None:
    """The one of `servers` that a namespaced name belongs to, whether or not it has such a tool."""
    return max((server for server in servers if name.startswith(f"mcp_{server}_")), key=len, default=None)


def assign(pairs: Iterable[tuple[str, str]], servers: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """Give every (server, tool) a unique name; returns name → (server, tool), in the order of `pairs`.

    All tools that compete for one plain name take their hashed form, whatever their order. So do tools whose plain name
    belongs to another one of `servers`.
    """
    others = folded(servers)
    # The number of blocks of hash digits in each pair's name; 0 is the plain name.
    blocks = {
        (server, tool): int(
            namespaced(server, tool) != f"mcp_{server}_{tool}" or is_of_another(f"{server}_{tool}", server, others)
        )
        for server, tool in pairs
    }
    while True:
        claims: dict[str, list[tuple[str, str]]] = {}
        for (server, tool), count in blocks.items():
            claims.setdefault(_hashed(server, tool, blocks=count), []).append((server, tool))
        rivals = [claim for claim in claims.values() if len(claim) > 1]
        if not rivals:
            return {name: claim[0] for name, claim in claims.items()}
        # Collisions of 8 digits can be made on purpose, so digits are added as needed. Only the names with the fewest
        # blocks change: a hashed name stays with its owner when another server gives a tool exactly that name.
        for claim in rivals:
            fewest = min(blocks[pair] for pair in claim)
            for pair in claim:
                if blocks[pair] == fewest:
                    blocks[pair] = fewest + 1


def _hashed(server: str, tool: str, *, blocks: int) -> str:
    plain = f"mcp_{server}_{tool}"
    if blocks == 0:
        return plain
    import hashlib

    # A NUL inside a name looks like the separator, so the length tells such pairs apart.
    originals = f"{server}\0{tool}" if blocks == 1 else f"{len(server)}\0{server}\0{tool}"
    # JSON can carry lone surrogates, which strict UTF-8 cannot encode.
    digest = hashlib.sha256(originals.encode("utf-8", "surrogatepass")).hexdigest()
    ending = "_" + digest[: min(blocks, _MAX_BLOCKS) * _HASH_DIGITS]
    return _NOT_ALLOWED.sub("_", plain)[: _MAX_LENGTH - len(ending)] + ending
