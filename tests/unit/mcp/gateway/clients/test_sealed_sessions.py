"""Sessions and handles whose ids other gateways with the same key open."""

import gc
import itertools
import secrets
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.clients.sessions import Handshake, Session, Sessions
from gaia.mcp.gateway.instances.handles import Handle, Handles, UnknownHandle
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.upstream.sealing import StateSeal
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.view import View
from tests.unit.mcp.gateway.clients.test_sessions import NoChanges

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ADA, BOB = Principal("ada"), Principal("bob")
HANDSHAKE = Handshake("2025-06-18", {"elicitation": {}, "roots": {"listChanged": True}}, "editor 1.0")


def view(server: str | None = None, profile: Profile = EVERYTHING) -> View:
    return cast("View", SimpleNamespace(server=server, profile=profile))


VIEW = view()


def gateway(name: str = "gw1", key: bytes | list[bytes] | None = KEY, most: int = 3) -> Sessions:
    """The sessions of a gateway."""
    prefix = f"{name}." if name else ""
    seal = None if key is None else StateSeal(key)
    return Sessions(cast("Notifier", NoChanges()), time.monotonic, most=most, idle_seconds=60, prefix=prefix, seal=seal)


def opened(sessions: Sessions, owner: Principal | None = ADA, handshake: Handshake = HANDSHAKE) -> Session:
    session = sessions.open(VIEW, owner, handshake)
    assert session is not None
    return session


@pytest.mark.parametrize("owner", [ADA, None])
def test_another_gateway_goes_on_with_a_session_and_knows_what_was_agreed_on(owner: Principal | None) -> None:
    session, second = opened(gateway("gw1"), owner), gateway("gw2")
    assert session.id.startswith("gw1.")
    assert len(session.id) < 600
    found = second.find(session.id, VIEW, owner)
    assert found is not None
    assert (found.revision, found.capabilities, found.program) == HANDSHAKE
    assert (found.id, found.mark, found.identity) == (session.id, session.mark, session.identity)
    assert (session.is_continued, found.is_continued) == (False, True)
    assert (session.is_open, found.is_open) == (False, True)
    assert second.find(session.id, VIEW, owner) is found, "it is opened once"
    assert len(second) == 1


def test_without_a_key_a_session_is_of_its_gateway_alone() -> None:
    session = opened(gateway(key=None))
    assert len(session.id) == len("gw1.") + 32
    for key in (None, KEY):
        assert gateway("gw2", key).find(session.id, VIEW, ADA) is None
    assert gateway("gw2", None).find(opened(gateway()).id, VIEW, ADA) is None


def test_it_is_for_its_client_at_its_path_with_its_profile_alone() -> None:
    identifier, second = opened(gateway()).id, gateway("gw2")
    places = [view("files"), view(None, Profile("everything", read_only=True)), view(None, Profile("few"))]
    for place, owner in [(VIEW, BOB), (VIEW, None), *((place, ADA) for place in places)]:
        assert second.find(identifier, place, owner) is None
    assert second.belongs_to_another(identifier, BOB)
    assert not second.belongs_to_another(identifier, ADA)
    assert not second.belongs_to_another("gw1.x", ADA)
    assert len(second) == 0


def test_a_key_that_was_rotated_opens_until_it_is_gone() -> None:
    old = opened(gateway(key=OTHER_KEY)).id
    assert gateway("gw2", [KEY, OTHER_KEY]).find(old, VIEW, ADA) is not None
    new = opened(gateway(key=[KEY, OTHER_KEY])).id
    assert gateway("gw2", [OTHER_KEY, KEY]).find(new, VIEW, ADA) is not None
    assert gateway("gw2", KEY).find(new, VIEW, ADA) is not None
    assert gateway("gw2", KEY).find(old, VIEW, ADA) is None


def test_an_id_expires_and_a_session_that_is_here_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = gateway(), gateway("gw2")
    session, now = opened(first), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * 24 * 3600)
    assert second.find(session.id, VIEW, ADA) is None
    assert first.find(session.id, VIEW, ADA) is session


def test_one_that_was_idle_goes_on_and_one_that_the_client_has_deleted_does_not() -> None:
    first, second = gateway(), gateway("gw2")
    session = opened(first)
    first.end(session)
    again = first.find(session.id, VIEW, ADA)
    assert again is not None
    assert again.is_continued
    first.delete(again)
    assert first.find(session.id, VIEW, ADA) is None
    other = second.find(session.id, VIEW, ADA)
    assert other is not None, "this one has not heard of it"
    second.delete(other)
    assert second.find(session.id, VIEW, ADA) is None


def test_it_needs_room_like_a_new_one() -> None:
    second = gateway("gw2", most=2)
    identifiers = [opened(gateway()).id for _ in range(3)]
    for identifier in identifiers:
        assert second.find(identifier, VIEW, ADA) is not None
    assert [session.id for session in second] == identifiers[1:]
    for session in second:
        session.requests[1] = cast("Any", None)
    with pytest.raises(RequestRefused, match="no further sessions") as refused:
        second.find(identifiers[0], VIEW, ADA)
    assert refused.value.status == 503


@pytest.mark.parametrize("capabilities", [{"experimental": {"x": "y" * 4_000}}, {"experimental": {"x": 2**70}}])
def test_a_client_that_declares_too_much_has_a_session_of_one_gateway(capabilities: dict[str, Any]) -> None:
    first = gateway()
    session = opened(first, ADA, HANDSHAKE._replace(capabilities=capabilities))
    assert len(session.id) < 100
    assert first.find(session.id, VIEW, ADA) is session
    assert gateway("gw2").find(session.id, VIEW, ADA) is None


def test_the_largest_id_fits_into_a_header() -> None:
    sizes = [
        len(opened(gateway("g" * 64), Principal("a" * 300), Handshake("2025-11-25", {"x": "y" * size}, "é" * 201)).id)
        for size in range(0, 4_000, 50)
    ]
    assert 3_900 < max(sizes) <= 4_096


def changed(identifier: str) -> list[str]:
    name, _, sealed = identifier.partition(".")
    letters = [sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :] for at in range(len(sealed))]
    cut = [sealed[:at] for at in range(len(sealed))]
    others = [
        sealed + "=",
        sealed + "AAAA",
        "AAAA" + sealed,
        sealed.replace("-", "+").replace("_", "/") + "+",
        sealed * 9,
    ]
    return [
        *(f"{name}.{one}" for one in (*letters, *cut, *others)),
        sealed,
        f"gw2.{sealed}",
        f"gw1.x.{sealed}",
        f".{sealed}",
    ]


def test_a_changed_id_opens_nothing_and_leaves_nothing() -> None:
    second = gateway("gw2")
    for seed in range(3):
        identifier = opened(gateway(), ADA, HANDSHAKE._replace(program="x" * seed)).id
        for forged in changed(identifier):
            assert second.find(forged, VIEW, ADA) is None, forged
        assert second.find(identifier, VIEW, ADA) is not None
    assert len(second) == 3


def test_what_was_sealed_for_something_else_is_no_session_and_no_handle() -> None:
    seal = StateSeal(KEY)
    facts = {"of": "ada", "at": [None, EVERYTHING.fingerprint], "with": list(HANDSHAKE)}
    for binding in (b"", b"session", b"handle", b"x" * 32):
        assert gateway().find("gw1." + seal.seal(facts, binding), VIEW, ADA) is None
    session = opened(gateway(""))
    with pytest.raises(UnknownHandle):
        handles().use(session.id, "ada")
    assert gateway("").find(handles().use("new", "ada").text, VIEW, ADA) is None


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_nothing_else_is_an_id(identifier: str) -> None:
    assert gateway().find(identifier, VIEW, ADA) is None


def handles(key: bytes | None = KEY, ended: Callable[[Handle], None] = lambda _: None, most: int = 3) -> Handles:
    seal = None if key is None else StateSeal(key)
    return Handles(time.monotonic, ended, lambda: most, seal=seal)


def test_another_gateway_accepts_a_handle_from_its_client() -> None:
    first, second = handles(), handles()
    handle = first.use("new", "ada")
    for text, identity in [(handle.text, "bob"), (handle.text, ""), (handle.text[:-1], "ada"), ("x" * 5_000, "ada")]:
        with pytest.raises(UnknownHandle, match="no such handle"):
            second.use(text, identity)
    assert len(second) == 0
    found = second.use(handle.text, "ada")
    assert (found.text, found.is_continued, handle.is_continued) == (handle.text, True, False)
    assert second.use(handle.text, "ada") is found
    for key in (OTHER_KEY, None):
        with pytest.raises(UnknownHandle):
            handles(key).use(handle.text, "ada")


def test_a_handle_of_another_gateway_takes_the_place_of_one_of_its_client() -> None:
    ended: list[Handle] = []
    second = handles(ended=ended.append, most=2)
    found = [second.use(handles().use("new", "ada").text, "ada") for _ in range(2)]
    with pytest.raises(RequestRefused, match="too many"):
        second.use(handles().use("new", "ada").text, "ada")
    for handle in found:
        second.done(handle)
    second.use(handles().use("new", "ada").text, "ada")
    assert ended == found[:1]


def test_many_unknown_ids_take_no_memory() -> None:
    sessions, of_clients = gateway(most=1_000), handles()

    def attempt(count: int) -> None:
        for number in range(count):
            text = secrets.token_urlsafe(300) + "=" * (number % 3)
            assert sessions.find(f"gw2.{text}", VIEW, ADA) is None
            with pytest.raises(UnknownHandle):
                of_clients.use(text, "ada")

    attempt(100)
    tracemalloc.start()
    try:
        attempt(2_000)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 200 * 1024, "one of 400 characters is not kept"
    assert (len(sessions), len(of_clients)) == (0, 0)


def test_deleted_sessions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.gateway.clients.sessions._MAX_DELETED", 3)
    sessions = gateway()
    deleted = [opened(sessions) for _ in range(4)]
    for session in deleted:
        sessions.delete(session)
    found = [sessions.find(session.id, VIEW, ADA) is None for session in deleted]
    assert found == [False, True, True, True]


def test_profiles_that_show_the_same_have_the_same_fingerprint() -> None:
    few = Profile("few", servers=("a",))
    assert few.fingerprint == Profile("few", servers=("a",)).fingerprint
    others = [Profile("few"), Profile("more", servers=("a",)), few.narrowed_to(Profile("few", servers=("a",)))]
    for one, other in itertools.combinations([few, *others], 2):
        assert one.fingerprint != other.fingerprint
