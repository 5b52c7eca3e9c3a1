"""The places that a sandbox hides, including this program's files, and the paths that a program needs to start.

Each save of a configuration replaces the file, and a mount over its name is then gone, in all namespaces. So the
directory of such a file is shown entry by entry, in its state at the server's start.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

from gaia.mcp.errors import StartFailed
from gaia.runtime.private_files import private_files

PRIVATE = ("/tmp", "/var/tmp")  # noqa: S108 - these are the places that a sandbox replaces
"""Places that a sandbox replaces by its own empty directories, to which the server may write."""

_HIDDEN = ("/home", "/root", "/run", "/var/run", "/mnt", "/media")
"""Homes; sockets and credentials of services, sessions and containers; other disks, and those of Windows under WSL."""

SECRETS = (
    # keys, and credentials of programs
    ".ssh", ".gnupg", ".password-store", ".netrc", ".git-credentials", ".config/git/credentials", ".pgpass", ".my.cnf",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".config/pip", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".config/gh",
    ".config/glab-cli", ".config/hub",
    ".config/op", ".vault-token", ".terraformrc", ".terraform.d", ".config/rclone", ".cache/huggingface/token",
    ".local/share/keyrings", ".local/share/kwalletd", ".Xauthority", ".ICEauthority",
    # clouds and containers
    ".aws", ".azure", ".config/gcloud", ".boto", ".s3cfg", ".oci", ".config/doctl", ".databrickscfg", ".snowflake",
    ".kube", ".docker", ".config/containers", ".fly",
    # agents, and their data about other servers
    ".gaia", ".claude", ".claude.json", ".config/Claude", ".codex", ".gemini", ".cursor", ".config/github-copilot",
    # browsers and mail
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".config/Signal", "snap", ".var/app",
    # typed commands
    ".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
    ".sqlite_history", ".local/share/fish/fish_history",
)  # fmt: skip
"""Paths in a home that stay hidden if the home, or a directory above them, is opened for a server."""

_SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/ssh/ssh_host_*_key", "/etc/krb5.keytab", "/etc/NetworkManager/system-connections", "/etc/wireguard",
    "/etc/kubernetes", "/etc/docker", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/systemd",
    "/var/log", "/var/mail", "/var/spool",
)  # fmt: skip
"""Places that permissions hide from ordinary users; from a server that runs as root, only a sandbox hides them."""

_INTERPRETER = re.compile(r"(python|node|deno|bun|ruby|perl|php|bash|sh)[\d.]*")
_CODE_FOLLOWS = ("-m", "-c", "-e", "-p", "--eval", "--print")

_PROJECT_FILES = ("package.json", "pyproject.toml", "setup.py")
_SHEBANG_BYTES = 256
_LINKS = 40


def homes() -> list[str]:
    """The user's homes, from the environment and from the system's list of users; existing directories only."""
    found = [os.path.expanduser("~")]
    # The user of a container may have no entry.
    with contextlib.suppress(KeyError):
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    real = (os.path.realpath(home) for home in found if os.path.isabs(home))
    return [home for home in dict.fromkeys(real) if home != "/" and os.path.isdir(home)]


def hidden_places() -> list[str]:
    """The directories that are empty in a sandbox, including the private ones; none lies within another."""
    places = (*_HIDDEN, *PRIVATE, tempfile.gettempdir(), *homes())
    return outermost(os.path.realpath(place) for place in places if os.path.isdir(place))


def secret_places() -> list[str]:
    own = (os.path.join(home, secret) for home in homes() for secret in SECRETS)
    system = (path for pattern in _SYSTEM_SECRETS for path in glob.glob(pattern))
    return outermost(os.path.realpath(path) for path in (*own, *system) if os.path.exists(path))


def is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_in(path: str, directories: Iterable[str]) -> bool:
    return any(is_below(path, directory) for directory in directories)


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that do not lie in another one, each once."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not is_in(path, kept):
            kept.append(path)
    return kept


def links_of(path: str) -> list[tuple[str, str]]:
    """The symbolic links on the way of an absolute path: the place of each, itself free of links, and its target."""
    found: list[tuple[str, str]] = []
    place, rest = "/", [part for part in path.split("/") if part not in ("", ".")]
    while rest and len(found) < _LINKS:
        part = rest.pop(0)
        if part == "..":
            place = os.path.dirname(place)
            continue
        step = os.path.join(place, part)
        try:
            target = os.readlink(step)
        except OSError:
            place = step
            continue
        found.append((step, target))
        place = "/" if target.startswith("/") else place
        rest = [part for part in target.split("/") if part not in ("", ".")] + rest
    return found


def needed_by(program: str, search_path: str) -> Iterator[str]:
    """The paths of a program's installation, which it needs to start.

    These are a virtual environment with its base interpreter, a version of Node.js or Python with its packages, the
    project of a script, and the interpreter that a script names. If the kind of installation is unknown, it is the
    program's directory; in a home's own ``bin``, only the file.
    """
    seen: set[str] = set()
    waiting = [program]
    while waiting:
        path = waiting.pop()
        for step in (path, *(link for link, _ in links_of(path)), os.path.realpath(path)):
            if step in seen:
                continue
            seen.add(step)
            place = _installation(step)
            yield place
            if place in _own("bin") and os.path.isdir(libraries := os.path.join(os.path.dirname(place), "lib")):
                yield libraries  # Packages that pip installed for this user.
            python = os.path.join(place, "bin", "python")
            if os.path.exists(os.path.join(place, "pyvenv.cfg")) and os.path.exists(python):
                waiting.append(python)
        waiting += [one for one in _interpreters(os.path.realpath(path), search_path) if one not in seen]


def script_of(argv: Sequence[str], directory: str) -> str | None:
    """The script that an interpreter is to run, as an absolute path; None for any other command."""
    if _INTERPRETER.fullmatch(os.path.basename(argv[0])) is None:
        return None
    for word in argv[1:]:
        if word in _CODE_FOLLOWS:
            return None
        if not word.startswith("-"):
            path = os.path.join(directory, word)
            return path if os.path.isfile(path) else None
    return None


def _installation(program: str) -> str:
    if "/node_modules/" in program:
        return program[: program.index("/node_modules/") + len("/node_modules")]
    directory = os.path.dirname(program)
    prefix = os.path.dirname(directory)
    if _is_runtime(prefix):
        return prefix
    if (project := _project(directory)) is not None:
        return project
    return directory if _is_of_programs_only(directory) else program


def _is_runtime(prefix: str) -> bool:
    # The user's own prefix contains more than programs: data, keys, the state of all applications.
    if prefix in _own("") or any(is_below(home, prefix) for home in homes()):
        return False
    marks = ("pyvenv.cfg", "lib/node_modules", "lib/python3*", "libexec", "versions", "tools/image")
    return any(glob.glob(os.path.join(glob.escape(prefix), mark)) for mark in marks)


def _project(directory: str) -> str | None:
    """The nearest directory above that is a project of Node.js or Python, but no home and no parent of a home."""
    while directory != "/" and not any(is_below(home, directory) for home in homes()):
        if any(os.path.exists(os.path.join(directory, file)) for file in _PROJECT_FILES):
            return directory
        directory = os.path.dirname(directory)
    return None


def _own(directory: str) -> set[str]:
    """The user's own prefixes, or the subdirectory `directory` of each."""
    return {os.path.join(home, ".local", directory).rstrip("/") for home in homes()}


def _is_of_programs_only(directory: str) -> bool:
    return os.path.basename(directory) in ("bin", "sbin", "shims") and os.path.dirname(directory) not in homes()


def _interpreters(script: str, search_path: str) -> list[str]:
    try:
        with open(script, "rb") as stream:
            line = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    program, *words = line[2:].decode("utf-8", "replace").split() or [""]
    found = [program]
    if os.path.basename(program) == "env":
        named = next((word for word in words if not word.startswith("-")), "")
        found.append(shutil.which(named, path=search_path) or "")
    return [path for path in found if os.path.isabs(path)]


_MOUNTS = "/proc/self/mountinfo"
_MAX_ENTRIES = 500
"""Entries of a directory that is shown entry by entry: each takes about half a millisecond of a server's start."""


def hidden_files(named: Iterable[str], opened: Iterable[str], is_shown: Callable[[str], bool]) -> list[str]:
    """The paths that the sandbox would show but must hide, free of links. Some may not exist yet.

    They are the files of this program, and files with related names: older logs, locks, copies. A file beside them that
    not every user can read is hidden too, except in places that were `opened` for the server. Paths that are `named` by
    the server's entry are not hidden.
    """
    opened, named, mounts = list(opened), set(named), _mounts()
    found: dict[str, None] = {}
    for file in private_files():
        real = os.path.realpath(file)
        if real not in named:
            link = os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
            for path in (place for one in dict.fromkeys((real, link)) for place in _places_of(one, mounts)):
                if is_shown(path):
                    found.update(dict.fromkeys((path, *_beside(path, opened))))
    return sorted(path for path in found if path not in named and is_shown(path))


def can_be_left_out(file: str) -> bool:
    """Whether the file exists, in a directory that may be shown entry by entry."""
    directory = os.path.dirname(file)
    return os.path.isfile(file) and os.access(directory, os.R_OK) and len(os.listdir(directory)) <= _MAX_ENTRIES


def entries_without(directory: str, hidden: Iterable[str]) -> list[str]:
    """The entries of a directory, without the hidden ones. Raises StartFailed if there are too many."""
    hidden = set(hidden)
    try:
        entries = sorted(os.path.join(directory, name) for name in os.listdir(directory))
    except OSError:
        return []
    if len(entries) > _MAX_ENTRIES:
        raise StartFailed(
            f"{directory} holds files that this program is configured with among {len(entries)} entries; "
            "for servers in a sandbox, keep them in a directory of their own"
        )
    return [path for path in entries if path not in hidden]


def _beside(file: str, opened: list[str]) -> Iterator[str]:
    directory, name = os.path.split(file)
    of_file = re.compile(rf"\.?{re.escape(name.lstrip('.'))}([^A-Za-z0-9].*)?", re.DOTALL)
    is_opened = is_in(directory, opened)
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if of_file.fullmatch(entry.name):
                    yield entry.path
                elif not is_opened and not any(is_below(one, entry.path) for one in opened):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if not mode & stat.S_IROTH:
                        yield entry.path
    except OSError:
        return


def _mounts() -> list[tuple[str, str, str]]:
    """For each mounted file system: its number, its mounted directory, and the mount point; the top one first."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            found = [line.split(" ", 5) for line in lines]
    except OSError:
        return []
    return [(words[2], _unescaped(words[3]), _unescaped(words[4])) for words in reversed(found)]


def _places_of(path: str, mounts: list[tuple[str, str, str]]) -> Iterator[str]:
    """A path, and other paths of the same file, if a part of its file system is mounted more than once."""
    yield path
    around = [mount for mount in mounts if is_below(path, mount[2])]
    if not around:
        return
    device, root, point = max(around, key=lambda mount: len(mount[2]))
    inner = os.path.normpath(os.path.join(root, os.path.relpath(path, point)))
    for other, part, place in mounts:
        if other == device and is_below(inner, part):
            found = os.path.normpath(os.path.join(place, os.path.relpath(inner, part)))
            if found != path:
                yield found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda number: chr(int(number[1], 8)), text)
