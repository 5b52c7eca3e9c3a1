"""`gaia mcp resources`, `read`, `prompts` and `prompt`: list and get what a server offers besides tools."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import arguments, terminal, time_limit
from gaia.cli.descriptions import prompt_sections, readable, readable_resource, resource_table
from gaia.cli.options import Options, with_options
from gaia.cli.questions import Questions
from gaia.cli.servers import ServerName, connected, timeout_of
from gaia.cli.terminal import CommandFailed, unknown_name, usage_error
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_resources(options: Options, name: ServerName) -> None:
    """List the resources of one server, and its templates for the URIs of more.

    Examples:
      gaia mcp resources notes
      gaia mcp resources notes --json
    """
    with connected(name, options) as client:
        offered = "resources" in client.capabilities
        resources = client.list_resources() if offered else []
        templates = client.list_resource_templates() if offered else []
    if options.json:
        terminal.print_json({"server": name, "resources": resources, "resourceTemplates": templates})
    elif resources or templates:
        terminal.show(resource_table([*resources, *templates]))
        if resources:
            terminal.say(f"Read one: {options.command('read', name, str(resources[0].get('uri')))}", "dim")
    else:
        terminal.say(f"{name} offers no resources")


def _request(
    name: str,
    options: Options,
    kind: str,
    method: str,
    params: dict[str, Any],
    check: Callable[[MCPClient], None] = lambda _: None,
) -> dict[str, Any]:
    """The result of a request to a server that has `kind`. The person at the terminal answers the server's questions.

    Raises CommandFailed for a server that offers none of that kind, and what `check` raises.
    """
    servers = load_to_start(options)
    questions = Questions(options)
    with connected(name, options, servers, questions) as client:
        if kind not in client.capabilities:
            raise CommandFailed(f"{name} offers no {kind}", error_type="not_offered")
        check(client)

        def request(seconds: float | None) -> dict[str, Any]:
            return client.request(method, params, timeout=seconds)

        return questions.run(request, timeout=time_limit.remaining(), limit=timeout_of(name, servers))


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def read_resource(
    options: Options,
    name: ServerName,
    uri: Annotated[str, typer.Argument(help="The resource, as `gaia mcp resources` shows it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save it there, byte for byte.")
    ] = None,
) -> None:
    """Read a resource of a server and print its text.

    On a terminal and in a pipe it is shown without control characters, and bytes are only named; --output saves all of
    it as it is, and replaces the file.

    Examples:
      gaia mcp read notes file:///notes/today.md
      gaia mcp read notes file:///notes/plan.png --output plan.png
    """
    result = _request(name, options, "resources", "resources/read", {"uri": uri})
    found = result.get("contents")
    contents = found if isinstance(found, list) else []
    if output is not None:
        size = _save(contents, output, uri)
        terminal.answer(
            options.json, {"uri": uri, "file": str(output), "bytes": size}, f"Saved {size} bytes in {output}"
        )
    elif options.json:
        terminal.print_json(result)
    else:
        for content in contents:
            terminal.show(terminal.text(readable_resource(content)))


def _save(contents: list[Any], file: Path, uri: str) -> int:
    """Write the only item of the contents to a file. Returns its size in bytes."""
    if len(contents) != 1:
        raise CommandFailed(
            f"{uri} has {len(contents)} contents, and --output saves one",
            hint="Use --json to get all of them.",
            error_type="not_one_content",
        )
    match contents[0]:
        case {"text": str(text)}:
            data = text.encode("utf-8", "surrogatepass")
        case {"blob": str(blob)}:
            try:
                data = base64.b64decode(blob, validate=True)
            except binascii.Error as error:
                raise CommandFailed(
                    f"the bytes of {uri} are no Base64: {error}", error_type="invalid_response"
                ) from error
        case _:
            raise CommandFailed(f"{uri} has neither text nor bytes", error_type="invalid_response")
    try:
        file.expanduser().write_bytes(data)
    except OSError as error:
        raise usage_error(f"{os.fspath(file)} cannot be written: {error.strerror}") from error
    return len(data)


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_prompts(options: Options, name: ServerName) -> None:
    """List the prompts of one server, with their arguments. Those that wait for approval are not shown.

    Examples:
      gaia mcp prompts notes
    """
    with connected(name, options) as client:
        prompts = client.list_prompts() if "prompts" in client.capabilities else []
    if options.json:
        terminal.print_json({"server": name, "prompts": prompts})
    elif prompts:
        terminal.show(prompt_sections(prompts))
    else:
        terminal.say(f"{name} offers no prompts")


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def get_prompt(
    options: Options,
    name: ServerName,
    prompt: Annotated[str, typer.Argument(help="The prompt, as `gaia mcp prompts` shows it.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="key=value, as often as needed; key=@FILE.")
    ] = None,
) -> None:
    """Get a prompt of a server, filled in with arguments, and print its messages.

    Each message follows the role that it is for. Arguments of prompts are always text.

    Examples:
      gaia mcp prompt notes summarize topic=travel
      gaia mcp prompt notes review text=@note.md
    """
    given = dict(arguments.assignments(words or []))
    params = {"name": prompt, "arguments": given}
    result = _request(
        name,
        options,
        "prompts",
        "prompts/get",
        params,
        lambda client: _check(name, prompt, given, client.list_prompts()),
    )
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
    """Raise CommandFailed for a prompt that does not exist, or without a required argument.

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
        raise usage_error(
            f"the prompt {prompt!r} requires {', '.join(map(repr, missing))}",
            f"Give each as key=value, such as {missing[0]}=…",
            "missing_argument",
        )
