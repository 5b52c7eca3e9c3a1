"""What a host tells of its server, as the client's hooks, calls and answers to questions need it."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_host import PlacedHost
from gaia.mcp.cluster.placed_spans import PlacedSpans
from gaia.mcp.cluster.placed_status import PlacedCondition
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.cluster.wire import (
    Answer,
    AskedInput,
    EventHappened,
    HostEvent,
    ListingBegan,
    Logged,
    Progressed,
    StateReached,
    ToolsListed,
    ToolsRemembered,
    Withdrawn,
    encode,
)
from gaia.mcp.protocol.messages import Refusal, Request
from gaia.mcp.supervision import events
from gaia.mcp.supervision.context import Listing
from gaia.mcp.supervision.events import Event, Restarted
from gaia.mcp.supervision.server_requests import ServerRequest


class PlacedEvents:
    """Passes on the events of one incarnation of a host, but for `StateReached`. For the thread of the loop."""

    def __init__(
        self,
        context: PlacedContext,
        calls: PlacedCalls | ReplicaCalls,
        condition: PlacedCondition,
        loop: ClusterLoop,
        host: PlacedHost,
        spans: PlacedSpans,
    ) -> None:
        self._context = context
        self._calls = calls
        self._condition = condition
        self._loop = loop
        self._host = host
        self._spans = spans
        self._listings: dict[int, Listing] = {}
        """Those that have begun, by the host's numbers."""
        self._questions: dict[int, ServerRequest] = {}
        """Those that the application is asked, by the host's numbers."""
        self._is_over = False
        """No answer reaches the host any more."""

    def happened(self, event: HostEvent) -> None:
        match event:
            case Progressed():
                self._calls.progressed(event.call, event.params, time.monotonic())
            case Logged():
                self._calls.logged(event.call, event.params)
            case ListingBegan():
                self._listings[event.number] = self._context.hooks.listing_begins()
            case ToolsListed():
                self._listed(event)
            case ToolsRemembered():
                self._context.hooks.tools_remembered(event.definitions)
            case AskedInput():
                self._ask(event)
            case Withdrawn():
                question = self._questions.pop(event.number, None)
                if question is not None:
                    question.withdraw()
            case EventHappened():
                self._tell(event)
            case StateReached():
                """Of interest for the server alone."""

    def withdraw_questions(self) -> None:
        """The host is lost or being ended, and no answer reaches it."""
        self._is_over = True
        for question in list(self._questions.values()):
            question.withdraw()
        self._questions.clear()

    def _listed(self, event: ToolsListed) -> None:
        listing = self._listings.pop(event.number, None)
        if event.profile is not None:
            self._condition.profile = event.profile.restored()
        if listing is not None:
            self._context.hooks.tools_listed(event.definitions, listing)
        self._host.listing = max(self._host.listing, event.number)
        self._calls.listed(self._host.incarnation, self._host.listing)

    def _ask(self, event: AskedInput) -> None:
        requests = self._context.server_requests
        if not requests.features.offers(event.method):
            return
        # The id of the server's message is the host's to know.
        served = self._context.observer.serve(event.method, event.params, None, self._context.executor)

        def answered(result: dict[str, Any] | None, refusal: Refusal | None) -> None:
            if result is None and refusal is None:
                served.answered(error_type="connection_closed" if self._is_over else "cancelled")
                return
            code, message = (None, "") if refusal is None else (refusal.code, refusal.message)
            self._host.tell("answer", encode(Answer(event.number, result, code, message)))
            served.answered(code)

        with served.current():
            if requests.features.relayed:
                request = Request(event.number, event.method, event.params)
                question = requests.relay(self._calls.relayed(), request, answered)
            else:
                question = requests.ask(event.method, event.params, answered)
        if not question.ended:
            self._questions = {number: one for number, one in self._questions.items() if not one.ended}
            self._questions[event.number] = question
            self._loop.deadlines.watch(question)

    def _tell(self, event: EventHappened) -> None:
        kind = getattr(events, event.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            return
        told = msgspec.convert({"server": self._context.name, **event.fields}, kind)
        if isinstance(told, Restarted):
            if self._condition.down_since is not None:
                # The server tells it when this host's server is ready.
                return
            told = msgspec.structs.replace(told, generation=self._condition.generation)
            self._spans.returned(told)
        self._context.hooks.happened(told)
