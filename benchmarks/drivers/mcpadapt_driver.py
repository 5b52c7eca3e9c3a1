"""mcpadapt's synchronous tools, with an adapter that adds nothing of its own."""

from __future__ import annotations

from typing import Any

from driving import EchoCalls, drive, is_url


class Adapt(EchoCalls):
    def load(self) -> None:
        from mcp import StdioServerParameters
        from mcpadapt.core import MCPAdapt, ToolAdapter

        class Plain(ToolAdapter):
            def adapt(self, func: Any, mcp_tool: Any) -> Any:
                return func

        self._adapt_class, self._adapter, self._parameters = MCPAdapt, Plain(), StdioServerParameters

    def connect(self, argv: list[str], servers: int) -> None:
        server = (
            {"url": argv[0], "transport": "streamable-http"}
            if is_url(argv)
            else self._parameters(command=argv[0], args=argv[1:])
        )
        # One for each server: those of one object start one after another within one time limit.
        self._adapts = [self._adapt_class(server, self._adapter) for _ in range(servers)]
        self._tools = [adapt.__enter__()[0] for adapt in self._adapts]

    def disconnect(self) -> None:
        for adapt in self._adapts:
            adapt.__exit__(None, None, None)

    def call(self, server: int, request: dict[str, Any]) -> Any:
        return self._tools[server](request)


if __name__ == "__main__":
    drive(Adapt())
