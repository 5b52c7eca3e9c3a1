"""Who owns the instance that a request goes to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pytest

from gaia.mcp.gateway.instances.owners import HANDLE_KEY, Handle, InstanceOwners, UnknownHandle
from gaia.mcp.gateway.messages import RequestRefused


class Request:
    method = "tools/call"
    address: str | None = None
    handle: Handle | None = None

    def __init__(self, identity: str = "", session: Hashable | None = None, handle: str | None = None) -> None:
        self.identity = identity
        self.session = session
        self.meta: Mapping[str, Any] = {} if handle is None else {HANDLE_KEY: handle}
        self.ended: list[Callable[[], object]] = []

    def after_end(self, act: Callable[[], object]) -> None:
        self.ended.append(act)


@pytest.fixture
def owners() -> InstanceOwners:
    return InstanceOwners(lambda: 0.0, lambda _: None)


def test_per_client_it_is_the_client(owners: InstanceOwners) -> None:
    one, _ = owners.owner_of(Request("ann", "s1"), "per-client")
    assert owners.owner_of(Request("ann", "s2"), "per-client")[0] == one
    assert owners.owner_of(Request("ann", handle="new"), "per-client") == (one, None)
    assert owners.owner_of(Request("bob", "s1"), "per-client")[0] != one


def test_per_session_it_is_the_session(owners: InstanceOwners) -> None:
    assert owners.owner_of(Request("ann", "s1", handle="new"), "per-session") == ("s1", None)


def test_without_a_session_it_is_the_client_or_its_handle(owners: InstanceOwners) -> None:
    common, _ = owners.owner_of(Request("ann"), "per-session")
    assert owners.owner_of(Request("ann"), "per-session") == (common, None)
    first = Request("ann", handle="new")
    owner, handle = owners.owner_of(first, "per-session")
    assert owner is handle
    assert handle is not None
    assert handle.under_way == 1
    for act in first.ended:
        act()
    assert handle.under_way == 0
    assert owners.owner_of(Request("ann", handle=handle.text), "per-session") == (handle, None)
    with pytest.raises(RequestRefused):
        owners.owner_of(Request("bob", handle=handle.text), "per-session")


def test_a_request_that_goes_to_several_servers_gets_one_handle() -> None:
    owners = InstanceOwners(lambda: 0.0, lambda _: None, most_handles_each=lambda: 1)
    request = Request("ann", handle="new")
    owner, handle = owners.owner_of(request, "per-session")
    assert owners.owner_of(request, "per-session") == (owner, handle)
    assert handle is not None
    assert handle.under_way == len(request.ended) == 1


def test_a_guessed_handle_is_told_of() -> None:
    told: list[tuple[str, str]] = []
    owners = InstanceOwners(lambda: 0.0, lambda _: None, lambda request, error: told.append((request.identity, error)))
    for handle in ("guessed", "new"):
        request = Request("ann", handle=handle)
        with contextlib.suppress(UnknownHandle):
            owners.owner_of(request, "per-session")
    ((identity, error),) = told
    assert identity == "ann"
    assert "guessed" not in error
