"""The C echo server answers like a server, whatever shape a client gives its requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import echo_server
from tests.servers.raw_session import RawSession


@pytest.fixture
def session(starts_processes: None) -> Iterator[RawSession]:
    try:
        program = echo_server.build()
    except echo_server.NoCompiler as reason:
        pytest.skip(str(reason))
    with RawSession([str(program)]) as session:
        yield session


def test_is_a_server(session: RawSession) -> None:
    assert session.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
    (tool,) = session.request("tools/list")["result"]["tools"]
    assert tool["name"] == "echo"
    assert session.request("ping")["result"] == {}
    assert session.request("server/discover")["error"]["code"] == -32601
    assert session.call("nope")["error"]["code"] == -32602
    assert session.call("echo")["error"]["code"] == -32602
    session.close_stdin()
    assert session.exit_code() == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("hello", id="plain"),
        pytest.param('"quoted" \\ and \\" \\\\', id="quotes"),
        pytest.param("naïve ✓ \U0001f600", id="unicode"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param('","id":7,"text":"', id="like a request"),
        pytest.param("x" * 2**20, id="1 MiB"),
        pytest.param('\\"' * 2**20, id="4 MiB of escapes"),
    ],
)
def test_echoes_any_text(session: RawSession, text: str) -> None:
    assert session.call_for_text("echo", {"text": text}) == text


USUAL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'
REVERSED = b'{"params":{"arguments":{"text":"x"},"name":"echo"},"method":"tools/call","id":"7","jsonrpc":"2.0"}'
SPACED = b'{ "id" : -7 , "method" : "tools/call" ,\t"params" : {"name": "echo", "arguments": {"text" : "x" }} }\r'
DECOYS = (
    b'{"method":"tools/call","params":{"_meta":{"id":1,"name":"no","text":"no","list":[{"id":2},[],{}]},'
    b'"name":"echo","arguments":{"more":{"text":"no"},"text":"x"}},"id":"a\\"b"}'
)


@pytest.mark.parametrize(("line", "answer_id"), [(USUAL, 7), (REVERSED, "7"), (SPACED, -7), (DECOYS, 'a"b')])
def test_finds_id_and_text_wherever_they_stand(session: RawSession, line: bytes, answer_id: object) -> None:
    session.write(line + b"\n")

    answer = session.receive()
    assert answer["id"] == answer_id
    assert answer["result"]["content"] == [{"type": "text", "text": "x"}]


def test_answers_requests_that_arrive_together_or_in_pieces(session: RawSession) -> None:
    line = b'{"id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}\n'
    data = b"".join(line % number for number in range(1000))
    session.write(data[:50_000])
    session.write(data[50_000:50_010])
    session.write(data[50_010:])

    assert [session.receive()["id"] for _ in range(1000)] == list(range(1000))


def test_ignores_what_wants_no_answer(session: RawSession) -> None:
    session.notify("notifications/cancelled", {"requestId": 1})
    session.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    session.write(b"\n")

    session.request("ping")
    assert session.others == []


@pytest.mark.parametrize(
    "line", [b"junk", b"{", b'{"id":', b'{"id":1,"method":"ping"', b'{"a":"', b"[" * 1000, b'{"a":' * 1000]
)
def test_survives_what_is_no_request(session: RawSession, line: bytes) -> None:
    session.write(line + b"\n")

    assert session.receive()["error"]["code"] == -32700
    assert session.request("ping")["result"] == {}


def test_is_compiled_once(monkeypatch: pytest.MonkeyPatch, session: RawSession) -> None:
    assert session.request("ping")
    monkeypatch.setattr(echo_server, "_run", lambda command: pytest.fail(f"ran {command}"))

    assert echo_server.build() == echo_server.build()


@pytest.mark.process
def test_says_that_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(echo_server, "CACHE", tmp_path)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(echo_server.NoCompiler, match="no C compiler"):
        echo_server.build()

    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(echo_server.NoCompiler, match="no-such-compiler"):
        echo_server.build()

    monkeypatch.setenv("CC", "false")
    with pytest.raises(echo_server.NoCompiler):
        echo_server.build()
