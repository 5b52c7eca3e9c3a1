"""`gaia mcp login` and `gaia mcp logout`: log in and out at servers that are reached over HTTP."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gaia.cli import terminal, time_limit
from gaia.cli.options import Options, with_options
from gaia.cli.servers import ServerName, make_client
from gaia.cli.terminal import CommandFailed, usage_error
from gaia.cli.time_limit import OutOfTime
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.authorization.config import AuthorizationRequest
    from gaia.mcp.authorization.configured import ConfiguredAuthorization
    from gaia.mcp.client import MCPClient

_LOGIN_SECONDS = 300.0


@with_options("trust", "config", "as_json", "debug")
def login(
    options: Options,
    name: ServerName,
    scope: Annotated[
        list[str] | None, Option("--scope", help="Ask for this permission, too. Logs in anew. Repeatable.")
    ] = None,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page where one logs in.")] = True,
    timeout: Annotated[
        float, Option("--timeout", min=1.0, metavar="SECONDS", help="How long you may take.")
    ] = _LOGIN_SECONDS,
) -> None:
    """Log in at a server, in the browser.

    The address is printed as well. The login is kept in ~/.gaia/logins, for your eyes only, and renewed from then on.

    Examples:
      gaia mcp login notes
      gaia mcp login notes --no-browser
      gaia mcp login notes --scope write
    """
    client = make_client(name, load_to_start(options), options)
    authorization = _authorization_of(client)
    asked = []

    def show_address(request: AuthorizationRequest) -> None:
        asked.append(request.url)
        # Goes to standard error, because a program may read the JSON document on standard output.
        terminal.note("Log in at")
        terminal.show("", terminal.text(request.url), "", console=terminal.err())
        if browser:
            webbrowser.open(request.url)

    authorization.on_authorization = show_address
    authorization.login_seconds = timeout
    # Otherwise unanswered requests to the server could use up the time before the person is asked.
    time_limit.begin(timeout if "timeout" in options.given else None, options.started)
    try:
        if scope:
            authorization().log_in(" ".join(scope))
        if not client.connect():
            raise CommandFailed(f"server {name!r}: {client.last_error}", error_type="needs_authorization")
        kept = authorization().is_logged_in
    except OutOfTime as error:
        message = f"the login at {name!r} was not finished within {timeout:g} s"
        raise CommandFailed(message, error_type="needs_authorization") from error
    finally:
        with time_limit.closing():
            client.disconnect()
    outcome, words = "logged_in", f"Logged in at {name}."
    if not asked and kept:
        words = f"There is a login at {name} already; it works."
    elif not asked:
        outcome, words = "not_needed", f"{name} asks for no login; none is kept."
    terminal.answer(options.json, {"server": name, "outcome": outcome, "new": bool(asked)}, words)


@with_options("trust", "config", "as_json", "debug")
def logout(options: Options, name: ServerName) -> None:
    """Forget the login at a server.

    It stays valid at the authorization server until it expires, or until you revoke it there.

    Examples:
      gaia mcp logout notes
    """
    authorization = _authorization_of(make_client(name, load_to_start(options), options))
    forgotten = authorization().log_out()
    words = f"Logged out of {name}." if forgotten else f"There is no login at {name}."
    terminal.answer(options.json, {"server": name, "forgotten": forgotten}, words)


def _authorization_of(client: MCPClient) -> ConfiguredAuthorization:
    from gaia.mcp.authorization.configured import ConfiguredAuthorization
    from gaia.mcp.transports.base import ChannelTransport

    transport = client.transport
    authorization = transport.authorization if isinstance(transport, ChannelTransport) else None
    if not isinstance(authorization, ConfiguredAuthorization):
        why = f"server {client.name!r} is started here, or its configuration gives the credentials"
        raise usage_error(f"there is nothing to log in at: {why}", error_type="no_login")
    return authorization
