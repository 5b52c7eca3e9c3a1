"""A Ray cluster of three nodes on this machine, and a driver that has joined it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.small_cluster import SmallCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("process")
            item.add_marker("slow")


@pytest.fixture(scope="session")
def whole_cluster() -> Iterator[SmallCluster]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = SmallCluster()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        cluster.shutdown()


@pytest.fixture
def cluster(whole_cluster: SmallCluster) -> SmallCluster:
    whole_cluster.keep_two()
    return whole_cluster


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Ray keeps threads, sockets and processes from test to test; what gaia leaves is looked at by tests themselves."""


@pytest.fixture
def placed(cluster: SmallCluster, demo_server: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Make the entry of a placed server: the keywords are keys of its placement."""

    def entry(server: dict[str, Any] | None = None, **placement: Any) -> dict[str, Any]:
        # The nodes start servers with the environment of a test that began long ago.
        return {**(server or demo_server), "placement": {"resources": {"browser": 1}, **placement}}

    return entry
