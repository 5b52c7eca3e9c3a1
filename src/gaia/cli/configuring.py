"""`gaia mcp add`, `remove`, `enable` and `disable`: edit the configuration files. No server is started."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from typer import Argument, BadParameter, Option
from typer.core import TyperCommand

from gaia.cli import terminal
from gaia.cli.options import CallTimeoutOption, Options, add_command, with_options
from gaia.cli.servers import ServerName, complete_name, entry_of
from gaia.cli.terminal import CommandFailed, usage_error

if TYPE_CHECKING:
    from gaia.mcp.config.server_config import ServerConfig

_SCHEME = re.compile(r"\w+://")


class AddCommand(TyperCommand):
    """Remembers whether the command line had a ``--``, which the parser removes and after which words are literal.

    An unknown option probably belongs to the server's command, so the error shows how to write that. The same applies
    to a whole command line in place of the program, which is not split if other words follow.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ensure_object(Options).verbatim = "--" in args
        # The parser empties the list.
        given = args.copy()
        try:
            rest = super().parse_args(ctx, args)
        except Exception as error:
            unknown = getattr(error, "option_name", None)
            flags = {
                option: bool(getattr(parameter, "is_flag", False))
                for parameter in self.get_params(ctx)
                for option in parameter.opts
            }
            if unknown is None or unknown in flags or "--" in given:
                raise
            raise _no_option(ctx, given, unknown, flags) from error
        command = ctx.params.get("command") or []
        if command and ("--" in given or len(command) > 1) and _is_command_line(command[0]):
            if "--" in given:
                given.remove("--")
            for word in reversed(command):
                del given[len(given) - 1 - given[::-1].index(word)]
            hint = "If this is a program with arguments, write them as words of their own:\n"
            raise usage_error(f"there is no program named {command[0]!r}", hint + _apart(ctx, given, command))
        return rest


def _no_option(ctx: Any, given: list[str], unknown: str, flags: dict[str, bool]) -> CommandFailed:
    """The error for an unknown option. `flags` are the known options, each with whether it takes no value."""
    # The positions of the first two words that are neither options nor their values.
    words: list[int] = []
    position = 0
    while position < len(given) and len(words) < 2:
        word = given[position]
        if not word.startswith("-"):
            words.append(position)
        elif not flags.get(word, True):
            position += 1
        position += 1
    hint = "`gaia mcp add --help` shows the options."
    if len(words) == 2:
        apart = _apart(ctx, given[: words[1]], given[words[1] :])
        hint = f"If {unknown} is for the server's command, put the command after -- or in quotes:\n{apart}"
    return usage_error(f"there is no option {unknown}", hint)


def _is_command_line(program: str) -> bool:
    """Whether `program` looks like a command line, such as ``uvx mcp-server-time``, and is not a program itself."""
    words = program.split()
    return len(words) > 1 and os.sep not in words[0] and shutil.which(program) is None


def _apart(ctx: Any, before: list[str], command: list[str]) -> str:
    """A ``gaia mcp add`` for the user to copy, with `command` after ``--``. Its first word may be a quoted line."""
    with contextlib.suppress(ValueError):
        command = [*shlex.split(command[0]), *command[1:]]
    file = ctx.ensure_object(Options).config_file
    config = [] if file is None else ["--config", str(file)]
    return shlex.join(["gaia", "mcp", *config, "add", *before, "--", *command])


@with_options("new_config", "as_json", "debug")
def add(
    options: Options,
    name: Annotated[str, Argument(help="What to call the server.")],
    command: Annotated[
        list[str] | None,
        Argument(help="The command that starts it, in quotes; or, after --, its words as they are; or a URL."),
    ] = None,
    url: Annotated[str | None, Option("--url", help="The address of a server that is reached over HTTP.")] = None,
    header: Annotated[
        list[str] | None,
        Option("--header", metavar="NAME:VALUE", help="Send a header to the server at --url. Repeatable."),
    ] = None,
    env: Annotated[
        list[str] | None, Option("--env", metavar="KEY=VALUE", help="Set a variable for the server. Repeatable.")
    ] = None,
    cwd: Annotated[Path | None, Option("--cwd", metavar="PATH", help="The server's working directory.")] = None,
    sandbox: Annotated[
        bool, Option("--sandbox", help="Start the server in a sandbox: read-only, no homes, no network (Linux).")
    ] = False,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="TOOL", help="Offer only this tool, or those like read_*. Repeatable."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        Option("--deny", metavar="TOOL", help="Never offer this tool, or those like delete_*. Repeatable."),
    ] = None,
    timeout: CallTimeoutOption = None,
    force: Annotated[bool, Option("--force", help="Replace a server of this name.")] = False,
) -> None:
    """Add a server to the configuration, without starting it.

    Write secrets as ${NAME}: the variable is read when the server is used, and only its name is saved.
    Saved in ./mcp_servers.json if that file exists, otherwise in ~/.gaia/mcp_servers.json.

    Examples:
      gaia mcp add time "uvx mcp-server-time"
      gaia mcp add git --env GIT_PAGER=cat -- mcp-server-git --repository .
      gaia mcp add files --allow 'read_*' --allow list_directory "npx -y @modelcontextprotocol/server-filesystem ."
    """
    from gaia.mcp.config.server_config import ServerConfig
    from gaia.mcp.config.trust import describe

    words = command or []
    is_url = len(words) == 1 and not options.verbatim and words[0].startswith(("http://", "https://"))
    address = url or (words[0] if is_url else None)
    if address is not None:
        _refuse(command if url else None, "a command", "--url")
        _refuse(env, "--env", "a URL")
        _refuse(cwd, "--cwd", "a URL")
        _refuse(sandbox, "--sandbox", "a URL")
        entry: dict[str, Any] = {"url": address, **_present(headers=_pairs(header, ":", "--header", "NAME:VALUE"))}
    else:
        _refuse(header, "--header", "a command")
        entry = _entry(words, _pairs(env, "=", "--env", "KEY=VALUE"), cwd, verbatim=options.verbatim)
    entry |= _present(timeout=timeout, sandbox=sandbox or None, enabledTools=allow, disabledTools=deny)
    server = ServerConfig.from_dict(name, entry)
    servers = options.load_config(create=True)
    replaced = servers.server_exists(name)
    if replaced and not force:
        message = f"there already is a server {name!r}, in {servers.source_of(name)}"
        raise usage_error(message, "Use --force to replace it, or choose another name.", "exists")
    servers.add_server(name, entry)
    if replaced:
        # The name now belongs to another server, whose tools are not approved.
        servers.pins_of(name).forget()
    if (doubt := _doubt(server)) is not None:
        # Only a warning, because the program may be installed later, or exist on the machine that uses the server.
        terminal.note(f"Warning: {doubt}", "yellow")
    if options.json:
        terminal.print_json({"name": name, "file": str(servers.config_file), "replaced": replaced})
    else:
        terminal.say(f"{'Replaced' if replaced else 'Added'} {name!r} in {servers.config_file}")
        for line in describe(entry).split("\n"):
            terminal.say(f"  {line}")
        terminal.say(f"Try it: {options.command('test-client', name)}", "dim")


add_app = typer.Typer(add_completion=False, rich_markup_mode=None)
add_command(add_app, "add", add, AddCommand)


@with_options("config", "as_json", "debug")
def remove(
    options: Options,
    name: Annotated[str, Argument(help="The server to remove.", autocompletion=complete_name)],
    everywhere: Annotated[
        bool, Option("--everywhere", help="Remove it from all files that are read, not only where it counts.")
    ] = False,
) -> None:
    """Remove a server from the configuration file whose entry counts, and forget which of its tools were approved.

    Says which files were changed, and whether another file has a server of this name, which counts from then on.

    Examples:
      gaia mcp remove time
    """
    from gaia.mcp.tools.pins import pins_in

    servers = options.load_config()
    entry_of(servers, name)
    source = servers.source_of(name)
    changed = servers.remove_server(name, everywhere=everywhere)
    pins = [pins_in(file, name) for file in changed]
    forgotten = list(dict.fromkeys(each.file for each in pins if each.forget()))
    left = servers.source_of(name)
    if options.json:
        files = [str(file) for file in (*changed, *forgotten)]
        terminal.print_json({"name": name, "file": str(source), "files": files, "still_in": left and str(left)})
        return
    for file in changed:
        terminal.say(f"Removed {name!r} from {file}")
    for file in forgotten:
        terminal.say(f"Forgot in {file} which of its tools were approved")
    if not changed:
        terminal.say(f"Another program has just removed {name!r} from {source}")
    if left is not None:
        terminal.say(f"{left} has a server {name!r} too, which counts now; --everywhere removes it as well", "yellow")


@with_options("config", "as_json", "debug")
def enable(options: Options, name: ServerName) -> None:
    """Have a server started again with the others: takes "disabled" out of the file whose entry counts.

    Examples:
      gaia mcp enable time
    """
    _set_disabled(name, options, disabled=False)


@with_options("config", "as_json", "debug")
def disable(options: Options, name: ServerName) -> None:
    """Keep a server in the configuration, but do not start it: sets "disabled" in the file whose entry counts.

    A command that names the server still starts it.

    Examples:
      gaia mcp disable time
      gaia mcp disable time --config team.json
    """
    _set_disabled(name, options, disabled=True)


def _set_disabled(name: str, options: Options, *, disabled: bool) -> None:
    servers = options.load_config()
    entry_of(servers, name)
    changed = servers.set_disabled(name, disabled)
    file = servers.source_of(name)
    state = "disabled" if disabled else "enabled"
    words = f"{state.capitalize()} {name!r} in {file}" if changed else f"{name!r} is {state} already, in {file}"
    document = {"name": name, "disabled": disabled, "file": file and str(file), "changed": changed}
    terminal.answer(options.json, document, words)


def _refuse(value: object, option: str, other: str) -> None:
    if value:
        raise BadParameter(f"{option} makes no sense together with {other}")


def _present(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value not in (None, {}, [])}


def _entry(command: list[str], variables: dict[str, str], cwd: Path | None, *, verbatim: bool) -> dict[str, Any]:
    from gaia.mcp.transports.command import split_command

    if not command:
        raise BadParameter("give the command that starts the server, or --url with its address")
    program, *args = command if verbatim or len(command) > 1 else split_command(command[0])
    # A relative path would mean another folder for a program in another directory.
    folder = None if cwd is None else os.path.abspath(os.path.expanduser(cwd))
    return {"command": program, "args": args, **_present(env=variables, cwd=folder)}


def _doubt(server: ServerConfig) -> str | None:
    """Why this server cannot be started or reached on this machine now; None if no reason is known."""
    from gaia.mcp.errors import MCPError
    from gaia.mcp.transports.command import argument_vector, find_executable, server_environment
    from gaia.runtime.extras import missing

    target = server.command or server.url or ""
    if "${" in target:
        return None
    if server.url is not None or _SCHEME.match(target):
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            return f"{target} is no address of a server: it must begin with http:// or https:// and name a host"
        lack = missing("http", "httptools")
        return None if lack is None else f"a server over HTTP needs {lack}"
    try:
        program, *_ = argument_vector(target, server.args)
        find_executable(program, server_environment(server.env, inherit_all=server.inherit_env), server.cwd)
    except MCPError as error:
        from gaia.mcp.doctor.diagnosis import for_missing_program

        return ". ".join(filter(None, [error.message, for_missing_program(target)]))
    return None


def _pairs(words: list[str] | None, separator: str, option: str, form: str) -> dict[str, str]:
    pairs = [word.partition(separator) for word in words or ()]
    if not all(name.strip() and found for name, found, _ in pairs):
        # The message leaves out the text, which may be a secret without its name.
        raise BadParameter(f"expected {form}", param_hint=option)
    if separator == ":":
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {name: value for name, _, value in pairs}
