from gaia.mcp.errors import MCPError, ServerCrashed, ToolDenied
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.call_queue import error_of_waited, timeout_of_waiting
from gaia.mcp.supervision.events import ServerState


def error_of(call: Call, denied: MCPError | None = None, *, is_safe: bool = True) -> MCPError | None:
    return error_of_waited(call, "it", lambda _: denied, lambda _: is_safe)


def new_call(*, repeatable: bool = False) -> Call:
    return Call(1, "tools/call", {}, 0.0, 1.0, repeatable=repeatable, tool="add")


def test_a_tool_that_may_not_be_called_any_more() -> None:
    denied = ToolDenied("another definition")
    assert error_of(new_call(), denied) is denied
    assert error_of(Call(1, "tools/list", {}, 0.0, 1.0), denied) is None


def test_a_call_that_was_never_safe_may_be_sent_once() -> None:
    assert error_of(new_call(), is_safe=False) is None


def test_a_tool_that_is_not_safe_any_more_is_not_repeated_later() -> None:
    call = new_call(repeatable=True)
    assert error_of(call, is_safe=False) is None
    assert not call.repeatable


def test_a_second_call_of_a_tool_that_is_not_safe_any_more_is_not_made() -> None:
    call = new_call(repeatable=True)
    call.prepare_repeat(2)
    assert isinstance(error_of(call, is_safe=False), ServerCrashed)
    assert error_of(call) is None


def test_a_call_whose_server_is_not_ready_in_time_says_what_the_server_does() -> None:
    said = str(timeout_of_waiting(new_call(), "it", ServerState.AUTHORIZING))
    assert said == "server 'it' was not ready within 1 s: a person is asked to log in at it"
