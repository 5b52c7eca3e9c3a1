"""The login of a configured server: made when the server is opened, and made anew when its values change."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from gaia.mcp.authorization.config import AuthConfig, ClientCredentials, OAuth
from gaia.mcp.authorization.configured import ConfiguredAuthorization
from gaia.mcp.authorization.server_authorization import ServerAuthorization
from gaia.mcp.authorization.token_file import Login, TokenFile
from gaia.mcp.errors import CallCancelled, ConfigError, NeedsAuthorization, ServerUnavailable
from gaia.mcp.transports.base import Authorization

URL = "https://mcp.example.com/mcp"
ROBOT = ClientCredentials(client_id="robot", client_secret="hunter22", issuer="https://login.example.com")


class Values:
    """What the configuration says at the moment."""

    def __init__(self, url: str = URL, auth: AuthConfig | None = None) -> None:
        self.now: tuple[str, AuthConfig | None] = (url, auth)

    def __call__(self) -> tuple[str, AuthConfig | None]:
        return self.now


class TestMaking:
    def test_the_same_values_give_the_same_login(self) -> None:
        configured = ConfiguredAuthorization("notes", Values())
        made = configured()
        assert isinstance(made, ServerAuthorization)
        assert configured() is made

    @pytest.mark.parametrize("changed", [("https://other.example.com/mcp", None), (URL, OAuth(client_id="x"))])
    def test_other_values_give_another_one(self, changed: tuple[str, AuthConfig | None]) -> None:
        values = Values()
        configured = ConfiguredAuthorization("notes", values)
        made = configured()
        values.now = changed
        assert configured() is not made

    def test_the_secrets_of_the_one_before_are_still_masked(self) -> None:
        values = Values(auth=ROBOT)
        configured = ConfiguredAuthorization("notes", values)
        configured()
        values.now = (URL, msgspec.structs.replace(ROBOT, client_secret="hunter23"))
        configured()
        assert {"hunter22", "hunter23"} <= set(configured.secrets)

    def test_threads_that_open_at_once_share_one(self) -> None:
        start = threading.Barrier(4)
        configured = ConfiguredAuthorization("notes", Values())

        def open_server(_: int) -> ServerAuthorization:
            start.wait()
            return configured()

        with ThreadPoolExecutor(4) as threads:
            assert len({id(made) for made in threads.map(open_server, range(4))}) == 1

    def test_a_variable_that_is_not_set_is_an_error_of_each_opening(self) -> None:
        def expand() -> Any:
            raise ConfigError("TOKEN is not set")

        configured = ConfiguredAuthorization("notes", expand)
        for _ in range(2):
            with pytest.raises(ConfigError, match="TOKEN"):
                configured()

    def test_what_is_replaced_before_the_opening_counts(self) -> None:
        configured = ConfiguredAuthorization("notes", Values())
        configured.on_authorization = lambda _: None
        assert not configured.interactive
        assert configured().interactive
        assert configured.interactive

    def test_credentials_need_no_person(self) -> None:
        configured = ConfiguredAuthorization("notes", Values(auth=ROBOT), on_authorization=lambda _: None)
        assert not configured().interactive


class TestBeforeTheOpening:
    def test_it_is_what_supervision_asks_for(self) -> None:
        assert isinstance(ConfiguredAuthorization("notes", Values()), Authorization)

    def test_there_is_no_login(self) -> None:
        configured = ConfiguredAuthorization("notes", Values())
        configured.abort()
        configured.reopen()
        assert (configured.interactive, configured.secrets, configured.changed()) == (False, [], False)

    def test_logging_in_is_refused(self) -> None:
        with pytest.raises(NeedsAuthorization) as refusal:
            ConfiguredAuthorization("notes", Values()).log_in()
        assert refusal.value.delivery == "not_sent"


class TestAfterTheOpening:
    def test_a_login_that_is_saved_is_noticed(self) -> None:
        configured = ConfiguredAuthorization("notes", Values())
        made = configured()
        assert not configured.changed()
        TokenFile(URL).write(Login(server=URL, access_token="hunter22"))
        assert configured.changed()
        assert made.is_logged_in
        assert configured.secrets == ["hunter22"]

    def test_after_aborting_a_login_is_given_up_until_it_is_reopened(self) -> None:
        configured = ConfiguredAuthorization("notes", Values(url="http://127.0.0.1:1/mcp"), lambda _: None)
        configured()
        configured.abort()
        with pytest.raises(CallCancelled):
            configured.log_in()
        configured.reopen()
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            configured.log_in()
