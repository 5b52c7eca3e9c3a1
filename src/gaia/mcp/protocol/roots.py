"""Roots: the folders that servers are told to work in (specification, "Roots")."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

Root = str | Path | dict[str, Any]
"""A folder or file: a path, a ``file://`` URI, or ``{"uri": …, "name": …}`` to give it a name for people."""


def root_list(roots: Iterable[Root]) -> dict[str, Any]:
    """The answer to ``roots/list``. Raises ValueError for what is no root: all URIs have to be ``file://``."""
    return {"roots": [_root(root) for root in roots]}


def _root(root: Root) -> dict[str, Any]:
    if isinstance(root, dict):
        uri, name = root.get("uri"), root.get("name")
        if not isinstance(uri, str) or not isinstance(name, str | None):
            raise ValueError(  # noqa: TRY004 - a bad value among many
                f'roots: expected {{"uri": "file://…", "name": "…"}}, got {root!r}'
            )
        return {"uri": _file_uri(uri)} if name is None else {"uri": _file_uri(uri), "name": name}
    if isinstance(root, str) and "://" in root:
        return {"uri": _file_uri(root)}
    if not isinstance(root, str | Path):
        raise ValueError(f"roots: expected a path or a file:// URI, got {root!r}")  # noqa: TRY004 - as above
    path = Path(root).expanduser().absolute()
    return {"uri": path.as_uri(), "name": path.name} if path.name else {"uri": path.as_uri()}


def _file_uri(uri: str) -> str:
    if not uri.startswith("file://"):
        raise ValueError(f"roots: {uri!r} is no file:// URI")
    return uri
