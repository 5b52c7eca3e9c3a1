"""gaia: supervised MCP clients for production agents.

The consoles are loaded on first use, so that importing the client does not import a terminal library.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.agents.base.console import AgentConsole, SilentConsole

__version__ = "0.1.0"
__all__ = ["AgentConsole", "SilentConsole", "__version__"]


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.

    def __getattr__(name: str) -> Any:
        if name in {"AgentConsole", "SilentConsole"}:
            from gaia.agents.base import console

            return getattr(console, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
