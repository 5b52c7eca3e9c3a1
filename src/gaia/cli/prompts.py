"""`gaia mcp prompts` and `gaia mcp prompt`: the prompts that a server offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import arguments, terminal, time_limit
from gaia.cli.command_errors import USAGE, CommandFailed, unknown_name
from gaia.cli.content import readable
from gaia.cli.offerings import prompt_sections
from gaia.cli.options import Options, with_options
from gaia.cli.questions import Questions
from gaia.cli.servers import complete_name, connected, timeout_of
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_prompts(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
) -> None:
    """List the prompts of one server, with their arguments. Those that wait for approval are not shown."""
    with connected(name, options) as client:
        prompts = _prompts(client)
    if options.json:
        terminal.print_json({"server": name, "prompts": prompts})
    elif prompts:
        terminal.show(prompt_sections(prompts))
    else:
        terminal.say(f"{name} offers no prompts")


def _prompts(client: MCPClient) -> list[dict[str, Any]]:
    return client.list_prompts() if "prompts" in client.capabilities else []


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def get_prompt(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
    prompt: Annotated[str, typer.Argument(help="The prompt, as `gaia mcp prompts` shows it.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="key=value, as often as needed; key=@FILE.")
    ] = None,
) -> None:
    """Get a prompt of a server, filled in with arguments, and print its messages.

    Each message follows the role that it is for. Arguments of prompts are always text.
    """
    given = dict(arguments.assignments(words or []))
    servers = load_to_start(options)
    questions = Questions(options)
    with connected(name, options, servers, questions) as client:
        if "prompts" not in client.capabilities:
            raise CommandFailed(f"{name} offers no prompts", error_type="not_offered")
        _check(name, prompt, given, _prompts(client))

        def request(seconds: float | None) -> dict[str, Any]:
            return client.request("prompts/get", {"name": prompt, "arguments": given}, timeout=seconds)

        result = questions.run(request, timeout=time_limit.remaining(), limit=timeout_of(name, servers))
    if options.json:
        terminal.print_json(result)
        return
    found = result.get("messages")
    for message in found if isinstance(found, list) else []:
        fields = message if isinstance(message, Mapping) else {}
        terminal.say(f"{one_line(fields.get('role', 'unknown'))}:", "bold")
        # Indented, so that no line of it looks like a role.
        terminal.say(f"  {readable(fields.get('content', message))}")


def _check(server: str, prompt: str, given: dict[str, str], prompts: list[dict[str, Any]]) -> None:
    """Raise CommandFailed for a prompt that does not exist, or without an argument that it requires.

    A server that lists no prompts may still know this one.
    """
    known = {str(one.get("name")): one for one in prompts}
    if known and prompt not in known:
        raise unknown_name("prompt", prompt, known, place=f" on server {server!r}")
    declared = known.get(prompt, {}).get("arguments")
    required = [
        str(one.get("name"))
        for one in (declared if isinstance(declared, list) else [])
        if isinstance(one, Mapping) and one.get("required") is True
    ]
    missing = [argument for argument in required if argument not in given]
    if missing:
        raise CommandFailed(
            f"the prompt {prompt!r} requires {', '.join(map(repr, missing))}",
            exit_code=USAGE,
            hint=f"Give each as key=value, such as {missing[0]}=…",
            error_type="missing_argument",
        )
