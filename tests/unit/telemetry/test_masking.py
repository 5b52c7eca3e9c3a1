"""Secrets and binary data in arguments and results."""

import re
from typing import Any

import pytest
from hypothesis import given

from gaia.telemetry import masking
from tests.unit.telemetry.suspicious_texts import TEXTS

SECRET = "hunter2-hunter2"


def shown(value: Any) -> Any:
    return masking.masked(value, lambda text: text.replace(SECRET, "***"))


class TestMasked:
    @pytest.mark.parametrize("key", ["password", "apiKey", "api_key", "Authorization", "sessionToken", "client_secret"])
    def test_what_sounds_secret_is_masked(self, key: str) -> None:
        assert shown({"deep": [{key: "abc"}]}) == {"deep": [{key: "***"}]}

    def test_a_limit_is_no_secret(self) -> None:
        assert shown({"max_tokens": 100}) == {"max_tokens": 100}

    @pytest.mark.parametrize(
        "secret",
        [
            SECRET,
            "Bearer abcdefgh12345678",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
            "sk-abcdefghijklmnopqrstuvwx",
            "ghp_abcdefghijklmnopqrstuvwxyz0123",
            "AKIAABCDEFGHIJKLMNOP",
            "-----BEGIN PRIVATE KEY-----\nabcd\n-----END PRIVATE KEY-----",
        ],
    )
    def test_secrets_are_masked_wherever_they_are(self, secret: str) -> None:
        text = str(shown({"text": f"before {secret} after", secret: 1}))
        assert secret not in text
        assert "before ***" in text
        assert "after" in text

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("DB_PASSWORD=hunter2 next", "DB_PASSWORD=*** next"),
            ("export api_key='hunter 2'; x", "export api_key=***; x"),
            ('{"clientSecret": "hunter 2", "a": 1}', '{"clientSecret": ***, "a": 1}'),
            ("password: hunter2\nuser: ada", "password: ***\nuser: ada"),
            ("?access_token=hunter2&x=1", "?access_token=***&x=1"),
            ("PASSWORD_FILE=/run/x max_tokens=4096 key: b", "PASSWORD_FILE=*** max_tokens=4096 key: b"),
            ("the secret of a password is its length", "the secret of a password is its length"),
        ],
    )
    def test_what_is_assigned_to_a_secret_name_is_masked(self, text: str, left: str) -> None:
        assert shown({"text": text}) == {"text": left}

    def test_a_password_in_a_url_is_masked(self) -> None:
        assert shown("https://ada:pass@example.com/x") == "https://***@example.com/x"

    @pytest.mark.parametrize("position", [4090, 16 * 1024 - 5])
    def test_half_a_secret_is_not_left_where_it_is_cut(self, position: int) -> None:
        filler = (f"{SECRET} " * 2000)[: position - 10].rsplit(" ", 1)[0]
        assert "hunter" not in shown(f"{filler} {SECRET} {'y' * 20_000}")

    def test_binary_data_is_only_measured(self) -> None:
        value = {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoA" * 1000}]}
        image = shown(value)["content"][0]
        assert image == {"type": "image", "mimeType": "image/png", "data": "(9000 bytes)"}


class TestSearching:
    @given(text=TEXTS)
    def test_no_text_is_passed_over_that_a_pattern_matches(self, text: str) -> None:
        if re.search(masking._CONFIDENTIAL_TEXT, text):
            assert masking._may_have_form_of_secret(text)
        if re.search(masking._ASSIGNMENT, text) or re.search(masking._CONFIDENTIAL_KEY, text[:64]):
            assert masking._may_sound_secret(masking._lowered(text))
