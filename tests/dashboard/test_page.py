"""What people see on the dashboard's page, and what they can do there."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.served_dashboard import Served

pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")

from playwright.sync_api import expect

import gaia.dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Serve = Callable[..., Served]


@pytest.fixture
def demo(serve: Serve, demo_server: dict[str, Any]) -> Served:
    return serve(demo=demo_server | {"disabledTools": ["counter"]}, off={"command": "x", "disabled": True})


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Tool calls").locator("tbody tr")


def server_link(page: Page, name: str) -> Locator:
    """The server's entry in the list of servers."""
    return page.get_by_role("navigation", name="Servers").get_by_role("link", name=name)


class TestOverview:
    def test_servers_are_shown_with_their_states(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        servers = page.get_by_role("navigation", name="Servers").get_by_role("listitem")

        expect(servers).to_have_count(2)
        expect(servers.nth(0)).to_contain_text("demo")
        expect(servers.nth(0)).to_contain_text("ready")
        expect(servers.nth(1)).to_contain_text("disabled")
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.get_by_text("No tool has been called yet")).to_be_visible()

    def test_calls_appear_while_one_looks(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_text("No tool has been called yet")).to_be_visible()
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        demo.manager.call_tool("mcp_demo_fail", {"message": "no"})

        expect(rows(page)).to_have_count(2)
        expect(rows(page).nth(0)).to_contain_text(re.compile(r"fail.*error.*ms.*tool_error"))
        expect(rows(page).nth(1)).to_contain_text(re.compile(r"add.*ok.*ms"))

    def test_no_call_is_shown_twice(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_role("status")).to_have_text("live")
        for number in range(40):
            demo.manager.call_tool("mcp_demo_sleep", {"seconds": 0.02})
            if number == 20:
                page.reload()
        expect(rows(page)).to_have_count(40)
        # What comes twice is that which happens while a snapshot is made.
        twice = "import('/store.js').then(({ received, state }) => received(KIND))"
        page.evaluate(twice.replace("KIND", "'call', state.calls[3]"))
        page.evaluate(twice.replace("KIND", "'running', [state.calls[3]]"))
        page.get_by_label("Find calls").fill("sleep")

        expect(rows(page)).to_have_count(40)

    def test_calls_can_be_searched(self, demo: Served, page: Page) -> None:
        for number in range(3):
            demo.manager.call_tool("mcp_demo_add", {"a": number, "b": 2})
        demo.manager.call_tool("mcp_demo_fail", {"message": "no"})
        page.goto(demo.dashboard.url)
        expect(rows(page)).to_have_count(4)

        page.get_by_label("failures only").check()
        expect(rows(page)).to_have_count(1)
        page.get_by_label("failures only").uncheck()
        page.get_by_label("Find calls").fill("ADD")
        expect(rows(page)).to_have_count(3)
        page.get_by_label("Find calls").fill("nothing like it")
        expect(page.get_by_text("No call fits the filter.")).to_be_visible()

    def test_a_restart_is_seen_on_the_timeline(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_role("img", name="demo: ready, 0 restarts")).to_be_visible()
        client = demo.manager.get_client("demo")
        assert client is not None
        assert client.status.pid is not None
        os.kill(client.status.pid, signal.SIGKILL)

        expect(page.get_by_role("img", name="demo: ready, 1 restart")).to_be_visible()
        page.get_by_text("Events in words").click()
        events = page.get_by_role("table", name="Events")
        expect(events).to_contain_text("became restarting: the server was killed by SIGKILL")
        expect(events).to_contain_text("ready again after")

    def test_a_server_that_failed_says_why(self, serve: Serve, fault_server: Callable[..., Any], page: Page) -> None:
        served = serve(bad=fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
        page.goto(served.dashboard.url)
        server_link(page, "bad").click()

        expect(page.get_by_role("heading", name="bad")).to_be_visible()
        expect(page.get_by_role("main")).to_contain_text("exited with code 3")
        expect(page.get_by_role("main")).to_contain_text("no licence")
        # The command finds the server in the file that this program was given.
        expect(page.get_by_role("main")).to_contain_text(
            f"gaia mcp doctor --config {served.manager.config.config_file} bad"
        )
        expect(page.get_by_text("Tools are shown once the server is ready.")).to_be_visible()

    def test_an_entry_that_cannot_be_used_is_to_be_corrected_and_not_tried_again(
        self, serve: Serve, page: Page
    ) -> None:
        served = serve(it={"command": "x", "disabled": "yes"})
        page.goto(served.dashboard.url)
        failed = page.get_by_role("list", name="Failed servers").get_by_role("listitem")

        expect(failed).to_contain_text("Correct the entry, then start this program again.")
        expect(failed.get_by_role("button")).to_have_count(0)

    def test_without_servers_it_says_how_to_add_one(self, serve: Serve, page: Page) -> None:
        page.goto(serve().dashboard.url)

        expect(page.get_by_role("navigation", name="Servers")).to_contain_text("gaia mcp add")


class TestFailures:
    def test_they_come_first_with_the_reason_and_a_button_that_says_what_happened(
        self, serve: Serve, demo_server: dict[str, Any], fault_server: Callable[..., Any], page: Page
    ) -> None:
        bad = fault_server(exit_at_start={"code": 3, "stderr": "no licence"})
        served = serve(demo=demo_server, off={"command": "x", "disabled": True}, bad=bad)
        page.goto(served.dashboard.url)
        servers = page.get_by_role("navigation", name="Servers").get_by_role("listitem")

        expect(page.get_by_text("3 servers, 1 failed")).to_be_visible()
        expect(servers.nth(0)).to_contain_text(re.compile("bad.*exited with code 3.*no licence", re.DOTALL))
        expect(servers.nth(2)).to_contain_text("off")
        failed = page.get_by_role("list", name="Failed servers").get_by_role("listitem")
        expect(failed).to_have_count(1)
        expect(failed).to_contain_text("no licence")
        failed.get_by_role("button", name="Try again now").click()
        expect(failed.get_by_role("status")).to_contain_text(re.compile("It did not start: .*no licence", re.DOTALL))

        page.get_by_label("Find servers").fill("LICENCE")
        expect(servers).to_have_count(1)
        page.reload()
        expect(page.get_by_label("Find servers")).to_have_value("LICENCE")
        expect(servers).to_have_count(1)
        page.get_by_label("Find servers").fill("nothing like it")
        expect(servers).to_have_text("No server fits the filter.")


class TestControl:
    def test_stopping_asks_once_and_a_server_can_be_started_again(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        server_link(page, "demo").click()
        control = page.get_by_role("group", name="Control demo")
        control.get_by_role("button", name="Stop").click()
        dialog = page.get_by_role("dialog", name="Stop demo?")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(control.get_by_role("button", name="Stop")).to_be_focused()
        assert demo.get("/api/state")["servers"][0]["state"] == "ready"

        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Stop").click()
        expect(control.get_by_role("status")).to_contain_text("Stopped.")
        expect(page.get_by_text("Tools are shown once the server is ready.")).to_be_visible()
        control.get_by_role("button", name="Start").click()
        expect(control.get_by_role("status")).to_contain_text("Ready after")
        control.get_by_role("button", name="Restart").click()
        expect(server_link(page, "demo")).to_contain_text("ready")
        expect(page.get_by_role("list", name="Tools")).to_be_visible()


class TestAddress:
    def test_a_reload_keeps_the_server_the_tab_and_the_tool(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        server_link(page, "demo").click()
        page.get_by_role("button", name="echo").press("Enter")
        expect(page.get_by_role("form", name="Call echo")).to_be_visible()
        page.get_by_label("Find calls").fill("ech")
        # The link that skips the list of servers leaves the address as it is.
        page.locator(".skip").press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        page.reload()
        expect(page.get_by_role("form", name="Call echo")).to_be_visible()
        expect(page.get_by_label("Find calls")).to_have_value("ech")

        page.get_by_role("link", name="History").click()
        page.get_by_label("Period").select_option("1 hour")
        page.reload()
        expect(page.get_by_role("link", name="History")).to_have_attribute("aria-current", "page")
        expect(page.get_by_label("Period")).to_have_value("3600")
        page.go_back()
        expect(page.get_by_role("form", name="Call echo")).to_be_visible()


class TestResourcesAndPrompts:
    def test_they_are_listed_read_and_got_with_arguments(
        self, serve: Serve, feature_server: dict[str, Any], page: Page
    ) -> None:
        served = serve(handbook=feature_server)
        page.goto(served.dashboard.url)
        server_link(page, "handbook").click()
        page.get_by_role("link", name="Resources").click()
        page.get_by_role("list", name="Resources").get_by_role("button", name="about").click()
        form = page.get_by_role("form", name="Read about")
        form.get_by_role("button", name="Read").click()
        expect(form).to_contain_text("A small MCP server for trying out a client.")

        page.get_by_role("link", name="Prompts").click()
        form = page.get_by_role("form", name="Get greet")
        form.get_by_role("button", name="Get").click()
        expect(form).to_contain_text("name")
        form.get_by_label(re.compile("^name ")).fill("Ada")
        form.get_by_label(re.compile("^language ")).fill("danish")
        form.get_by_role("button", name="Get").click()
        expect(form).to_contain_text("Greet Ada, beginning with 'Hej'.")


class TestOneCall:
    def test_its_spans_and_log_events_are_shown(self, demo: Served, page: Page) -> None:
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        page.goto(demo.dashboard.url)
        rows(page).get_by_role("link", name="add").click()

        expect(page.get_by_role("heading", name="add")).to_be_visible()
        spans = page.get_by_role("region", name="Spans")
        expect(spans).to_contain_text("tools/call add")
        expect(spans).to_contain_text("gen_ai.tool.name")
        expect(page.get_by_role("table", name="Log events")).to_contain_text("tool_called")

    def test_one_that_is_not_kept_says_so(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_role("status")).to_have_text("live")
        page.goto(f"http://127.0.0.1:{demo.port}/#/call/1/2")

        expect(page.get_by_text("no longer kept")).to_be_visible()


class TestTrying:
    @pytest.fixture
    def tools(self, demo: Served, page: Page) -> Page:
        page.goto(demo.dashboard.url)
        page.get_by_role("link", name="demo").first.click()
        expect(page.get_by_role("list", name="Tools")).to_be_visible()
        return page

    def test_a_form_is_made_of_the_schema(self, tools: Page) -> None:
        tools.get_by_role("button", name="add").click()
        form = tools.get_by_role("form", name="Call add")
        form.get_by_label(re.compile("^a ")).fill("1.5")
        form.get_by_label(re.compile("^b ")).fill("2")
        form.get_by_role("button", name="Call").click()

        expect(form).to_contain_text("3.5")
        expect(rows(tools).first).to_contain_text("add")
        form.get_by_role("link", name="Spans and log events of this call").click()
        expect(tools.get_by_role("region", name="Spans")).to_contain_text("tools/call add")

    def test_wrong_input_is_explained_before_anything_is_sent(self, demo: Served, tools: Page) -> None:
        tools.get_by_role("button", name="add").click()
        form = tools.get_by_role("form", name="Call add")
        form.get_by_label(re.compile("^a ")).fill("many")
        form.get_by_role("button", name="Call").click()

        expect(form.get_by_role("alert")).to_have_text("a: expected a number")
        assert demo.get("/api/state")["calls"] == []

    def test_arguments_can_be_written_as_json(self, tools: Page) -> None:
        tools.get_by_role("button", name="echo").click()
        form = tools.get_by_role("form", name="Call echo")
        form.get_by_label("Edit as JSON").check()
        form.get_by_label("Arguments as JSON").fill('{"text": "from JSON"}')
        form.get_by_role("button", name="Call").click()

        expect(form.locator("pre.output").first).to_have_text("from JSON")

    def test_a_failure_is_shown(self, tools: Page) -> None:
        tools.get_by_role("button", name="crash").click()
        form = tools.get_by_role("form", name="Call crash")
        form.get_by_role("button", name="Call").click()

        expect(form).to_contain_text("was lost during tools/call")
        expect(form).to_contain_text("The server may have acted on the call")

    def test_a_call_can_be_cancelled(self, demo: Served, tools: Page) -> None:
        tools.get_by_role("button", name="sleep").click()
        form = tools.get_by_role("form", name="Call sleep")
        form.get_by_label(re.compile("^seconds ")).fill("60")
        form.get_by_role("button", name="Call").click()
        expect(rows(tools).first).to_contain_text("running")
        expect(form.get_by_role("progressbar")).to_be_visible()
        expect(rows(tools).first.get_by_role("progressbar")).to_be_visible()
        form.get_by_role("button", name="Cancel").click()

        expect(form).to_contain_text("Cancelled. The server was told.")
        expect(rows(tools).first).to_contain_text("cancelled")

    def test_a_denied_tool_cannot_be_chosen(self, tools: Page) -> None:
        denied = tools.get_by_role("button", name="counter")

        expect(denied).to_be_disabled()
        expect(denied).to_contain_text("denied")

    def test_what_is_typed_stays_while_the_page_is_updated(self, demo: Served, tools: Page) -> None:
        tools.get_by_role("button", name="echo").click()
        text = tools.get_by_role("form", name="Call echo").get_by_label(re.compile("^text "))
        text.fill("half a sen")
        demo.manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})
        expect(rows(tools)).to_have_count(1)

        expect(text).to_have_value("half a sen")
        expect(text).to_be_focused()

    def test_standard_error_is_shown(self, tools: Page) -> None:
        tools.get_by_role("link", name="Details").click()
        expect(tools.get_by_role("region", name="Standard error")).to_contain_text("gaia demo server")


class TestToken:
    def test_it_does_not_stay_in_the_address(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_role("status")).to_have_text("live")
        assert demo.dashboard.token not in page.url

        page.reload()
        expect(page.get_by_role("status")).to_have_text("live")

    def test_without_it_the_page_asks_for_it(self, demo: Served, page: Page) -> None:
        page.goto(f"http://127.0.0.1:{demo.port}/")
        expect(page.get_by_label("Token")).to_be_visible()
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_contain_text("not the right one")

        page.get_by_label("Token").fill(demo.dashboard.token)
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.get_by_role("heading", name="All servers")).to_be_visible()


ATTACK = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


class TestTextOfOthers:
    def test_it_is_shown_as_text_and_nothing_else(
        self, serve: Serve, fault_server: Callable[..., Any], page: Page
    ) -> None:
        tool = {
            "name": f"a{ATTACK}",
            "title": ATTACK,
            "description": ATTACK,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "__proto__": {"type": "string", "description": ATTACK, "default": ATTACK},
                    ATTACK: {"enum": [ATTACK, "b"]},
                },
                "required": ["__proto__", ATTACK],
            },
        }
        answer = {"content": [{"type": "text", "text": ATTACK}, {"type": "image", "mimeType": ATTACK, "data": ATTACK}]}
        faults = [{"on": "tools/list", "result": {"tools": [tool]}}, {"tool": f"a{ATTACK}", "result": answer}]
        served = serve(**{f"evil{ATTACK}": fault_server(faults=faults, instructions=ATTACK)})
        page.goto(served.dashboard.url)
        page.locator(".server").first.click()
        form = page.get_by_role("form")
        form.get_by_role("button", name="Call").click()

        expect(form.locator("pre.output").first).to_have_text(ATTACK)
        rows(page).locator("td a").nth(1).click()
        expect(page.get_by_role("region", name="Spans")).to_contain_text("onerror")
        assert page.locator("img, main script").count() == 0
        assert "taken" not in page.title()

    def test_the_policy_forbids_markup_even_to_the_page_s_own_script(self, demo: Served, browser: Browser) -> None:
        # Not in `page`, to which this is a complaint of the browser.
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(demo.dashboard.url)
            script = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } }"
            refused = page.evaluate(script)

        assert refused == "TypeError"


class TestConnection:
    def test_a_dashboard_that_ends_is_noticed(self, demo: Served, page: Page) -> None:
        page.goto(demo.dashboard.url)
        expect(page.get_by_role("status")).to_have_text("live")
        demo.dashboard.close()

        expect(page.get_by_role("status")).to_have_text("not connected, trying again")


class TestAppearance:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_follows_the_system_s_colours(self, scheme: Any, demo: Served, browser: Browser) -> None:
        with browser.new_context(color_scheme=scheme) as context:
            page = context.new_page()
            page.goto(demo.dashboard.url)
            red, *_ = map(
                int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
            )

        assert (red > 128) == (scheme == "light")

    def test_on_a_phone_one_thing_is_shown_at_a_time_with_a_way_back(
        self, serve: Serve, demo_server: dict[str, Any], browser: Browser
    ) -> None:
        first, second = (f"acme-production-eu-west-1-orders-database-readonly-{name}" for name in ("one", "two"))
        served = serve(**{first: demo_server, second: {"command": "x", "disabled": True}})
        client = served.manager.get_client(first)
        assert client is not None
        client.call_tool("fail", {"message": "x" * 500})

        def fits() -> bool:
            return bool(page.evaluate("document.documentElement.scrollWidth") <= 390)

        with browser.new_context(viewport={"width": 390, "height": 800}) as context:
            page = context.new_page()
            page.goto(served.dashboard.url)
            expect(rows(page)).to_have_count(1)
            assert fits()
            # Both names are there to the last character, on the screen too.
            for name in (first, second):
                shown = server_link(page, name).locator(".name")
                expect(shown).to_have_attribute("title", name)
                expect(shown).to_have_text(name)
                expect(shown).to_be_in_viewport(ratio=1)
            server_link(page, first).click()
            expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
            expect(page.get_by_role("navigation", name="Servers")).to_be_hidden()
            page.get_by_role("button", name="echo").click()
            expect(page.get_by_role("form", name="Call echo")).to_be_in_viewport()
            expect(page.get_by_role("list", name="Tools")).to_be_hidden()
            assert fits()
            page.get_by_role("link", name="All tools").click()
            expect(page.get_by_role("list", name="Tools")).to_be_visible()
            for tab in ("History", "Details"):
                page.get_by_role("link", name=tab).click()
                assert fits()
            page.get_by_role("link", name="All servers").click()
            expect(server_link(page, first)).to_be_in_viewport()


def test_colours_have_enough_contrast_in_both_schemes() -> None:
    """WCAG 2.2: 4.5 for text, 3 for what shows that something is an input."""
    style = (Path(gaia.dashboard.__file__).parent / "static" / "dashboard.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in style.split("@media", 2)[:2])
    soft = [(kind, f"{kind}-soft") for kind in ("ok", "busy", "bad", "accent")]
    on = [(ink, paper) for ink in ("text", "muted", "accent", "bad", "busy") for paper in ("page", "surface", "sunken")]
    inputs = [("control", "page"), ("control", "surface")]
    for colours in (light, light | dark):
        pairs = [*soft, *on, ("muted", "off-soft"), ("on-accent", "accent"), ("on-bad", "bad")]
        for (ink, paper), enough in [*((pair, 4.5) for pair in pairs), *((pair, 3.0) for pair in inputs)]:
            assert contrast(colours[ink], colours[paper]) >= enough, (ink, paper, colours[ink], colours[paper])


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours such as ``#ffffff``, as WCAG defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
