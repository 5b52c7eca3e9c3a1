"""How long a call takes, one after the other, for small, middling and large texts; and what it costs the processor."""

from __future__ import annotations

from benchmarks.session import Case, Session, place

SECTION = "latency"
PROCESSOR = "processor time"
_CASES = (
    Case("64 B, two cores", 64, calls=400, rounds=15),
    Case("64 B, one core", 64, calls=400, rounds=10, together=True),
    Case("10 KiB, two cores", 10 * 1024, calls=300, rounds=10),
    Case("1 MiB, two cores", 1024 * 1024, calls=20, rounds=10),
)


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=1) as drivers:
        for case in _CASES:
            place(drivers, together=case.together)
            for taken in session.rounds_of_calls(SECTION, drivers, case):
                for contender, calls in taken.items():
                    for column, figure in calls.figures(50, 95, 99).items():
                        session.add(contender, SECTION, case.title, column, figure, "seconds")
                    session.add(contender, PROCESSOR, "of one call", case.title, calls.processor, "seconds")
