"""A server's sandbox on this machine: hidden, shown and writable paths, and limits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gaia.mcp.errors import StartFailed
from gaia.mcp.transports.sandbox import Sandbox, memory_bytes
from gaia.mcp.transports.sandbox.places import (
    PRIVATE,
    can_be_left_out,
    hidden_files,
    hidden_places,
    homes,
    is_below,
    is_in,
    links_of,
    needed_by,
    outermost,
    script_of,
    secret_places,
)

_KERNEL = ("/proc", "/dev", "/sys")
_RESOLVER = "/etc/resolv.conf"


@dataclass(frozen=True)
class Confinement:
    """The sandbox of one start. All paths are absolute and free of symbolic links."""

    hidden: tuple[str, ...]
    """Directories that are empty except for the places of `read` and `write`; none lies within another."""
    private: tuple[str, ...]
    """Hidden directories to which the server may write; the content is gone when it ends."""
    read: tuple[str, ...]
    """Places within hidden ones that can be read."""
    write: tuple[str, ...]
    """Places that the server can change, within hidden ones or not."""
    masked: tuple[str, ...]
    """Secrets that are hidden although the place around them is shown."""
    left_out: tuple[str, ...]
    """Files to hide in shown places: this program's, and secrets. The directory of such a file is shown entry by entry,
    so that the file stays hidden when it is replaced or created again."""
    links: tuple[tuple[str, str], ...]
    """Symbolic links in hidden places that lead to shown places, with their targets."""
    cwd: str
    network: bool
    memory: int | None
    """Bytes; None means no limit, here and below."""
    processes: int | None
    cpu_seconds: int | None

    def writes(self, path: str) -> bool:
        real = os.path.realpath(path)
        return is_in(real, self.write)

    def shows(self, path: str) -> bool:
        real = os.path.realpath(path)
        places = (*self.hidden, *self.masked, *self.left_out, *self.read, *self.write)
        deepest = max((place for place in places if is_below(real, place)), key=len, default="")
        return not deepest or deepest in (*self.read, *self.write)


def confinement_of(
    sandbox: Sandbox, argv: Sequence[str], search_path: str, cwd: str | None, own: Sequence[str] = ()
) -> Confinement:
    """Raises StartFailed for a path that cannot be used. `own` are programs that run before the server."""
    directory = os.path.realpath(cwd or os.getcwd())
    hidden = hidden_places()
    whole = [*hidden, *homes()]
    """Shown in part only, unless the configuration names them."""
    write = _listed("write", sandbox.write, directory)
    listed = [*_listed("read", sandbox.read, directory), *write]
    writable = {real for _, real in write}
    _refuse_writable_links(sandbox, directory, writable)

    script = script_of(argv, directory)
    started = (argv[0], *own) if script is None else (argv[0], script, *own)
    programs = [(path, os.path.realpath(path)) for one in started for path in needed_by(one, search_path)]
    implied = [(path, real) for path, real in programs if not any(is_below(place, real) for place in whole)]
    if not any(is_below(place, directory) for place in whole):
        implied.append((cwd or directory, directory))
    if sandbox.network and os.path.exists(_RESOLVER):
        implied.append((_RESOLVER, os.path.realpath(_RESOLVER)))

    shown = [(path, real) for path, real in (*listed, *implied) if is_in(real, hidden)]
    opened = {real for _, real in (*listed, *implied)}
    named = {real for _, real in listed}
    masked = [
        secret
        for secret in secret_places()
        if secret not in named and (is_in(secret, opened) or not is_in(secret, hidden))
    ]

    def is_shown(path: str) -> bool:
        # A program may get /dev/fd/3, which is another file in the sandbox.
        return not is_in(path, (*masked, *_KERNEL)) and (not is_in(path, hidden) or is_in(path, opened))

    own = hidden_files(named, opened, is_shown)
    _refuse_writing_around(own, writable)
    # Secrets are replaced too, for example by `npm login`. Where the server may write, they can only be masked.
    lasting = [
        secret for secret in masked if is_in(secret, opened) and not is_in(secret, writable) and can_be_left_out(secret)
    ]
    masked = [secret for secret in masked if secret not in lasting]
    read = {real for _, real in (*shown, *listed)} - writable - set(masked)
    # The links that exist in the sandbox only if they are made there.
    links = {
        link: target
        for path, _ in (*shown, *listed)
        for link, target in links_of(path)
        if is_in(link, hidden) and not is_in(link, read | writable)
    }
    return Confinement(
        hidden=tuple(hidden),
        private=tuple(outermost(place for place in map(os.path.realpath, PRIVATE) if os.path.isdir(place))),
        read=tuple(sorted(read)),
        write=tuple(sorted(writable)),
        masked=tuple(sorted(masked)),
        left_out=tuple(sorted({*own, *lasting})),
        links=tuple(sorted(links.items())),
        cwd=directory,
        network=sandbox.network,
        memory=None if sandbox.memory is None else memory_bytes(sandbox.memory),
        processes=sandbox.processes,
        cpu_seconds=sandbox.cpu_seconds,
    )


def _listed(key: str, paths: Iterable[str], directory: str) -> list[tuple[str, str]]:
    found = []
    for path in paths:
        absolute = _absolute(path, directory)
        real = os.path.realpath(absolute)
        if not os.path.exists(real):
            raise StartFailed(f"sandbox.{key}: {path} does not exist; create it, or mend the path")
        if real == "/" or is_in(real, _KERNEL):
            raise StartFailed(f"sandbox.{key}: {path} cannot be opened for a server in a sandbox; name what is needed")
        found.append((absolute, real))
    return found


def _absolute(path: str, directory: str) -> str:
    return os.path.join(directory, os.path.expanduser(path))


def _refuse_writing_around(own: Iterable[str], writable: Iterable[str]) -> None:
    """Raise StartFailed if the server may write around a file of this program, because it could replace that file."""
    own = list(own)
    held = [
        f"{place} holds {', '.join(names)}"
        for place in sorted(writable)
        if (names := [os.path.relpath(file, place) for file in own if is_below(file, place)])
    ]
    if held:
        raise StartFailed(
            f"sandbox.write: {'; '.join(held)}: this program is configured with these files or writes them, and the "
            "server could replace them; keep them elsewhere, or name a narrower directory"
        )


def _refuse_writable_links(sandbox: Sandbox, directory: str, writable: Iterable[str]) -> None:
    """Raise StartFailed if the server may replace a link, because it could choose the target for its next start."""
    for key in ("read", "write"):
        for path in getattr(sandbox, key):
            for link, _ in links_of(_absolute(path, directory)):
                if is_in(link, writable):
                    raise StartFailed(
                        f"sandbox.{key}: {path} is reached by the symbolic link {link}, which the server may change; "
                        "write the path that it leads to"
                    )
