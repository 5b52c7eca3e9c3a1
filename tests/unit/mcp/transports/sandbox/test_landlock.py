"""What Landlock is told to permit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sandboxes import linux
from tests.unit.mcp.transports.sandbox.test_bubblewrap import confinement

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import kernel
from gaia.mcp.transports.sandbox.bubblewrap import Unusable

pytestmark = linux


def test_a_directory_with_something_hidden_is_permitted_by_its_entries(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for folder in ("open", "half/open", "half/secret", "closed"):
        (base / folder).mkdir(parents=True)
    (base / "link").symlink_to("closed")
    closed = [str(base / "closed"), str(base / "half" / "secret")]
    assert list(kernel._without(str(base), closed)) == [str(base / "half" / "open"), str(base / "open")]
    assert list(kernel._without(str(base / "closed"), closed)) == []
    assert list(kernel._without(str(base / "gone"), [str(base / "gone" / "x")])) == []


def test_the_rules_of_a_profile(tmp_path: Path) -> None:
    base = str(tmp_path.resolve())
    found = confinement(hidden=("/home", "/tmp"), read=(base,), write=("/srv",), masked=(os.path.join(base, "key"),))
    (tmp_path / "key").touch()
    (tmp_path / "file").touch()
    rules = list(kernel.rules_of(found, "/tmp/scratch"))
    assert ("/usr", kernel.READ) in rules
    assert (os.path.join(base, "file"), kernel.READ) in rules
    assert ("/srv", kernel.WRITE) in rules
    assert ("/tmp/scratch", kernel.WRITE) in rules
    assert ("/dev/null", kernel.USE) in rules
    permitted = {path for path, _ in rules}
    assert not permitted & {"/", "/home", "/tmp", "/proc", "/dev", os.path.join(base, "key"), base}


def test_a_directory_with_a_file_of_this_program_can_be_listed(tmp_path: Path) -> None:
    base = str(tmp_path.resolve())
    (tmp_path / "file").touch()
    own = (os.path.join(base, "servers.json"), "/none.json")
    rules = list(kernel.rules_of(confinement(hidden=("/home", "/tmp"), read=(base,), left_out=own), "/tmp/scratch"))
    assert (os.path.join(base, "file"), kernel.READ) in rules
    assert (base, kernel.LIST) in rules
    assert (base, kernel.READ) not in rules
    assert ("/", kernel.LIST) not in rules, "other names are not told"


@pytest.mark.parametrize(("version", "said"), [(0, "has none"), (5, "has version 5")])
def test_a_kernel_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch, version: int, said: str) -> None:
    monkeypatch.setattr(kernel, "landlock_version", lambda: version)
    with pytest.raises(Unusable, match=said):
        kernel.require_landlock(confinement())


def test_a_secret_cannot_be_kept_from_who_may_write_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "landlock_version", lambda: 7)
    kernel.require_landlock(confinement(write=("/a",), masked=("/b/.ssh",)))
    with pytest.raises(Unusable, match=r"keep /a/\.ssh from"):
        kernel.require_landlock(confinement(write=("/a",), masked=("/a/.ssh",)))


def test_the_version_is_a_number() -> None:
    assert kernel.landlock_version() >= 0
