"""Which patterns of a clients file are warned of, and when."""

import json
from pathlib import Path

import pytest

from gaia.mcp.gateway.access.clients_file import read_clients_file
from gaia.mcp.gateway.operations.pattern_check import PatternCheck

DOCUMENT = {
    "profiles": {
        "reader": {
            "servers": ["git", "fiels*"],
            "enabledTools": ["git_log", "get_*"],
            "disabledTools": ["push", "git_pusch"],
            "limits": {"perTool": {"mcp_git_log": {"concurrent": 1}, "lgo": {"concurrent": 1}}},
        }
    },
    "limits": {
        "perServer": {"git": {"concurrent": 1}, "gti": {"concurrent": 1}},
        "perTool": {"git_push": {"perSecond": 1}, "files_raed": {"perSecond": 1}},
        "perClient": {"concurrent": 2, "perTool": {"nothing": {"perSecond": 1}}},
    },
}


@pytest.fixture
def check(tmp_path: Path) -> PatternCheck:
    file = tmp_path / "clients.json"
    file.write_text(json.dumps(DOCUMENT))
    return PatternCheck(read_clients_file(file))


def warned(caplog: pytest.LogCaptureFixture) -> set[tuple[str, str]]:
    events = [record.event_fields for record in caplog.records]  # type: ignore[attr-defined]  # see gaia.runtime.log
    caplog.clear()
    return {(event["where"], event["pattern"]) for event in events}


def test_what_matches_nothing_is_logged_once_it_is_known(check: PatternCheck, caplog: pytest.LogCaptureFixture) -> None:
    check.look({"git": None, "files": None})
    assert warned(caplog) == {("profiles.reader.servers", "fiels*"), ("limits.perServer", "gti")}
    check.look({"git": ["log", "push"], "files": None})
    assert warned(caplog) == {
        ("profiles.reader.enabledTools", "get_*"),
        ("profiles.reader.disabledTools", "git_pusch"),
        ("profiles.reader.limits.perTool", "lgo"),
    }
    check.look({"git": ["log", "push"], "files": ["read", "get_it"]})
    assert warned(caplog) == {("limits.perTool", "files_raed"), ("limits.perClient.perTool", "nothing")}
    assert check.is_done


def test_without_servers_nothing_is_known(check: PatternCheck, caplog: pytest.LogCaptureFixture) -> None:
    check.look({})
    assert warned(caplog) == set()
