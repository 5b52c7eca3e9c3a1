"""`gaia mcp resources` and `gaia mcp read`: what a server offers to read."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal, time_limit
from gaia.cli.command_errors import USAGE, CommandFailed
from gaia.cli.content import readable_resource
from gaia.cli.offerings import resource_table
from gaia.cli.options import Options, with_options
from gaia.cli.questions import Questions
from gaia.cli.servers import complete_name, connected, timeout_of
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_resources(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
) -> None:
    """List the resources of one server, and its templates for the URIs of more."""
    with connected(name, options) as client:
        resources, templates = _resources(client), _templates(client)
    if options.json:
        terminal.print_json({"server": name, "resources": resources, "resourceTemplates": templates})
    elif resources or templates:
        terminal.show(resource_table([*resources, *templates]))
        if resources:
            terminal.say(f"Read one: {options.command('read', name, str(resources[0].get('uri')))}", "dim")
    else:
        terminal.say(f"{name} offers no resources")


def _resources(client: MCPClient) -> list[dict[str, Any]]:
    return client.list_resources() if "resources" in client.capabilities else []


def _templates(client: MCPClient) -> list[dict[str, Any]]:
    return client.list_resource_templates() if "resources" in client.capabilities else []


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def read_resource(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
    uri: Annotated[str, typer.Argument(help="The resource, as `gaia mcp resources` shows it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save it there, byte for byte.")
    ] = None,
) -> None:
    """Read a resource of a server and print its text.

    On a terminal and in a pipe it is shown without control characters, and bytes are only named; --output saves all of
    it as it is, and replaces the file.
    """
    servers = load_to_start(options)
    questions = Questions(options)
    with connected(name, options, servers, questions) as client:
        if "resources" not in client.capabilities:
            raise CommandFailed(f"{name} offers no resources", error_type="not_offered")

        def request(seconds: float | None) -> dict[str, Any]:
            return client.request("resources/read", {"uri": uri}, timeout=seconds)

        result = questions.run(request, timeout=time_limit.remaining(), limit=timeout_of(name, servers))
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
    """Write the one item of the contents to a file; returns its size in bytes."""
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
        raise CommandFailed(
            f"{os.fspath(file)} cannot be written: {error.strerror}", exit_code=USAGE, error_type="usage"
        ) from error
    return len(data)
