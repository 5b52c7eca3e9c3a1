"""The errors: what each says about a failed call, and what it can be caught as."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp import errors
from gaia.mcp.errors import (
    AnswerLost,
    CallTimeout,
    ConfigError,
    HttpError,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    NeedsAuthorization,
    ServerCrashed,
    ToolDenied,
    ToolFailed,
    ToolNotApproved,
    UrlElicitationRequired,
    answered_error,
)
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.redaction import Redactor

KINDS = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not MCPError])
def test_each_can_be_caught_as_what_the_transports_document(kind: type[MCPError]) -> None:
    """Code that does not import the errors catches these."""
    assert issubclass(kind, MCPError)
    assert issubclass(kind, (RuntimeError, TimeoutError, ValueError))


def test_the_words_that_applications_switch_on_stay() -> None:
    assert {kind.__name__: kind.error_type for kind in KINDS} == {
        "MCPError": "error",
        "AnswerLost": "server_crashed",
        "CallCancelled": "cancelled",
        "CallTimeout": "timeout",
        "ConfigError": "config",
        "HandshakeFailed": "server_unavailable",
        "HttpError": "http",
        "InputMissing": "input_missing",
        "InvalidResponse": "invalid_response",
        "JsonRpcError": "jsonrpc",
        "NeedsAuthorization": "needs_authorization",
        "NotConnected": "not_connected",
        "NotOffered": "not_offered",
        "Overloaded": "overloaded",
        "ServerCrashed": "server_crashed",
        "ServerUnavailable": "server_unavailable",
        "SessionLost": "session_lost",
        "StartFailed": "server_unavailable",
        "ToolDenied": "denied",
        "ToolFailed": "tool_error",
        "ToolNotApproved": "not_approved",
        "UnknownTool": "unknown_tool",
        "UrlElicitationRequired": "url_elicitation_required",
    }


@pytest.mark.parametrize(
    ("error", "delivery"),
    [
        (ConfigError("why"), "not_sent"),
        (CallTimeout("why"), "not_sent"),
        (CallTimeout("why", delivery="unknown"), "unknown"),
        # An answer, of whatever kind, means that the request arrived.
        (JsonRpcError(-32601, "why"), "unknown"),
        (InvalidResponse("why"), "unknown"),
        (HttpError("why"), "unknown"),
        (HttpError("why", delivery="not_sent"), "not_sent"),
    ],
)
def test_each_says_whether_the_request_may_have_reached_the_server(error: MCPError, delivery: str) -> None:
    assert error.delivery == delivery


@pytest.mark.parametrize(
    ("narrow", "wide"), [(AnswerLost, ServerCrashed), (ToolNotApproved, ToolDenied), (NeedsAuthorization, HttpError)]
)
def test_what_is_handled_alike_is_caught_alike(narrow: type[MCPError], wide: type[MCPError]) -> None:
    assert issubclass(narrow, wide)


def test_masking_leaves_no_secret_in_any_form_of_the_message() -> None:
    error = JsonRpcError(-1, "the password is hunter2")
    error.mask(Redactor(["hunter2"]))
    assert (error.message, str(error), error.args) == ("the password is ***",) * 2 + (("the password is ***",),)
    assert "hunter2" not in repr(error)


class TestErrorsOfAServer:
    @pytest.mark.parametrize(
        ("code", "kind"), [(-32042, UrlElicitationRequired), (-32602, JsonRpcError), (0, JsonRpcError)]
    )
    def test_the_code_decides_the_class(self, code: int, kind: type[JsonRpcError]) -> None:
        error = answered_error(code, "why", {"a": 1})
        assert type(error) is kind
        assert (error.code, error.message, error.data) == (code, "why", {"a": 1})

    @pytest.mark.parametrize(
        ("data", "listed"),
        [
            ({"elicitations": [{"url": "https://a.example"}, "junk", None]}, [{"url": "https://a.example"}]),
            ({"elicitations": [{"url": "javascript:alert(1)"}, {"url": "file:///etc/passwd"}, {"url": 5}]}, []),
            ({"elicitations": [{"url": "https://bank.example@evil.example"}, {"message": "a"}]}, [{"message": "a"}]),
            ({"elicitations": [{"url": "https://p\u0430y.com/a"}]}, [{"url": "https://xn--py-7kc.com/a"}]),
            ({"elicitations": {"url": "https://a.example"}}, []),
            ({}, []),
            ("junk", []),
            (None, []),
        ],
    )
    def test_urls_are_read_as_far_as_there_are_any(self, data: Any, listed: list[dict[str, Any]]) -> None:
        error = answered_error(UrlElicitationRequired.CODE, "why", data)
        assert isinstance(error, UrlElicitationRequired)
        assert error.elicitations == listed


def test_a_status_is_only_there_if_it_is_the_cause() -> None:
    assert HttpError("why").status is None
    assert NeedsAuthorization("why", status=401).status == 401


def test_a_message_that_is_replaced_is_nowhere_else() -> None:
    error = HttpError("hunter2 said no")
    error.message = "*** said no"
    assert "hunter2" not in f"{error} {error!r} {error.args} {vars(error)}"
    assert "hunter2" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        *(kind("words") for kind in KINDS if not issubclass(kind, JsonRpcError)),
        ServerCrashed("words", delivery="unknown"),
        HttpError("words", status=502),
        JsonRpcError(-32000, "words", {"why": 1}),
        UrlElicitationRequired(-32042, "words", {"elicitations": []}),
        ToolFailed("words", ToolResult({"content": [], "isError": True})),
    ],
)
def test_an_error_can_be_copied_and_sent_to_another_process(error: MCPError, copied: Callable[[Any], Any]) -> None:
    back = copied(error)
    assert type(back) is type(error)
    assert (back.args, vars(back)) == (error.args, vars(error))
    assert (str(back), back.message) == ("words", "words")
