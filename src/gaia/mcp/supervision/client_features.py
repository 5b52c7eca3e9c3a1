"""The features that an application offers to servers: a person's answers, a model, folders.

These are the client features of the specification. The client declares those that the application has given.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypedDict

import msgspec

from gaia.mcp.protocol.server_questions import (
    ElicitationAnswer,
    ElicitationMode,
    ElicitationRequest,
    Root,
    SamplingRequest,
    elicitation_request,
    elicitation_result,
    root_list,
    sampling_request,
    sampling_result,
)

METHODS = ("elicitation/create", "sampling/createMessage", "roots/list")
"""The requests that a server may make if the feature is offered."""

Elicited = ElicitationAnswer | Mapping[str, Any] | None
Sampled = Mapping[str, Any] | None

OnElicitation = Callable[[ElicitationRequest], Elicited | Awaitable[Elicited]]
"""Asks a person. None means "cancel": the person made no choice. A dict is ``{"action": …, "content": …}``."""

OnSampling = Callable[[SamplingRequest], Sampled | Awaitable[Sampled]]
"""Asks a model; see `SamplingRequest.answer` for the result. None means that the user rejected the request."""

RootsSource = Iterable[Root] | Callable[[], Iterable[Root] | Awaitable[Iterable[Root]]]
"""Folders, or a function that returns them and is called whenever a server asks."""


class Question(NamedTuple):
    """A request of a server, for a function of the application."""

    ask: Callable[[], Any]
    """Calls the function; returns a coroutine if the function is async."""
    result_of: Callable[[Any], dict[str, Any]]
    """The result for the server of the function's answer. Raises `Refusal`, and other exceptions for a bad answer."""


def is_async(function: object) -> bool:
    of_object = getattr(type(function), "__call__", None)  # noqa: B004 - the type is the subject
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object)


class Roots:
    """The folders that are offered now. Thread-safe; shared by the clients of a manager."""

    def __init__(self, source: RootsSource) -> None:
        self._source = _checked(source)

    def replace(self, source: RootsSource) -> None:
        self._source = _checked(source)

    @property
    def are_known(self) -> bool:
        return not callable(self._source)

    @property
    def are_async(self) -> bool:
        return is_async(self._source)

    def listed(self) -> Any:
        """The folders, or a coroutine of them. Runs user code if the roots are a function."""
        source = self._source
        return source() if callable(source) else source


class FeatureKeywords(TypedDict, total=False):
    """The keywords of a client or a manager that are features; see `MCPClient`."""

    on_elicitation: OnElicitation | None
    elicitation_modes: tuple[ElicitationMode, ...]
    on_sampling: OnSampling | None
    sampling_tools: bool
    roots: RootsSource | None


class ClientFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """The features that one client offers. Immutable, except for the content of `roots`."""

    on_elicitation: OnElicitation | None = None
    elicitation_modes: tuple[ElicitationMode, ...] = ("form",)
    on_sampling: OnSampling | None = None
    sampling_tools: bool = False
    roots: Roots | None = None
    relayed: bool = False
    """Whether the clients of a gateway answer. Their abilities are known only when a server asks, so all features are
    declared, and the other members are ignored."""

    def __post_init__(self) -> None:
        if not self.elicitation_modes or not set(self.elicitation_modes) <= {"form", "url"}:
            raise ValueError(f'elicitation_modes: expected "form", "url" or both, got {self.elicitation_modes!r}')

    @classmethod
    def of(cls, keywords: FeatureKeywords) -> ClientFeatures:
        if unknown := keywords.keys() - FeatureKeywords.__annotations__.keys():
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        given: dict[str, Any] = dict(keywords)
        if (roots := keywords.get("roots")) is not None:
            given["roots"] = Roots(roots)
        return cls(**given)

    def or_else(self, others: ClientFeatures) -> ClientFeatures:
        if self.relayed or others.relayed:
            return RELAYED
        mine = self if self.on_elicitation is not None else others
        sampler = self if self.on_sampling is not None else others
        return ClientFeatures(
            on_elicitation=mine.on_elicitation,
            elicitation_modes=mine.elicitation_modes,
            on_sampling=sampler.on_sampling,
            sampling_tools=sampler.sampling_tools,
            roots=self.roots or others.roots,
        )

    @property
    def capabilities(self) -> dict[str, Any]:
        if self.relayed:
            return {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
        declared: dict[str, Any] = {}
        if self.on_elicitation is not None:
            declared["elicitation"] = {mode: {} for mode in self.elicitation_modes}
        if self.on_sampling is not None:
            declared["sampling"] = {"tools": {}} if self.sampling_tools else {}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    def offers(self, method: str) -> bool:
        if self.relayed:
            return method in METHODS
        given = dict(zip(METHODS, (self.on_elicitation, self.on_sampling, self.roots), strict=True))
        return given.get(method) is not None

    @property
    def run_user_code(self) -> bool:
        """Whether functions of the application answer here."""
        return not self.relayed and any(map(self.offers, METHODS))

    def is_async(self, method: str) -> bool:
        """Whether an async function answers requests with this method."""
        if method == "roots/list":
            return self.roots is not None and self.roots.are_async
        return is_async(self.on_elicitation if method == "elicitation/create" else self.on_sampling)

    def answers_at_once(self, method: str) -> bool:
        return method == "roots/list" and self.roots is not None and self.roots.are_known

    def question(self, server: str, method: str, params: Mapping[str, Any]) -> Question:
        """The question in a request of `server`. Raises `Refusal` for invalid params."""
        if method == "elicitation/create":
            assert self.on_elicitation is not None, "it is offered"
            request = elicitation_request(server, params, self.elicitation_modes)
            return Question(partial(self.on_elicitation, request), partial(elicitation_result, request))
        if method == "sampling/createMessage":
            assert self.on_sampling is not None, "it is offered"
            asked = sampling_request(server, params, tools=self.sampling_tools)
            return Question(partial(self.on_sampling, asked), sampling_result)
        assert self.roots is not None, "it is offered"
        return Question(self.roots.listed, root_list)


RELAYED = ClientFeatures(relayed=True)


def _checked(source: RootsSource) -> RootsSource:
    if callable(source):
        return source
    if isinstance(source, str):
        raise ValueError(f"roots: expected a list of paths, got the text {source!r}")  # noqa: TRY004 - as for its items
    roots = list(source)
    root_list(roots)
    return roots
