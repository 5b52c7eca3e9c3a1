"""Version 1 of the official SDK uses the server ``combined`` of a gateway, and prints what came of it as JSON.

``sdk1_client.py URL``, or ``sdk1_client.py COMMAND ARGUMENT…`` for a gateway on stdio.
"""

import asyncio
import contextlib
import json
import sys

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def elicited(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Cleo"})


async def sampled(_context, _params):
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="small")


async def rooted(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///here")])


async def main(target: str, *arguments: str) -> None:
    reported, told, logged = [], [], []

    async def report(done, total, message):
        reported.append([done, total, message])

    async def notified(message):
        if isinstance(message, types.ServerNotification):
            told.append(message.root.method)

    async def log(params):
        logged.append(params.data)

    async with contextlib.AsyncExitStack() as stack:
        if arguments:
            parameters = StdioServerParameters(command=target, args=list(arguments), env=None)
            streams = await stack.enter_async_context(stdio_client(parameters))
        else:
            streams = await stack.enter_async_context(streamablehttp_client(target))
        session = await stack.enter_async_context(
            ClientSession(
                *streams[:2],
                elicitation_callback=elicited,
                sampling_callback=sampled,
                list_roots_callback=rooted,
                message_handler=notified,
                logging_callback=log,
            )
        )
        opened = await session.initialize()
        await session.set_logging_level("warning")
        await session.subscribe_resource("combined:///text")
        for _ in range(500):
            await session.call_tool("combined_change_text", {})
            await session.call_tool("combined_log", {})
            if logged and "notifications/resources/updated" in told:
                break
            await asyncio.sleep(0.01)

        async def said(tool, **values):
            return (await session.call_tool(f"combined_{tool}", values, progress_callback=report)).structuredContent[
                "said"
            ]

        (text,) = (await session.read_resource("combined:///numbers/7")).contents
        (message,) = (await session.get_prompt("combined_greet", {"who": "Ada"})).messages
        reference = types.PromptReference(type="ref/prompt", name="combined_greet")
        json.dump(
            {
                "revision": opened.protocolVersion,
                "instructions": opened.instructions,
                "tools": sorted(tool.name for tool in (await session.list_tools()).tools),
                "echo": await said("echo", text="höre"),
                "added": (await session.call_tool("combined_add", {"a": 1, "b": 2})).structuredContent,
                "failed": (await session.call_tool("combined_fail", {})).isError,
                "asked": [await said("ask_person"), await said("ask_model"), await said("ask_roots")],
                "count": await said("count"),
                "progress": reported,
                "template": text.text,
                "prompt": message.content.text,
                "completed": (await session.complete(reference, {"name": "who", "value": "al"})).completion.values,
                "logged": sorted(set(logged)),
                "updated": "notifications/resources/updated" in told,
            },
            sys.stdout,
        )


asyncio.run(main(*sys.argv[1:]))
