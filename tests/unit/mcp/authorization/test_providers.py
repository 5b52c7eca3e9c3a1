"""What our providers use of the SDK's that is private there: it may change with any release."""

from __future__ import annotations

import inspect

import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider

from gaia.mcp.authorization import providers

PRIVATE = {"_perform_authorization", "_select_authorization_server"}
OWN = {"_check_authorization_server", "_secret_method", "_assertion"}

OURS = [
    kind
    for kind in vars(providers).values()
    if isinstance(kind, type) and issubclass(kind, OAuthClientProvider) and kind.__module__ == providers.__name__
]


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_the_sdk_calls_what_is_overridden_and_with_the_same_parameters(name: str) -> None:
    theirs = getattr(OAuthClientProvider, name, None)
    assert theirs is not None, f"OAuthClientProvider.{name} is gone, which providers.py overrides"
    assert f"self.{name}(" in inspect.getsource(OAuthClientProvider._auth_flow)
    overriding = [vars(kind)[name] for kind in OURS if name in vars(kind)]
    assert overriding
    for ours in overriding:
        assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)


def test_nothing_else_that_is_private_is_overridden() -> None:
    defined = {name for kind in OURS for name, value in vars(kind).items() if inspect.isfunction(value)}
    assert {name for name in defined if not name.startswith("__")} == PRIVATE | OWN
    assert not [name for name in OWN if hasattr(OAuthClientProvider, name)]


@pytest.mark.parametrize("grant", [ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider])
def test_the_grants_of_programs_go_through_the_same_method(grant: type[OAuthClientProvider]) -> None:
    assert "_perform_authorization" in vars(grant)
