"""Results of an examination: a verdict for each check and for the server, and remedies in words."""

from __future__ import annotations

import enum
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.transports.command import argument_vector, withheld


class Verdict(enum.StrEnum):
    """The result of a check, or of a whole diagnosis."""

    OK = "ok"
    """Nothing is wrong."""
    WARN = "warn"
    """It works, but probably not as intended, or not for long."""
    FAIL = "fail"
    """It does not work."""
    SKIPPED = "skipped"
    """There is nothing to check, or a check that it depends on has failed."""


class Check(msgspec.Struct, frozen=True):
    """One finding. Its text may come from the server, and is not made safe for a terminal."""

    name: str
    """The subject of the check: ``command``, ``handshake`` and so on."""
    verdict: Verdict
    """The result."""
    detail: str
    """The finding, in a sentence."""
    remedy: str | None = None
    """What the user can do about it."""
    seconds: float | None = None
    """Its duration in seconds, if that is useful."""


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings about one server."""

    server: str
    """The server's name."""
    checks: tuple[Check, ...]
    """In the order in which they were made."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools that agents would get; empty if the tools were not listed."""

    @property
    def verdict(self) -> Verdict:
        """FAIL if a check failed, WARN if one warns, else OK."""
        verdicts = {check.verdict for check in self.checks}
        return next((grave for grave in (Verdict.FAIL, Verdict.WARN) if grave in verdicts), Verdict.OK)

    def check(self, name: str) -> Check | None:
        """The check of this name; None if this kind of server has no such check."""
        return next((check for check in self.checks if check.name == name), None)


def ok(name: str, detail: str, seconds: float | None = None) -> Check:
    return Check(name, Verdict.OK, detail, None, seconds)


def warned(name: str, detail: str, remedy: str | None, seconds: float | None = None) -> Check:
    return Check(name, Verdict.WARN, detail, remedy, seconds)


def failed(name: str, detail: str, remedy: str | None, seconds: float | None = None) -> Check:
    return Check(name, Verdict.FAIL, detail, remedy, seconds)


def skipped(name: str, detail: str) -> Check:
    return Check(name, Verdict.SKIPPED, detail)


_LAUNCHERS = {
    "uvx": "uvx comes with uv: https://docs.astral.sh/uv/",
    "uv": "Install uv: https://docs.astral.sh/uv/",
    "npx": "npx comes with Node.js: https://nodejs.org/",
    "node": "Install Node.js: https://nodejs.org/",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
}
_REFUSED = re.compile(r"\b40[13]\b")


_VARIABLE = r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})"


def for_missing_program(program: str) -> str | None:
    return _LAUNCHERS.get(os.path.basename(program))


def for_handshake(name: str, entry: Mapping[str, Any], error: str, *, stdio: bool = True) -> str | None:
    """The remedy after the process or the connection was started, but the handshake failed."""
    if not stdio:
        log_in = f'Run `gaia mcp login {shlex.quote(name)}`, or give an "Authorization" in "headers".'
        return log_in if _REFUSED.search(error) else None
    if "was not answered" in error:
        return (
            "It runs but does not answer. Is it an MCP server that uses standard input and output? If it only needs "
            f'longer to start, as the first run of a package does, give {name!r} a longer "startTimeout".'
        )
    if entry.get("sandbox"):
        return (
            "It was started in its sandbox, but there was no handshake. Look at what the sandbox denied it, "
            "and whether its limits suffice. If you trust it, run it by hand, without a sandbox, to see what it says: "
            + _by_hand(entry)
        )
    return f"It was started, but there was no handshake. Run it by hand to see what it says: {_by_hand(entry)}"


def for_environment(entry: Mapping[str, Any]) -> str | None:
    """The names of variables that a server might lack that did not start; None if it got all of them."""
    names = [] if entry.get("inheritEnv") is True else withheld(entry.get("env"))
    if not names:
        return None
    return (
        f"It does not get these variables of this environment: {', '.join(names)}. "
        'If it needs one, name it in "env", as in {"NAME": "${NAME}"}.'
    )


def _by_hand(entry: Mapping[str, Any]) -> str:
    """The server's command line as a person would type it, with variables not expanded."""
    args = entry.get("args")
    words = argument_vector(str(entry.get("command", "")), None if args is None else list(map(str, args)))
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """`word` quoted for a shell, which expands ``${NAME}`` as gaia-mcp does. Defaults could be shell code."""
    parts = re.split(_VARIABLE, word)
    if len(parts) == 1:
        return shlex.quote(word)
    # Every second part is a variable.
    return "".join(f'"{part}"' if number % 2 else part and shlex.quote(part) for number, part in enumerate(parts))
