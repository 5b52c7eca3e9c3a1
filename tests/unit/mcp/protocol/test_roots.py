"""The folders that servers are told of."""

from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.protocol.server_questions import root_list


def test_paths_become_uris_with_the_folders_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert root_list([folder, str(folder)]) == {"roots": [{"uri": folder.as_uri(), "name": "a b"}] * 2}
    assert folder.as_uri().endswith("/a%20b")


def test_relative_paths_and_the_home_folder_are_understood(home: Path) -> None:
    uris = [root["uri"] for root in root_list(["notes", "~/notes"])["roots"]]
    assert uris == [(Path.cwd() / "notes").as_uri(), (home / "notes").as_uri()]


def test_uris_and_named_roots_stay_as_they_are() -> None:
    roots = ["file:///a", {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]
    assert root_list(roots)["roots"] == [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]


@pytest.mark.parametrize("root", ["https://example.com", {"uri": "http://x"}, {"name": "x"}, {"uri": 5}, 5, None])
def test_only_files_can_be_roots(root: Any) -> None:
    with pytest.raises(ValueError, match="roots: "):
        root_list([root])
