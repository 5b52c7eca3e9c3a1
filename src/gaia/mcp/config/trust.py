"""The list of projects' ``mcp_servers.json`` that the user trusts. Such a file names commands, so it could do harm.

A file is trusted by its path and its content, so a changed file has to be trusted again. The list is the user's own,
``~/.gaia/mcp_trusted.json``:
``{"version": 1, "files": {path: {"sha256": …, "servers": {name: what it runs}, "key": …}}}``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gaia.runtime import json_file
from gaia.runtime.redaction import MASK, repr_of_shown, sounds_secret
from gaia.runtime.untrusted_text import escaped, escaped_line
from gaia.telemetry.masking import is_confidential

_FILE_NAME = "mcp_trusted.json"
_VERSION = 1
_EXAMPLE = '{"version": 1, "files": {…}}'

_DECIDES_EXECUTION = (
    r"(?i)^(?:LD|DYLD)_|^PYTHON|^GIT_CONFIG|^BASH_FUNC_|^GIT_SSH$|^PERL5DB$"
    r"|(?:ASKPASS|PRELOAD|COMMAND|CMD|HELPER|PROCESS|PROGRAM|HOOKS?|EXEC|PLUGINS?|SCRIPT|MODULE"
    r"|BACKEND|PROVIDER|EDITOR|PAGER|BROWSER|SHELL|OPTIONS?|OPTS?|PATH|LIB|FILES?|DIR|ENV)$"
)
"""Names of variables that decide which code runs.

Some of them sound secret: GIT_ASKPASS, PASSWORD_COMMAND, and GIT_CONFIG_KEY_0, whose value may be core.sshCommand.
Ansible runs the program in ANSIBLE_VAULT_PASSWORD_FILE.
"""

_CODE = r"(?:^|\s)(?:\.{0,2}|~\w*|[A-Za-z]:)[/\\]|[`|;&]|[$<>]\("
"""The path of a program, or text that a shell acts upon, in a variable of any name."""

_URL_PASSWORD = r"(?<=://)([^\s/@:]*):([\w.~%+=-]+)(?=@)"  # noqa: S105 - no password
_URL_FIELD = r"(?<=[?&])([\w.-]+)=([^&#\s]+)"
_HEADER_CREDENTIALS = r"(?i)(?<=authorization: )(\w+ )?([\w.~+/=-]+)"
"""Credentials that git sends to a server, for example in GIT_CONFIG_VALUE_0. No shell acts on these characters."""

_DIGEST_LENGTH = 8
"""Hexadecimal digits: enough to see that a value has changed, and far too few to find the value."""


class ProjectFile(msgspec.Struct, frozen=True):
    """A project's configuration file as it was read."""

    path: Path
    """The file."""
    sha256: str
    """The hash of its content, in hexadecimal digits."""
    servers: dict[str, str]
    """By server: its commands, in lines for people (see `describe`)."""
    problem: str | None = None
    """Why the file cannot be used; None if it can."""
    key: str = ""
    """The key with which masked values in `servers` were hashed."""

    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("path", self.path), ("sha256", self.sha256), ("problem", self.problem)]


class TrustedFile(msgspec.Struct, frozen=True):
    sha256: str
    servers: dict[str, str] = {}
    key: str = ""


class TrustStore:
    """The list of trusted files. Every method reads the file. Thread-safe.

    All methods raise ConfigError if the list cannot be read, understood or saved; it is left as it is.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = json_file.home_folder(_FILE_NAME) / _FILE_NAME if file is None else file

    def trusts(self, path: Path, data: bytes) -> bool:
        known = self.files().get(path)
        return known is not None and known.sha256 == digest(data)

    def files(self) -> dict[Path, TrustedFile]:
        return self._files(self._document())

    def trust(self, project: ProjectFile) -> None:
        with json_file.locked(self.file) as target:
            document = self._document()
            self._files(document)
            entry = msgspec.to_builtins(TrustedFile(project.sha256, project.servers, project.key))
            files = {**document.get("files", {}), str(project.path): entry}
            json_file.write(target, {**document, "version": _VERSION, "files": files})

    def revoke(self, path: Path) -> bool:
        if path not in self.files():
            return False
        with json_file.locked(self.file) as target:
            document = self._document()
            # The list may name the file in several ways, such as "/a//b" and "/a/b".
            kept = {name: one for name, one in document.get("files", {}).items() if Path(name) != path}
            json_file.write(target, {**document, "files": kept})
            return True

    def _document(self) -> dict[str, Any]:
        return json_file.read_version(self.file, _EXAMPLE, _VERSION)

    def _files(self, document: dict[str, Any]) -> dict[Path, TrustedFile]:
        try:
            known = json_file.convert(document.get("files", {}), dict[str, TrustedFile], accept_halves=True)
        except msgspec.ValidationError as error:
            json_file.broken(self.file, f"files: {error}", cause=error)
        return {Path(file): one for file, one in known.items()}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def describe(entry: Mapping[str, Any], key: str | None = None) -> str:
    r"""Describe the effects of a server's entry, in lines for people.

    Nothing is hidden, and no value begins a line: line breaks, invisible characters and look-alike letters are shown as
    ``\u{…}``. Secrets are masked. With a `key`, a short hash follows each mask, so that a changed value is recognised.
    Values that decide which program is run are never masked. Entries that cannot be used are described too.
    """
    rest = dict(entry)
    command, url = rest.pop("command", None), rest.pop("url", None)
    lines = []
    if command is not None:
        args = rest.pop("args", None)
        words = [command, *(args if isinstance(args, list) else [args])]
        # A command without args is already a command line.
        lines.append(f"runs: {command if args is None else shlex.join(map(_text, words))}")
    if url is not None:
        lines.append(f"connects to: {_url(str(url), key)}")
    if cwd := rest.pop("cwd", None):
        lines.append(f"in the directory: {cwd}")
    for kind, shown in (("env", _variable), ("headers", _named)):
        if isinstance(values := rest.get(kind), Mapping):
            lines += [f"{kind}: {name}={shown(name, _text(value), key)}" for name, value in values.items()]
            del rest[kind]
    lines += [f"{name}: {json.dumps(_nested(value, key), ensure_ascii=False)}" for name, value in sorted(rest.items())]
    return "\n".join(map(escaped_line, lines))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _variable(name: str, value: str, key: str | None) -> str:
    if re.search(_DECIDES_EXECUTION, name):
        shown = _without_password(value, key)
        return re.sub(_HEADER_CREDENTIALS, lambda match: f"{match[1] or ''}{_mask(match[2], key)}", shown)
    return value if re.search(_CODE, value) and not is_confidential(value) else _named(name, value, key)


def _named(name: str, value: str, key: str | None) -> str:
    """A value, masked if its name or its form says that it may be secret."""
    # A reference to a variable is no secret, and shows where a secret is sent.
    if "${" in value:
        return value
    return _mask(value, key) if sounds_secret(name) or is_confidential(value) else _url(value, key)


def _url(value: str, key: str | None) -> str:

    def field(match: re.Match[str]) -> str:
        return f"{match[1]}={_mask(match[2], key)}" if sounds_secret(match[1]) else match[0]

    return re.sub(_URL_FIELD, field, _without_password(value, key)) if "://" in value else value


def _without_password(value: str, key: str | None) -> str:
    return re.sub(_URL_PASSWORD, lambda match: f"{match[1]}:{_mask(match[2], key)}", value)


def _nested(value: Any, key: str | None) -> Any:
    if isinstance(value, dict):
        return {
            name: _variable(name, item, key) if isinstance(item, str) else _nested(item, key)
            for name, item in value.items()
        }
    return [_nested(item, key) for item in value] if isinstance(value, list) else value


def _mask(value: str, key: str | None) -> str:
    if key is None:
        return MASK
    found = hmac.digest(key.encode(), value.encode("utf-8", "surrogatepass"), "sha256")
    return f"{MASK} (#{found.hex()[:_DIGEST_LENGTH]})"


_CONTEXT = 3


def difference(approved: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    r"""A unified diff, key by key, of two JSON objects such as definitions of a tool; None means no object.

    Lines begin with ``@``, ``-``, ``+`` or a blank, as in any diff. Nothing in them is invisible: control and
    formatting characters are shown as ``\u{…}``.
    """

    def text(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)

    before, after = ({key: escaped(text(value)) for key, value in (one or {}).items()} for one in (approved, now))
    return text_difference(before, after)


def text_difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A unified diff of texts that are already safe to show; their keys are escaped here."""
    import difflib

    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = ([] if key not in texts else texts[key].split("\n") for texts in (before, after))
        if old != new:
            # The first three lines name files and line numbers, which do not exist here.
            found = list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[3:]
            lines += [f"@ {escaped_line(key)}", *("  …" if line.startswith("@@") else line for line in found)]
    return lines
