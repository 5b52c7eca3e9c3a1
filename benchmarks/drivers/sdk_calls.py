"""Calls by the official SDK's client, and by fastmcp's, which is made to be called the same way."""

from __future__ import annotations

from typing import Any


class SdkCalls:
    """The part of an `AsyncContender` that does not depend on how its clients are made."""

    def request(self, text: str) -> dict[str, Any]:
        return {"text": text}

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("echo", request)

    def is_echo(self, request: dict[str, Any], answer: Any) -> bool:
        return answer.content[0].text == request["text"]
