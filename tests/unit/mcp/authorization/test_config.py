"""The ``auth`` object of a server's entry: what is accepted, what is said about the rest, and what stays secret."""

from __future__ import annotations

from typing import Any

import pytest
from rich.pretty import pretty_repr

from gaia.mcp.authorization.config import ClientCredentials, NoLogin, OAuth, PrivateKeyJwt, WorkloadIdentity
from gaia.mcp.config.config_variables import expand, secrets
from gaia.mcp.config.server_config import ServerConfig, unknown_keys
from gaia.mcp.errors import ConfigError
from gaia.runtime.redaction import basic_credentials

ISSUER = "https://login.example.com"


def entry(auth: object) -> dict[str, Any]:
    return {"url": "https://mcp.example.com/mcp", "auth": auth}


def config(auth: object) -> ServerConfig:
    return ServerConfig.from_dict("notes", entry(auth))


class TestKinds:
    @pytest.mark.parametrize(
        ("auth", "meant"),
        [
            ({"type": "oauth"}, OAuth()),
            (
                {
                    "type": "oauth",
                    "clientId": "gaia",
                    "clientSecret": "hunter22",
                    "scopes": ["read"],
                    "issuer": ISSUER,
                    "redirectUri": "http://localhost:7777/back",
                },
                OAuth(
                    client_id="gaia",
                    client_secret="hunter22",
                    scopes=["read"],
                    issuer=ISSUER,
                    redirect_uri="http://localhost:7777/back",
                ),
            ),
            (
                {"type": "oauth", "clientMetadataUrl": "https://example.com/gaia.json"},
                OAuth(client_metadata_url="https://example.com/gaia.json"),
            ),
            (
                {
                    "type": "client_credentials",
                    "clientId": "robot",
                    "clientSecret": "s",
                    "issuer": ISSUER,
                    "tokenAuth": "post",
                },
                ClientCredentials(client_id="robot", client_secret="s", issuer=ISSUER, token_auth="post"),
            ),
            (
                {"type": "private_key_jwt", "clientId": "robot", "privateKey": "PEM", "issuer": ISSUER},
                PrivateKeyJwt(client_id="robot", private_key="PEM", issuer=ISSUER),
            ),
            (
                {"type": "workload_identity", "clientId": "pod", "assertionFile": "/var/token", "issuer": ISSUER},
                WorkloadIdentity(client_id="pod", assertion_file="/var/token", issuer=ISSUER),
            ),
            ({"type": "none"}, NoLogin()),
        ],
    )
    def test_each_is_read(self, auth: dict[str, Any], meant: object) -> None:
        assert config(auth).auth == meant
        assert unknown_keys(entry(auth)) == {}

    def test_it_may_be_missing(self) -> None:
        assert ServerConfig.from_dict("notes", {"url": "https://mcp.example.com/mcp"}).auth is None

    def test_a_misspelt_key_comes_with_the_one_that_was_meant(self) -> None:
        assert unknown_keys(entry({"type": "oauth", "client_id": "x"})) == {"auth.client_id": "auth.clientId"}


class TestComplaints:
    @pytest.mark.parametrize(
        ("auth", "said"),
        [
            ("oauth", "auth: expected an object or null, got a string"),
            ({}, "auth.type: missing; expected one of oauth, client_credentials, private_key_jwt,"),
            ({"type": "oath"}, "auth.type: expected one of oauth, client_credentials, private_key_jwt"),
            ({"type": "oauth", "scopes": "read"}, "auth.scopes: expected a list or null, got a string"),
            ({"type": "oauth", "clientSecret": "x"}, "auth.clientSecret: there is no clientId that it belongs to"),
            (
                {"type": "oauth", "clientId": "x", "clientSecret": "y"},
                "auth.issuer: missing; the clientSecret is sent only to the authorization server that issued it, such",
            ),
            ({"type": "oauth", "clientMetadataUrl": "http://x/y"}, "auth.clientMetadataUrl: must be an https address"),
            ({"type": "oauth", "clientMetadataUrl": "https://x"}, "auth.clientMetadataUrl: must be an https address"),
            (
                {"type": "oauth", "clientMetadataUrl": "https://x/y", "clientId": "x"},
                "auth.clientMetadataUrl: there is a clientId too",
            ),
            (
                {"type": "oauth", "redirectUri": "http://example.com:80/x"},
                "auth.redirectUri: over http, only a port of this machine",
            ),
            ({"type": "oauth", "redirectUri": "http://localhost/x"}, "auth.redirectUri: over http, only a port of"),
            ({"type": "oauth", "issuer": "login"}, "auth.issuer: must be the https address of an authorization server"),
            ({"type": "client_credentials", "clientId": "x"}, "auth.clientSecret: missing"),
            ({"type": "client_credentials", "clientId": "x", "clientSecret": "y"}, "auth.issuer: missing"),
            (
                {
                    "type": "client_credentials",
                    "clientId": "x",
                    "clientSecret": "y",
                    "issuer": ISSUER,
                    "tokenAuth": "form",
                },
                "auth.tokenAuth: expected one of basic, post, got 'form'",
            ),
            (
                {"type": "workload_identity", "clientId": "x", "issuer": ISSUER},
                "auth.assertion: give either assertion or assertionFile",
            ),
        ],
    )
    def test_a_wrong_value_is_named_with_its_place(self, auth: object, said: str) -> None:
        with pytest.raises(ConfigError) as refusal:
            config(auth)
        assert f"server 'notes': {said}" in str(refusal.value)


class TestSecrets:
    def test_variables_are_replaced(self) -> None:
        auth = {"type": "client_credentials", "clientId": "robot", "clientSecret": "${SECRET}", "issuer": "${ISSUER}"}
        expanded = expand(config(auth), {"SECRET": "hunter22", "ISSUER": ISSUER})
        assert expanded.auth == ClientCredentials(client_id="robot", client_secret="hunter22", issuer=ISSUER)

    def test_an_unset_variable_is_named_with_its_key(self) -> None:
        auth = {"type": "oauth", "clientId": "x", "clientSecret": "${SECRET}", "issuer": ISSUER}
        with pytest.raises(
            ConfigError, match=r"^server 'notes': auth\.clientSecret: the environment variable SECRET is not set"
        ):
            expand(config(auth), {})

    def test_what_a_variable_makes_unusable_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"^server 'notes': auth: issuer: must be the https"):
            expand(config({"type": "oauth", "issuer": "${ISSUER}"}), {"ISSUER": "nowhere"})

    @pytest.mark.parametrize(
        "auth",
        [
            {"type": "oauth", "clientId": "gaia", "clientSecret": "hunter22", "issuer": ISSUER},
            {"type": "client_credentials", "clientId": "robot", "clientSecret": "hunter22", "issuer": ISSUER},
            {"type": "private_key_jwt", "clientId": "robot", "privateKey": "hunter22", "issuer": ISSUER},
            {"type": "workload_identity", "clientId": "pod", "assertion": "hunter22", "issuer": ISSUER},
        ],
    )
    def test_they_are_masked_and_in_no_repr(self, auth: dict[str, Any]) -> None:
        subject = config(auth)
        found = secrets(subject)
        assert found[0] == "hunter22"
        assert ("clientSecret" in auth) == (basic_credentials(auth["clientId"], "hunter22")[0] in found)
        # With local variables, rich's tracebacks show what this gives.
        assert "hunter22" not in f"{subject.auth!r} {pretty_repr(subject.auth)}"
