"""Files that hold one JSON object and that people edit: a save replaces the whole file or leaves it unchanged.

A malformed file raises ConfigError with file, line and column, and is never overwritten. Servers in a sandbox see none
of these files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gaia.mcp.errors import ConfigError
from gaia.runtime.private_files import keep_private
from gaia.runtime.untrusted_text import escaped_line

_T = TypeVar("_T")

_LOCK_SECONDS = 10.0
"""A save takes milliseconds, so a process that holds the lock for longer is stuck."""


def home_folder(file_name: str) -> Path:
    """``~/.gaia``, which a save creates. The ConfigError for a missing home directory names `file_name`."""
    try:
        return Path.home() / ".gaia"
    except RuntimeError as error:
        raise ConfigError(f"~/.gaia/{file_name}: there is no home directory; set HOME or name a file") from error


def read(file: Path, example: str) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or empty. Raises ConfigError that shows `example`."""
    return decode(file, read_bytes(file), example)


def read_version(file: Path, example: str, version: int) -> dict[str, Any]:
    """Read a file of gaia's own that states the version of its format. Raises ConfigError for another version.

    Such a file records the user's decisions, so it is refused too if other users can change it.
    """
    if (others := who_else_writes(file)) is not None:
        raise ConfigError(f"{file}: {others}")
    document = read(file, example)
    found = document.get("version", version)
    if found != version:
        broken(file, f"its version is {found!r}, and this gaia-mcp understands {version}; update it")
    return document


def read_bytes(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    keep_private(file)
    return data


def who_else_writes(file: Path) -> str | None:
    """How other users of this machine, except the administrator, can change a file, and the command that prevents it.

    None if they cannot, if there is no such file, or on a system without owners of files. Permissions of groups are
    ignored, because many systems give each user a group.
    """
    if not hasattr(os, "geteuid"):
        return None
    try:
        target = Path(os.path.realpath(file))
        places = [(target, os.stat(target)), *((folder, os.stat(folder)) for folder in {file.parent, target.parent})]
        if file.is_symlink():
            # A link's owner decides which file the link names. The permissions of a link itself have no meaning.
            places.append((file, os.lstat(file)))
    except OSError:
        return None
    for place, found in places:
        # In a folder with the sticky bit, such as /tmp, users can replace only their own files.
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_mode & stat.S_IWOTH and not sticky and not stat.S_ISLNK(found.st_mode):
            return f"every user of this machine can write to {place}; run: chmod o-w {shlex.quote(str(place))}"
        if found.st_uid not in (0, os.geteuid()):
            command = "sudo chown -h" if stat.S_ISLNK(found.st_mode) else "sudo chown"
            return f"{place} belongs to another user; run: {command} {os.geteuid()} {shlex.quote(str(place))}"
    return None


def decode(file: Path, data: bytes, example: str) -> dict[str, Any]:
    """The JSON object in `data`; empty if it is blank. `file` is for the messages. Raises ConfigError."""
    try:
        text = data.decode("utf-8-sig")
        document = parse(text) if text.strip() else {}
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode()) + 1
        broken(file, "not UTF-8; save it in that encoding", line, column, cause=error)
    except json.JSONDecodeError as error:
        broken(file, f"not valid JSON: {error.msg}; correct it there", error.lineno, error.colno, cause=error)
    except (ValueError, RecursionError) as error:
        broken(file, f"not usable JSON: {error}", cause=error)
    if not isinstance(document, dict):
        broken(file, f"expected an object like {example}")
    return document


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for NaN and numbers too large, which Python accepts."""
    return json.loads(text, parse_constant=_refuse, parse_float=_number)


def convert(value: Any, kind: type[_T], *, accept_halves: bool = False) -> _T:
    """`msgspec.convert` that refuses half of a surrogate pair in a text: JSON can escape it, but UTF-8 cannot hold it.

    Raises ValidationError that names the place. Accepted are halves that stand for bytes of a file name (PEP 383), and
    with `accept_halves` all, except in keys and words that msgspec compares with those that it knows.
    """
    # Imported here: `gaia --help` reads no file.
    import msgspec

    try:
        for _, text in () if accept_halves else _texts(value):
            text.encode("utf-8", "surrogateescape")
        return msgspec.convert(value, kind)
    except UnicodeEncodeError as error:
        place = next(place for place, text in _texts(value) if text == error.object)
    raise msgspec.ValidationError(
        f"half of a surrogate pair in {escaped_line(place)}; write the whole character, or remove it"
    )


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """All texts in a JSON value, keys included, with their places, such as ``env.HOME`` and ``args[0]``."""
    left = [("", value)]
    while left:
        place, item = left.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, dict):
            for key, inner in item.items():
                inside = f"{place}.{key}" if place else str(key)
                left += [(inside, inner), (inside, key)]
        elif isinstance(item, list):
            left += [(f"{place}[{index}]", inner) for index, inner in enumerate(item)]


def broken(
    file: Path, problem: str, line: int | None = None, column: int | None = None, *, cause: Exception | None = None
) -> NoReturn:
    place = "" if line is None else f"line {line}, column {column}: "
    raise ConfigError(f"{file}: {place}{problem} (the file was not changed)") from cause


@contextlib.contextmanager
def locked(file: Path, seconds: float | None = None) -> Iterator[Path]:
    """Hold the lock beside the file, waiting up to `seconds` for it; yields the path to write. Raises ConfigError.

    With 0 seconds or less it tries once. The path is the target of a symbolic link, so the link stays.
    """
    # For filelock, a negative timeout means no limit.
    seconds = _LOCK_SECONDS if seconds is None else max(0.0, seconds)
    try:
        # Most programs only read their configuration.
        from filelock import FileLock, Timeout
    except (OSError, ImportError) as error:
        raise ConfigError(f"{file}: cannot be saved: {error} (the file was not changed)") from error
    target = Path(os.path.realpath(file))
    lock_file = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(lock_file, timeout=seconds, mode=0o600):
            yield target
    except Timeout as error:
        raise ConfigError(
            f"{file}: cannot be saved: another program has held {lock_file} for {seconds:g} s; "
            "end it, or try again later"
        ) from error
    except (OSError, NotImplementedError) as error:
        # filelock raises NotImplementedError if a file system has no locks.
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: cannot be saved: {reason} (the file was not changed)") from error


def write(target: Path, document: dict[str, Any]) -> bytes:
    """Replace the whole file or leave it unchanged; returns the new content. Only the owner can read the file."""
    import tempfile

    try:
        data = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair: a JSON escape can express it, UTF-8 cannot.
        data = json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
        keep_private(target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(target.parent)
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _number(text: str) -> float:
    # Python would read infinity, which the next save could not write.
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
