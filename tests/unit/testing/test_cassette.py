from __future__ import annotations

import json
import math
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.errors import AnswerLost, ConfigError, HttpError, MCPError
from gaia.testing.cassette import Cassette, Failure, RecordedEnding, RecordedExchange, RecordedServer, Start, Step

CASSETTE = Cassette(
    cassette=1,
    servers={
        "time": RecordedServer(
            settings={"enabledTools": ["now"]},
            starts=[
                Start(failed="no such program"),
                Start(
                    meanwhile=[Step(notification="notifications/message", params={"data": "hello"})],
                    exchanges=[
                        RecordedExchange(request="initialize", result={}),
                        RecordedExchange(
                            request="tools/call",
                            params={"name": "now"},
                            meanwhile=[Step(request="elicitation/create", answer={"result": {"action": "accept"}})],
                            afterwards=[Step(notification="notifications/tools/list_changed", subscribed=True)],
                            error={"code": -1, "message": "ø"},
                        ),
                        RecordedExchange(request="tools/call", params={"name": "end"}, crashed=True),
                        RecordedExchange(request="tools/call", params={"name": "hang"}, unanswered=True),
                    ],
                    end=RecordedEnding(exit_code=1),
                ),
            ],
        )
    },
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "time.json"
    CASSETTE.write(file)
    assert Cassette.read(file) == CASSETTE


def test_the_file_is_json_for_people(tmp_path: Path) -> None:
    file = tmp_path / "time.json"
    CASSETTE.write(file)
    text = file.read_text("utf-8")
    assert "ø" in text
    assert max(map(len, text.splitlines())) < 100
    # What is as usual is not said.
    assert json.loads(text)["servers"]["time"]["starts"][1]["end"] == {"exit_code": 1}


def test_numbers_that_are_no_json_are_null(tmp_path: Path) -> None:
    file = tmp_path / "time.json"
    result = {"structuredContent": {"mean": [math.nan, math.inf, 1.5]}}
    start = Start(exchanges=[RecordedExchange(request="tools/call", result=result)])
    Cassette(cassette=1, servers={"s": RecordedServer(starts=[start])}).write(file)
    (exchange,) = Cassette.read(file).servers["s"].starts[0].exchanges
    assert exchange.result == {"structuredContent": {"mean": [None, None, 1.5]}}


@pytest.mark.skipif(sys.platform == "win32", reason="no permissions of this kind")
def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "time.json"
    CASSETTE.write(file)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_a_cassette_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no cassette .*absent\.json; record it first"):
        Cassette.read(tmp_path / "absent.json")


def with_exchange(**members: Any) -> str:
    start = {"exchanges": [{"request": "ping", **members}]}
    return json.dumps({"cassette": 1, "servers": {"a": {"starts": [start]}}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1, column 2"),
        ("{}", "the version of the cassette is None"),
        ('{"cassette": 2}', "the version of the cassette is 2"),
        ('{"cassette": 1, "servers": {"a": {"start": []}}}', "unknown field `start`"),
        (
            '{"cassette": 1, "servers": {"a": {"starts": [{"exchanges": [{"request": 1}]}]}}}',
            r"\.starts\[0\]\.exchanges\[0\]\.request",
        ),
        (with_exchange(), "server 'a', starts.0.: ping: expected one of result, error"),
        (with_exchange(result={}, crashed=True), "ping: expected one of result, error"),
        (with_exchange(crashed=True), "ping has crashed the server, and there is no end"),
        (with_exchange(result={}, meanwhile=[{}]), "a step: expected one of notification and request"),
        (with_exchange(result={}, afterwards=[{"request": "a", "notification": "b"}]), "a step: expected one of"),
    ],
)
def test_what_is_no_cassette_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"broken\.json.*{words}"):
        Cassette.read(file)


@pytest.mark.parametrize("error", [AnswerLost("the stream broke"), HttpError("status 503", status=503)])
def test_an_error_is_the_same_again(error: MCPError) -> None:
    again = Failure.of(error).error()
    assert type(again) is type(error)
    assert again.message == error.message
    assert getattr(again, "status", None) == getattr(error, "status", None)


def test_an_error_of_another_version_is_an_error() -> None:
    assert type(Failure(type="Unheard", message="of").error()) is MCPError
