"""URIs of resources that mean the same as others, as far as filters have to know it."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit

__all__ = ["has_detour", "plain_uri"]


def plain_uri(uri: str) -> str:
    """A URI as a server may understand it: without escapes, detours (``..``, ``//``), capitals of scheme and host.

    It serves for comparing only. What is no URI stays as it is.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if not parts.scheme:
        return uri
    host = parts.netloc.lower()
    if parts.scheme == "file" and host == "localhost":
        host = ""
    path = unquote(parts.path).replace("\\", "/")
    if _is_detour(path):
        end = "/" if path.endswith("/") else ""
        path = posixpath.normpath(path).removesuffix("/") + end
        if path.startswith("//"):
            path = path[1:]
    rest = uri[len(parts.scheme) + 1 :]
    plain = f"{parts.scheme}:{'//' if rest.startswith('//') else ''}{host}{path}"
    if parts.query:
        plain += f"?{unquote(parts.query)}"
    return plain + (f"#{unquote(parts.fragment)}" if parts.fragment else "")


def has_detour(uri: str) -> bool:
    """Whether the path does not say by its beginning where it leads."""
    try:
        return _is_detour(unquote(urlsplit(uri).path).replace("\\", "/"))
    except ValueError:
        return False


def _is_detour(path: str) -> bool:
    first, *others = path.split("/")
    inner = others[:-1]
    return any(segment in (".", "..") for segment in (first, *others)) or "" in inner
