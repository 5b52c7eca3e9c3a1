"""The pages name every log event, everything that telemetry records and every kind of error, and nothing else."""

import ast
import functools
import re
import typing
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider

from gaia.mcp import errors
from gaia.mcp.observation.lifecycle_spans import LossReason
from gaia.telemetry import attributes
from gaia.telemetry.content import MODES
from gaia.telemetry.metrics import Instruments

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
EVENT = re.compile(r'\b(?:logger\.|_)(debug|info|warning|error|warn_once)[(,]\s*"(\w+)"')
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MCPError)]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


class TestLogEvents:
    @functools.cached_property
    def emitted(self) -> dict[str, set[str]]:
        """The levels of each event in the code."""
        found: dict[str, set[str]] = {}
        for text in SOURCES.values():
            for level, name in EVENT.findall(text):
                found.setdefault(name, set()).add("warning" if level == "warn_once" else level)
        return found

    def test_the_tables_have_each_event_with_its_levels(self) -> None:
        rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", page("log-events.md"), re.MULTILINE)
        assert {name: set(levels.split(", ")) for name, levels in rows} == self.emitted

    def test_names_are_all_of_one_form(self) -> None:
        assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in self.emitted)


class TestTelemetry:
    def missing(self, names: typing.Iterable[str]) -> list[str]:
        return [name for name in names if name not in page("telemetry.md")]

    def test_every_attribute(self) -> None:
        names = [value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)]
        # The page writes `gaia.mcp.process.exit_code`, `.signal`.
        assert self.missing(name.replace("gaia.mcp.process.", ".") for name in names) == []

    def test_every_type_of_error_reason_and_mode(self) -> None:
        # An answer of the server is told by its code instead.
        kinds = [kind for kind in ERRORS if kind is not errors.MCPError and not issubclass(kind, errors.JsonRpcError)]
        words = [*(kind.error_type for kind in kinds), *typing.get_args(LossReason), *MODES]
        assert self.missing(f"`{word}`" for word in words) == []

    def test_every_metric(self) -> None:
        instruments = Instruments(MeterProvider().get_meter("test"))
        recorded = [one.instrument.name for one in vars(instruments).values()]
        assert len(recorded) >= 8
        queues = ["gaia.mcp.client.calls.queued", "gaia.mcp.client.calls.in_flight"]
        assert self.missing(f"`{name}`" for name in (*recorded, *queues)) == []


class TestTroubleshooting:
    def test_every_kind_of_error_is_explained(self) -> None:
        rows = page("troubleshooting.md").partition("## By text")[0].splitlines()
        for kind in ERRORS:
            (row,) = (line for line in rows if line.startswith(f"| `{kind.error_type}` |"))
            assert f"`{kind.__name__}`" in row

    def test_quoted_messages_exist(self) -> None:
        by_text = page("troubleshooting.md").partition("## By text")[2].partition("## Without an error")[0]
        rows = [line.split("|")[1] for line in by_text.splitlines() if line.startswith("| `")]
        quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
        assert quoted
        texts = "\0".join(messages())
        for text in quoted:
            assert re.search("[^\0]*".join(re.escape(part.strip()) for part in text.split("…")), texts), text


def messages() -> typing.Iterator[str]:
    """All texts of the source, with ``…`` for what is filled in."""
    for source in SOURCES.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
