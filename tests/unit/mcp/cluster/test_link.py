from gaia.mcp.cluster.link import HostGone, HostLost


def test_what_is_gone_is_lost() -> None:
    assert issubclass(HostGone, HostLost)
