"""`gaia mcp trust`, and the question before a project's servers are started for the first time.

A ``mcp_servers.json`` in the current directory names commands. The file may be part of a download, so no command starts
its servers before the user has seen the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gaia.cli import terminal
from gaia.cli.options import Options, say_warnings, with_options
from gaia.cli.rendering import difference_text
from gaia.cli.terminal import FAILED, USAGE, CommandFailed, usage_error
from gaia.runtime.untrusted_text import escaped_line, one_line

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.config.trust import ProjectFile

_FILE_NAME = "mcp_servers.json"
_HINT = "Look at it, then run `gaia mcp trust` here, or repeat this with --trust. With --config it is not read at all."
_HINT_OF_TRUST = "Look at it, then repeat this with --yes, which asks nothing."


def load_to_start(options: Options) -> MCPConfig:
    """Load the configured servers, including those of the current directory only if the user trusts them.

    Asks the person at the terminal, if there is one. Raises CommandFailed if the person does not trust them.
    """
    from gaia.mcp.client.config import MCPConfig

    servers = MCPConfig(options.config_file, trust_local=False, create=False)
    project = servers.untrusted
    # A file without servers starts nothing.
    if project is not None and (project.servers or project.problem is not None):
        _decide(project, options, assume_yes=options.trust)
        servers = MCPConfig(options.config_file, trust_local=False, create=False)
        if servers.untrusted is not None:
            raise _refused(servers.untrusted, "has just been changed by another process")
    say_warnings(servers)
    return servers


@with_options("config", "as_json", "debug")
def trust_project(
    options: Options,
    path: Annotated[
        Path | None, Argument(help="A project's folder, or its mcp_servers.json. By default this folder.")
    ] = None,
    show: Annotated[bool, Option("--list", help="List the trusted files.")] = False,
    revoke: Annotated[bool, Option("--revoke", help="Trust the file no more.")] = False,
    assume_yes: Annotated[bool, Option("--yes", help="Trust it without asking.")] = False,
) -> None:
    """Say that the servers in a project's mcp_servers.json may be started.

    Shows what they run, and what has changed since the file was trusted. It is trusted as it is: a change of it
    is asked about again. Your own file in ~/.gaia, and one that is named with --config, need no trust.

    Examples:
      gaia mcp trust
      gaia mcp trust --list
      gaia mcp trust --revoke ~/some/project
    """
    if (show and (revoke or assume_yes or path is not None)) or (revoke and assume_yes):
        raise usage_error("--list goes alone, and --revoke not together with --yes")
    if options.config_file is not None:
        raise usage_error(
            "--config: a file that it names needs no trust", "`gaia mcp trust PATH` is about the file of a project."
        )
    if show:
        _list(options)
        return
    from gaia.mcp.config.config_files import read_project
    from gaia.mcp.config.trust import TrustStore

    given = Path.cwd() if path is None else path.expanduser().absolute()
    file = given / _FILE_NAME if given.is_dir() else given
    # The path as a program in that folder sees it, because the working directory contains no symbolic links.
    file = file.parent.resolve() / file.name
    if revoke:
        revoked = TrustStore().revoke(file)
        words = f"{file} {'is trusted no more' if revoked else 'was not trusted'}."
        terminal.answer(options.json, {"file": str(file), "revoked": revoked}, words)
        return
    if not file.exists():
        raise usage_error(f"{file} does not exist")
    project = read_project(file)
    known = TrustStore().files().get(file)
    trusted = known is not None and known.sha256 == project.sha256
    if not trusted:
        _decide(project, options, assume_yes=assume_yes, hint=_HINT_OF_TRUST)
    document = {"file": str(file), "trusted": True, "servers": project.servers}
    terminal.answer(options.json, document, f"{file} is trusted{' already' if trusted else ''}.", "green")


def _list(options: Options) -> None:
    from gaia.mcp.config.trust import TrustStore, digest

    states: dict[str, str] = {}
    for file, known in sorted(TrustStore().files().items()):
        try:
            states[str(file)] = "trusted" if digest(file.read_bytes()) == known.sha256 else "changed"
        except OSError:
            states[str(file)] = "gone"
    if options.json:
        terminal.print_json({"files": [{"file": file, "state": state} for file, state in states.items()]})
        return
    for path, state in states.items():
        terminal.say(f"{state:8} {one_line(path)}")
    if not states:
        terminal.say("No project is trusted.")


def _decide(project: ProjectFile, options: Options, *, assume_yes: bool, hint: str = _HINT) -> None:
    """Trust the file as it was read, or raise CommandFailed with `hint`."""
    from gaia.mcp.config.trust import TrustStore
    from gaia.mcp.errors import ConfigError

    if project.problem is not None:
        raise ConfigError(project.problem)
    store = TrustStore()
    known = store.files().get(project.path)
    before = None if known is None else known.servers
    if not options.json:
        _show(project, before)
    if not assume_yes:
        if options.json or not terminal.can_ask():
            why = "is not trusted" if before is None else "has changed since it was trusted"
            raise _refused(project, why, hint)
        if not terminal.yes("Trust it, so that these servers may be started?"):
            raise _refused(project, "is not trusted", hint, exit_code=FAILED)
    store.trust(project)


def _show(project: ProjectFile, before: dict[str, str] | None) -> None:
    from gaia.mcp.config.trust import text_difference

    path = escaped_line(project.path)
    if before is None:
        terminal.note(f"{path} names servers, and you have not trusted it yet:", "yellow")
        for name, description in project.servers.items():
            terminal.note(f"  {escaped_line(name)}", "bold")
            terminal.say_lines(description, console=terminal.err())
    else:
        terminal.note(f"{path} has changed since you trusted it:", "yellow")
        changes = text_difference(before, project.servers) or ["  Nothing about the servers, only how it is written."]
        terminal.show(difference_text(changes), console=terminal.err())


def _refused(project: ProjectFile, why: str, hint: str = _HINT, *, exit_code: int = USAGE) -> CommandFailed:
    return CommandFailed(
        f"{escaped_line(project.path)} {why}; its servers were not started",
        exit_code=exit_code,
        hint=hint,
        error_type="untrusted",
        file=str(project.path),
        servers=project.servers,
    )
