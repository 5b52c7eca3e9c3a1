"""The client of a request, and what a client without a good token is told."""

import json

import pytest

from gaia.mcp.gateway.access.principal import Pending, Principal, ProtectedResource, challenge
from gaia.mcp.gateway.access.profile import Profile
from gaia.serving.guards import Refused


def test_a_client_stays_the_same_when_its_profile_changes() -> None:
    assert Principal("ann", Profile("a")) == Principal("ann", Profile("b"))
    assert len({Principal("ann", Profile("a")), Principal("ann"), Principal("bob")}) == 2


def test_an_answer_comes_to_the_callback_whichever_is_first() -> None:
    answers: list[Principal | Refused] = []
    later, before = Pending(), Pending()
    later.then(answers.append)
    assert answers == []
    later.settle(Principal("ann"))
    before.settle(Principal("bob"))
    before.then(answers.append)
    assert answers == [Principal("ann"), Principal("bob")]


RESOURCE = ProtectedResource("https://gw.example/team/mcp", ["https://login.example"], ["write", "read", "read"])


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/.well-known/oauth-protected-resource", "https://gw.example/team/mcp"),
        ("/.well-known/oauth-protected-resource/team/mcp", "https://gw.example/team/mcp"),
        ("/.well-known/oauth-protected-resource/team/mcp/git", "https://gw.example/team/mcp/git"),
        ("/.well-known/oauth-protected-resource/team/mcp/@reader", "https://gw.example/team/mcp/@reader"),
    ],
)
def test_each_endpoint_has_its_own_document(path: str, resource: str) -> None:
    document = RESOURCE.document(path)
    assert document is not None
    assert json.loads(document) == {
        "resource": resource,
        "authorization_servers": ["https://login.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["read", "write"],
    }


def test_other_paths_have_none_and_a_resource_without_scopes_names_none() -> None:
    for path in ("/mcp", "/.well-known/oauth-protected-resource/other", "/.well-known/x"):
        assert RESOURCE.document(path) is None
    document = ProtectedResource("https://gw.example/mcp", [], []).document("/.well-known/oauth-protected-resource/mcp")
    assert document is not None
    assert b"scopes" not in document


def test_the_challenge_names_the_document_of_the_endpoint_and_cannot_be_broken_out_of() -> None:
    ((name, value),) = RESOURCE.challenge("/mcp/git")
    assert name == b"www-authenticate"
    assert value == (
        b'Bearer resource_metadata="https://gw.example/.well-known/oauth-protected-resource/team/mcp/git", '
        b'scope="read write"'
    )
    ((_, value),) = RESOURCE.challenge("/mcp", "invalid_token", "no")
    assert b'error="invalid_token", error_description="no"' in value
    ((_, value),) = challenge(realm='a"b\\c\r\nX: y', error=None)
    assert value == b'Bearer realm="abcX: y"'
