"""tox, the pre-commit hooks, the workflows and the page for contributors speak of the same environments and Pythons."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest

from tests.repository.test_adapters import FRAMEWORKS

ROOT = Path(__file__).parents[2]

LINTERS = {"lint", "types", "imports", "workflows"}
"""What looks at the code and runs nothing of it."""


@pytest.fixture(scope="module")
def tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    return parser


@pytest.fixture(scope="module")
def environments(tox: configparser.ConfigParser) -> set[str]:
    """All that tox.ini has a section for."""
    return {name.removeprefix("testenv:") for name in tox.sections() if name.startswith("testenv:")}


@pytest.fixture(scope="module")
def pythons() -> list[str]:
    """The versions that the package is for, oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project["classifiers"])
    return [match[1] for match in versions if match]


def test_the_hooks_before_a_commit_are_the_linters_of_tox(environments: set[str]) -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    hooks = re.findall(r"^ +- id: (\S+)\n(?: +name: .*\n) +entry: (.*)$", text, re.MULTILINE)

    assert {name for name, _ in hooks} == LINTERS <= environments
    assert all(entry == f"tox run -q -e {name}" for name, entry in hooks)


def test_one_python_runs_all_tests_and_each_other_one_has_an_environment(
    tox: configparser.ConfigParser, pythons: list[str]
) -> None:
    factors = [f"py{version.replace('.', '')}" for version in pythons]

    assert tox["testenv:tests"]["base_python"].split() == factors
    assert {*factors[1:]} <= {*tox["tox"]["env_list"].split()}


def test_the_workflow_has_all_pythons_and_its_environments_exist(environments: set[str], pythons: list[str]) -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    listed = re.search(r"environment: \[(.*)\]", text)

    assert re.findall(r"^ +(3\.\d+)$", text, re.MULTILINE) == pythons[::-1]
    assert listed is not None
    assert {*listed[1].split(", "), *re.findall(r"tox run -e (\w+)", text)} <= environments


def test_each_adapter_is_tested_with_its_framework_in_one_environment() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    names = [
        re.split(r"[\[>=]", requirement)[0].replace("-", "_")
        for name, group in groups.items()
        if name.startswith("adapters")
        for requirement in group
        if isinstance(requirement, str)
    ]
    assert len(names) == len(set(names))
    # Of one or two words: `langchain_agents` is for langchain, `llama_index` for llama-index-core.
    tested = {"_".join(name.split("_")[:words]) for name in names for words in (1, 2)}
    adapters = {path.stem for path in FRAMEWORKS}
    assert {adapter for adapter in adapters if not {adapter, adapter.partition("_")[0]} & tested} == set()


def test_contributors_are_told_of_every_environment(environments: set[str]) -> None:
    table = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|.*\|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    rows = {name for names in table for name in re.findall(r"[\w-]+", names)}

    assert rows == environments | {"py314"}
