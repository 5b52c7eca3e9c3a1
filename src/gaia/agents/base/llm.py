"""A model at any endpoint with OpenAI's chat completions, reached with the `openai` package.

The package belongs to the extra ``gaia-mcp[llm]`` and is imported when the first model is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gaia.agents.base.chat import Completion, CompletionBuilder, Message
from gaia.runtime.cancellation import CancelScope, current_scope
from gaia.runtime.extras import not_installed

if TYPE_CHECKING:
    from gaia.agents.base.agent_result import AgentResult

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_RESPONSE_SECONDS = 3600.0
"""Stops an endpoint that never stops sending. `LLMSettings.timeout` applies to a silent endpoint."""


@dataclass(frozen=True)
class LLMSettings:
    """The model and its endpoint. When a run begins, the environment replaces each None."""

    base_url: str | None = None
    """For example ``http://localhost:8000/v1``; else ``GAIA_LLM_BASE_URL``."""
    model: str | None = None
    """The endpoint's name for the model; else ``GAIA_LLM_MODEL``."""
    api_key: str | None = field(default=None, repr=False)
    """Else ``GAIA_LLM_API_KEY``; an endpoint without keys needs none."""
    stream: bool = True
    """Whether the answer is sent piece by piece."""
    timeout: float = 600.0
    """Seconds without a byte from the endpoint after which a request fails."""
    max_retries: int = 2
    """How often a request is repeated after 408, 409, 429, 5xx or no connection, before the answer begins."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of the request, such as ``{"temperature": 0, "max_tokens": 4096}``."""

    def resolved(self) -> LLMSettings:
        """These settings, completed from the environment. Raises `LLMNotConfigured`."""
        settings = dataclasses.replace(
            self,
            base_url=self.base_url or os.environ.get("GAIA_LLM_BASE_URL"),
            model=self.model or os.environ.get("GAIA_LLM_MODEL"),
            api_key=self.api_key or os.environ.get("GAIA_LLM_API_KEY"),
        )
        missing = [
            f"{variable} (or LLMSettings({name}=…))"
            for name, variable in (("base_url", "GAIA_LLM_BASE_URL"), ("model", "GAIA_LLM_MODEL"))
            if not getattr(settings, name)
        ]
        if missing:
            raise LLMNotConfigured(
                f"No language model is configured: set {' and '.join(missing)}. Any endpoint that speaks OpenAI's chat "
                "completions will do, for example GAIA_LLM_BASE_URL=http://localhost:8000/v1; GAIA_LLM_API_KEY is its "
                "key, if it wants one."
            )
        return settings


class OpenAIChat:
    """A `ChatModel` at one endpoint. Thread-safe; must be closed."""

    def __init__(self, settings: LLMSettings | None = None) -> None:
        """Sends nothing yet. Raises `LLMNotConfigured` and `LLMNotInstalled`."""
        self.settings = (settings or LLMSettings()).resolved()
        try:
            import openai
        except ImportError as error:
            raise LLMNotInstalled(f"Agent.run needs {not_installed('llm', 'openai')}") from error
        self.model = str(self.settings.model)
        self._openai: Any = openai
        self._streams: list[Any] = []
        self._client: Any = openai.OpenAI(
            base_url=self.settings.base_url,
            # The package requires a key, which many local endpoints do not have.
            api_key=self.settings.api_key or "no-key",
            timeout=self.settings.timeout,
            max_retries=self.settings.max_retries,
            # Otherwise the package would send OPENAI_ORG_ID and OPENAI_PROJECT_ID to any endpoint.
            default_headers={"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()},  # type: ignore[dict-item]
            http_client=openai.DefaultHttpxClient(**self._http_options()),
        )

    def close(self) -> None:
        """Close all connections. A request under way in another thread fails."""
        for stream in self._streams:
            # Closing a socket does not wake a thread that reads from it, but shutting it down first does.
            _shut_down(stream)
        self._client.close()

    def complete(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], on_text: Callable[[str], None]
    ) -> Completion:
        request: dict[str, Any] = {"model": self.model, "messages": list(messages), **self.settings.options}
        if tools:
            request["tools"] = list(tools)
        try:
            return self._completed(request, on_text)
        except LLMError:
            raise
        except Exception as error:
            raise self._translated(error) from error

    def _http_options(self) -> dict[str, Any]:
        hooks: dict[str, list[Callable[[Any], None]]] = {"request": [self._watch]}
        options: dict[str, Any] = {"event_hooks": hooks}
        # Releases of the package that are based on httpx do not accept streams of httpx2.
        if any(base.__module__.startswith("httpx2") for base in self._openai.DefaultHttpxClient.__mro__):
            from gaia.http.response_limits import ACCEPT_ENCODING, ResponseLimits

            limits = ResponseLimits(_MAX_RESPONSE_BYTES, _MAX_RESPONSE_SECONDS)
            hooks["response"] = [limits.apply]
            options["headers"] = ACCEPT_ENCODING
        return options

    def _watch(self, request: Any) -> None:
        """Make a request fail when the enclosing scope is cancelled, even while it waits for the endpoint."""
        scope = current_scope() or CancelScope()

        def on_event(event: str, info: Mapping[str, Any]) -> None:
            if scope.cancelled:
                raise _Cancelled
            if event.endswith(("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")):
                stream = info["return_value"]
                self._streams.append(stream)
                scope.on_cancel(lambda: _shut_down(stream))

        if scope.cancelled:
            raise _Cancelled
        # The trace extension of httpx and its successors.
        request.extensions = {**request.extensions, "trace": on_event}

    def _completed(self, request: dict[str, Any], on_text: Callable[[str], None]) -> Completion:
        builder, create = CompletionBuilder(), self._client.chat.completions.create
        if self.settings.stream:
            answered = "an empty stream"
            with contextlib.closing(create(**request, stream=True, stream_options={"include_usage": True})) as stream:
                for chunk in stream:
                    if text := builder.add(chunk):
                        on_text(text)
        else:
            response = create(**request)
            answered = f"{str(response)[:200]!r}"
            if text := builder.add(response):
                on_text(text)
        if not builder.received:
            raise self._invalid(answered)
        return builder.build()

    def _invalid(self, what: str) -> LLMInvalidResponse:
        return LLMInvalidResponse(
            f"{self.settings.base_url} answered {what} instead of a chat completion; is it the base URL of an "
            "OpenAI-compatible API (it usually ends in /v1)?"
        )

    def _translated(self, error: Exception) -> LLMError:
        openai, where = self._openai, self.settings.base_url
        if isinstance(error, openai.APIStatusError):
            return self._status_error(error.status_code, self._safe(error.message))
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason, is_http = self._safe(cause), type(error).__module__.startswith(("httpx", "httpcore"))
        if isinstance(error, openai.APITimeoutError):
            return LLMTimeout(f"No answer from {where} within {self.settings.timeout:g} s")
        if is_http or isinstance(error, openai.APIConnectionError):
            return LLMUnreachable(f"No connection to the model's endpoint {where}: {reason}. Is it running?")
        if isinstance(error, openai.APIError):
            return LLMServerFailed(f"The model's endpoint {where} failed: {reason}")
        return self._invalid(f"something unreadable ({type(error).__name__}: {reason})")

    def _status_error(self, status: int, message: str) -> LLMError:
        where = f"The model's endpoint {self.settings.base_url}"
        if status in {401, 403}:
            hint = "" if self.settings.api_key else "; no key is set"
            return LLMAuthenticationFailed(
                f"{where} does not accept the API key ({message}){hint}; check GAIA_LLM_API_KEY", status=status
            )
        if status == 429:
            return LLMOverloaded(f"{where} has too many requests or no quota left ({message})", status=status)
        if status >= 500:
            return LLMServerFailed(f"{where} failed ({message})", status=status)
        return LLMRequestRefused(f"{where} refused the request for model {self.model!r} ({message})", status=status)

    def _safe(self, text: object) -> str:
        message, key = str(text), self.settings.api_key
        return message.replace(key, "***") if key else message


class _Cancelled(BaseException):
    """Ends a request whose scope was cancelled. Not an Exception, because the package would retry after one."""


def _shut_down(stream: Any) -> None:
    with contextlib.suppress(OSError):
        connection: socket.socket | None = stream.get_extra_info("socket")
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)


class LLMError(RuntimeError):
    """Base of the errors below. The message gives advice where possible, and never contains the API key."""

    result: AgentResult | None = None
    """The run's work until the endpoint failed; None if the run had not begun."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class LLMNotConfigured(LLMError):
    """No endpoint or no model is set."""


class LLMNotInstalled(LLMError, ImportError):
    """The `openai` package is missing."""


class LLMUnreachable(LLMError):
    """There is no connection, or it broke."""


class LLMTimeout(LLMError, TimeoutError):
    """The endpoint did not answer in time."""


class LLMAuthenticationFailed(LLMError):
    """The endpoint does not accept the API key (401, 403)."""


class LLMOverloaded(LLMError):
    """The endpoint is overloaded, or a quota is used up (429), after all retries."""


class LLMRequestRefused(LLMError):
    """The endpoint rejects the request (other 4xx): an unknown model, a context that is too long."""


class LLMServerFailed(LLMError):
    """The endpoint has an error of its own (5xx, or within an answer), after all retries."""


class LLMInvalidResponse(LLMError):
    """The endpoint's answer is not a chat completion."""
