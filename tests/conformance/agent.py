"""An `MCPAgent` with everything that the conformance suite's server scenarios look for."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from gaia import SilentConsole
from gaia.agents.base import Agent, MCPAgent
from gaia.agents.base.mcp_context import MCPContext

# One red pixel, and no sound at all.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOR_FORM = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
USER_FORM = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS_FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
ENUMS_FORM = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
        },
    },
}
JSON_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text(content: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}]}


def form(message: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, max_tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


def spoken(answer: dict[str, Any]) -> str:
    return str(answer["content"].get("text", answer["content"]))


def filled_in(answer: dict[str, Any]) -> str:
    return f"action={answer['action']}, content={json.dumps(answer.get('content') or {})}"


class ConformanceAgent(MCPAgent, Agent):
    """Its tools are methods; a tool's arguments are in `ARGUMENTS`."""

    ARGUMENTS: dict[str, dict[str, Any]] = {  # noqa: RUF012 - read only
        "test_sampling": {
            "type": "object",
            "properties": {"prompt": {"type": "string"}},
            "required": ["prompt"],
        },
        "test_elicitation": {
            "type": "object",
            "properties": {"message": {"type": "string"}},
            "required": ["message"],
        },
        "test_custom_header": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
            "required": ["region"],
        },
        "json_schema_2020_12_tool": JSON_SCHEMA_2020_12,
    }

    def _get_system_prompt(self) -> str:
        return "You are tested."

    def _create_console(self) -> SilentConsole:
        return SilentConsole()

    def _register_tools(self) -> None:
        pass

    changes = 0
    """How often tools or prompts were changed."""

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        names = [name for name in vars(type(self)) if name.startswith("test_")]
        return [
            {
                "name": name,
                "description": f"{getattr(self, name).__doc__} Version {self.changes}.",
                "inputSchema": self.ARGUMENTS.get(name, {"type": "object", "properties": {}}),
            }
            for name in [*names, "json_schema_2020_12_tool"]
        ]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool_name not in {definition["name"] for definition in self.get_mcp_tool_definitions()}:
            raise ValueError(f"Unknown tool: {tool_name}")
        result: dict[str, Any] = getattr(self, tool_name)(self.mcp_context, **arguments)
        return result

    # Tools that only return something.

    def test_simple_text(self, context: MCPContext) -> dict[str, Any]:
        """Return a text."""
        return text("This is a simple text response for testing.")

    def test_image_content(self, context: MCPContext) -> dict[str, Any]:
        """Return an image."""
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def test_audio_content(self, context: MCPContext) -> dict[str, Any]:
        """Return a sound."""
        return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}

    def test_embedded_resource(self, context: MCPContext) -> dict[str, Any]:
        """Return a resource."""
        resource = {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }
        return {"content": [{"type": "resource", "resource": resource}]}

    def test_multiple_content_types(self, context: MCPContext) -> dict[str, Any]:
        """Return a text, an image and a resource."""
        resource = {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": json.dumps({"test": "data", "value": 123}),
        }
        return {
            "content": [
                {"type": "text", "text": "Multiple content types test:"},
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "resource", "resource": resource},
            ]
        }

    def test_error_handling(self, context: MCPContext) -> dict[str, Any]:
        """Fail."""
        raise ValueError("This tool intentionally returns an error for testing")

    def test_custom_header(self, context: MCPContext, region: str, query: str = "") -> dict[str, Any]:
        """Take an argument that clients repeat in an HTTP header."""
        return text(f"{query} in {region}")

    def json_schema_2020_12_tool(self, context: MCPContext, **arguments: Any) -> dict[str, Any]:
        """Take arguments that only JSON Schema 2020-12 can describe."""
        return arguments

    # Tools that tell the client something while they run.

    def test_tool_with_logging(self, context: MCPContext) -> dict[str, Any]:
        """Send three log messages."""
        for step in ("started", "processing data", "completed"):
            context.log("info", f"Tool execution {step}" if step != "processing data" else "Tool processing data")
        return text("Tool with logging executed successfully")

    def test_logging_tool(self, context: MCPContext) -> dict[str, Any]:
        """Send a log message, to a client that wants it."""
        context.log("info", "A message for those who asked for it")
        return text("logged")

    def test_tool_with_progress(self, context: MCPContext) -> dict[str, Any]:
        """Report progress three times."""
        for done in (0, 50, 100):
            context.report_progress(done, 100, f"Completed step {done} of 100")
        return text("done")

    def test_trigger_tool_change(self, context: MCPContext) -> dict[str, Any]:
        """Change a tool, and say so."""
        self.changes += 1
        self.notify_mcp_change("tools")
        return text("changed")

    def test_trigger_prompt_change(self, context: MCPContext) -> dict[str, Any]:
        """Change a prompt, and say so."""
        self.changes += 1
        self.notify_mcp_change("prompts")
        return text("changed")

    # Tools that ask the client something; in both eras, unless the name says otherwise.

    def test_sampling(self, context: MCPContext, prompt: str) -> dict[str, Any]:
        """Ask the client's model."""
        messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
        return text(f"LLM response: {spoken(context.sample(messages, 100))}")

    def test_missing_capability(self, context: MCPContext) -> dict[str, Any]:
        """Ask the client's model, which the client may not have."""
        return self.test_sampling(context, "Hello?")

    def test_elicitation(self, context: MCPContext, message: str) -> dict[str, Any]:
        """Ask the user."""
        return text(f"User response: {filled_in(context.elicit(message, USER_FORM))}")

    def test_streaming_elicitation(self, context: MCPContext) -> dict[str, Any]:
        """Report progress and ask the user."""
        context.report_progress(1, 2)
        return text(filled_in(context.elicit("What is your name?", NAME_FORM)))

    def test_elicitation_sep1034_defaults(self, context: MCPContext) -> dict[str, Any]:
        """Ask the user with defaults."""
        return text(f"Elicitation completed: {filled_in(context.elicit('Please look through this', DEFAULTS_FORM))}")

    def test_elicitation_sep1330_enums(self, context: MCPContext) -> dict[str, Any]:
        """Ask the user to choose."""
        return text(f"Elicitation completed: {filled_in(context.elicit('Please choose', ENUMS_FORM))}")

    def test_input_required_result_elicitation(self, context: MCPContext) -> dict[str, Any]:
        """Ask the user for a name."""
        answer = context.elicit("What is your name?", NAME_FORM, key="user_name")
        return text(f"Hello, {(answer.get('content') or {}).get('name')}!")

    def test_input_required_result_sampling(self, context: MCPContext) -> dict[str, Any]:
        """Ask the client's model a question."""
        request = sampling("What is the capital of France?", 100)
        return text(spoken(context.ask({"capital_question": request})["capital_question"]))

    def test_input_required_result_list_roots(self, context: MCPContext) -> dict[str, Any]:
        """Ask for the client's folders."""
        return text(json.dumps(context.list_roots(key="client_roots")))

    def test_input_required_result_request_state(self, context: MCPContext) -> dict[str, Any]:
        """Ask in the protocol's own words, with a state."""
        if context.request_state != "asked" or "confirm" not in context.answers:
            schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
            return {
                "resultType": "input_required",
                "inputRequests": {"confirm": form("Please confirm", schema)},
                "requestState": "asked",
            }
        return text("state-ok")

    def test_input_required_result_tampered_state(self, context: MCPContext) -> dict[str, Any]:
        """Ask with a state that must come back as it was."""
        return self.test_input_required_result_request_state(context)

    def test_input_required_result_multiple_inputs(self, context: MCPContext) -> dict[str, Any]:
        """Ask three things at once."""
        requests = {
            "user_name": form("What is your name?", NAME_FORM),
            "greeting": sampling("Generate a greeting", 50),
            "client_roots": {"method": "roots/list", "params": {}},
        }
        if context.request_state is None:
            return {"resultType": "input_required", "inputRequests": requests, "requestState": "three questions"}
        return text(json.dumps(context.ask(requests)))

    def test_input_required_result_multi_round(self, context: MCPContext) -> dict[str, Any]:
        """Ask one thing after the other."""
        name = context.elicit("Step 1: What is your name?", NAME_FORM, key="step1")["content"]["name"]
        color = context.elicit("Step 2: What is your favorite color?", COLOR_FORM, key="step2")["content"]["color"]
        return text(f"{name} likes {color}")

    def test_input_required_result_capabilities(self, context: MCPContext) -> dict[str, Any]:
        """Ask what the client can be asked."""
        requests = {}
        if context.supports("elicitation"):
            requests["user_name"] = form("What is your name?", NAME_FORM)
        if context.supports("sampling"):
            requests["greeting"] = sampling("Generate a greeting", 50)
        return text(json.dumps(context.ask(requests)))

    # Prompts and resources.

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        def argument(name: str) -> dict[str, Any]:
            return {"name": name, "description": f"The {name}", "required": True}

        return [
            {"name": "test_simple_prompt", "description": f"Without arguments. Version {self.changes}."},
            {
                "name": "test_prompt_with_arguments",
                "description": "With two arguments",
                "arguments": [argument("arg1"), argument("arg2")],
            },
            {
                "name": "test_prompt_with_embedded_resource",
                "description": "With a resource in it",
                "arguments": [argument("resourceUri")],
            },
            {"name": "test_prompt_with_image", "description": "With an image in it"},
            {"name": "test_input_required_result_prompt", "description": "That asks the user first"},
        ]

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        if name == "test_simple_prompt":
            return "This is a simple prompt for testing."
        if name == "test_prompt_with_arguments":
            return f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"
        if name == "test_prompt_with_embedded_resource":
            resource = {
                "uri": arguments["resourceUri"],
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }
            return [
                {"role": "user", "content": {"type": "resource", "resource": resource}},
                "Please process the embedded resource above.",
            ]
        if name == "test_prompt_with_image":
            image = {"type": "image", "data": PNG, "mimeType": "image/png"}
            return [{"role": "user", "content": image}, "Please analyze the image above."]
        if name == "test_input_required_result_prompt":
            schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
            answer = self.mcp_context.elicit("What context should the prompt use?", schema, key="user_context")
            return f"In the context of {(answer.get('content') or {}).get('context')}"
        raise ValueError(f"Unknown prompt: {name}")

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        return [word for word in ("paris", "park", "party") if word.startswith(value)]

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [
            {
                "uri": "test://static-text",
                "name": "Static text",
                "description": "A text",
                "mimeType": "text/plain",
            },
            {
                "uri": "test://static-binary",
                "name": "Static image",
                "description": "An image",
                "mimeType": "image/png",
            },
            {
                "uri": "test://watched-resource",
                "name": "Watched",
                "description": "A resource to subscribe to",
                "mimeType": "text/plain",
            },
        ]

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        return [
            {
                "uriTemplate": "test://template/{id}/data",
                "name": "Data",
                "description": "The data of an id",
                "mimeType": "application/json",
            }
        ]

    def read_mcp_resource(self, uri: str) -> Any:
        if uri == "test://static-text":
            return "This is the content of the static text resource."
        if uri == "test://static-binary":
            return base64.b64decode(PNG)
        if uri == "test://watched-resource":
            return "Watched resource content"
        if match := re.fullmatch(r"test://template/([^/]+)/data", uri):
            return {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        raise ValueError(f"Unknown resource: {uri}")
