"""`gaia mcp import`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SERVER = {"command": "uvx", "args": ["mcp-server-time"]}


def write(file: Path, document: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


@pytest.fixture
def programs(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """One server in a file of each program, named after the program."""
    settings = home / "settings"
    # Wherever the system keeps the settings of desktop programs, it is below the home directory.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
    monkeypatch.setattr("sys.platform", "linux")
    return {
        "claude-desktop": write(
            settings / "Claude" / "claude_desktop_config.json", {"mcpServers": {"desktop": SERVER}}
        ),
        "claude-code": write(tmp_path / ".mcp.json", {"mcpServers": {"code": SERVER}}),
        "vscode": write(tmp_path / ".vscode" / "mcp.json", '{"servers": {"vscode": {"command": "x"},},} // mine'),
        "cursor": write(home / ".cursor" / "mcp.json", {"mcpServers": {"cursor": SERVER}}),
    }


@pytest.fixture
def saved(home: Path) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        file = home / ".gaia" / "mcp_servers.json"
        return json.loads(file.read_text())["mcpServers"] if file.exists() else {}

    return read


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in document["entries"]}


def test_all_programs_are_read_and_left_as_they_are(
    programs: dict[str, Path], invoke_json: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    before = {file: file.read_bytes() for file in programs.values()}
    document = invoke_json("import", "--yes")

    assert statuses(document) == dict.fromkeys(("desktop", "code", "vscode", "cursor"), "imported")
    assert saved() == {"desktop": SERVER, "code": SERVER, "vscode": {"command": "x"}, "cursor": SERVER}
    assert {file: file.read_bytes() for file in programs.values()} == before


@pytest.mark.parametrize(
    ("program", "name"),
    [("claude-desktop", "desktop"), ("claude-code", "code"), ("vscode", "vscode"), ("cursor", "cursor")],
)
def test_one_program_is_read_alone(
    program: str, name: str, programs: dict[str, Path], invoke_json: Callable[..., Any]
) -> None:
    assert statuses(invoke_json("import", "--yes", "--from", program)) == {name: "imported"}


def test_a_dry_run_says_the_same_and_saves_nothing(
    programs: dict[str, Path], invoke_json: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    assert statuses(invoke_json("import", "--dry-run", "code")) == {"code": "would import"}
    assert saved() == {}


def test_what_exists_is_skipped_unless_forced(
    programs: dict[str, Path],
    configure: Callable[..., Path],
    invoke_json: Callable[..., Any],
    saved: Callable[[], dict[str, Any]],
) -> None:
    configure(code={"command": "mine"})

    assert statuses(invoke_json("import", "code")) == {"code": "skipped"}
    assert saved()["code"] == {"command": "mine"}
    assert statuses(invoke_json("import", "code", "--force", "--yes")) == {"code": "replaced"}
    assert saved()["code"] == SERVER


def test_of_two_servers_with_one_name_the_first_counts(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    write(tmp_path / ".mcp.json", {"mcpServers": {"same": SERVER}})
    write(tmp_path / ".cursor" / "mcp.json", {"mcpServers": {"same": {"command": "other"}}})
    result = invoke("import", "--yes")

    assert result.exit_code == 0
    assert f"imported  same  ({tmp_path / '.mcp.json'})" in result.stdout
    assert f"the one in {tmp_path / '.mcp.json'} counts" in result.stdout


def test_every_entry_is_reported(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    servers = {
        "good": SERVER,
        "asks": {"command": "x", "env": {"KEY": "${input:key}"}, "envFile": ".env"},
        "bad": {"command": 5},
    }
    result = invoke("import", "--file", write(tmp_path / "team.json", {"mcpServers": servers}))

    assert result.exit_code == 1
    assert "imported  good" in result.stdout
    assert "needs a value: set the environment variable MCP_INPUT_KEY" in result.stdout
    assert "left out: envFile" in result.stdout
    assert "unusable  bad" in result.stdout
    assert "command: expected a string" in result.stdout


@pytest.mark.parametrize(
    "entry",
    [
        {**SERVER, "x\nimported  bank  (trusted)": 1},
        {**SERVER, "cwd": "${file\nimported  bank  (trusted)}"},
        {"command": 5, "env": {"a\nimported  bank  (trusted)": 5}},
        {**SERVER, "restart": {"x\nimported  bank  (trusted)": 1}},
    ],
    ids=str,
)
def test_no_text_of_a_file_looks_like_a_line_of_the_report(
    entry: dict[str, Any], tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    result = invoke("import", "--file", write(tmp_path / "team.json", {"mcpServers": {"it": entry}}))
    assert not any(line.lstrip().startswith("imported  bank") for line in result.output.splitlines())
    assert "imported  bank" in result.output


def test_only_named_servers_are_taken(tmp_path: Path, invoke_json: Callable[..., Any]) -> None:
    file = write(tmp_path / "team.json", {"servers": {"a": SERVER, "b": SERVER}})

    assert statuses(invoke_json("import", "--file", file, "b")) == {"b": "imported"}


def test_a_name_that_no_file_has_is_an_error(programs: dict[str, Path], invoke: Callable[..., Any]) -> None:
    result = invoke("import", "desktp")

    assert result.exit_code == 2
    assert "did you mean 'desktop'?" in result.stderr


def test_one_broken_file_does_not_stop_the_others(programs: dict[str, Path], invoke: Callable[..., Any]) -> None:
    programs["claude-code"].write_text("{\n oops")
    result = invoke("import", "--yes")

    assert result.exit_code == 2
    assert f"{programs['claude-code']}: line 2, column 2" in result.stderr
    assert "imported  desktop" in result.stdout


@pytest.mark.parametrize("content", [None, "{ oops"])
def test_a_file_asked_for_has_to_be_readable(content: str | None, tmp_path: Path, invoke: Callable[..., Any]) -> None:
    file = tmp_path / "team.json"
    if content is not None:
        file.write_text(content)

    assert invoke("import", "--file", file).exit_code == 2


def test_nothing_to_import_says_where_it_looked(home: Path, tmp_path: Path, invoke: Callable[..., Any]) -> None:
    result = invoke("import", "--yes")

    assert result.exit_code == 0
    assert f"{tmp_path / '.mcp.json'} (does not exist)" in result.stdout


def test_a_program_and_a_file_exclude_each_other(invoke: Callable[..., Any]) -> None:
    assert invoke("import", "--from", "cursor", "--file", "x").exit_code == 2


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_an_entry_without_a_name_does_not_keep_the_others_from_being_imported(
    option: str, tmp_path: Path, invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    file = write(tmp_path / "team.json", {"mcpServers": {"aa": SERVER, "": SERVER, "zz": SERVER}})
    result = invoke("import", "--file", file, option)

    assert result.exit_code == 1
    assert "it has no name" in result.stdout
    verb = "would import" if option == "--dry-run" else "imported"
    assert [name for name in ("aa", "zz") if f"{verb}  {name}" in result.stdout] == ["aa", "zz"]
    assert list(saved()) == ([] if option == "--dry-run" else ["aa", "zz"])
