"""The page for Prometheus, and clients that are slow or many."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from gaia.telemetry import metrics_page
from gaia.telemetry.metrics_page import MetricsPage
from tests.waiting import PATIENCE

HALF = b"GET /metrics HTTP/1.1\r\nX-Slow: "


@pytest.fixture(scope="module")
def page() -> Iterator[MetricsPage]:
    page = MetricsPage(0)
    yield page
    page.close()


def status(page: MetricsPage, host: str = "localhost") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Host": host})
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost", 200), ("127.0.0.1:9090", 200), ("evil.example", 421), ("127.0.0.1.nip.io", 421), ("", 421)],
)
def test_only_its_own_names_are_answered(page: MetricsPage, host: str, code: int) -> None:
    assert status(page, host) == code


def test_many_half_requests_do_not_keep_others_from_an_answer(page: MetricsPage) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(socket.create_connection(("127.0.0.1", page.server_port))).sendall(HALF)
        assert status(page) == 200
        assert len(page._open) <= metrics_page._MAX_CONNECTIONS


def test_a_connection_has_a_deadline_however_many_bytes_arrive(
    page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", page.server_port), timeout=0.05) as connection:
        connection.sendall(HALF)
        closed = False
        while not closed:
            try:
                connection.sendall(b"a")
                closed = connection.recv(100) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True


def test_a_taken_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        MetricsPage(taken.getsockname()[1])
