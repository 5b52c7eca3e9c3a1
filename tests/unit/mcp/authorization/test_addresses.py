"""What hosts in URLs are, however they are written."""

import pytest

from gaia.mcp.authorization.addresses import is_loopback, literal, where_is

THIS_MACHINE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "localhost",
    "LOCALHOST.",
    "api.localhost",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:0:0",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]
PRIVATE_NETWORKS = ["10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "fc00::1", "fec0::1", "167772161"]
NOBODYS = ["169.254.169.254", "fe80::1", "224.0.0.1", "::ffff:169.254.169.254"]
INTERNET = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"]


@pytest.mark.parametrize(
    ("host", "where"),
    [
        *((host, "machine") for host in THIS_MACHINE),
        *((host, "network") for host in PRIVATE_NETWORKS),
        *((host, "nowhere") for host in NOBODYS),
        *((host, "internet") for host in INTERNET),
    ],
)
def test_an_address_is_recognised_in_all_its_forms(host: str, where: str) -> None:
    address = literal(host)
    assert address is not None
    assert where_is(address) == where
    assert is_loopback(host) == (where == "machine")


@pytest.mark.parametrize("host", ["", "login.example.com", "localhost.example.com", "127.0.0.1.example.com", "é"])
def test_a_name_has_to_be_resolved(host: str) -> None:
    assert literal(host) is None
    assert not is_loopback(host)
