"""What may be used of a listing: the pins of one server at work."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.config.server_config import PinMode
from gaia.mcp.errors import ConfigError, ToolNotApproved
from gaia.mcp.supervision.events import ToolDefinitionsChanged
from gaia.mcp.tools.pins import Pin, PinGate, Review, ServerPins, compare, pin_of
from gaia.mcp.tools.tool import MCPTool


def tools(**descriptions: str) -> dict[str, MCPTool]:
    return {name: MCPTool(name, description, {}) for name, description in descriptions.items()}


def pins(**descriptions: str) -> dict[str, Pin]:
    return {name: pin_of(tool) for name, tool in tools(**descriptions).items()}


class Gate:
    """A gate over a lock file, and the events that it has reported."""

    def __init__(self, folder: Path, mode: PinMode) -> None:
        self.events: list[ToolDefinitionsChanged] = []
        self.store = ServerPins(folder / "mcp_tools.lock.json", "time")
        self.gate = PinGate("time", mode, lambda: self.store, self.events.append)

    def review(self, offered: Mapping[str, MCPTool], *hidden: str) -> frozenset[str]:
        return self.gate.review(offered, [*offered, *hidden])


@pytest.fixture
def block(tmp_path: Path) -> Gate:
    return Gate(tmp_path, "block")


@pytest.fixture
def warn(tmp_path: Path) -> Gate:
    return Gate(tmp_path, "warn")


class TestCompare:
    def test_equal_definitions_do_not_differ(self) -> None:
        review = compare(pins(a="1", b="2"), pins(b="2", a="1"), ["a", "b"])
        assert review == Review()
        assert review.unapproved == frozenset()

    def test_each_difference_is_named_in_order(self) -> None:
        review = compare(pins(a="1", b="2", y="", z=""), pins(d="", c="", b="other", a="1"), "abcd")
        assert review == Review(added=("c", "d"), changed=("b",), removed=("y", "z"))
        assert review.unapproved == {"b", "c", "d"}

    def test_a_hidden_tool_is_neither_removed_nor_compared(self) -> None:
        assert compare(pins(a="1", hidden="2"), pins(a="1"), ["a", "hidden"]) == Review()


class TestBlock:
    def test_the_first_listing_is_approved(self, block: Gate) -> None:
        assert block.review(tools(add="Adds.")) == frozenset()
        assert block.store.read() == pins(add="Adds.")
        assert block.events == []

    def test_an_empty_first_listing_approves_nothing(self, block: Gate) -> None:
        assert block.review({}) == frozenset()
        assert block.store.read() is None
        assert block.review(tools(add="Adds.")) == frozenset()

    def test_what_differs_is_withheld_and_reported(self, block: Gate) -> None:
        block.store.approve(pins(add="Adds.", old="Goes."))
        assert block.review(tools(add="Sends mail.", new="Comes.")) == {"add", "new"}
        assert block.events == [
            ToolDefinitionsChanged("time", added=("new",), removed=("old",), changed=("add",), blocked=True)
        ]
        assert block.store.read() == pins(add="Adds.", old="Goes.")

    def test_a_restart_repeats_no_report_and_a_new_difference_is_one(self, block: Gate) -> None:
        block.store.approve(pins(add="Adds."))
        for description in ("Sends mail.", "Sends mail.", "Adds.", "Sends mail."):
            block.review(tools(add=description))
        assert len(block.events) == 2

    def test_a_tool_that_was_approved_meanwhile_is_let_through(self, block: Gate) -> None:
        block.store.approve(pins(add="Adds."))
        assert block.review(tools(add="Sends mail.")) == {"add"}
        block.store.approve(pins(add="Sends mail."))
        assert block.review(tools(add="Sends mail.")) == frozenset()

    def test_a_refusal_says_how_to_approve(self, block: Gate) -> None:
        refusal = block.gate.refusal("add")
        assert isinstance(refusal, ToolNotApproved)
        assert "gaia mcp approve time" in refusal.message

    def test_an_unusable_lock_file_approves_nothing_until_it_is_mended(
        self, block: Gate, caplog: pytest.LogCaptureFixture
    ) -> None:
        block.store.file.write_text("{")
        assert block.review(tools(add="Adds.", look="Looks.")) == {"add", "look"}
        assert str(block.store.file) in block.gate.refusal("add").message
        assert "tool_lock_unusable" in caplog.text
        block.store.file.unlink()
        assert block.review(tools(add="Adds.")) == frozenset()
        assert str(block.store.file) not in block.gate.refusal("add").message

    def test_what_is_remembered_is_compared_and_no_first_use(self, block: Gate) -> None:
        assert block.gate.unapproved(tools(add="Adds.")) == frozenset()
        assert not block.store.file.exists()
        block.store.approve(pins(add="Adds.", look="Looks."))
        assert block.gate.unapproved(tools(add="Sends mail.")) == {"add"}
        assert block.events == []
        block.store.file.write_text("{")
        assert block.gate.unapproved(tools(add="Adds.")) == {"add"}
        assert str(block.store.file) in block.gate.refusal("add").message


class TestWarn:
    def test_what_differs_is_reported_and_let_through(self, warn: Gate, caplog: pytest.LogCaptureFixture) -> None:
        warn.store.approve(pins(add="Adds."))
        assert warn.review(tools(add="Sends mail.")) == frozenset()
        assert warn.events == [ToolDefinitionsChanged("time", changed=("add",), blocked=False)]
        assert "tool_definitions_changed" in caplog.text

    def test_an_unusable_lock_file_blocks_nothing(self, warn: Gate) -> None:
        warn.store.file.write_text("{")
        assert warn.review(tools(add="Adds.")) == frozenset()
        assert warn.events == []


def test_off_asks_for_no_lock_file() -> None:
    store: Any = Mock(side_effect=ConfigError("there is no home directory"))
    assert PinGate("time", "off", store, Mock()).review(tools(add="Adds."), ["add"]) == frozenset()
    store.assert_not_called()
