"""An agent that keeps notes, served to MCP clients. Run it with ``gaia mcp serve notes_agent:NotesAgent``."""

import threading
from typing import Any

from gaia.agents.base import Agent, MCPAgent


class NotesAgent(MCPAgent, Agent):
    """Writes notes down, and finds them again."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.notes: dict[str, str] = {"welcome": "Notes are kept until the server ends."}
        # Calls run on several threads at once.
        self.lock = threading.Lock()

    def _get_system_prompt(self) -> str:
        return "You keep the user's notes."

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        title = {"title": {"type": "string", "minLength": 1}}
        return [
            {
                "name": "write-note",
                "description": "Keep a note",
                "inputSchema": {
                    "type": "object",
                    "properties": {**title, "text": {"type": "string"}},
                    "required": ["title", "text"],
                },
            },
            {
                "name": "delete-note",
                "description": "Delete a note, if the user agrees",
                "inputSchema": {"type": "object", "properties": title, "required": ["title"]},
                "annotations": {"destructiveHint": True},
            },
            {
                "name": "count-words",
                "description": "Count the words of each note",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            },
        ]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool_name == "write-note":
            with self.lock:
                self.notes[arguments["title"]] = arguments["text"]
            self.notify_mcp_change("resources")
            self.notify_mcp_change("resource", f"note:///{arguments['title']}")
            return {"status": "kept", "title": arguments["title"]}
        if tool_name == "delete-note":
            return self.delete(arguments["title"])
        if tool_name == "count-words":
            return self.count_words()
        raise ValueError(f"Unknown tool: {tool_name}")

    def delete(self, title: str) -> dict[str, Any]:
        if title not in self.notes:
            # The model reads this and can do better.
            raise ValueError(f"There is no note {title!r}")
        question = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
        answer = self.mcp_context.elicit(f"Delete the note {title!r}?", question)
        if answer["action"] != "accept" or not answer["content"]["sure"]:
            return {"status": "left alone"}
        with self.lock:
            self.notes.pop(title, None)
        self.notify_mcp_change("resources")
        return {"status": "deleted"}

    def count_words(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for done, (title, text) in enumerate(sorted(self.notes.items())):
            self.mcp_context.raise_if_cancelled()
            self.mcp_context.report_progress(done, len(self.notes))
            counts[title] = len(text.split())
        return {"words": counts}

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        return [
            {
                "name": "summarize-note",
                "description": "Summarize a note",
                "arguments": [{"name": "title", "description": "Which note", "required": True}],
            }
        ]

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> str:
        if name != "summarize-note" or arguments["title"] not in self.notes:
            raise ValueError(f"There is no note {arguments['title']!r}")
        return f"Summarize in one sentence:\n\n{self.notes[arguments['title']]}"

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        return sorted(title for title in self.notes if title.startswith(value))

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [
            {"uri": f"note:///{title}", "name": title, "description": "A note", "mimeType": "text/plain"}
            for title in sorted(self.notes)
        ]

    def read_mcp_resource(self, uri: str) -> str:
        title = uri.removeprefix("note:///")
        if title not in self.notes:
            raise ValueError(f"There is no note {title!r}")
        return self.notes[title]
