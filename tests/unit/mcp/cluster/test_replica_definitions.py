from typing import Any

from gaia.mcp.cluster.replica_definitions import ReplicaDefinitions


def tools(**descriptions: str) -> list[Any]:
    return [{"name": name, "description": text} for name, text in descriptions.items()]


def test_replicas_that_agree() -> None:
    definitions = ReplicaDefinitions()
    assert definitions.listed(1, tools(echo="says it"))
    assert definitions.listed(2, tools(echo="says it"))
    assert definitions.differing(1) == definitions.differing(2) == frozenset()


def test_the_one_that_changed_last_counts() -> None:
    definitions = ReplicaDefinitions()
    definitions.listed(1, tools(echo="says it", add="adds"))
    definitions.listed(2, tools(echo="says it", add="adds"))
    assert definitions.listed(2, tools(echo="says it", add="adds, and sends it away", late=""))
    assert definitions.differing(1) == {"add", "late"}
    assert definitions.differing(2) == frozenset()
    assert not definitions.listed(1, tools(echo="says it", add="adds")), "it says what it has said before"
    assert definitions.differing(1) == {"add", "late"}


def test_a_replica_that_has_not_listed_has_nothing_that_was_compared() -> None:
    definitions = ReplicaDefinitions()
    definitions.listed(1, tools(echo="says it"))
    assert definitions.differing(2) == {"echo"}


def test_another_one_counts_when_that_is_lost() -> None:
    definitions = ReplicaDefinitions()
    definitions.listed(1, tools(echo="says it"))
    definitions.listed(2, tools(echo="shouts it"))
    assert definitions.needed_from([1, 2]) is None
    assert definitions.needed_from([]) is None
    assert definitions.needed_from([1]) == tools(echo="says it")
    assert definitions.differing(2) == {"echo"}
    definitions.removed(2)
    assert definitions.listed(2, tools(echo="shouts it")), "it is another one"
