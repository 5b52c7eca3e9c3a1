"""`ApiAgent`: an agent that can be served as a model behind an OpenAI-compatible API."""

from __future__ import annotations

from typing import Any

from gaia.agents.base.agent import Agent


class ApiAgent(Agent):
    """Base class for agents that appear as a model; both methods have defaults."""

    def get_model_id(self) -> str:
        """The model's name in the API: ``gaia-code`` for a class named ``CodeAgent``."""
        name = type(self).__name__
        return f"gaia-{(name.removesuffix('Agent') or name).lower()}"

    def get_model_info(self) -> dict[str, Any]:
        """The limits in tokens, and what the agent is for."""
        return {
            "max_input_tokens": 8192,
            "max_output_tokens": 4096,
            "description": f"GAIA {type(self).__name__}",
        }
