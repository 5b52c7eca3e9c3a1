"""What an examination finds: one verdict for each check, and one for the server."""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Check", "Diagnosis", "Verdict", "failed", "ok", "skipped", "warned"]


class Verdict(enum.StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, and is most likely not what was meant, or will not work for long."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Nothing to look at, or what it needs has failed before."""


class Check(msgspec.Struct, frozen=True):
    """One finding. Its text may come from the server, and is not made safe for a terminal."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str | None = None
    """What to do about it."""
    seconds: float | None = None
    """How long it took, where that says something."""


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings about one server, in the order in which they were made."""

    server: str
    checks: tuple[Check, ...]
    tools: tuple[str, ...] = ()
    """The names of the tools that agents would get, by the server's own names; empty if it did not come to that."""

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
