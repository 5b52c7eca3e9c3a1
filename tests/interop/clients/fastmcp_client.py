"""FastMCP's client uses the server ``combined`` of a gateway, and prints what came of it as JSON.

``fastmcp_client.py URL``, or ``fastmcp_client.py COMMAND ARGUMENT…`` for a gateway on stdio.
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError


async def elicited(_message, response_type, _params, _context):
    return response_type(name="Cleo")


async def sampled(_messages, _params, _context):
    return "Paris"


async def main(target: str, *arguments: str) -> None:
    reported, logged = [], []

    async def report(done, total, message):
        reported.append([done, total, message])

    async def log(message):
        logged.append(message.data)

    transport = StdioTransport(target, list(arguments)) if arguments else target
    async with Client(
        transport,
        elicitation_handler=elicited,
        sampling_handler=sampled,
        roots=["file:///here"],
        progress_handler=report,
        log_handler=log,
    ) as client:

        async def said(tool, **values):
            return (await client.call_tool(f"combined_{tool}", values)).structured_content["said"]

        try:
            await said("fail")
            failed = False
        except ToolError:
            failed = True
        (text,) = await client.read_resource("combined:///numbers/7")
        (message,) = (await client.get_prompt("combined_greet", {"who": "Ada"})).messages
        json.dump(
            {
                "tools": sorted(tool.name for tool in await client.list_tools()),
                "echo": await said("echo", text="höre"),
                "added": (await client.call_tool("combined_add", {"a": 1, "b": 2})).structured_content,
                "failed": failed,
                "asked": [await said("ask_person"), await said("ask_model"), await said("ask_roots")],
                "count": await said("count"),
                "progress": reported,
                "template": text.text,
                "prompt": message.content.text,
            },
            sys.stdout,
        )


asyncio.run(main(*sys.argv[1:]))
