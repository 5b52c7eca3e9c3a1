"""What this program keeps of requests to its process in a Ray cluster, which a small program stands for here."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.mcp.placement import ray_member
from gaia.mcp.placement.ray_member import Member
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

REFUSES = """
import json, sys
print("{}", flush=True)
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "problem": "no node can take it"}), flush=True)
"""


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Member]:
    program = tmp_path / "program.py"
    program.write_text(REFUSES)
    monkeypatch.setattr(ray_member, "_PROGRAM", program)
    member = Member("cluster")
    yield member
    member.leave()


class Host:
    def told(self, why: str) -> None:
        """Is called when the host has ended."""


def test_a_start_that_has_failed_is_forgotten(member: Member) -> None:
    host = Host()
    known = weakref.ref(host)
    assert member.result(member.begin("start", host.told), PATIENCE) == {"problem": "no node can take it"}
    del host
    gc.collect()
    assert known() is None
