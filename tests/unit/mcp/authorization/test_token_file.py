"""Where logins are kept: what counts as one, and who can read it."""

import os
import stat
import time
from pathlib import Path

import msgspec
import pytest
from rich.pretty import pretty_repr

from gaia.mcp.authorization.token_file import Login, TokenFile, folder
from gaia.mcp.errors import ConfigError

URL = "https://mcp.example.com/mcp"
LOGIN = Login(
    server=URL,
    issuer="https://login.example.com",
    access_token="access-1",
    refresh_token="refresh-1",
    client={"client_id": "x", "client_secret": "secret-1"},
)


class TestLogin:
    @pytest.mark.parametrize(("seconds", "token"), [(None, "access-1"), (60.0, "access-1"), (5.0, None), (-60.0, None)])
    def test_a_token_that_expires_soon_is_none(self, seconds: float | None, token: str | None) -> None:
        expires_at = None if seconds is None else time.time() + seconds
        assert msgspec.structs.replace(LOGIN, expires_at=expires_at).token == token

    def test_the_secrets_are_named_and_not_shown(self) -> None:
        assert LOGIN.secrets == ["access-1", "refresh-1", "secret-1"]
        assert not [secret for secret in LOGIN.secrets if secret in f"{LOGIN!r} {pretty_repr(LOGIN)}"]

    def test_what_is_missing_is_no_secret(self) -> None:
        assert Login(server=URL, access_token="", client={}).secrets == []


class TestPaths:
    def test_logins_of_different_clients_are_kept_apart(self, home: Path) -> None:
        url = "https://mcp.example.com/mcp"
        assert TokenFile(url).path != TokenFile(url, "ClientCredentials robot").path
        assert os.path.commonpath([TokenFile(url).path, home / ".gaia"]) == str(home / ".gaia")

    def test_the_host_is_in_the_name_and_nothing_else_of_the_url(self) -> None:
        name = TokenFile("https://me:hunter22@mcp.example.com:8443/../../x?key=hunter22").path.name
        assert name.startswith("mcp.example.com-")
        assert "hunter22" not in name

    @pytest.mark.parametrize("url", ["https://[::1]:80/mcp", "not a url", "https://a%2f..%2fb/mcp"])
    def test_every_url_has_a_file_in_the_folder(self, url: str) -> None:
        assert TokenFile(url).path.parent == folder()


class TestFile:
    def test_what_is_written_is_read_by_another_one(self) -> None:
        TokenFile(URL).write(LOGIN)
        assert TokenFile(URL).read() == LOGIN

    def test_it_and_its_folder_are_private(self) -> None:
        file = TokenFile(URL)
        file.write(LOGIN)
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700

    def test_without_one_there_is_no_login(self) -> None:
        file = TokenFile(URL)
        assert (file.read(), file.stamp(), file.delete()) == (None, None, False)

    def test_a_login_at_another_server_is_none(self) -> None:
        file = TokenFile(URL)
        file.write(LOGIN)
        file.path.write_bytes(file.path.read_bytes().replace(b"mcp.example.com", b"evil.example.com"))
        assert file.read() is None

    @pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"server": 5}', b"\xff"])
    def test_one_that_is_not_understood_is_no_login_and_reported(
        self, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = TokenFile(URL)
        file.write(LOGIN)
        file.path.write_bytes(content)
        assert file.read() is None
        assert "login_unreadable" in caplog.text
        file.write(LOGIN)
        assert file.read() == LOGIN

    def test_each_version_has_a_stamp_of_its_own(self) -> None:
        file = TokenFile(URL)
        file.write(LOGIN)
        first = file.stamp()
        assert file.stamp() == first
        file.write(LOGIN)
        assert file.stamp() not in (None, first)

    def test_deleting_forgets_it(self) -> None:
        file = TokenFile(URL)
        file.write(LOGIN)
        assert file.delete()
        assert file.read() is None

    def test_one_that_cannot_be_written_or_deleted_is_a_config_error(self, home: Path) -> None:
        file = TokenFile(URL)
        file.path.parent.parent.mkdir()
        file.path.parent.write_text("a file in place of the folder")
        with pytest.raises(ConfigError, match="the login cannot be saved"):
            file.write(LOGIN)
        with pytest.raises(ConfigError, match="cannot be deleted"):
            file.delete()
