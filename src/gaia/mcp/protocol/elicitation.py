"""Elicitation: a server asks the person who uses the client (specification, "Elicitation")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gaia.mcp.errors import web_page
from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable
from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal, optional, required

ElicitationMode = Literal["form", "url"]


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """A person's answer to an elicitation. `ElicitationRequest` has a method for each of the three actions."""

    action: Literal["accept", "decline", "cancel"]
    """Accepted, declined, or closed without a decision."""
    content: dict[str, Any] | None = None
    """The fields of the form, if it was accepted; nothing for a URL."""


class ElicitationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks a person.

    Say which server asks, and leave the choice to decline. In mode "url" show the whole URL, and open it only with the
    person's consent, in a browser that neither this program nor a model can look into. This package never fetches it.
    """

    server: str
    """Which server asks; the name that it has here, not one that it gave itself."""
    message: str
    """For the person. Written by the server: make it safe before it is shown on a terminal."""
    mode: ElicitationMode = "form"
    """``form``, or ``url`` for something that the person does on a web page."""
    requested_schema: dict[str, Any] = {}
    """The JSON Schema of the form: an object with plain fields."""
    url: str | None = None
    """Where the person has to go, in mode "url": an https URL, or an http URL on this machine; others are refused.
    Its host is in ASCII."""
    elicitation_id: str | None = None
    """Which `ElicitationCompleted` belongs to it, in mode "url"."""

    def accept(self, content: Mapping[str, Any] | None = None) -> ElicitationAnswer:
        """The person agreed. Fields that `content` leaves out get the defaults of the schema.

        Raises ValueError, naming the fields, for what the schema does not allow; the person can be asked again.
        """
        if self.mode == "url":
            if content:
                raise ValueError("a question with a URL is accepted without content: the answer is given there")
            return ElicitationAnswer("accept")
        complete = {**_defaults(self.requested_schema), **(content or {})}
        try:
            problems = JsonSchema(self.requested_schema).problems(complete)
        except SchemaUnusable:
            # The server checks the answer anyway, and a form that cannot be checked here can still be answered.
            problems = []
        if problems:
            raise ValueError(f"the answer does not fit the form of server {self.server!r}: {'; '.join(problems)}")
        return ElicitationAnswer("accept", complete)

    def decline(self) -> ElicitationAnswer:
        """The person said no."""
        return ElicitationAnswer("decline")

    def cancel(self) -> ElicitationAnswer:
        """The person made no choice, and closed the window for example."""
        return ElicitationAnswer("cancel")

    @classmethod
    def from_params(
        cls, server: str, params: Mapping[str, Any], modes: tuple[ElicitationMode, ...]
    ) -> ElicitationRequest:
        """Read the params of an ``elicitation/create``. Raises `Refusal`, for a mode that is not offered too."""
        mode = optional(params, "mode", str) or "form"
        if mode not in modes:
            raise Refusal(INVALID_PARAMS, f"mode: the client offers {' and '.join(modes)}, not {mode[:20]!r}")
        message = required(params, "message", str)
        if mode == "url":
            url, identifier = required(params, "url", str), optional(params, "elicitationId", str)
            if (page := web_page(url)) is None:
                raise Refusal(INVALID_PARAMS, "url: only https is shown to users, and http on this machine")
            return cls(server=server, message=message, mode="url", url=page, elicitation_id=identifier)
        schema = required(params, "requestedSchema", dict)
        try:
            JsonSchema(schema)
        except SchemaUnusable as error:
            raise Refusal(INVALID_PARAMS, f"requestedSchema: it is no valid schema: {error}") from None
        return cls(server=server, message=message, requested_schema=schema)


def elicitation_id(method: str, params: Mapping[str, Any]) -> str | None:
    """The id under which the server will report that a person is done at a URL; None for every other request."""
    match method, params:
        case "elicitation/create", {"mode": "url", "elicitationId": str(identifier)}:
            return identifier
    return None


def elicitation_result(request: ElicitationRequest, answer: object) -> dict[str, Any]:
    """What the server is told. `answer` is what user code returned: an answer, its dict, or None for "cancel".

    Raises ValueError or TypeError for anything else, and for content that does not fit the form.
    """
    if answer is None:
        answer = request.cancel()
    elif isinstance(answer, Mapping):
        answer = msgspec.convert(dict(answer), ElicitationAnswer)
    if not isinstance(answer, ElicitationAnswer):
        raise TypeError(f"an elicitation is answered with an ElicitationAnswer, a dict or None, not {type(answer)!r}")
    if answer.action != "accept":
        return {"action": answer.action}
    content = request.accept(answer.content).content
    return {"action": "accept"} if content is None else {"action": "accept", "content": content}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return {
        name: field["default"]
        for name, field in (properties if isinstance(properties, dict) else {}).items()
        if isinstance(field, dict) and "default" in field
    }
