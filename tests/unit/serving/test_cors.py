"""Which responses web pages may read; whole answers are in `test_direct_http` and `test_http`."""

from __future__ import annotations

import pytest

from gaia.serving.guards import Cors

PAGE = b"https://app.example"


@pytest.mark.parametrize(("origin", "is_told"), [(PAGE, True), (b"https://other.example", False), (b"null", False)])
def test_pages_that_may_call_may_read(origin: bytes, is_told: bool) -> None:
    headers = dict(Cors([PAGE.decode()]).headers({b"origin": origin}))
    assert headers.get(b"access-control-allow-origin") == (PAGE if is_told else None)


def test_without_origins_nothing_is_added() -> None:
    cors, application = Cors([]), object()
    assert not cors.is_on
    assert cors.headers({b"origin": PAGE}) == ()
    assert cors.around(application) is application
