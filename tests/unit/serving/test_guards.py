"""Each check of the guard, in its order, without a network."""

from typing import Any

import pytest

from gaia.serving.guards import ClientAddress, Cors, Guard, Refused
from gaia.serving.options import HttpOptions


def refusal(
    options: HttpOptions | None = None,
    *,
    path: str = "/mcp",
    method: str = "POST",
    open_paths: frozenset[str] = frozenset(),
    **headers: str,
) -> Refused | None:
    names = {"host": "localhost", "content_type": "application/json", **headers}
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in names.items()]
    return Guard(options or HttpOptions(), open_paths).refusal(method, path, pairs)


def status(*arguments: Any, **more: Any) -> int:
    refused = refusal(*arguments, **more)
    return 200 if refused is None else refused.status


GUARDED = HttpOptions(token="open-sesame")
OPEN = "Bearer open-sesame"


def test_what_is_refused_is_told_why() -> None:
    refused = refusal(host="evil.example")
    assert refused is not None
    assert refused.status == 421
    assert "--allow-host" in refused.message


class TestOrder:
    def test_health_needs_no_token_but_the_right_host_and_origin(self) -> None:
        assert status(GUARDED, path="/health") == 200
        assert status(GUARDED, path="/health", host="evil.example") == 421
        assert status(GUARDED, path="/health", origin="https://evil.example") == 403

    def test_a_host_counts_before_an_origin_and_an_origin_before_a_token(self) -> None:
        assert status(GUARDED, host="evil.example", origin="https://evil.example") == 421
        assert status(GUARDED, origin="https://evil.example", authorization=OPEN) == 403
        assert status(GUARDED, origin="") == 403

    def test_a_token_counts_before_the_length_of_the_body(self) -> None:
        assert status(HttpOptions(token="secret", max_body=10), content_length="100") == 401


class TestMediaType:
    """A browser sends other types than JSON for any page, without asking the server first."""

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
    @pytest.mark.parametrize(
        "media_type",
        [
            "text/plain",
            "text/plain; application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
            "text/json",
            "application/jsonp",
            "",
        ],
    )
    def test_other_bodies_than_json_are_refused(self, method: str, media_type: str) -> None:
        assert status(method=method, content_type=media_type) == 415

    @pytest.mark.parametrize(
        "media_type", ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"]
    )
    def test_json_passes(self, media_type: str) -> None:
        assert status(content_type=media_type) == 200

    @pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
    def test_requests_without_a_body_need_none(self, method: str) -> None:
        assert status(method=method, content_type="") == 200


class TestHeaders:
    def test_too_many_and_too_long_ones_are_refused(self) -> None:
        assert status(**{f"x{number}": "a" for number in range(100)}) == 431
        assert status(long="a" * 33_000) == 431
        assert status(long="a" * 30_000) == 200

    def test_a_length_and_chunks_together_are_refused_and_the_connection_ends(self) -> None:
        refused = refusal(content_length="5", transfer_encoding="chunked")
        assert refused is not None
        assert (refused.status, refused.headers) == (400, ((b"connection", b"close"),))
        assert status(transfer_encoding="chunked") == 200

    @pytest.mark.parametrize(
        "name", ["host", "origin", "authorization", "content-length", "mcp-session-id", "mcp-name"]
    )
    def test_a_header_that_decides_something_is_there_once(self, name: str) -> None:
        pairs = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        refused = Guard(HttpOptions()).refusal(
            "POST", "/mcp", [*pairs, (name.encode(), b"1"), (name.title().encode(), b"2")]
        )
        assert refused is not None
        assert (refused.status, refused.message) == (400, f"The header {name} is there twice")

    def test_others_may_be_repeated(self) -> None:
        pairs = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"accept", b"a"), (b"accept", b"b")]
        assert Guard(HttpOptions()).refusal("POST", "/mcp", pairs) is None


class TestToken:
    @pytest.mark.parametrize("header", [OPEN, "bearer open-sesame", "BEARER  open-sesame "])
    def test_the_right_one_opens(self, header: str) -> None:
        assert status(GUARDED, authorization=header) == 200

    @pytest.mark.parametrize("header", ["Bearer open-sesam", "Bearer", "open-sesame", "Basic open-sesame", "\xff"])
    def test_all_others_do_not(self, header: str) -> None:
        refused = refusal(GUARDED, authorization=header)
        assert refused is not None
        assert (refused.status, refused.headers) == (401, ((b"www-authenticate", b"Bearer"),))

    def test_an_open_path_needs_none(self) -> None:
        assert status(GUARDED, path="/page", open_paths=frozenset({"/page"})) == 200
        assert status(GUARDED, path="/page/more", open_paths=frozenset({"/page"})) == 401

    @pytest.mark.parametrize(("origins", "code"), [((), 401), (("https://app.example",), 200)])
    def test_a_preflight_needs_none_where_web_pages_may_call(self, origins: tuple[str, ...], code: int) -> None:
        options = HttpOptions(token="secret", allow_origins=origins)
        assert status(options, method="OPTIONS", origin="http://localhost") == code


def test_a_body_is_as_long_as_permitted_by_what_it_declares_and_by_its_bytes() -> None:
    limit = HttpOptions(max_body=4)
    assert status(limit, content_length="4") == 200
    assert status(limit, content_length="nonsense") == 200, "the HTTP server refuses it"
    assert status(limit, content_length="5") == 413
    assert Guard(limit).too_large(4) is None
    assert Guard(limit).too_large(5) is not None


PAGE = b"https://app.example"


@pytest.mark.parametrize(("origin", "is_told"), [(PAGE, True), (b"https://other.example", False), (b"null", False)])
def test_pages_that_may_call_may_read(origin: bytes, is_told: bool) -> None:
    headers = dict(Cors([PAGE.decode()]).headers({b"origin": origin}))
    assert headers.get(b"access-control-allow-origin") == (PAGE if is_told else None)


def test_without_origins_nothing_is_added() -> None:
    cors, application = Cors([]), object()
    assert cors.headers({b"origin": PAGE}) == ()
    assert cors.around(application) is application


PROXIES = ClientAddress(["10.0.0.0/8", "127.0.0.1", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.1.2.3", True),
        ("127.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("2001:db8::1", True),
        (None, False),
        ("192.0.2.1", False),
        ("127.0.0.2", False),
        ("", False),
    ],
)
def test_proxies_are_trusted_by_address_and_network(peer: str | None, trusted: bool) -> None:
    assert PROXIES.trusts(peer) is trusted
    assert not ClientAddress([]).trusts(peer)


@pytest.mark.parametrize(
    ("given", "client"),
    [
        ([], "10.0.0.1"),
        (["203.0.113.7"], "203.0.113.7"),
        # Whatever the client itself has written stands before its address.
        (["10.0.0.2, 198.51.100.9, 203.0.113.7"], "203.0.113.7"),
        (["203.0.113.7, 10.0.0.2,10.0.0.3"], "203.0.113.7"),
        (["198.51.100.9", "203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (["203.0.113.7:4711"], "203.0.113.7"),
        (["[2001:db9::7]:4711"], "2001:db9::7"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        (["10.0.0.9"], "10.0.0.9"),
        (["203.0.113.7, unknown"], "10.0.0.1"),
        (["203.0.113.7, _hidden, 10.0.0.2"], "10.0.0.2"),
        (["\xff\xfe"], "10.0.0.1"),
        ([""], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_that_is_no_trusted_proxy(given: list[str], client: str) -> None:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", each.encode("latin-1")) for each in given)]
    assert PROXIES.behind("10.0.0.1", headers) == client


@pytest.mark.parametrize("given", ["", "proxy.example", "10.0.0.0/33", "10.0.0.1:80"])
def test_what_is_no_network_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        ClientAddress([given])
