"""What exists for a client of a profile."""

from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.settings import ClientLimits
from gaia.mcp.tools.tool_filter import ToolFilter

READS = {"readOnlyHint": True}


def test_nothing_of_a_server_that_is_not_there_exists() -> None:
    profile = Profile("p", servers=("git*",))
    assert profile.allows_server("github")
    assert not profile.allows_server("time")
    assert not profile.allows_tool("time", "now", READS)
    assert not profile.allows_prompt("time", "p")
    assert not profile.allows_resource("time", "x:y")


def test_tools_prompts_and_resources_have_filters_of_their_own() -> None:
    profile = Profile(
        "p",
        tools=ToolFilter(["get_*"], ["get_secret"]),
        prompts=ToolFilter(["review"]),
        resources=ToolFilter(None, ["file:///etc/*"]),
    )
    assert profile.allows_tool("s", "get_x", None)
    assert not profile.allows_tool("s", "get_secret", None)
    assert not profile.allows_tool("s", "put", None)
    assert profile.allows_prompt("s", "review")
    assert not profile.allows_prompt("s", "get_x")
    assert profile.allows_resource("s", "file:///home/a")
    assert not profile.allows_resource("s", "file:///etc/passwd")


def test_read_only_allows_tools_that_say_so_and_no_others() -> None:
    profile = Profile("p", read_only=True)
    assert profile.allows_tool("s", "t", READS)
    for annotations in (None, {}, {"readOnlyHint": False}, {"readOnlyHint": "true"}, {"idempotentHint": True}):
        assert not profile.allows_tool("s", "t", annotations)


def test_a_narrowed_profile_allows_what_both_do_and_keeps_the_limits_of_the_client() -> None:
    limits = ClientLimits(concurrent=1)
    client = Profile("client", servers=("a", "b"), tools=ToolFilter(None, ["drop"]), limits=limits)
    view = Profile("view", servers=("b", "c"), read_only=True, prompts=ToolFilter([]), resources=ToolFilter(["x:*"]))
    both = client.narrowed_to(view)
    assert both.name == "view"
    assert both.limits is limits
    assert [server for server in "abc" if both.allows_server(server)] == ["b"]
    assert both.allows_tool("b", "get", READS)
    assert not both.allows_tool("b", "get", None)
    assert not both.allows_tool("b", "drop", READS)
    assert not both.allows_prompt("b", "p")
    assert both.allows_resource("b", "x:1")
    assert not both.allows_resource("b", "y:1")
    narrower = both.narrowed_to(EVERYTHING).narrowed_to(view)
    assert [server for server in "abc" if narrower.allows_server(server)] == ["b"]


def test_everything_allows_all_of_all_servers() -> None:
    assert EVERYTHING.allows_server("git")
    assert EVERYTHING.allows_tool("git", "push", None)
    assert EVERYTHING.allows_prompt("git", "review")
    assert EVERYTHING.allows_resource("git", "file:///a")
    assert len({Profile("a", limits=ClientLimits(per_tool={})) for _ in range(2)}) == 1, "profiles are keys of tables"


def test_another_spelling_of_a_uri_passes_by_no_filter() -> None:
    uri = "file:///home/..%2fetc/passwd"
    assert not Profile("p", resources=ToolFilter(None, ["file:///etc/*"])).allows_resource("s", uri)
    assert not Profile("p", resources=ToolFilter(["file:///home/*"])).allows_resource("s", uri)
    assert not Profile("p", resources=ToolFilter(["file:///home/*"])).narrowed_to(EVERYTHING).allows_resource("s", uri)
    assert EVERYTHING.allows_resource("s", uri)


def test_templates_are_allowed_by_their_text() -> None:
    profile = Profile("p", servers=("s",), resources=ToolFilter(["file:///home/*", "file:///etc/*"], ["file:///etc/*"]))
    assert profile.allows_template("s", "file:///home/{path}")
    assert not profile.allows_template("other", "file:///home/{path}")
    for one in (profile, EVERYTHING.narrowed_to(profile), profile.narrowed_to(EVERYTHING)):
        assert not one.allows_template("s", "file:///etc/{name}")
