"""Every code block of README.md and docs runs, or says why it does not; CONTRIBUTING.md describes the comments."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_blocks.blocks import UntestableBlock, blocks_of, pages
from tests.code_blocks.commands import commands
from tests.code_blocks.reader import BlockFailed, Reader

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in pages(ROOT)}


@pytest.fixture(scope="module")
def path_of_commands(tmp_path_factory: pytest.TempPathFactory, starts_programs: None) -> Iterator[Path]:
    """A folder with `gaia`, and stand-ins for what the pages start."""
    with commands(tmp_path_factory.mktemp("commands"), sys.executable) as folder:
        yield folder


# Some pages start many programs.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_of_the_page_works(page: str, path_of_commands: Path, tmp_path: Path) -> None:
    blocks = blocks_of(PAGES[page].read_text(encoding="utf-8"), page)

    Reader(tmp_path, path_of_commands).follow(blocks)


# The tests of the test.

WORKING = """
<!-- example before: echo from before > file -->
<!-- example env: WHO=me -->
<!-- example shows: from before me -->
```console
$ echo "$(cat file) \\
> $WHO"
this line is output
$ true <<END
$ false
END
```

<!-- example file: part.py -->
```python
name = "part"
```

<!-- example input: typed -->
<!-- example shows: typed part -->
```python
from part import name
print(input(), name)
```

<!-- example continues -->
<!-- example shows: part again -->
<!-- example input: typed -->
```python
print(name, "again")
```

<!-- example skip: nonsense (there is no such command) -->
<!-- example exit: 3 -->
```console
nonsense --all
exit 3
```

<!-- example background: waiting -->
```python
import time
print("waiting")
time.sleep(3600)
```

<!-- example saves -->
```console
$ echo new > other
```

```json
{"command": "x", "env": {"SECRET": "${SECRET}"}}
```
"""


def test_what_the_comments_ask_for_is_done(path_of_commands: Path, tmp_path: Path) -> None:
    Reader(tmp_path, path_of_commands).follow(blocks_of(WORKING, "page.md"))


FAILING = {
    "```python\nprint(1)\n1 / 0\n```": r'page.md:1 .*ended with 1.*File "page.md", line 3.*ZeroDivisionError',
    "```python\nopen('x', 'w')\n```": "wrote work/x",
    "```console\n$ touch ~/x\n```": "wrote home/x",
    "<!-- example saves -->\n```console\n$ true\n```": "saved nothing",
    "```console\n$ false\n$ true\n```": "ended with 1",
    "```console\n$ pip install x\n```": "use skip or not-run",
    "<!-- example shows: two -->\n```console\n$ echo one\n```": "did not show 'two'",
    "<!-- example until: two -->\n```console\n$ false\n```": "did not show two",
    "<!-- example skip: cat (a reason) -->\n```console\n$ true\n```": "no command begins with 'cat'",
    "```json\n{'a': 1}\n```": "page.md:1 .json.",
    '```json\n{"mcpServers": {"a": {"comand": "x"}}}\n```': "server 'a'",
    '```json\n{"command": "x", "disabledTool": ["y"]}\n```': "disabledTool",
    "```yaml\na: [\n```": "page.md:1 .yaml.",
    "```toml\na\n```": "page.md:1 .toml.",
    "<!-- example file: x.py -->\n```python\na b\n```": "invalid syntax",
}


def test_what_does_not_work_fails_with_its_place(path_of_commands: Path, tmp_path: Path) -> None:
    for number, (text, message) in enumerate(FAILING.items()):
        (directory := tmp_path / str(number)).mkdir()
        with pytest.raises(BlockFailed) as failure:
            Reader(directory, path_of_commands).follow(blocks_of(text, "page.md"))
        assert re.search(message, str(failure.value), re.DOTALL), (text, failure.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\nx\n```", "page.md:1 .no language."),
        ("```rust\nx\n```", "page.md:1 .rust."),
        ("a\n\n    b\n", "page.md:3: an indented block"),
        ("<!-- example saves: x -->\n```python\n```", "saves has no value"),
        ("<!-- example not-run -->\n```python\n```", "not-run has a value"),
        ("<!-- example nonsense: x -->\n```python\n```", "cannot have: nonsense"),
        ("<!-- example shows: x -->\n```json\n{}\n```", "cannot have: shows"),
        ("<!-- example saves -->\n\ntext\n\n```python\n```", "has no block below it"),
        ("<!-- example saves -->", "has no block below it"),
        ("<!-- example saves\n-->\n```python\n```", "on one line"),
    ],
)
def test_a_block_without_a_handling_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UntestableBlock, match=message):
        blocks_of(text, "page.md")
