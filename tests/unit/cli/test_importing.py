"""`gaia mcp import`: where other programs keep their servers, and how their entries read in our format."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.cli.importing import Candidate, Program, candidates, loads_with_comments, named_file, settings_files
from gaia.mcp.errors import ConfigError
from tests.unit.cli.fixture_types import Configure, Invoke, Json, Saved, Told

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
def saved(home: Path) -> Saved:
    def read() -> Json:
        file = home / ".gaia" / "mcp_servers.json"
        return json.loads(file.read_text())["mcpServers"] if file.exists() else {}

    return read


def statuses(document: Json) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in document["entries"]}


NAMES = {"claude-desktop": "desktop", "claude-code": "code", "vscode": "vscode", "cursor": "cursor"}


def test_all_programs_are_read_and_left_as_they_are_and_a_dry_run_saves_nothing(
    programs: dict[str, Path], invoke_json: Invoke, saved: Saved
) -> None:
    before = {file: file.read_bytes() for file in programs.values()}
    assert statuses(invoke_json("import", "--dry-run", "code")) == {"code": "would import"}
    assert saved() == {}
    for program, name in NAMES.items():
        assert statuses(invoke_json("import", "--dry-run", "--from", program)) == {name: "would import"}
    assert statuses(invoke_json("import", "--yes")) == dict.fromkeys(NAMES.values(), "imported")
    assert saved() == {"desktop": SERVER, "code": SERVER, "vscode": {"command": "x"}, "cursor": SERVER}
    assert {file: file.read_bytes() for file in programs.values()} == before


def test_what_exists_is_skipped_unless_forced(
    programs: dict[str, Path], configure: Configure, invoke_json: Invoke, saved: Saved
) -> None:
    configure(code={"command": "mine"})
    assert statuses(invoke_json("import", "code")) == {"code": "skipped"}
    assert saved()["code"] == {"command": "mine"}
    assert statuses(invoke_json("import", "code", "--force", "--yes")) == {"code": "replaced"}
    assert saved()["code"] == SERVER


def test_of_two_servers_with_one_name_the_first_counts(tmp_path: Path, output: Told) -> None:
    write(tmp_path / ".mcp.json", {"mcpServers": {"same": SERVER}})
    write(tmp_path / ".cursor" / "mcp.json", {"mcpServers": {"same": {"command": "other"}}})
    shown = output("import", "--yes")
    assert f"imported  same  ({tmp_path / '.mcp.json'})" in shown
    assert f"the one in {tmp_path / '.mcp.json'} counts" in shown


def test_every_entry_is_reported(tmp_path: Path, invoke: Invoke) -> None:
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
def test_no_text_of_a_file_looks_like_a_line_of_the_report(entry: Json, tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("import", "--file", write(tmp_path / "team.json", {"mcpServers": {"it": entry}}))
    assert not any(line.lstrip().startswith("imported  bank") for line in result.output.splitlines())
    assert "imported  bank" in result.output


def test_only_named_servers_are_taken_and_a_name_that_no_file_has_is_an_error(
    tmp_path: Path, programs: dict[str, Path], invoke_json: Invoke, refused: Told
) -> None:
    file = write(tmp_path / "team.json", {"servers": {"a": SERVER, "b": SERVER}})
    assert statuses(invoke_json("import", "--file", file, "b")) == {"b": "imported"}
    assert "did you mean 'desktop'?" in refused("import", "desktp")


def test_one_broken_file_does_not_stop_the_others(programs: dict[str, Path], invoke: Invoke) -> None:
    programs["claude-code"].write_text("{\n oops")
    result = invoke("import", "--yes")
    assert result.exit_code == 2
    assert f"{programs['claude-code']}: line 2, column 2" in result.stderr
    assert "imported  desktop" in result.stdout


def test_a_file_asked_for_has_to_be_readable_and_excludes_a_program(tmp_path: Path, refused: Told) -> None:
    file = tmp_path / "team.json"
    assert "does not exist" in refused("import", "--file", file)
    file.write_text("{ oops")
    assert "line 1" in refused("import", "--file", file)
    assert "--file" in refused("import", "--from", "cursor", "--file", file)


def test_nothing_to_import_says_where_it_looked(home: Path, tmp_path: Path, output: Told) -> None:
    assert f"{tmp_path / '.mcp.json'} (does not exist)" in output("import", "--yes")


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_an_entry_without_a_name_does_not_keep_the_others_from_being_imported(
    option: str, tmp_path: Path, invoke: Invoke, saved: Saved
) -> None:
    file = write(tmp_path / "team.json", {"mcpServers": {"aa": SERVER, "": SERVER, "zz": SERVER}})
    result = invoke("import", "--file", file, option)
    assert result.exit_code == 1
    assert "it has no name" in result.stdout
    verb = "would import" if option == "--dry-run" else "imported"
    assert [name for name in ("aa", "zz") if f"{verb}  {name}" in result.stdout] == ["aa", "zz"]
    assert list(saved()) == ([] if option == "--dry-run" else ["aa", "zz"])


def translated(tmp_path: Path, entry: Any, file: str = "mcp.json") -> Candidate:
    origin = named_file(write(tmp_path / file, {"mcpServers": {"it": entry}}))
    (candidate,) = candidates(origin) or ()
    return candidate


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "{home}/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/xdg"}, "/xdg/Claude/claude_desktop_config.json"),
        ("darwin", {}, "{home}/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/Claude/claude_desktop_config.json"),
        ("win32", {}, "{home}/AppData/Roaming/Claude/claude_desktop_config.json"),
    ],
)
def test_claude_desktop_is_where_the_system_keeps_such_files(
    platform: str, variables: dict[str, str], expected: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [each.file.as_posix() for each in settings_files(Program.CLAUDE_DESKTOP)] == [expected.format(home=home)]


def test_a_projects_files_count_before_the_users(home: Path, tmp_path: Path) -> None:
    files = {program: [each.file for each in settings_files(program)] for program in Program}
    assert files[Program.CLAUDE_CODE] == [home / ".claude.json", tmp_path / ".mcp.json", home / ".claude.json"]
    assert files[Program.VSCODE][0] == tmp_path / ".vscode" / "mcp.json"
    assert files[Program.CURSOR] == [tmp_path / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"]


def test_claude_code_keeps_servers_for_this_project_apart(home: Path, tmp_path: Path) -> None:
    server = {"command": "x"}
    projects = {str(tmp_path): {"mcpServers": {"local": server}}, "/elsewhere": {"mcpServers": {"other": server}}}
    write(home / ".claude.json", {"mcpServers": {"user": server}, "projects": projects})
    found = [[candidate.name for candidate in candidates(each) or ()] for each in settings_files(Program.CLAUDE_CODE)]
    assert found == [["local"], [], ["user"]]


@pytest.mark.parametrize(
    "document", [{"mcp": {"servers": {"a": {"command": "x"}}}}, {"mcp.servers": {"a": {"command": "x"}}}]
)
def test_vscode_settings_hold_servers_in_a_section(document: Json, home: Path) -> None:
    settings = settings_files(Program.VSCODE)[-1]
    write(settings.file, document)
    assert [candidate.name for candidate in candidates(settings) or ()] == ["a"]


def test_a_byte_order_mark_comments_and_trailing_commas_are_read_over(tmp_path: Path) -> None:
    text = '\ufeff{\n  // ours\n  "servers": {"a": {"type": "stdio", "command": "x", "args": ["https://b"],},},\n}'
    (candidate,) = candidates(named_file(write(tmp_path / "mcp.json", text))) or ()
    assert candidate.name == "a"
    assert candidate.entry == {"type": "stdio", "command": "x", "args": ["https://b"]}


def test_a_file_that_does_not_exist_is_no_mistake(tmp_path: Path) -> None:
    assert candidates(named_file(tmp_path / "none.json")) is None


@pytest.mark.parametrize("text", ["", "  \n", "{}", "null", '{"mcpServers": null}', '{"mcp": null}', '{"mcp": 1}'])
def test_a_file_without_servers_has_none(text: str, tmp_path: Path) -> None:
    assert candidates(named_file(write(tmp_path / "mcp.json", text))) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[]", "expected an object like"),
        (b'"text"', "expected an object like"),
        (b'{"mcpServers": [{"command": "x"}]}', "mcpServers: expected an object like"),
        (b'{"mcp": {"servers": "x"}}', "mcp.servers: expected an object like"),
        (b'{"time": {"command": "uvx"}}', 'its servers do not count, because they are not in "mcpServers"'),
        (b'{\n  "servers": {"a" 1}\n}', "line 2, column 19"),
        (b"\xff\xfe", "not usable JSON"),
        (b"[" * 100_000, "not usable JSON"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}: {re.escape(problem)}"):
        candidates(named_file(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        candidates(named_file(tmp_path))


@pytest.mark.parametrize(("key", "implied"), [("httpUrl", {"type": "http"}), ("serverUrl", {})])
def test_a_url_may_be_called_as_other_programs_call_it(key: str, implied: Json, tmp_path: Path) -> None:
    candidate = translated(tmp_path, {key: "https://x.example/mcp", "headers": {"A": "b"}})
    assert candidate.entry == {"url": "https://x.example/mcp", "headers": {"A": "b"}, **implied}
    assert (candidate.dropped, candidate.problem) == ([], None)
    assert translated(tmp_path, {key: "https://x.example/mcp", "command": "x"}).dropped == [key]


def test_keys_of_ours_are_taken_over_and_those_that_mean_nothing_or_otherwise_are_named(tmp_path: Path) -> None:
    entry = {"command": "x", "pinTools": "block", "captureContent": "off", "outputValidation": "error"}
    others = {"name": "x", "timeout": 60_000, "auth": {}, "inProcess": 1, "autoApprove": ["a"]}
    candidate = translated(tmp_path, {**entry, "disabledTools": ["b"], **others})
    assert candidate.problem is None
    assert candidate.entry == {**entry, "disabledTools": ["b"]}
    assert candidate.dropped == [*others]


def test_a_sandbox_is_kept_and_one_of_another_form_is_not_dropped(tmp_path: Path) -> None:
    """An entry whose sandbox means nothing here must not become one without a sandbox."""
    kept = translated(tmp_path, {"command": "x", "sandbox": {"write": ["${env:DATA}/x"]}})
    assert kept.entry["sandbox"] == {"write": ["${DATA}/x"]}
    assert kept.problem is None
    refused = translated(tmp_path, {"command": "x", "sandbox": {"filesystem": {"allowWrite": ["/x"]}}})
    assert refused.problem is not None
    assert "the key 'filesystem' means nothing here" in refused.problem


def test_variables_are_written_our_way_and_an_input_becomes_one_of_its_own_that_needs_a_value(tmp_path: Path) -> None:
    env = {"A": "${env:TOKEN}", "B": "${OTHER:-no}", "C": "Bearer ${input:github-token}"}
    candidate = translated(tmp_path, {"command": "x", "env": env, "args": ["--key=${env:KEY}", "${input:path}"]})
    assert candidate.entry == {
        "command": "x",
        "env": {"A": "${TOKEN}", "B": "${OTHER:-no}", "C": "Bearer ${MCP_INPUT_GITHUB_TOKEN}"},
        "args": ["--key=${KEY}", "${MCP_INPUT_PATH}"],
    }
    assert sorted(candidate.needs) == ["MCP_INPUT_GITHUB_TOKEN", "MCP_INPUT_PATH"]


def test_the_folders_of_editors_are_written_out(home: Path, tmp_path: Path) -> None:
    entry = {"command": "${userHome}/x", "args": ["${workspaceFolder}/data"]}
    candidate = translated(tmp_path, entry, ".vscode/mcp.json")
    assert candidate.entry == {"command": f"{home}/x", "args": [f"{tmp_path}/data"]}
    assert candidate.problem is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "${env:TOOLS}/x"}, "command: ${TOOLS} is not replaced there"),
        ({"command": "x", "args": ["${workspaceFolder}"]}, "means nothing here"),
        ({"command": "x", "args": ["${config:a.b}"]}, "means nothing here"),
        ({"command": "x", "args": ["${env:Program Files}"]}, "means nothing here"),
        ({}, "command: missing"),
        ({"command": "x", "args": "one"}, "args: expected a list"),
        ("uvx x", ""),
    ],
)
def test_what_cannot_be_used_says_why(entry: Any, problem: str, tmp_path: Path) -> None:
    found = translated(tmp_path, entry).problem
    assert found is not None
    assert problem in found


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // the end', {"a": 1}),
        ('// first\n{"a": /* inside */ 1}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('{"a": 1, // why\n /* more */ }', {"a": 1}),
        ("[1, /* , ] */ 2]", [1, 2]),
        *(
            (json.dumps([text]), [text])
            for text in ("https://a.b", "/* no comment */", "a,}", "a,]", 'quoted \\" // more', "back\\slash\\\\")
        ),
    ],
)
def test_json_may_have_comments_and_trailing_commas_outside_of_strings(text: str, value: object) -> None:
    assert loads_with_comments(text) == value


@given(VALUES)
def test_plain_json_reads_as_it_does_elsewhere(value: object) -> None:
    assert loads_with_comments(json.dumps(value)) == value
    assert loads_with_comments(json.dumps(value, indent=2, ensure_ascii=False)) == value


@pytest.mark.parametrize("text", ['"' + '\\"' * 100_000, "/* " * 100_000, "[1] /* ", "[1] /* */ /*", '["a\n"]'])
def test_what_is_not_closed_is_an_error_at_once(text: str) -> None:
    begin = time.thread_time()
    with pytest.raises(json.JSONDecodeError):
        loads_with_comments(text)
    assert time.thread_time() - begin < 2, "its end would be looked for from each place where it could begin"


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{\n  // fine\n  "a" 1\n}', 3, 7),
        ('{\n /* two\n lines */ "a": ,"b": 1}', 3, 16),
        ('{"a": "open // }', 1, 7),
        ("[1,,2]", 1, 4),
        ("{} {}", 1, 4),
    ],
)
def test_a_mistake_is_reported_where_it_stands(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        loads_with_comments(text)
    assert (caught.value.lineno, caught.value.colno) == (line, column)
