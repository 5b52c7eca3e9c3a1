"""An agent with what every agent must have, and no more."""

from __future__ import annotations

from gaia.agents.base import Agent
from gaia.agents.base.console import SilentConsole

__all__ = ["SilentAgent"]


class SilentAgent(Agent):
    def _get_system_prompt(self) -> str:
        return "You are silent."

    def _create_console(self) -> SilentConsole:
        return SilentConsole()

    def _register_tools(self) -> None:
        pass
