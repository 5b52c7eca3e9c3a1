"""The names of tools among the tools of other servers."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.tools import naming
from gaia.mcp.tools.naming import assign, disambiguated, folded, is_of_another, namespaced, owner_of

API_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

names = st.text(st.characters(), max_size=80)
confusable = st.text("ab_", min_size=1, max_size=5)
"""Names whose ends and beginnings are easily taken for each other."""


def digits(server: str, tool: str) -> str:
    return hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]


def test_an_ordinary_tool_is_named_after_its_server() -> None:
    assert namespaced("filesystem", "read_file") == "mcp_filesystem_read_file"


def test_a_name_belongs_to_the_server_with_the_longest_name() -> None:
    assert owner_of("mcp_files_archive_read", ["files", "files_archive", "file"]) == "files_archive"
    assert owner_of("mcp_git_log", ["files"]) is None


def test_a_name_of_exactly_64_characters_is_kept() -> None:
    assert namespaced("s", "x" * 58) == f"mcp_s_{'x' * 58}"


def test_a_longer_name_is_cut_and_ends_in_a_hash() -> None:
    name = namespaced("s", "x" * 59)
    assert name == f"mcp_s_{'x' * 49}_{digits('s', 'x' * 59)}"
    assert len(name) == 64


@pytest.mark.parametrize("tool", ["read.file", "read file", "lire_é", "read/file", "read\n", "读"])
def test_characters_that_apis_refuse_are_replaced(tool: str) -> None:
    safe = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)
    assert namespaced("fs", tool) == f"mcp_fs_{safe}_{digits('fs', tool)}"


def test_tools_that_differ_only_in_replaced_characters_keep_apart() -> None:
    assert namespaced("fs", "a.b") != namespaced("fs", "a/b")


def test_the_disambiguated_name_is_always_hashed() -> None:
    assert disambiguated("time", "now") == f"mcp_time_now_{digits('time', 'now')}"


def test_without_competition_every_tool_gets_its_plain_name() -> None:
    pairs = [("time", "now"), ("fs", "read"), ("git", "read")]
    assert assign(pairs) == {"mcp_time_now": pairs[0], "mcp_fs_read": pairs[1], "mcp_git_read": pairs[2]}
    assert list(assign(pairs).values()) == pairs


def test_all_that_compete_for_a_name_get_a_hashed_one() -> None:
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", "other")]
    assert assign(pairs) == {
        disambiguated("a", "b_c"): ("a", "b_c"),
        disambiguated("a_b", "c"): ("a_b", "c"),
        "mcp_a_other": ("a", "other"),
    }


def test_a_plain_name_belongs_to_the_known_server_with_the_longest_name() -> None:
    pairs = [("a", "b_c"), ("a", "B_d"), ("a_b", "c"), ("a", "bb")]
    assert assign(pairs, {"a_b"}) == {
        disambiguated("a", "b_c"): ("a", "b_c"),
        disambiguated("a", "B_d"): ("a", "B_d"),
        "mcp_a_b_c": ("a_b", "c"),
        "mcp_a_bb": ("a", "bb"),
    }
    assert assign(pairs[:1], {"a_b", "x", "b"}) == {disambiguated("a", "b_c"): ("a", "b_c")}
    assert assign([("A", "x")], {"a"}) == {"mcp_A_x": ("A", "x")}


@given(confusable | names, confusable | names, st.lists(confusable | names, max_size=6))
def test_the_longest_of_the_names_that_fit_owns_a_name(name: str, server: str, servers: list[str]) -> None:
    fitting = [one for one in (server, *servers) if name.casefold().startswith(f"{one}_".casefold())]
    longest = max(fitting, key=lambda one: len(one.casefold()), default=server)
    assert is_of_another(name, server, folded(servers)) == (longest.casefold() != server.casefold())


def test_the_number_of_servers_is_no_number_of_steps() -> None:
    class Counting(frozenset[str]):
        looked_up = 0

        def __contains__(self, one: object) -> bool:
            self.looked_up += 1
            return super().__contains__(one)

    servers = Counting(f"s{number}" for number in range(1000))
    assert not is_of_another("files_read_a_file", "files", servers)
    assert is_of_another("s7_read_a_file", "files", servers)
    assert servers.looked_up <= 6


def test_a_pair_does_not_compete_with_itself() -> None:
    assert assign([("time", "now"), ("time", "now")]) == {"mcp_time_now": ("time", "now")}


def test_a_tool_named_like_the_hashed_name_of_another_gives_way() -> None:
    odd = ("fs", "read file")
    mimic = ("fs", namespaced(*odd).removeprefix("mcp_fs_"))
    assert namespaced(*mimic) == namespaced(*odd)
    assert assign([mimic, odd]) == {namespaced(*odd): odd, disambiguated(*mimic): mimic}


def test_names_whose_hashes_collide_get_more_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Eight digits are few enough to collide on purpose; a shorter hash shows what happens then.
    monkeypatch.setattr(naming, "_HASH_DIGITS", 1)
    pairs = [("fs", f"{'x' * 64}{number}") for number in range(100)]
    assigned = assign(pairs)
    assert sorted(assigned.values()) == sorted(pairs)
    assert assign(reversed(pairs)) == assigned


def test_originals_that_hash_alike_because_of_a_nul_keep_apart() -> None:
    pairs = [("s\0x", "y"), ("s", "x\0y")]
    assert disambiguated(*pairs[0]) == disambiguated(*pairs[1])
    assert sorted(assign(pairs).values()) == sorted(pairs)


@given(names, names)
def test_every_name_is_one_that_apis_accept(server: str, tool: str) -> None:
    assert API_NAME.fullmatch(namespaced(server, tool))
    assert API_NAME.fullmatch(disambiguated(server, tool))


@given(st.lists(st.tuples(confusable | names, confusable | names), max_size=12), st.randoms())
def test_every_pair_gets_one_acceptable_name_in_whatever_order(pairs: list[tuple[str, str]], random: object) -> None:
    assigned = assign(pairs)
    assert sorted(assigned.values()) == sorted(set(pairs))
    assert all(API_NAME.fullmatch(name) for name in assigned)
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert assign(pairs) == assigned


@given(st.sets(st.tuples(confusable, confusable), min_size=1, max_size=12))
def test_a_plain_name_is_only_given_where_nobody_else_wants_it(pairs: set[tuple[str, str]]) -> None:
    wanted = [namespaced(*pair) for pair in pairs]
    for name, pair in assign(pairs).items():
        expected = namespaced(*pair) if wanted.count(namespaced(*pair)) == 1 else disambiguated(*pair)
        assert name == expected
