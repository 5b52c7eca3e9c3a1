"""What the connections to a server share."""

from __future__ import annotations

import dataclasses

import pytest

from gaia.http.request import HttpSettings


def test_each_has_cookies_of_its_own() -> None:
    assert HttpSettings().cookies is not HttpSettings().cookies


def test_they_cannot_be_changed_and_show_no_secrets() -> None:
    settings = HttpSettings(headers={"Authorization": "hunter2"})
    assert "hunter2" not in repr(settings)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.max_bytes = 5  # type: ignore[misc]
