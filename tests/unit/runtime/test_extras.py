"""What is said to install, where an extra is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from gaia.runtime import extras
from gaia.runtime.extras import EXTRAS, install_command, installed_version, missing
from tests.waiting import PATIENCE


@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_pip_accepts_the_command_wherever_gaia_came_from() -> None:
    # The packages are installed here, so pip needs no index.
    command = f"{install_command('dashboard')} --no-index --dry-run --disable-pip-version-check"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Requirement already satisfied: uvicorn") >= 1


def test_it_is_for_this_python_and_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my envs/bin/python")
    assert shlex.split(install_command("oauth"))[-3:] == list(EXTRAS["oauth"])
    assert install_command("llm").startswith("'/my envs/bin/python' ")
    assert install_command("llm").endswith(" install 'openai>=1.60'") or "uv" in install_command("llm")


def test_an_environment_without_pip_was_made_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert shlex.split(install_command("llm")) == [
        *("uv", "pip", "install", "--python", sys.executable),
        "openai>=1.60",
    ]


def test_nothing_is_missing_where_the_tests_run() -> None:
    assert [missing(extra, *_packages(extra)) for extra in ("oauth", "serve", "dashboard")] == [None, None, None]


def _packages(extra: str) -> list[str]:
    names = (requirement.partition(">")[0] for requirement in EXTRAS[extra])
    return ["opentelemetry.sdk" if name == "opentelemetry-sdk" else name for name in names]


def test_what_is_missing_is_named_with_the_extra_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mcp" else find_spec(name))
    assert missing("serve", "uvicorn") is None
    assert missing("serve", "mcp", "uvicorn") == (
        f"mcp, which is not installed (extra 'serve' of gaia-mcp); run: {install_command('serve')}"
    )


def test_several_are_named_as_packages_and_in_the_plural(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    lack = missing("gateway", "uvicorn", "jwt", "prometheus_client", "opentelemetry.sdk")
    assert lack is not None
    assert lack.startswith("uvicorn, pyjwt, prometheus-client and opentelemetry-sdk, which are not installed (extra ")


@pytest.mark.parametrize(
    ("version", "is_usable"),
    [
        *(("1.30.0", False), ("2.1.1", False), ("2.3", True), ("2.3.0rc1", True), ("2.10", True), ("3.0.0", False)),
        ("unversioned", False),
    ],
)
def test_a_version_that_the_extra_excludes_is_as_good_as_none(
    version: str, is_usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "installed_version", lambda name: version)
    lack = missing("oauth", "mcp")
    if is_usable:
        assert lack is None
    else:
        assert lack is not None
        assert lack.startswith(f"mcp>=2.3,<3, and mcp {version} is installed (extra 'oauth' of gaia-mcp)")
        assert lack.endswith(f"no other package needs mcp {version}, run: {install_command('oauth')}")


def test_a_module_without_a_version_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "installed_version", lambda name: None)
    assert missing("oauth", "mcp", "httpx2") is None


def test_a_version_is_found_without_the_packages_description() -> None:
    for name in ("mcp", "uvicorn", "httptools"):
        assert installed_version(name) == importlib.metadata.version(name)
    assert installed_version("opentelemetry") is None, "a folder of several distributions"
    assert installed_version("no_such_package") is None
