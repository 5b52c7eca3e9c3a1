"""Over a network, a host shows the certificate of its start, and the program trusts nothing else."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.placement import engines, process_engine
from gaia.mcp.placement.certificate import make_certificate, public_part
from gaia.mcp.placement.engine import Address, Launch, Placed
from tests.placement.conftest import placed

pytest.importorskip("cryptography")

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Engine(process_engine.ProcessEngine):
    """Hosts of this machine, as if it were another one."""

    def __init__(self, trusted: str | None = None) -> None:
        self._trusted = trusted

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> Placed:
        certificate = make_certificate()
        host = super().start(msgspec.structs.replace(launch, certificate=certificate), on_ended)
        trusted, address_of = public_part(self._trusted or certificate), host.wait

        def wait(timeout: float) -> Address:
            address = address_of(timeout)
            url = address.url.replace("http://", "https://")
            return msgspec.structs.replace(address, url=url, certificate=trusted)

        host.wait = wait  # type: ignore[method-assign]
        return host


@pytest.fixture
def over_network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(trusted: str | None = None) -> None:
        monkeypatch.setattr(engines, "engine_for", lambda _: Engine(trusted))

    return use


def test_calls_are_encrypted(over_network: Callable[..., None], connect: Callable[..., MCPClient]) -> None:
    over_network()
    client = connect(placed())
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    transport: Any = client.transport
    assert transport._presented.address.url.startswith("https://")


def test_a_host_with_another_certificate_is_not_used(over_network: Callable[..., None]) -> None:
    over_network(trusted=make_certificate())
    client = MCPClient.from_config("demo", {**placed(), "startTimeout": 3})
    assert not client.connect()
    assert client.last_error is not None
    assert "cannot be reached on" in client.last_error
    assert "certificate" in client.last_error
    client.disconnect()


def test_the_key_is_not_in_the_public_part() -> None:
    certificate = make_certificate()
    assert "PRIVATE KEY" in certificate
    assert "PRIVATE KEY" not in public_part(certificate)
