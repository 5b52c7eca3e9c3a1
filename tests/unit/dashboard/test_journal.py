"""The bounded list that pages follow."""

from gaia.dashboard.journal import Journal


def test_a_reader_gets_what_was_written_since() -> None:
    journal = Journal()
    journal.write("call", {"n": 1})
    position = journal.position
    journal.write("call", {"n": 2})
    journal.write("event", {"n": 3})
    found = journal.read(position)

    assert found is not None
    entries, position = found
    assert [(entry.kind, entry.data["n"]) for entry in entries] == [("call", 2), ("event", 3)]
    assert journal.read(position) == ([], 3)


def test_one_that_fell_behind_is_told_so() -> None:
    journal = Journal(limit=2)
    position = journal.position
    journal.write("call", {"n": 1})
    journal.write("call", {"n": 2})
    assert journal.read(position) is not None

    journal.write("call", {"n": 3})
    assert journal.read(position) is None
    assert journal.read(journal.position) == ([], 3)
