"""The test server that extends the demo server, over bare pipes."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.raw_session import RawSession


@pytest.fixture
def command(feature_server: dict[str, Any]) -> list[str]:
    return [feature_server["command"], *feature_server["args"]]


@pytest.fixture
def environment(feature_server: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, **feature_server["env"]}


@pytest.fixture
def session(command: list[str], environment: dict[str, str]) -> Iterator[RawSession]:
    """A session after its handshake."""
    with RawSession(command, env=environment) as session:
        session.initialize()
        yield session


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


def test_it_declares_what_it_can_do(command: list[str], environment: dict[str, str]) -> None:
    with RawSession(command, env=environment) as session:
        assert session.initialize()["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {},
            "prompts": {},
            "logging": {},
            "completions": {},
        }


class TestTools:
    def test_come_in_pages_when_asked_for(self, command: list[str], environment: dict[str, str]) -> None:
        with RawSession([*command, "--page-size", "4"], env=environment) as session:
            session.initialize()
            pages = [session.request("tools/list")["result"]]
            while "nextCursor" in pages[-1]:
                pages.append(session.request("tools/list", {"cursor": pages[-1]["nextCursor"]})["result"])

            assert [len(page["tools"]) for page in pages] == [4, 4, 1]
            assert session.request("tools/list", {"cursor": "made up"})["error"]["code"] == -32602

    def test_environment_tells_names_and_no_values(self, command: list[str], environment: dict[str, str]) -> None:
        with RawSession(command, env={**environment, "TOKEN": "hidden"}) as session:
            session.initialize()
            answer = session.call("environment")

            assert "TOKEN" in answer["result"]["structuredContent"]["names"]
            assert "hidden" not in json.dumps(answer)

    def test_grow_adds_a_tool_and_says_so(self, session: RawSession) -> None:
        assert text_of(session.call("grow")) == "added grown_1"
        assert session.others == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
        assert session.request("tools/list")["result"]["tools"][-1]["name"] == "grown_1"
        assert text_of(session.call("grown_1")) == "grown_1"

    def test_log_sends_a_message_unless_the_level_is_too_low(self, session: RawSession) -> None:
        session.request("logging/setLevel", {"level": "warning"})

        assert text_of(session.call("log", {"text": "minor"})).startswith("not sent")
        assert text_of(session.call("log", {"text": "major", "level": "error"})) == "sent"
        assert session.others == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "error", "logger": "demo", "data": "major"},
            }
        ]
        assert session.request("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


class TestResourcesAndPrompts:
    def test_every_listed_resource_can_be_read(self, session: RawSession) -> None:
        listed = session.request("resources/list")["result"]["resources"]

        assert {resource["uri"] for resource in listed} == {"demo://greeting", "demo://about"}
        for resource in listed:
            (content,) = session.request("resources/read", {"uri": resource["uri"]})["result"]["contents"]
            assert content["uri"] == resource["uri"]
            assert content["mimeType"] == resource["mimeType"]
            assert len(content["text"].encode()) == resource["size"]
        assert session.request("resources/templates/list")["result"] == {"resourceTemplates": []}

    def test_an_unknown_resource_is_not_found(self, session: RawSession) -> None:
        error = session.request("resources/read", {"uri": "demo://nope"})["error"]

        assert (error["code"], error["data"]) == (-32002, {"uri": "demo://nope"})
        assert session.request("resources/read", {})["error"]["code"] == -32602

    def test_the_prompt_is_made_from_its_arguments(self, session: RawSession) -> None:
        (prompt,) = session.request("prompts/list")["result"]["prompts"]
        arguments = {"name": "Ada", "language": "French"}
        got = session.request("prompts/get", {"name": prompt["name"], "arguments": arguments})["result"]

        (message,) = got["messages"]
        assert message["role"] == "user"
        assert "Ada" in message["content"]["text"]
        assert "Bonjour" in message["content"]["text"]

    @pytest.mark.parametrize(
        "params",
        [
            {"name": "nope"},
            {"name": "greet"},
            {"name": "greet", "arguments": {"name": 7}},
            {"name": "greet", "arguments": {"name": "Ada", "language": "Klingon"}},
        ],
    )
    def test_a_prompt_that_cannot_be_made_is_refused(self, session: RawSession, params: dict[str, Any]) -> None:
        assert session.request("prompts/get", params)["error"]["code"] == -32602

    @pytest.mark.parametrize(
        ("argument", "typed", "values"),
        [("language", "", 5), ("language", "Da", 1), ("language", "x", 0), ("name", "A", 0)],
    )
    def test_arguments_of_the_prompt_are_completed(
        self, session: RawSession, argument: str, typed: str, values: int
    ) -> None:
        params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": argument, "value": typed}}
        completion = session.request("completion/complete", params)["result"]["completion"]

        assert len(completion["values"]) == completion["total"] == values
        assert completion["hasMore"] is False

    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"ref": {"type": "ref/prompt", "name": "nope"}, "argument": {"name": "language", "value": ""}},
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "nope", "value": ""}},
        ],
    )
    def test_nothing_else_can_be_completed(self, session: RawSession, params: dict[str, Any]) -> None:
        assert session.request("completion/complete", params)["error"]["code"] == -32602


class TestProcess:
    @pytest.mark.parametrize("arguments", [["--page-size", "0"], ["--page-size", "x"], ["--nope"]])
    def test_refuses_arguments_that_it_does_not_understand(
        self, command: list[str], environment: dict[str, str], arguments: list[str]
    ) -> None:
        with RawSession([*command, *arguments], env=environment) as session:
            assert session.exit_code() == 2

    def test_explains_itself(self, command: list[str], environment: dict[str, str]) -> None:
        with RawSession([*command, "--help"], env=environment) as session:
            assert session.exit_code() == 0
            assert "--page-size" in session.remaining().decode()
