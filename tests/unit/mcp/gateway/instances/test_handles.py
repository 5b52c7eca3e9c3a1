"""Handles: what clients of the stateless era name their instances with."""

from __future__ import annotations

import json
from collections.abc import Hashable
from types import SimpleNamespace
from typing import cast

import pytest

from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.handles import HANDLE_KEY, Handle, Handles, UnknownHandle, with_handle
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import View
from tests.unit.mcp.gateway.clients.test_pending_request import Replies


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.ended: list[Handle] = []

    def handles(self, most: int = 3, most_each: int = 3) -> Handles:
        return Handles(lambda: self.now, self.ended.append, lambda: most_each, most=most, idle_seconds=100.0)


def test_a_handle_is_for_the_client_that_got_it() -> None:
    handles = Time().handles()
    handle = handles.use("new", "ann")
    assert handles.use(handle.text, "ann") is handle
    for given, identity in ((handle.text, "bob"), (handle.text, ""), ("guessed", "ann"), (7, "ann"), ("", "ann")):
        with pytest.raises(RequestRefused, match="no such handle"):
            handles.use(given, identity)


def test_handles_cannot_be_guessed() -> None:
    handles = Time().handles()
    one, other = handles.use("new", "ann"), handles.use("new", "ann")
    assert one.text != other.text
    assert len(one.text) >= 32


def test_one_that_is_not_used_expires() -> None:
    time = Time()
    handles = time.handles()
    handle = handles.use("new", "")
    time.now = 500.0
    handles.expire()
    assert time.ended == [], "a request uses it"
    handles.done(handle)
    time.now = 599.0
    handles.done(handles.use(handle.text, ""))
    time.now = 699.0
    with pytest.raises(RequestRefused, match="expired"):
        handles.use(handle.text, "")
    assert time.ended == [handle]


def test_one_whose_long_request_has_just_ended_does_not_keep_another_one() -> None:
    time = Time()
    handles = time.handles()
    busy, unused = handles.use("new", ""), handles.use("new", "")
    handles.done(unused)
    time.now = 90.0
    handles.done(busy)
    time.now = 110.0
    handles.expire()
    assert time.ended == [unused]


def test_another_one_ends_the_one_that_was_not_used_for_longest() -> None:
    time = Time()
    handles = time.handles(most=2)
    one, other = handles.use("new", ""), handles.use("new", "")
    with pytest.raises(RequestRefused, match="too many"):
        handles.use("new", "")
    for handle in (one, other):
        handles.done(handle)
    handles.done(handles.use(one.text, ""))
    handles.use("new", "")
    assert time.ended == [other]
    assert len(handles) == 2
    handles.end(other)
    assert time.ended == [other], "it has ended only once"


def test_a_client_that_asks_for_many_loses_its_own() -> None:
    time = Time()
    handles = time.handles(most=4, most_each=2)
    of_ann = handles.use("new", "ann")
    handles.done(of_ann)
    of_bob = [handles.use("new", "bob") for _ in range(2)]
    with pytest.raises(RequestRefused, match="too many"):
        handles.use("new", "bob")
    for handle in of_bob:
        handles.done(handle)
    of_bob += [handles.use("new", "bob") for _ in range(2)]
    assert time.ended == of_bob[:2]
    handles.done(of_bob[2])
    for client in ("cleo", "dan"):
        handles.use("new", client)
    assert time.ended == of_bob[:3], "the client with the most makes room for others"
    assert handles.use(of_ann.text, "ann") is of_ann


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {}),
        ({"content": []}, {"content": []}),
        ({"content": [], "_meta": {"a": 1}}, {"content": []}),
        ({"content": [{"type": "text", "text": '"_meta"'}]}, {"content": [{"type": "text", "text": '"_meta"'}]}),
        ({"_meta": 3}, {}),
    ],
)
def test_a_result_tells_the_handle(result: dict[str, object], expected: dict[str, object]) -> None:
    handle = Handle("h", "")
    told = json.loads(with_handle(b" " + json.dumps(result).encode(), handle))
    meta = told.pop("_meta")
    assert told == expected
    given = result.get("_meta")
    assert meta == {**(given if isinstance(given, dict) else {}), HANDLE_KEY: "h"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (rb'{"\u005fmeta":{"gaia.mcp/instances":"other","a":1}}', rb'{"_meta":{"gaia.mcp/instances":"h","a":1}}'),
        (b'{"_meta":{},"large":1e999}', b'{"_meta":{"gaia.mcp/instances":"h"},"large":1e999}'),
        (
            b'{"_meta":{},"deep":' + b"[" * 500 + b"]" * 500 + b"}",
            b'{"_meta":{"gaia.mcp/instances":"h"},"deep":' + b"[" * 500 + b"]" * 500 + b"}",
        ),
    ],
)
def test_a_server_cannot_keep_the_handle_from_a_client(result: bytes, expected: bytes) -> None:
    assert with_handle(result, Handle("h", "")) == expected


class Owners:
    """Requests, and the owners of the processes that they go to."""

    def __init__(self, most_each: int = 9) -> None:
        self.checks = Checks()
        self.handles = Handles(lambda: 0.0, lambda _: None, lambda: most_each)

    def request(self, identity: str = "", session: str | None = None, handle: str | None = None) -> PendingRequest:
        client = Principal(identity)
        of_session = None if session is None else Session(session, cast("View", self), client)
        meta = {} if handle is None else {HANDLE_KEY: handle}
        return PendingRequest(1, "tools/call", {}, meta, Replies(), cast("View", self), of_session, client)


def owner_of(request: PendingRequest, instances: str = "per-session") -> tuple[Hashable, Handle | None]:
    return request.owner_at(cast("UpstreamServer", SimpleNamespace(instances_kind=instances)))


def test_per_client_it_is_the_client() -> None:
    owners = Owners()
    one, _ = owner_of(owners.request("ann", "s1"), "per-client")
    assert owner_of(owners.request("ann", "s2"), "per-client")[0] == one
    assert owner_of(owners.request("ann", handle="new"), "per-client") == (one, None)
    assert owner_of(owners.request("bob", "s1"), "per-client")[0] != one


def test_per_session_it_is_the_session() -> None:
    request = Owners().request("ann", "s1", handle="new")
    assert owner_of(request) == (request.session, None)
    assert owner_of(request, "shared") == (None, None)


def test_without_a_session_it_is_the_client_or_its_handle() -> None:
    owners = Owners()
    common, _ = owner_of(owners.request("ann"))
    assert owner_of(owners.request("ann")) == (common, None)
    first = owners.request("ann", handle="new")
    owner, handle = owner_of(first)
    assert owner is handle
    assert handle is not None
    assert handle.under_way == 1
    first.succeed(b"{}")
    assert handle.under_way == 0
    assert owner_of(owners.request("ann", handle=handle.text)) == (handle, None)
    with pytest.raises(UnknownHandle, match="no such handle"):
        owner_of(owners.request("bob", handle=handle.text))
    assert owners.checks.refusals.counts == {"unknown_handle": 1}


def test_a_request_that_goes_to_several_servers_gets_one_handle() -> None:
    request = Owners(most_each=1).request("ann", handle="new")
    owner, handle = owner_of(request)
    assert owner_of(request) == (owner, handle)
    assert handle is not None
    assert handle.under_way == 1
