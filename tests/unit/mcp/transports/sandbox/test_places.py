"""What a sandbox hides, and what programs need."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from gaia.mcp.errors import StartFailed
from gaia.runtime.private_files import keep_private
from tests.sandboxes import linux

pytest.importorskip("pwd")
from gaia.mcp.transports.sandbox import places
from gaia.mcp.transports.sandbox.places import can_be_left_out, entries_without, hidden_files

pytestmark = linux


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only home, without links on its way."""
    home = tmp_path.resolve() / "user"
    home.mkdir()
    monkeypatch.setattr(places, "homes", lambda: [str(home)])
    return home


def make(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_homes_are_those_of_the_environment_and_of_the_system(home: Path) -> None:
    import pwd

    found = places.homes()
    assert found[0] == str(home.resolve())
    assert os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir) in found or len(found) == 1


def test_a_home_that_is_the_root_or_missing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for home in ("/", "/nonexistent/home"):
        monkeypatch.setenv("HOME", home)
        assert places.homes() == []


def test_hidden_places_are_the_homes_and_what_services_keep(user: Path) -> None:
    hidden = places.hidden_places()
    for place in ("/home", "/run", "/tmp", str(user)):
        assert not os.path.isdir(place) or any(places.is_below(place, other) for other in hidden)
    assert not any(places.is_below(a, b) for a in hidden for b in hidden if a != b)


def test_secrets_are_found_where_they_are_and_behind_a_link(user: Path, tmp_path: Path) -> None:
    key = make(user / ".ssh" / "id")
    credentials = make(user / ".config" / "gh" / "hosts.yml")
    elsewhere = tmp_path.resolve() / "keys"
    elsewhere.mkdir()
    (user / ".aws").symlink_to(elsewhere)
    found = places.secret_places()
    assert str(user / ".config" / "gh") in found
    assert any(places.is_below(key, secret) for secret in found)
    assert credentials not in found
    assert str(elsewhere) in found


def test_below() -> None:
    assert places.is_below("/a/b", "/a")
    assert places.is_below("/a", "/a")
    assert places.is_below("/a", "/")
    assert not places.is_below("/ab", "/a")
    assert places.outermost(["/a/b", "/a", "/ab", "/a"]) == ["/a", "/ab"]


def test_all_links_on_a_way_are_found(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    (base / "real" / "deep").mkdir(parents=True)
    (base / "one").symlink_to("real")
    (base / "real" / "two").symlink_to(base / "one" / "deep")
    (base / "up").symlink_to("../" + base.name + "/real")
    assert places.links_of(str(base / "one" / "two")) == [
        (str(base / "one"), "real"),
        (str(base / "real" / "two"), str(base / "one" / "deep")),
        (str(base / "one"), "real"),
    ]
    assert places.links_of(str(base / "up" / "deep")) == [(str(base / "up"), f"../{base.name}/real")]


def test_a_circle_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(places.links_of(str(tmp_path.resolve() / "a"))) == 40


class TestPrograms:
    def needed(self, program: str, path: str = "") -> set[str]:
        return set(places.needed_by(program, path))

    def test_a_virtual_environment_with_the_interpreter_it_was_made_of(self, user: Path) -> None:
        base = make(user / ".local" / "share" / "uv" / "python" / "cpython-3.12" / "bin" / "python3.12")
        (Path(base).parents[1] / "lib" / "python3.12").mkdir(parents=True)
        environment = user / "project" / ".venv"
        server = make(environment / "bin" / "server", f"#!{environment}/bin/python\n")
        make(environment / "pyvenv.cfg")
        (environment / "bin" / "python").symlink_to(base)
        assert {str(environment), str(Path(base).parents[1])} <= self.needed(server)

    def test_of_the_home_it_is_never_all(self, user: Path) -> None:
        for folder in ("bin", ".local/bin", ".cargo/bin", "."):
            program = make(user / folder / "server", "#!/bin/sh\n")
            (user / ".local" / "lib" / "python3.11").mkdir(parents=True, exist_ok=True)
            for place in self.needed(program):
                assert place not in (str(user), str(user / ".local"), str(user / ".cargo"))

    def test_what_pip_installed_for_the_user_has_its_packages(self, user: Path) -> None:
        program = make(user / ".local" / "bin" / "server")
        (user / ".local" / "lib").mkdir()
        assert self.needed(program) == {str(user / ".local" / "bin"), str(user / ".local" / "lib")}

    def test_a_program_of_npm_has_all_packages_beside_it(self, user: Path) -> None:
        script = make(user / "app" / "node_modules" / "server" / "index.js", "#!/usr/bin/env node\n")
        node = make(user / ".nvm" / "versions" / "v20" / "bin" / "node")
        (Path(node).parents[1] / "lib" / "node_modules").mkdir(parents=True)
        (user / "app" / "node_modules" / ".bin").mkdir()
        (user / "app" / "node_modules" / ".bin" / "server").symlink_to(script)
        found = self.needed(str(user / "app" / "node_modules" / ".bin" / "server"), os.path.dirname(node))
        assert {str(user / "app" / "node_modules"), str(Path(node).parents[1])} <= found
        assert str(user / "app") not in found

    def test_a_script_has_its_project(self, user: Path) -> None:
        script = make(user / "src" / "server" / "dist" / "index.js")
        make(user / "package.json")
        assert self.needed(script) == {script}
        make(user / "src" / "server" / "package.json")
        assert self.needed(script) == {str(user / "src" / "server")}

    @pytest.mark.parametrize(
        ("argv", "expected"),
        [
            (["/usr/bin/node", "dist/index.js"], "dist/index.js"),
            (["/usr/bin/python3.12", "-I", "-S", "server.py", "other.py"], "server.py"),
            (["/usr/bin/python", "-m", "server.py"], None),
            (["/usr/bin/node", "-e", "server.py"], None),
            (["/usr/bin/node", "missing.js", "server.py"], None),
            (["/usr/bin/node"], None),
            (["/usr/bin/cat", "server.py"], None),
        ],
    )
    def test_the_script_of_an_interpreter(self, user: Path, argv: list[str], expected: str | None) -> None:
        make(user / "dist" / "index.js")
        for name in ("server.py", "other.py"):
            make(user / name)
        assert places.script_of(argv, str(user)) == (None if expected is None else str(user / expected))

    def test_a_script_alone_is_itself(self, user: Path) -> None:
        script = make(user / "script.sh", "no shebang")
        assert self.needed(script) == {script}
        assert self.needed(str(user / "missing")) == {str(user / "missing")}


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def hidden(folder: Path, named: Iterable[Path] = (), opened: Iterable[Path] = ()) -> list[str]:
    found = hidden_files(map(str, named), map(str, opened), lambda path: "covered" not in path)
    assert all(path.startswith(f"{folder}/") for path in found)
    return [path.removeprefix(f"{folder}/") for path in found]


def make_file(folder: Path, *names: str, mode: int = 0o644) -> None:
    for name in names:
        (folder / name).write_text("")
        (folder / name).chmod(mode)


def test_a_file_and_those_that_belong_to_it_by_their_names_or_one_that_is_not_there_yet(folder: Path) -> None:
    keep_private(folder / "none" / "b.json")
    keep_private(folder / "a.json")
    assert hidden(folder) == ["a.json", "none/b.json"]
    names = (".a.json.lock", ".a.json.x.tmp", "a.json", "a.json.1", "a.json~")
    make_file(folder, *names, "a.jsonl", "ba.json", "b")
    assert hidden(folder) == [*names, "none/b.json"]


def test_what_not_all_can_read_beside_one_unless_the_place_was_opened(folder: Path) -> None:
    make_file(folder, "a.json", "open")
    make_file(folder, "environment", mode=0o600)
    (folder / "program").mkdir(mode=0o700)
    keep_private(folder / "a.json")
    assert hidden(folder, opened=[folder / "program" / "bin"]) == ["a.json", "environment"]
    assert hidden(folder, opened=[folder]) == ["a.json"]


def test_what_is_named_or_not_shown_is_left_out(folder: Path) -> None:
    make_file(folder, "a.json", "a.json.1")
    for name in ("a.json", "covered"):
        keep_private(folder / name)
    assert hidden(folder, named=[folder / "a.json"]) == []
    assert hidden(folder, named=[folder / "a.json.1"]) == ["a.json"]


def test_a_link_and_what_it_leads_to(folder: Path) -> None:
    (folder / "v1").mkdir()
    make_file(folder / "v1", "a.json")
    (folder / "now").symlink_to("v1")
    (folder / "a.json").symlink_to("now/a.json")
    keep_private(folder / "a.json")
    assert hidden(folder) == ["a.json", "v1/a.json"]
    assert hidden(folder, named=[folder / "v1" / "a.json"]) == []


def test_the_other_paths_of_a_file_that_is_mounted_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = folder / "mountinfo"
    mounts = [
        ("8:1", "/", "/"),
        ("8:2", "/", str(folder / "disk")),
        ("8:2", "/etc", str(folder / "with\\040space")),
        ("8:2", "/etc/a.json", str(folder / "single")),
        ("8:2", "/var", str(folder / "var")),
        ("8:3", "/", str(folder / "other")),
    ]
    table.write_text("".join(f"1 2 {device} {root} {point} rw - ext4 x rw\n" for device, root, point in mounts))
    monkeypatch.setattr(places, "_MOUNTS", str(table))
    keep_private(folder / "disk" / "etc" / "a.json")
    assert hidden(folder) == ["disk/etc/a.json", "single", "with space/a.json"]
    monkeypatch.setattr(places, "_MOUNTS", str(folder / "none"))
    assert hidden(folder) == ["disk/etc/a.json"]


def test_the_entries_of_a_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(folder, "b", "a", "c")
    assert entries_without(str(folder), [str(folder / "b")]) == [str(folder / "a"), str(folder / "c")]
    assert entries_without(str(folder / "none"), []) == []
    assert can_be_left_out(str(folder / "a"))
    monkeypatch.setattr(places, "_MAX_ENTRIES", 2)
    assert not can_be_left_out(str(folder / "a"))
    with pytest.raises(StartFailed, match="keep them in a directory of their own"):
        entries_without(str(folder), [])
