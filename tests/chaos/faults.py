"""The faults that schedules are made of.

Faults at a call are tools of the scripted server: whoever calls ``crash_mid_line`` gets a server that crashes in the
middle of its answer. Each tool is there twice, the second time as ``safe_…``, which says that it may be repeated.
Faults at a start are what is different in a scenario; a server reads its scenario afresh whenever it is started.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import fault_server, state_file
from tests.servers.processes import program

Json = dict[str, Any]

MAX_MESSAGE = 200_000
"""The `maxMessageBytes` of the servers: what is longer is refused."""

AT_A_CALL: dict[str, Json] = {
    "well": {},
    "crash_before_answer": {"crash": "before_answer"},
    "crash_mid_line": {"crash": "mid_line"},
    "crash_after_answer": {"crash": "after_answer"},
    "leave": {"crash": "before_answer", "exit_code": 0},
    "leave_after_answer": {"crash": "after_answer", "exit_code": 0},
    "segfault": {"crash": "mid_line", "signal": int(signal.SIGSEGV)},
    "hang": {"hang": True},
    "freeze": {"freeze": True},
    "stop_reading": {"stop_reading": True},
    "close_stdout": {"close_stdout": True},
    "drip": {"chunk_size": 9, "pause": 0.002},
    "late": {"delay": 0.05},
    "later": {"delay": 0.3},
    "too_late": {"await_cancel": True},
    "twice": {"twice": True},
    "wrong_id": {"answer_id": 999_999_999},
    "string_id": {"answer_id": "not-yours"},
    "error": {"error": {"code": -32000, "message": "scripted"}},
    "broken_error": {"error": {"message": "no code"}},
    "no_object": {"result": [1, 2, 3]},
    "junk": {
        "junk": [
            {"text": "Listening on port 8080"},
            {"hex": "ff fe 00 80"},
            {"json": [1, 2]},
            {"json": {"jsonrpc": "2.0", "id": True, "result": {}}},
            {"json": {"jsonrpc": "2.0", "id": 999_999_998, "result": {}}},
            {"text": '{"jsonrpc": "2.0", "id": 1, "resu'},
        ]
    },
    "glued": {"junk": [{"text": "no newline", "newline": False}]},
    "oversized_junk": {"junk": [{"size": MAX_MESSAGE + 1}]},
    "oversized_answer": {"result": {"content": [{"type": "text", "text": "x" * (MAX_MESSAGE + 1)}]}},
    "stderr_flood": {"stderr_flood": 300_000},
    "progress": {"progress": [{"progress": number} for number in range(20)]},
    "notifications": {
        "notifications": [
            {"method": "notifications/message", "params": {"level": "info", "data": number}} for number in range(50)
        ]
    },
    "asks_back": {"server_requests": [{"method": "ping"}, {"method": "sampling/createMessage", "params": {}}]},
    "changes_tools": {"notifications": [{"method": "notifications/tools/list_changed"}]},
}
"""What the tools do."""

AROUND_THE_ANSWER = ("before_answer", "mid_line", "after_answer")

OPENING = {
    "initialize": AROUND_THE_ANSWER,
    "notifications/initialized": ("before_answer",),
    "server/discover": AROUND_THE_ANSWER,
    "subscriptions/listen": ("before_answer",),
    "tools/list": AROUND_THE_ANSWER,
}
"""What a client says first, in either era, and when a server may crash then. The second and the fourth have no answer,
or none as long as all is well."""

AT_A_START: dict[str, Json] = {
    "well": {},
    "exit": {"exit_at_start": {"code": 3, "stderr": "no token\n"}},
    "leave": {"exit_at_start": {"code": 0}},
    "killed": {"exit_at_start": {"signal": int(signal.SIGKILL)}},
    "slow": {"start_delay": 0.2},
    "stderr_flood": {"stderr_flood": 300_000},
    "junk_first": {"faults": [{"on": "initialize", "junk": [{"text": "Welcome!"}, {"hex": "ff"}]}]},
    **{
        f"{crash}_{method.rpartition('/')[2]}": {"faults": [{"on": method, "crash": crash}]}
        for method, moments in OPENING.items()
        for crash in moments
    },
    "hang_initialize": {"faults": [{"on": "initialize", "hang": True}]},
    "hang_discovery": {"faults": [{"on": "server/discover", "hang": True}]},
    "hang_listing": {"faults": [{"on": "tools/list", "hang": True}]},
    "refuses": {"faults": [{"on": "initialize", "error": {"code": -32603, "message": "not today"}}]},
    "unknown_revision": {"protocol_version": "1999-12-31"},
    "stops_reading": {"faults": [{"on": "notifications/initialized", "stop_reading": True}]},
    "handshake_era": {"era": "handshake"},
    "stateless_era": {"era": "stateless"},
    "both_eras": {"era": "both"},
    "ignores_pings": {"faults": [{"on": "ping", "hang": True}]},
    "child": {"child": "same_group"},
    "child_in_a_session": {"child": "own_session", "child_keeps_pipes": True},
    "daemon": {"child": "daemon", "child_keeps_pipes": True},
    "escaped_daemon": {"child": "escaped", "child_keeps_pipes": True},
    "ignores_sigterm": {"ignore_sigterm": True, "ignore_eof": True},
    "endless_pages": {"page_size": 20, "cursors": "repeating"},
}
"""What is different in the processes that are started from then on."""


def tool_name(fault: str, *, safe: bool) -> str:
    """The tool that has this fault."""
    return f"safe_{fault}" if safe else fault


@dataclass(frozen=True)
class ScriptedServer:
    """A fault server with all of these tools, whose next starts can be changed while it runs."""

    name: str
    folder: Path
    era: str = "handshake"

    @property
    def state_file(self) -> Path:
        return self.folder / f"{self.name}.state"

    @property
    def state(self) -> state_file.State:
        return state_file.read_state(self.state_file)

    def configuration(self, **keys: Any) -> Json:
        """An entry of ``mcpServers``, with these `keys` in addition."""
        self.from_now_on("well")
        args = ["-I", "-S", program(fault_server), f"@{self._scenario_file}"]
        return {"command": sys.executable, "args": args, "maxMessageBytes": MAX_MESSAGE, **keys}

    def from_now_on(self, fault: str) -> None:
        """Change what happens at each start."""
        scenario = {"era": self.era, **AT_A_START[fault]}
        names = [(name, effect, safe) for name, effect in AT_A_CALL.items() for safe in (False, True)]
        scenario["tools"] = [
            {"name": tool_name(name, safe=safe), "annotations": {"readOnlyHint": safe}} for name, _, safe in names
        ]
        scenario["faults"] = [
            *scenario.get("faults", ()),
            *({"tool": tool_name(name, safe=safe), **effect} for name, effect, safe in names),
        ]
        scenario["state_file"] = str(self.state_file)
        text = json.dumps(scenario)
        fault_server.Scenario.from_json(json.loads(text))
        # Replaced as a whole: a server may be starting at this moment.
        replacement = self._scenario_file.with_suffix(".new")
        replacement.write_text(text)
        replacement.replace(self._scenario_file)

    @property
    def _scenario_file(self) -> Path:
        return self.folder / f"{self.name}.json"
