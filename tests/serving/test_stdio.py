"""An agent on standard input and output: nothing but the protocol gets out, and it ends when it should."""

import contextlib
import json
import select
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.served import command, environment
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

TRICKY = "tests.serving.agents:TrickyAgent"


class RawClient:
    """Writes and reads lines, of the era before 2026-07-28."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.number = 0
        self.noise: list[bytes] = []

    def send(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}, **more}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self.number += 1
        self.send(method, params, id=self.number)
        while (message := self.read()).get("id") != self.number:
            pass
        return message

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        # Whatever is not JSON fails here.
        message: dict[str, Any] = json.loads(line)
        return message

    def initialize(self) -> None:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        assert "result" in self.request("initialize", client)
        self.send("notifications/initialized")

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}})


@contextlib.contextmanager
def running() -> Iterator[RawClient]:
    with subprocess.Popen(
        command("mcp", "serve", TRICKY, "--max-body", "100000"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        raw = RawClient(process)
        raw.initialize()
        try:
            yield raw
        finally:
            process.kill()


@pytest.fixture
def client(starts_programs: None) -> Iterator[RawClient]:
    with running() as raw:
        yield raw


def rest_of(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(timeout=PATIENCE)


def test_what_an_agent_prints_and_raises_goes_to_standard_error(client: RawClient) -> None:
    assert client.call("print")["result"]["structuredContent"] == {"printed": True}
    failed = client.call("secret-failure")["result"]
    for number in range(3):
        client.send("tools/call", {"name": "wait-for-cancel", "arguments": {}}, id=f"w{number}")
        assert client.read()["params"]["data"] == "waiting"
    stdout, stderr = rest_of(client.process)
    assert all(json.loads(line)["id"] in ("w0", "w1", "w2") for line in stdout.splitlines())
    for text in (
        b"printed while the module is imported",
        b"printed while the agent is made",
        b"printed by a tool",
        b"written to descriptor 1",
        # A child reads an empty input, not the client's messages.
        b"printed by a child ''",
    ):
        assert text in stderr

    # An exception says nothing to the client and everything to the log.
    assert failed["isError"]
    assert "hunter2" not in json.dumps(failed)
    assert b"hunter2" in stderr
    assert b"execute_mcp_tool" in stderr
    # The client has gone away in the middle of calls, which ends the server.
    assert client.process.returncode == 0


def test_an_interrupt_ends_the_server_cleanly(client: RawClient) -> None:
    client.process.send_signal(signal.SIGINT)
    assert client.process.wait(PATIENCE) == 0


def test_a_client_that_does_not_read_does_not_keep_the_server_from_ending(client: RawClient) -> None:
    for number in range(20):
        # Together more than a pipe holds; the last of them are not even answered.
        client.send("tools/call", {"name": "upper", "arguments": {"text": "a" * 20_000}}, id=f"u{number}")
    assert client.process.stdout is not None
    # Not before it has begun to write.
    assert select.select([client.process.stdout], [], [], PATIENCE)[0]
    client.process.terminate()
    assert client.process.wait(PATIENCE) == 0


def test_a_line_over_the_limit_ends_the_session(client: RawClient) -> None:
    # The server may be gone before all of it is written.
    with contextlib.suppress(BrokenPipeError):
        client.send("tools/call", {"name": "upper", "arguments": {"text": "a" * 200_000}}, id="large")
    _, stderr = rest_of(client.process)
    assert client.process.returncode == 0
    assert b"line_too_long" in stderr


@pytest.mark.process
def test_an_agent_that_cannot_be_made_is_told_in_words() -> None:
    line = command("mcp", "serve", "no.such.module:Agent")
    run = subprocess.run(
        line, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "There is no module 'no'" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.fixture(scope="module")
def lasting(starts_programs: None) -> Iterator[RawClient]:
    """A server for all tests that do not end it."""
    with running() as raw:
        yield raw


def test_lines_that_are_no_messages_break_nothing(lasting: RawClient) -> None:
    assert lasting.process.stdin is not None
    lasting.process.stdin.write(b"nonsense\n\n\xff\xfe\n[]\n")
    assert lasting.call("upper", {"text": "a"})["result"]["structuredContent"] == {"text": "A"}


def test_a_cancelled_call_is_told_so(lasting: RawClient) -> None:
    lasting.send("tools/call", {"name": "wait-for-cancel", "arguments": {}}, id="slow")
    assert lasting.read()["params"]["data"] == "waiting"
    lasting.send("notifications/cancelled", {"requestId": "slow"})
    assert lasting.call("was-cancelled")["result"]["structuredContent"] == {"cancelled": True}


def test_many_calls_run_at_once(lasting: RawClient) -> None:
    # Each of them waits for all the others.
    for number in range(8):
        lasting.send("tools/call", {"name": "meet", "arguments": {}}, id=f"m{number}")
    answers = [lasting.read() for _ in range(8)]
    assert sorted(answer["result"]["structuredContent"]["met"] for answer in answers) == list(range(8))


INVALID = "Invalid arguments for tool upper"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("clear-failure", {}, "there is no such note"),
        ("error-dict", {}, ""),
        ("upper", {}, INVALID),
        ("upper", {"text": 3}, INVALID),
        ("broken-promise", {}, ""),
    ],
    ids=["a value error", "an error dict", "no arguments", "wrong arguments", "a result that breaks its promise"],
)
def test_an_error_is_for_the_model_to_read(lasting: RawClient, tool: str, arguments: dict[str, Any], said: str) -> None:
    result = lasting.call(tool, arguments)["result"]
    assert result["isError"]
    assert said in result["content"][0]["text"]


def test_an_unknown_tool_is_the_protocols_error_and_a_wrong_definition_leaves_the_other_tools(
    lasting: RawClient,
) -> None:
    assert lasting.call("no-such-tool")["error"] == {"code": -32602, "message": "Unknown tool: no-such-tool"}
    assert lasting.call("not-known")["error"]["code"] == -32602, "although it is listed"
    names = [tool["name"] for tool in lasting.request("tools/list")["result"]["tools"]]
    assert ("upper" in names, "broken-schema" in names) == (True, False)


def test_values_that_json_does_not_know_become_text(lasting: RawClient) -> None:
    result = lasting.call("odd-values")["result"]
    assert result["structuredContent"] == {"path": "/a/b", "set": [1], "3": "three"}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
