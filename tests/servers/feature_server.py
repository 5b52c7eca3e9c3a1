"""The demo server with more features: resources, a prompt, completion, log messages, and a list of tools that grows.

    PYTHONPATH=src python tests/servers/feature_server.py

Its further tools: ``environment`` tells the names of the server's environment variables, ``grow`` adds one more tool
and says that the list changed, ``log`` sends a log message.
"""

import os
import sys
import threading
from collections.abc import Callable

from gaia.mcp.demo_server import (
    ADDITIVE,
    INVALID_PARAMS,
    READ_ONLY,
    Call,
    DemoServer,
    Json,
    RpcError,
    Tool,
    check_arguments,
    serve,
    structured_result,
    text_result,
)

RESOURCE_NOT_FOUND = -32002

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424's severities, in rising order."""

RESOURCES = {
    "demo://greeting": ("greeting", "text/plain", "Hello from the gaia demo server."),
    "demo://about": ("about", "text/markdown", "# Demo server\n\nA small MCP server for trying out a client.\n"),
}
"""URI → name, MIME type, text."""

GREETINGS = {"danish": "Hej", "english": "Hello", "french": "Bonjour", "german": "Hallo", "spanish": "Hola"}

PROMPT: Json = {
    "name": "greet",
    "title": "Greet",
    "description": "Ask for a greeting of a person, in a language.",
    "arguments": [
        {"name": "name", "description": "Who is greeted", "required": True},
        {"name": "language", "description": "Language of the greeting; English by default", "required": False},
    ],
}


class FeatureServer(DemoServer):
    """Keeps what the further tools and methods show: the tools that were added, and the client's log level."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__(write)
        self._log_level = "debug"
        self._growing = threading.Lock()
        self.capabilities = {
            "tools": {"listChanged": True},
            "resources": {},
            "prompts": {},
            "logging": {},
            "completions": {},
        }
        self.methods |= {
            "resources/list": _list_resources,
            "resources/templates/list": lambda _params: {"resourceTemplates": []},
            "resources/read": _read_resource,
            "prompts/list": lambda _params: {"prompts": [PROMPT]},
            "prompts/get": _get_prompt,
            "completion/complete": _complete,
            "logging/setLevel": self._set_log_level,
        }
        text, level = {"type": "string"}, {"type": "string", "default": "info"}
        names = {"names": {"type": "array", "items": {"type": "string"}}}
        for tool in (
            Tool("environment", "List the server's variables by name.", {}, READ_ONLY, _environment, names),
            Tool("grow", "Add one more tool and tell the client.", {}, ADDITIVE, self._grow),
            Tool("log", "Send a log message to the client.", {"text": text, "level": level}, ADDITIVE, self._log),
        ):
            self.tools[tool.name] = tool

    def _grow(self, _call: Call) -> Json:
        with self._growing:
            name = f"grown_{sum(name.startswith('grown_') for name in self.tools) + 1}"
            tool = Tool(name, "A tool that `grow` added.", {}, READ_ONLY, lambda _call: text_result(name))
            # A new dict, so that a listing that is being made never sees a change.
            self.tools = {**self.tools, name: tool}
        self.send({"method": "notifications/tools/list_changed"})
        return text_result(f"added {name}")

    def _log(self, _call: Call, text: str, level: str) -> Json:
        if level not in LOG_LEVELS:
            return text_result(f"level must be one of {', '.join(LOG_LEVELS)}") | {"isError": True}
        if LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return text_result("not sent: below the level that the client set")
        params = {"level": level, "logger": "demo", "data": text}
        self.send({"method": "notifications/message", "params": params})
        return text_result("sent")

    def _set_log_level(self, params: Json) -> Json:
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
        self._log_level = level
        return {}


def _environment(_call: Call) -> Json:
    # Values may be secrets.
    return structured_result({"names": sorted(os.environ)})


def _list_resources(_params: Json) -> Json:
    return {
        "resources": [
            {"uri": uri, "name": name, "mimeType": mime_type, "size": len(text.encode())}
            for uri, (name, mime_type, text) in RESOURCES.items()
        ]
    }


def _read_resource(params: Json) -> Json:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "uri must be a string")
    if uri not in RESOURCES:
        raise RpcError(RESOURCE_NOT_FOUND, "resource not found", {"uri": uri})
    _name, mime_type, text = RESOURCES[uri]
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}


def _get_prompt(params: Json) -> Json:
    if params.get("name") != PROMPT["name"]:
        raise RpcError(INVALID_PARAMS, f"unknown prompt {params.get('name')!r}")
    properties = {"name": {"type": "string"}, "language": {"type": "string", "default": "english"}}
    arguments = check_arguments(properties, params.get("arguments", {}))
    greeting = GREETINGS.get(arguments["language"].lower())
    if greeting is None:
        raise RpcError(INVALID_PARAMS, f"argument 'language' must be one of {', '.join(GREETINGS)}")
    text = f"Greet {arguments['name']}, beginning with {greeting!r}."
    return {
        "description": PROMPT["description"],
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _complete(params: Json) -> Json:
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        raise RpcError(INVALID_PARAMS, "ref and argument must be objects")
    if reference.get("type") != "ref/prompt" or reference.get("name") != PROMPT["name"]:
        raise RpcError(INVALID_PARAMS, "ref must be the prompt 'greet'")
    name, typed = argument.get("name"), argument.get("value")
    if name not in ("name", "language") or not isinstance(typed, str):
        raise RpcError(INVALID_PARAMS, "argument must have the name of an argument of the prompt and a string value")
    # There is nothing to propose for the name.
    candidates = GREETINGS if name == "language" else {}
    values = [candidate for candidate in candidates if candidate.startswith(typed.lower())]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


if __name__ == "__main__":
    sys.exit(serve(FeatureServer))
