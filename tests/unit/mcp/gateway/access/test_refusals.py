"""The trace that refused attempts leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.checks import Refusals
from tests.gateway.fake_loop import FakeLoop


def test_one_of_a_kind_is_logged_and_recorded_and_all_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals()
    refusals.audit = audit = Audit(AuditFile(tmp_path / "audit.jsonl"), FakeLoop(), "gw1")
    try:
        for _ in range(100):
            refusals.note("wrong_token", "The token is not known here", "POST /mcp", "10.0.0.7")
        refusals.note("foreign_session", "There is no such session", "POST", "10.0.0.7", "ann")
    finally:
        audit.close()
    assert refusals.counts == {"wrong_token": 100, "foreign_session": 1}
    first, second = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (first["gateway"], first["client"], first["address"], first["outcome"]) == (
        "gw1",
        "unknown",
        "10.0.0.7",
        "wrong_token",
    )
    assert (second["client"], second["outcome"], second["delivery"]) == ("ann", "foreign_session", "not_sent")
    assert len(first["trace"]) == 32
    assert caplog.text.count("gateway_access_refused") == 2


@pytest.mark.parametrize("reason", ["no_token", "unknown_session"])
def test_what_happens_without_an_attempt_is_only_counted(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.note(reason, "why", "POST /mcp", None)  # type: ignore[arg-type]  # one of them
    assert sum(refusals.counts.values()) == 1
    assert caplog.text == ""
