"""What can go wrong between an agent and its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaia.agents.base.agent_result import AgentResult


class LLMError(RuntimeError):
    """Base of all of them. The message says what to do where that is known, and never contains the API key."""

    result: AgentResult | None = None
    """What the run had done when the endpoint failed; None if the run had not begun."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, if there was one."""


class LLMNotConfigured(LLMError):
    """No endpoint or no model is set."""


class LLMNotInstalled(LLMError, ImportError):
    """The `openai` package is missing."""


class LLMUnreachable(LLMError):
    """No connection, or one that broke."""


class LLMTimeout(LLMError, TimeoutError):
    """The endpoint did not answer in time."""


class LLMAuthenticationFailed(LLMError):
    """The endpoint does not accept the API key (401, 403)."""


class LLMOverloaded(LLMError):
    """The endpoint has too much to do, or a quota is used up (429), after all retries."""


class LLMRequestRefused(LLMError):
    """The endpoint finds something wrong with the request (other 4xx): an unknown model, a context that is too long."""


class LLMServerFailed(LLMError):
    """The endpoint has an error of its own (5xx, or in the middle of an answer), after all retries."""


class LLMInvalidResponse(LLMError):
    """The endpoint answered something that is no chat completion."""
