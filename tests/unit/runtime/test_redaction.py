"""Configured secrets are masked wherever people or telemetry look."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.runtime.redaction import (
    Redactor,
    basic_credentials,
    mask_strings,
    secret_url_parts,
    secret_values,
    url_credentials,
)

secrets = st.lists(st.text(min_size=4, max_size=12), max_size=5)


class TestWhatIsSecret:
    @pytest.mark.parametrize(
        ("name", "value", "is_secret"),
        [
            *((name, "abcd", True) for name in ("API_TOKEN", "api_key", "PASSWORD", "Db_Pass", "AUTHORIZATION")),
            *((name, "abcd", True) for name in ("AWS_SECRET_ACCESS_KEY", "COOKIE", "SENTRY_DSN")),
            pytest.param("MODE", "12345678", True, id="anything long enough to be one"),
            # What is too short to be told from other text.
            *(("TZ", "UTC", False), ("MODE", "1234567", False), ("API_TOKEN", "abc", False), ("KEY", "", False)),
        ],
    )
    def test_what_a_variable_holds(self, name: str, value: str, is_secret: bool) -> None:
        assert secret_values({name: value}) == [value] * is_secret


class TestWhatIsSecretInAUrl:
    def test_its_password_also_as_the_header_that_is_sent(self) -> None:
        found = secret_url_parts("https://ada:hunter%2F22@example.com/mcp")
        header = httpx2.BasicAuth("ada", "hunter/22")
        request = next(header.auth_flow(httpx2.Request("GET", "https://example.com")))
        assert {"hunter/22", "hunter%2F22", request.headers["Authorization"].removeprefix("Basic ")} <= {*found}

    @pytest.mark.parametrize(
        ("path", "secrets"),
        [
            ("/services/T00000001/B00000001/XXXXXXXXXXXX24", ["T00000001", "B00000001", "XXXXXXXXXXXX24"]),
            ("/api/mcp/s%2D3cr3t-token/sse", ["s%2D3cr3t-token", "s-3cr3t-token"]),
            ("/mcp", []),
            ("/v1/projects/2025-11-25/connectors", []),
        ],
    )
    def test_the_parts_of_its_path_that_are_no_words(self, path: str, secrets: list[str]) -> None:
        assert secret_url_parts(f"https://example.com{path}") == secrets

    def test_credentials_as_oauth_sends_them(self) -> None:
        assert base64.b64encode(b"robot:s%2Fx").decode() in basic_credentials("robot", "s/x")
        assert base64.b64encode(b"robot:%ED%B3%BF").decode() in basic_credentials("robot", "\udcff")

    def test_a_url_that_is_none_has_no_secrets(self) -> None:
        assert secret_url_parts("http://[") == []


class TestCredentialsInUrls:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("http://me:hunter2@proxy:3128", "http://***@proxy:3128"),
            ("company=https://me:hunter2@a/simple https://b:hunter3@b/", "company=https://***@a/simple https://***@b/"),
            ("https://0123456789abcdef@index/simple", "https://***@index/simple"),
        ],
    )
    def test_they_are_masked_in_the_url(self, value: str, shown: str) -> None:
        assert Redactor(url_credentials([value]))(value) == shown

    @pytest.mark.parametrize(
        ("value", "alone"),
        [
            ("http://me:hunter2@proxy", "hunter2"),
            ("http://me:p%40ss-w@proxy", "p@ss-w"),
            ("https://0123456789abcdef:x-oauth-basic@index", "0123456789abcdef"),
        ],
    )
    def test_they_are_masked_alone(self, value: str, alone: str) -> None:
        assert Redactor(url_credentials([value]))(f"{alone} is wrong") == "*** is wrong"

    def test_as_the_header_that_is_sent_too(self) -> None:
        header = base64.b64encode(b"me:p@ss-w").decode()
        assert Redactor(url_credentials(["http://me:p%40ss-w@proxy"]))(f"Basic {header}") == "Basic ***"

    def test_names_of_users_are_words_that_may_be_shown(self) -> None:
        assert Redactor(url_credentials(["http://user:hunter2@proxy"]))("no such user") == "no such user"

    @pytest.mark.parametrize(
        "value", ["", "a@b", "http://proxy:3128", "https://host/path@2.0", "git+ssh://", "x://?a@b"]
    )
    def test_other_values_have_none(self, value: str) -> None:
        assert url_credentials([value]) == []


class TestMasking:
    @pytest.mark.parametrize(
        "written", ["a/b c+ü", "a%2Fb%20c%2B%C3%BC", "a%2fb%20c%2b%c3%bc", "a/b%20c%2B%C3%BC", "a%2Fb+c%2B%C3%BC"]
    )
    def test_a_secret_in_a_url_or_a_form_is_masked(self, written: str) -> None:
        assert Redactor(["a/b c+ü"])(f"to {written}.") == "to ***."

    @pytest.mark.parametrize("quoted", [json.dumps, partial(json.dumps, ensure_ascii=False), repr])
    def test_a_secret_in_quotes_is_masked(self, quoted: Callable[[str], str]) -> None:
        secret = "a\"b\\c'dü\t"
        text = quoted(secret)
        assert Redactor([secret])(f"<{text}>") == f"<{text[0]}***{text[-1]}>"

    @pytest.mark.parametrize(
        ("secrets", "text", "shown"),
        [
            pytest.param(["hunter2", "swordfish"], "hunter2 swordfish hunter2", "*** *** ***", id="every occurrence"),
            pytest.param(["hunter2"], "hunter1", "hunter1", id="a text without secrets"),
            pytest.param([], "hunter2", "hunter2", id="no secrets"),
            pytest.param(["abcd", "xxabcdyy", ""], "xxabcdyy abcd", "*** ***", id="a secret within a longer one"),
            pytest.param(["a.*(b"], "a.*(b, aXX(b", "***, aXX(b", id="a secret is no pattern"),
        ],
    )
    def test_of_texts(self, secrets: list[str], text: str, shown: str) -> None:
        assert Redactor(secrets)(text) == shown

    def test_each_line_of_a_secret_is_one(self) -> None:
        key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nend\n-----END KEY-----\n"
        redact = Redactor([key])
        assert redact(key) == "***"
        assert redact("  MIIEvQIBADAN\r\n  end") == "  ***\r\n  end", "short lines are too common"

    @given(secrets, st.text(), st.text())
    def test_no_secret_survives(self, secrets: list[str], before: str, after: str) -> None:
        redact = Redactor(secrets)
        for secret in secrets:
            masked = redact(before + secret + after)
            # The mask itself may complete a secret such as "**ab"; what was there before it is gone.
            assert secret not in masked.split("***") or "***" in secret

    def test_the_longest_secret_is_measured_in_bytes_and_none_is_in_its_repr(self) -> None:
        assert Redactor(["abcd", "日本語"]).longest == len("%E6%97%A5%E6%9C%AC%E8%AA%9E")
        assert Redactor(["abcd"]).longest == 4
        assert Redactor().longest == 0
        assert repr(Redactor(["hunter2"])) == "Redactor(…)"


class TestJsonValues:
    def test_every_string_is_masked_keys_included(self) -> None:
        value = {"a": ["x secret", 1, None, {"secret": True}], "b": "fine"}
        assert mask_strings(value, Redactor(["secret"])) == {"a": ["x ***", 1, None, {"***": True}], "b": "fine"}

    def test_a_number_that_is_a_secret_is_masked(self) -> None:
        value = {"pin": 88123456, "other": 881234567, "small": 1.5, "yes": True}
        assert mask_strings(value, Redactor(["88123456", "True"])) == {**value, "pin": "***"}

    def test_what_is_nested_without_end_is_not_shown(self) -> None:
        value: Any = "secret"
        for _ in range(100_000):
            value = [value]
        assert "secret" not in str(mask_strings(value, Redactor(["secret"])))
