from gaia.mcp.cluster.report import NodeRoom, actor_name, amount_text, node_shortages, server_of_actor, shortage


def node(name: str, total: dict[str, float], free: dict[str, float] | None = None) -> NodeRoom:
    return NodeRoom(node=name, node_id=name, total=total, free=free)


FULL = node("full", {"CPU": 2, "browser": 1}, {"CPU": 2})
SMALL = node("small", {"CPU": 1}, {"CPU": 1})


class TestShortage:
    def test_a_resource_that_no_node_has(self) -> None:
        assert "none of the 2 nodes has any" in str(shortage({"gpu": 1}, [FULL, SMALL], {}))

    def test_more_than_any_node_has(self) -> None:
        assert "none of the 2 nodes has more than 2" in str(shortage({"CPU": 4}, [FULL, SMALL], {}))

    def test_a_resource_that_is_in_use(self) -> None:
        reason = shortage({"browser": 1}, [FULL, SMALL], {"CPU": 3})
        assert "all of the resource 'browser' is in use: it needs 1, and 0 is left" in str(reason)

    def test_resources_that_are_free_on_different_nodes_only(self) -> None:
        empty = node("empty", {"CPU": 2, "browser": 1}, {"browser": 1})
        reason = shortage({"CPU": 2, "browser": 1}, [FULL, empty], {"CPU": 2, "browser": 1})
        assert "full lacks browser; empty lacks CPU" in str(reason)

    def test_nothing_is_missing(self) -> None:
        assert shortage({"CPU": 1}, [FULL], {"CPU": 2}) is None
        assert shortage({}, [FULL], {}) is None


def test_what_a_node_has_too_little_of() -> None:
    assert node_shortages({"CPU": 1, "browser": 1}, FULL) == ["browser"]
    # It is not known how much is free.
    assert node_shortages({"browser": 1}, node("n", {"browser": 1})) == []


def test_what_is_shown_of_a_node_is_what_servers_are_placed_by() -> None:
    room = node("n", {"CPU": 2, "node:10.0.0.1": 1, "object_store_memory": 5}, {"CPU": 1})
    assert room.shown == {"CPU": (1, 2)}


def test_the_name_of_an_actor_says_which_server_it_is_for() -> None:
    assert server_of_actor(actor_name("a#b", "1")) == "a#b"


def test_memory_is_shown_in_mebibytes() -> None:
    assert [amount_text("memory", 2**31), amount_text("CPU", 0.5)] == ["2,048 MiB", "0.5"]
