"""Where a login may connect to: what URLs show, and what names lead to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from gaia.mcp.authorization.endpoint_policy import EndpointPolicy, is_loopback, literal, where_is
from gaia.mcp.authorization.flows import OAuthFlowError
from tests.waiting import PATIENCE

REMOTE = "https://93.184.216.34/mcp"
PRIVATE = "https://10.0.0.7/mcp"
LOCAL = "http://127.0.0.1:8000/mcp"

THIS_MACHINE = ["127.0.0.1", "2130706433", "0.0.0.0", "localhost", "[::1]", "[::ffff:127.0.0.1]"]
PRIVATE_NETWORKS = ["10.0.0.1", "[fc00::1]"]
NOBODYS = ["169.254.169.254", "[fe80::1]"]
INTERNET = ["93.184.216.34", "login.example.com"]


def permits(server: str, url: str, issuer: str | None = None) -> bool:
    try:
        asyncio.run(EndpointPolicy(server, issuer).check(url))
    except OAuthFlowError:
        return False
    return True


class TestWhatAUrlShows:
    @pytest.mark.parametrize("host", [*THIS_MACHINE, *PRIVATE_NETWORKS, *NOBODYS])
    def test_a_server_on_the_internet_names_nothing_inside(self, host: str) -> None:
        assert not permits(REMOTE, f"https://{host}/token")
        assert not permits(REMOTE, f"http://{host}/token")

    @pytest.mark.parametrize("host", INTERNET)
    def test_it_names_what_is_on_the_internet(self, host: str) -> None:
        assert permits(REMOTE, f"https://{host}/token")
        assert not permits(REMOTE, f"http://{host}/token")

    @pytest.mark.parametrize("host", [*PRIVATE_NETWORKS, *INTERNET])
    def test_a_server_in_a_private_network_names_what_is_there(self, host: str) -> None:
        assert permits(PRIVATE, f"https://{host}/token")

    @pytest.mark.parametrize("host", [*THIS_MACHINE, *NOBODYS])
    def test_and_nothing_nearer(self, host: str) -> None:
        assert not permits(PRIVATE, f"https://{host}/token")

    @pytest.mark.parametrize("host", [*THIS_MACHINE, *PRIVATE_NETWORKS, *INTERNET])
    def test_a_server_on_this_machine_names_anything(self, host: str) -> None:
        assert permits(LOCAL, f"https://{host}/token")
        assert permits(LOCAL, f"http://{host}/token") == (host in THIS_MACHINE)

    def test_the_configured_authorization_server_may_be_anywhere(self) -> None:
        assert permits(REMOTE, "https://10.0.0.1/token", issuer="https://10.0.0.1/realm")
        assert not permits(REMOTE, "https://10.0.0.2/token", issuer="https://10.0.0.1/realm")

    def test_the_refusal_says_what_to_do_and_shows_no_query(self) -> None:
        with pytest.raises(OAuthFlowError, match="name it as issuer in the server's auth") as refusal:
            asyncio.run(EndpointPolicy(REMOTE).check("https://10.0.0.1/token?code=hunter22"))
        assert "hunter22" not in str(refusal.value)


class TestWhatANameLeadsTo:
    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        """A program of this machine that must not be reached."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(PATIENCE)
            yield listener

    @pytest.fixture(autouse=True)
    def names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All names under example.com are this machine."""
        resolve = socket.getaddrinfo

        def answer(host: Any, *arguments: Any, **options: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            return resolve("127.0.0.1" if name.endswith(".example.com") else host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", answer)

    def post(self, server: str, url: str) -> httpx2.Response:
        async def run() -> httpx2.Response:
            policy = EndpointPolicy(server)
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
                await policy.check(url)
                return await http.post(url, content=b"secret", extensions={"trace": policy.trace(url)})

        return asyncio.run(run())

    def test_nothing_is_sent_to_a_name_that_is_an_inner_address(self, listener: socket.socket) -> None:
        url = f"https://login.example.com:{listener.getsockname()[1]}/token"
        with pytest.raises(OAuthFlowError, match=r"127\.0\.0\.1 is not an address on the internet"):
            self.post(REMOTE, url)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE)
            assert connection.recv(1) == b"", "not even the greeting of TLS"

    def test_a_server_that_is_here_itself_may_name_it(self, listener: socket.socket) -> None:
        url = f"https://login.example.com:{listener.getsockname()[1]}/token"
        listener.close()
        with pytest.raises(httpx2.ConnectError):
            self.post("https://mcp.example.com/mcp", url)

    def test_a_server_with_an_address_elsewhere_too_may_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        addresses = ["127.0.0.1", "93.184.215.14"]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: found)
        with pytest.raises(OAuthFlowError, match=r"127\.0\.0\.2 is not an address on the internet"):
            asyncio.run(EndpointPolicy("https://mcp.example.com/mcp").check("https://127.0.0.2/token"))

    def test_a_proxy_is_not_taken_for_the_target(self, listener: socket.socket) -> None:
        policy = EndpointPolicy(REMOTE)

        async def run() -> None:
            proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx2.AsyncClient(proxy=proxy, timeout=PATIENCE) as http:
                url = "https://login.example.com/token"
                sending = asyncio.create_task(http.post(url, extensions={"trace": policy.trace(url)}))
                connection, _ = await asyncio.to_thread(listener.accept)
                with connection:
                    connection.settimeout(PATIENCE)
                    assert await asyncio.to_thread(connection.recv, 7) == b"CONNECT"
                with pytest.raises(httpx2.TransportError):
                    await sending

        asyncio.run(run())


MACHINE_ADDRESSES = [
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
NETWORK_ADDRESSES = ["10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "fc00::1", "fec0::1", "167772161"]
ADDRESSES_OF_NOBODY = ["169.254.169.254", "fe80::1", "224.0.0.1", "::ffff:169.254.169.254"]
INTERNET_ADDRESSES = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"]


@pytest.mark.parametrize(
    ("host", "where"),
    [
        *((host, "machine") for host in MACHINE_ADDRESSES),
        *((host, "network") for host in NETWORK_ADDRESSES),
        *((host, "nowhere") for host in ADDRESSES_OF_NOBODY),
        *((host, "internet") for host in INTERNET_ADDRESSES),
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
