"""What a call costs in a program that traces or meters, and how much of that OpenTelemetry itself takes."""

from __future__ import annotations

from benchmarks.contenders import (
    FLOOR,
    GAIA,
    METERED,
    OWN_SPAN,
    SPAN_AROUND_CALL,
    TRACED,
    UNSAMPLED,
    UNSAMPLED_SPAN_AROUND_CALL,
    WITH_CONTENT,
    WITHOUT_CONTENT,
    Contender,
)
from benchmarks.session import Calls, Case, Session, place

SECTION = "tracing"
_ADDED = "added to the p50 of a call of 64 B"
_AROUND_CALL = (SPAN_AROUND_CALL, UNSAMPLED_SPAN_AROUND_CALL)
_CONTENDERS = (FLOOR, OWN_SPAN, *_AROUND_CALL, GAIA, UNSAMPLED, TRACED, WITHOUT_CONTENT, WITH_CONTENT, METERED)
_ONLY_ADDED = (OWN_SPAN, *_AROUND_CALL)


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=1, among=_CONTENDERS) as drivers:
        for where in ("one core", "two cores"):
            place(drivers, together=where == "one core")
            for taken in session.rounds_of_calls(SECTION, drivers, Case(where, 64, calls=400, rounds=12)):
                _add(session, where, taken)


def _add(session: Session, where: str, taken: dict[Contender, Calls]) -> None:
    """The calls of one round, and what each takes more than one without tracing takes in the same round."""
    medians = {contender: calls.figures(50)["p50"] for contender, calls in taken.items()}
    for contender, calls in taken.items():
        if contender not in _ONLY_ADDED:
            for column, figure in {**calls.figures(50, 99), "processor time": calls.processor}.items():
                session.add(contender, SECTION, f"64 B, {where}, traced", column, figure, "seconds")
        if contender is OWN_SPAN:
            session.add(contender, SECTION, _ADDED, where, medians[contender], "seconds")
        elif contender not in (FLOOR, GAIA) and GAIA in medians:
            session.add(contender, SECTION, _ADDED, where, medians[contender] - medians[GAIA], "seconds")
