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


def test_all_programs_are_read_and_left_as_they_are(
    programs: dict[str, Path], invoke_json: Invoke, saved: Saved
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
def test_one_program_is_read_alone(program: str, name: str, programs: dict[str, Path], invoke_json: Invoke) -> None:
    assert statuses(invoke_json("import", "--yes", "--from", program)) == {name: "imported"}


def test_a_dry_run_says_the_same_and_saves_nothing(
    programs: dict[str, Path], invoke_json: Invoke, saved: Saved
) -> None:
    assert statuses(invoke_json("import", "--dry-run", "code")) == {"code": "would import"}
    assert saved() == {}


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


def test_only_named_servers_are_taken(tmp_path: Path, invoke_json: Invoke) -> None:
    file = write(tmp_path / "team.json", {"servers": {"a": SERVER, "b": SERVER}})
    assert statuses(invoke_json("import", "--file", file, "b")) == {"b": "imported"}


def test_a_name_that_no_file_has_is_an_error(programs: dict[str, Path], refused: Told) -> None:
    assert "did you mean 'desktop'?" in refused("import", "desktp")


def test_one_broken_file_does_not_stop_the_others(programs: dict[str, Path], invoke: Invoke) -> None:
    programs["claude-code"].write_text("{\n oops")
    result = invoke("import", "--yes")
    assert result.exit_code == 2
    assert f"{programs['claude-code']}: line 2, column 2" in result.stderr
    assert "imported  desktop" in result.stdout


@pytest.mark.parametrize("content", [None, "{ oops"])
def test_a_file_asked_for_has_to_be_readable(content: str | None, tmp_path: Path, invoke: Invoke) -> None:
    file = tmp_path / "team.json"
    if content is not None:
        file.write_text(content)
    assert invoke("import", "--file", file).exit_code == 2


def test_nothing_to_import_says_where_it_looked(home: Path, tmp_path: Path, output: Told) -> None:
    assert f"{tmp_path / '.mcp.json'} (does not exist)" in output("import", "--yes")


def test_a_program_and_a_file_exclude_each_other(invoke: Invoke) -> None:
    assert invoke("import", "--from", "cursor", "--file", "x").exit_code == 2


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


def translated(tmp_path: Path, entry: Json, file: str = "mcp.json") -> Candidate:
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


def test_comments_and_trailing_commas_are_read_over(tmp_path: Path) -> None:
    text = '{\n  // ours\n  "servers": {"a": {"type": "stdio", "command": "x", "args": ["https://b"],},},\n}'
    (candidate,) = candidates(named_file(write(tmp_path / "mcp.json", text))) or ()
    assert candidate.entry == {"type": "stdio", "command": "x", "args": ["https://b"]}


def test_a_file_that_does_not_exist_is_no_mistake(tmp_path: Path) -> None:
    assert candidates(named_file(tmp_path / "none.json")) is None


@pytest.mark.parametrize("text", ["", "  \n", "{}", "null", '{"mcpServers": null}', '{"mcp": null}', '{"mcp": 1}'])
def test_a_file_without_servers_has_none(text: str, tmp_path: Path) -> None:
    assert candidates(named_file(write(tmp_path / "mcp.json", text))) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[]", ""),
        ('"text"', ""),
        ('{"mcpServers": [{"command": "x"}]}', "mcpServers: "),
        ('{"mcp": {"servers": "x"}}', "mcp.servers: "),
    ],
)
def test_servers_of_another_form_are_an_error_that_shows_the_form(text: str, place: str, tmp_path: Path) -> None:
    file = write(tmp_path / "mcp.json", text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}: {place}expected an object like"):
        candidates(named_file(file))


@pytest.mark.parametrize(("key", "implied"), [("httpUrl", {"type": "http"}), ("serverUrl", {})])
def test_a_url_may_be_called_as_other_programs_call_it(key: str, implied: Json, tmp_path: Path) -> None:
    candidate = translated(tmp_path, {key: "https://x.example/mcp", "headers": {"A": "b"}})
    assert candidate.entry == {"url": "https://x.example/mcp", "headers": {"A": "b"}, **implied}
    assert (candidate.dropped, candidate.problem) == ([], None)
    assert translated(tmp_path, {key: "https://x.example/mcp", "command": "x"}).dropped == [key]


def test_servers_outside_of_any_section_are_an_error_that_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "mcp.json", {"time": {"command": "uvx"}})
    with pytest.raises(ConfigError, match='its servers do not count, because they are not in "mcpServers"'):
        candidates(named_file(file))


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b'\xef\xbb\xbf{"servers": {"a": {"command": "x"}}}')
    assert [candidate.name for candidate in candidates(named_file(file)) or ()] == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n  "servers": {"a" 1}\n}', "line 2, column 19"),
        (b"\xff\xfe", "not usable JSON"),
        (b"[" * 100_000, "not usable JSON"),
    ],
)
def test_a_broken_file_is_named_with_the_place(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        candidates(named_file(file))

    assert str(file) in caught.value.message
    assert message in caught.value.message


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        candidates(named_file(tmp_path))


def test_keys_that_mean_nothing_here_are_left_out_and_named(tmp_path: Path) -> None:
    entry = {"command": "x", "timeout": 60000, "autoApprove": ["a"], "disabledTools": ["b"]}
    candidate = translated(tmp_path, entry)
    assert candidate.entry == {"command": "x", "disabledTools": ["b"]}
    assert candidate.dropped == ["timeout", "autoApprove"]
    assert candidate.problem is None


def test_every_key_of_ours_is_taken_over_that_others_do_not_mean_otherwise(tmp_path: Path) -> None:
    entry = {"command": "x", "pinTools": "block", "captureContent": "off", "outputValidation": "error"}
    candidate = translated(tmp_path, entry)
    assert candidate.problem is None
    assert candidate.entry == entry
    meant_otherwise = {"name": "x", "timeout": 5000, "auth": {}, "inProcess": 1}
    assert translated(tmp_path, {**entry, **meant_otherwise}).dropped == [*meant_otherwise]


def test_a_sandbox_is_kept_and_one_of_another_form_is_not_dropped(tmp_path: Path) -> None:
    """An entry whose sandbox means nothing here must not become one without a sandbox."""
    kept = translated(tmp_path, {"command": "x", "sandbox": {"write": ["${env:DATA}/x"]}})
    assert kept.entry["sandbox"] == {"write": ["${DATA}/x"]}
    assert kept.problem is None
    refused = translated(tmp_path, {"command": "x", "sandbox": {"filesystem": {"allowWrite": ["/x"]}}})
    assert refused.problem is not None
    assert "the key 'filesystem' means nothing here" in refused.problem


def test_environment_variables_are_written_our_way(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"A": "${env:TOKEN}", "B": "${OTHER:-no}"}, "args": ["--key=${env:KEY}"]}
    assert translated(tmp_path, entry).entry == {
        "command": "x",
        "env": {"A": "${TOKEN}", "B": "${OTHER:-no}"},
        "args": ["--key=${KEY}"],
    }


def test_an_input_becomes_a_variable_that_needs_a_value(tmp_path: Path) -> None:
    entry = {"type": "http", "url": "https://x", "headers": {"Authorization": "Bearer ${input:github-token}"}}
    candidate = translated(tmp_path, entry)
    assert candidate.entry["headers"] == {"Authorization": "Bearer ${MCP_INPUT_GITHUB_TOKEN}"}
    assert candidate.needs == ["MCP_INPUT_GITHUB_TOKEN"]


def test_an_input_never_takes_the_value_of_a_variable_that_exists(tmp_path: Path) -> None:
    assert translated(tmp_path, {"command": "x", "args": ["${input:path}"]}).needs == ["MCP_INPUT_PATH"]


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
    ],
)
def test_what_cannot_be_used_says_why(entry: Json, problem: str, tmp_path: Path) -> None:
    found = translated(tmp_path, entry).problem
    assert found is not None
    assert problem in found


def test_an_entry_that_is_no_object_cannot_be_used(tmp_path: Path) -> None:
    (candidate,) = candidates(named_file(write(tmp_path / "a.json", {"servers": {"it": "uvx x"}}))) or ()
    assert candidate.problem is not None


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
    ],
)
def test_json_may_have_comments_and_trailing_commas(text: str, value: object) -> None:
    assert loads_with_comments(text) == value


@pytest.mark.parametrize(
    "string", ["https://example.org", "/* no comment */", "a,}", "a,]", 'quoted \\" // more', "back\\slash\\\\"]
)
def test_strings_are_not_touched(string: str) -> None:
    assert loads_with_comments(json.dumps({"a": [string]})) == {"a": [string]}


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
