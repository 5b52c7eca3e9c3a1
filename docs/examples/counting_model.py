"""An agent as a model behind OpenAI's API. Run it with ``gaia api serve counting_model:CountingAgent``.

This one needs no language model: it counts. An agent without ``answer_chat`` answers with `Agent.run`.
"""

from collections.abc import Callable
from typing import Any

from gaia.agents.base import Agent, ApiAgent


class CountingAgent(ApiAgent, Agent):
    """Appears as the model ``gaia-counting``."""

    def _get_system_prompt(self) -> str:
        return "You count words."

    def answer_chat(self, messages: list[dict[str, Any]], emit: Callable[[str], None]) -> str:
        words = messages[-1]["content"].split()
        for number, word in enumerate(words, 1):
            # A client that streams gets each piece at once.
            emit(f"{number}: {word}\n")
        return "".join(f"{number}: {word}\n" for number, word in enumerate(words, 1))
