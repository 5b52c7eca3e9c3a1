"""Resources and prompts for the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.served_dashboard import Served

Serve = Callable[..., Served]


@pytest.fixture
def handbook(serve: Serve, feature_server: dict[str, Any]) -> Served:
    return serve(handbook=feature_server)


def ask(served: Served, what: str, **fields: Any) -> Any:
    answer = served.request("POST", f"/api/{what}", {"server": "handbook", **fields})
    assert answer.status == 200, answer
    return answer.json


def test_resources_are_listed_and_read(handbook: Served) -> None:
    listed = ask(handbook, "resources")
    assert [resource["uri"] for resource in listed["resources"]] == ["demo://greeting", "demo://about"]
    assert listed["templates"] == []

    (content,) = ask(handbook, "resource", uri="demo://greeting")["contents"]
    assert content["text"] == "Hello from the gaia demo server."


def test_prompts_are_listed_and_got_with_arguments(handbook: Served) -> None:
    assert [prompt["name"] for prompt in ask(handbook, "prompts")["prompts"]] == ["greet"]

    (message,) = ask(handbook, "prompt", prompt="greet", arguments={"name": "Ada"})["messages"]
    assert "Greet Ada" in message["content"]["text"]


def test_what_is_wrong_is_explained(handbook: Served) -> None:
    wrong: list[tuple[str, Any, int, str]] = [
        ("resources", b"{", 400, "not JSON"),
        ("resources", {"server": "x"}, 404, "no connected server 'x'"),
        ("resource", {"server": "handbook"}, 400, "uri: expected a name"),
        ("resource", {"server": "handbook", "uri": "demo://none"}, 409, "not found"),
        ("prompt", {"server": "handbook", "prompt": "greet", "arguments": {"name": 1}}, 400, "a text for 'name'"),
        ("prompt", {"server": "handbook", "prompt": "greet"}, 409, "name"),
    ]
    for what, body, status, message in wrong:
        answer = handbook.request("POST", f"/api/{what}", body)
        assert answer.status == status, (what, answer)
        assert message in answer.json["error"]["message"]


def test_a_server_without_templates_has_resources_all_the_same(serve: Serve, fault_server: Callable[..., Any]) -> None:
    faults = [
        {"on": "resources/list", "result": {"resources": [{"uri": "a://b", "name": "b"}]}},
        {"on": "resources/templates/list", "error": {"code": -32601, "message": "unknown method"}},
    ]
    served = serve(handbook=fault_server(faults=faults))

    assert ask(served, "resources") == {"resources": [{"uri": "a://b", "name": "b"}], "templates": []}
