"""gaia: supervised MCP clients for production agents.

The consoles are loaded on first use, so that importing the client does not import a terminal library.
"""

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from gaia.agents.base.console import AgentConsole, SilentConsole
    from gaia.runtime.cancellation import CancelScope, current_scope

__version__ = "0.1.0"
__all__ = ["AgentConsole", "CancelScope", "SilentConsole", "__version__", "current_scope"]


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaia.agents.base.console": "AgentConsole SilentConsole",
            "gaia.runtime.cancellation": "CancelScope current_scope",
        },
    )
