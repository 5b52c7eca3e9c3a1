"""The clients file: what it says, what is wrong with it, and how a client is added."""

import json
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.clients_file import add_client, hash_of, new_token, read_clients_file
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.access.settings import Limit

HASH, OTHER = hash_of("one"), hash_of("two")
EXPIRES = {"token": HASH, "profile": "everything", "expires": "2027-01-31T00:00:00"}
ISSUER = {"issuer": "https://login.example", "profiles": [{"profile": "everything"}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "private" / "clients.json"


def write(file: Path, document: object) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


class TestReading:
    def test_a_whole_file(self, file: Path) -> None:
        found = read_clients_file(
            write(
                file,
                {
                    "version": 1,
                    "resource": "https://gw.example/mcp/",
                    "clients": {"ci": {"token": HASH, "profile": "reader", "expires": "2027-01-31T00:00:00Z"}},
                    "issuers": {"corp": {**ISSUER, "algorithms": ["ES256"], "profiles": [{"profile": "reader"}]}},
                    "profiles": {
                        "reader": {
                            "servers": ["git"],
                            "enabledTools": ["get_*"],
                            "disabledTools": ["get_secret"],
                            "enabledPrompts": ["a"],
                            "disabledResources": ["b:*"],
                            "readOnly": True,
                            "limits": {"concurrent": 2, "perTool": {"x": {"perSecond": 1}}},
                        }
                    },
                    "limits": {"perServer": {"git": {"concurrent": 4}}, "maxWait": 3},
                    "anonymous": "reader",
                },
            )
        )
        assert found.clients["ci"].expires == datetime(2027, 1, 31, tzinfo=UTC)
        assert found.resource == "https://gw.example/mcp"
        assert found.issuers["corp"].algorithms == ["ES256"]
        assert found.limits.per_server == {"git": Limit(concurrent=4)}
        reader = found.profiles["reader"]
        assert found.anonymous is reader
        assert found.profiles["everything"] is EVERYTHING
        assert reader.read_only
        assert reader.servers == ("git",)
        assert reader.limits is not None
        assert reader.limits.per_tool == {"x": Limit(per_second=1)}
        assert not reader.allows_tool("git", "get_secret", {"readOnlyHint": True})
        assert not reader.allows_prompt("git", "b")
        assert not reader.allows_resource("git", "b:1")

    def test_tools_and_prompts_are_named_as_servers_name_them_or_as_they_are_listed(self, file: Path) -> None:
        tools = {"enabledTools": ["git_push", "now", "mcp_time_zone"], "disabledTools": ["time_now"]}
        prompts = {"disabledPrompts": ["git_commit", "mcp_git_tag", "merge"]}
        profile = read_clients_file(write(file, {"profiles": {"p": {**tools, **prompts}}})).profiles["p"]
        listed = [(server, tool) for server in ("git", "time") for tool in ("push", "now", "zone")]
        allowed = [(server, tool) for server, tool in listed if profile.allows_tool(server, tool, None)]
        assert allowed == [("git", "push"), ("git", "now"), ("time", "zone")]
        names = ("commit", "tag", "merge", "log")
        assert [name for name in names if profile.allows_prompt("git", name)] == ["log"]

    @pytest.mark.parametrize("document", [{"clients": {}}, {"issuers": {}}, {"clients": None, "issuers": {}}])
    def test_a_file_whose_last_client_or_issuer_was_removed_lets_in_none(self, file: Path, document: Any) -> None:
        assert read_clients_file(write(file, {"profiles": {}})).anonymous is EVERYTHING, "without any it lets in all"
        assert read_clients_file(write(file, document)).anonymous is None

    @pytest.mark.parametrize(
        ("document", "problem"),
        [
            ('{"clients": {\n"a": tru}}', "line 2, column 6: not valid JSON"),
            ("[]", "expected an object"),
            (
                f'{{"clients": {{"a": {{"token": "{HASH}", "profile": "everything"}}, "a": {{}}}}}}',
                "the key 'a' is there twice",
            ),
            ({"version": 2}, "its version is 2"),
            ({"client": {}}, "there is no key 'client'; did you mean 'clients'"),
            ({"profile": {}}, "there is no key 'profile'; did you mean 'profiles'"),
            ({"clients": {"a": {"token": HASH, "profil": "x"}}}, "clients.a: there is no key 'profil'; did you"),
            ({"clients": {"a": {"token": HASH}}}, "clients.a: Object missing required field `profile`"),
            ({"clients": {"a": {"token": "plain", "profile": "everything"}}}, "clients.a: token: expected sha256:"),
            ({"clients": {"a": EXPIRES}}, "timezone component; write the time with its zone, such as 2027"),
            ({"clients": {"a/b": {"token": HASH, "profile": "everything"}}}, "'a/b' cannot be the name of a client"),
            (
                {"clients": {name: {"token": HASH, "profile": "everything"} for name in "ab"}},
                "'a' and 'b' have the same token",
            ),
            (
                {"clients": {"a": {"token": HASH, "profile": "everithing"}}},
                "clients.a.profile: there is no profile 'everithing'; did you mean 'everything'",
            ),
            ({"profiles": {"everything": {}}}, "profiles.everything: this one is always there"),
            ({"profiles": {"p": {"servers": "git"}}}, "profiles.p.servers: Expected `array | null`, got `str`"),
            ({"profiles": {"p": {"enabledTool": []}}}, "did you mean 'enabledTools'"),
            ({"profiles": {"p": {"limits": {"concurrent": 0}}}}, "profiles.p.limits.concurrent: Expected `int` >= 1"),
            ({"limits": {"perServer": {"git": {"burst": 1}}}}, "burst: means nothing"),
            ({"limits": {"maxWait": 365 * 24 * 3600 + 1}}, "limits.maxWait: Expected `float` <= 31536000"),
            (
                {"limits": {"perTool": {"a": {"perSecond": 1}, "b_*": {"perSecond": "1"}}}},
                "limits.perTool.b_*.perSecond: Expected",
            ),
            ({"limits": {"perTool": {"a": {}, "b": {"burst": 1}}}}, "limits.perTool.b: burst: means nothing"),
            (
                {"limits": {"perClient": {"perServer": {"a": {}, "b": {"x": 1}}}}},
                "limits.perClient.perServer.b: there is no key",
            ),
            ({"clients": {"a": {**EXPIRES, "expires": "soon"}}}, "with its zone, such as 2027-01-31T00:00:00Z"),
            ({"anonymous": "x"}, "anonymous: there is no profile 'x'"),
            ({"anonymous": ""}, "anonymous: there is no profile ''"),
            ({"issuers": {"i": ISSUER}}, "resource: missing"),
            ({"issuers": {"i": {**ISSUER, "algorithms": ["HS256"]}}}, "issuers.i: algorithms: 'HS256' is none of"),
            ({"issuers": {"i": {**ISSUER, "profiles": [{"profile": "x"}]}}}, "issuers.i.profiles: there is no"),
            ({"issuers": {"i": ISSUER, "j": ISSUER}}, "'i' and 'j' have the same issuer"),
            ({"resource": "http://gw.example/mcp"}, "resource: must be an https URL"),
            ({"\ud800": 1}, r"half of a surrogate pair in \u{d800}; write the whole character, or remove it"),
            ({"clients": {"a": {**EXPIRES, "expires": "\ud800"}}}, "half of a surrogate pair in clients.a.expires;"),
            ({"profiles": {"p": {"disabledTools": ["\ud800"]}}}, "pair in profiles.p.disabledTools[0];"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_said_with_its_place(self, file: Path, document: Any, problem: str) -> None:
        write(file, document)
        before = file.read_bytes()
        with pytest.raises(ConfigError) as raised:
            read_clients_file(file)
        assert problem in str(raised.value)
        assert str(raised.value).startswith(str(file))
        assert "plain" not in str(raised.value)
        assert file.read_bytes() == before

    def test_a_missing_and_an_empty_file_are_errors(self, file: Path) -> None:
        with pytest.raises(ConfigError, match=r"there is no such file.*add-client"):
            read_clients_file(file)
        with pytest.raises(ConfigError, match="is empty"):
            read_clients_file(write(file, ""))

    @pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
    def test_a_file_that_other_users_can_change_is_refused(self, file: Path) -> None:
        write(file, {"clients": {}}).chmod(0o666)
        with pytest.raises(ConfigError, match="every user of this machine can write"):
            read_clients_file(file)


def test_the_examples_of_the_documentation_can_be_used(file: Path) -> None:
    page = (Path(__file__).parents[5] / "docs" / "gateway.md").read_text("utf-8")
    examples = [
        block for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "profiles" in block
    ]
    assert len(examples) == 2
    for example in examples:
        assert read_clients_file(write(file, example)).profiles["reader"].read_only


class TestAdding:
    def test_the_token_is_returned_and_its_hash_kept_in_a_private_file(self, file: Path) -> None:
        token = add_client(file, "ci")
        assert token not in file.read_text()
        entry = read_clients_file(file).clients["ci"]
        assert entry.token == hash_of(token)
        assert entry.profile == "everything"
        assert entry.created is not None
        if os.name == "posix":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_the_rest_of_the_file_stays(self, file: Path) -> None:
        write(file, {"profiles": {"p": {"servers": ["git"]}}, "clients": {"a": {"token": HASH, "profile": "p"}}})
        add_client(file, "b", "p")
        found = read_clients_file(file)
        assert list(found.clients) == ["a", "b"]
        assert found.clients["a"].token == HASH
        assert found.clients["b"].profile == "p"

    @pytest.mark.parametrize("content", ["\n", '{"clients": null}'])
    def test_a_file_may_hold_nothing_yet(self, file: Path, content: str) -> None:
        token = add_client(write(file, content), "ci")
        assert {name: entry.token for name, entry in read_clients_file(file).clients.items()} == {"ci": hash_of(token)}

    def test_a_name_that_is_taken_gets_another_token_only_if_that_is_said(self, file: Path) -> None:
        first = add_client(file, "ci")
        with pytest.raises(ConfigError, match="there is a client 'ci' already"):
            add_client(file, "ci")
        second = add_client(file, "ci", replace=True)
        assert read_clients_file(file).clients["ci"].token == hash_of(second) != hash_of(first)

    @pytest.mark.parametrize(
        ("name", "profile", "problem"),
        [("a b", "everything", "cannot be the name"), ("", "everything", "''"), ("a", "rader", "no profile 'rader'")],
    )  # fmt: skip
    def test_nothing_is_written_otherwise(self, file: Path, name: str, profile: str, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            add_client(file, name, profile)
        assert not file.exists()

    def test_a_broken_file_stays_as_it_is(self, file: Path) -> None:
        write(file, '{"clients": ')
        with pytest.raises(ConfigError, match="not valid JSON"):
            add_client(file, "ci")
        assert file.read_text() == '{"clients": '


def test_tokens_are_long_and_different_and_what_is_kept_is_a_hash() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith("gaia_") and len(token) == 48 for token in tokens)
    assert hash_of("x") == hash_of(b"x") == "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
