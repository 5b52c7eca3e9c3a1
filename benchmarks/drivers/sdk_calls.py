"""Calls by the official SDK's client, and by fastmcp's, which is made to be called the same way."""

from __future__ import annotations

from typing import Any

__all__ = ["SdkCalls"]


class SdkCalls:
    """What an `AsyncContender` does with its clients, however it came by them."""

    def request(self, text: str) -> dict[str, Any]:
        return {"text": text}

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("echo", request)

    def is_echo(self, request: dict[str, Any], answer: Any) -> bool:
        return answer.content[0].text == request["text"]
