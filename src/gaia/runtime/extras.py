"""The optional packages of gaia-mcp: finds missing ones, and writes the command that installs them.

The command names the packages themselves, not ``gaia-mcp[http]``, so it works after an installation from a checkout, a
wheel or an index. It installs for the running Python, whichever ``pip`` is first on the PATH.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_HTTP = "httptools>=0.6.4,<1"
_SDK = "opentelemetry-sdk>=1.30,<2"
_SERVING = ("starlette>=0.40", "uvicorn>=0.30,<1", _HTTP)

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "http": (_HTTP,),
        "oauth": (_HTTP, "httpx2>=2.16", "mcp>=2.3,<3"),
        "llm": ("openai>=1.60",),
        "otel": (
            _SDK,
            "opentelemetry-exporter-otlp-proto-http>=1.30,<2",
            "opentelemetry-exporter-prometheus>=0.51b0,<1",
        ),
        "serve": ("mcp>=2.3,<3", *_SERVING),
        "dashboard": (*_SERVING, _SDK),
        "redis": ("redis>=5",),
        "ray": (
            "ray>=2.50,<3",
            "cryptography>=42",
            "starlette>=0.40",
            "uvicorn>=0.30,<1",
            _HTTP,
            "uvloop>=0.19; sys_platform != 'win32'",
        ),
        "kubernetes": ("kubernetes>=29", "urllib3>=2.3", "cryptography>=42", _HTTP),
        "gateway": (
            *_SERVING,
            "uvloop>=0.19; sys_platform != 'win32'",
            "cryptography>=42",
            "pyjwt>=2.13,<3",
            "prometheus-client>=0.20,<1",
            "typer>=0.15,<0.29",
        ),
    }
)
"""The requirements of each extra, as in pyproject.toml (a test compares them)."""

_PACKAGES: Final = {"jwt": "pyjwt", "opentelemetry.sdk": "opentelemetry-sdk", "prometheus_client": "prometheus-client"}


def install_command(extra: str) -> str:
    """The command line, quoted for a shell, that installs `extra` for this Python: by pip, or uv if pip is missing."""
    if importlib.util.find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", sys.executable]
    else:
        command = [sys.executable, "-m", "pip", "install"]
    # gaia-mcp runs on none of the systems that the markers exclude.
    return shlex.join([*command, *(requirement.partition(";")[0] for requirement in EXTRAS[extra])])


def not_installed(extra: str, *modules: str) -> str:
    """The end of a sentence about a feature that needs `modules` of `extra`: the missing packages, and the command."""
    *first, last = dict.fromkeys(_PACKAGES.get(module, module.partition(".")[0]) for module in modules)
    named = f"{', '.join(first)} and {last}" if first else last
    verb = "are" if first else "is"
    return f"{named}, which {verb} not installed (extra {extra!r} of gaia-mcp); run: {install_command(extra)}"


def missing(extra: str, *packages: str) -> str | None:
    """Why `packages` of `extra` cannot be used, with the command that installs them; None if they can.

    A version that the extra excludes counts as missing: some agent frameworks require a version of ``mcp`` that is too
    old.
    """
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        return not_installed(extra, *absent)
    for requirement in EXTRAS[extra]:
        name = re.match(r"[\w-]+", requirement)
        if name is not None and name[0] in packages and (found := _excluded(name[0], requirement)) is not None:
            return (
                f"{requirement}, and {name[0]} {found} is installed (extra {extra!r} of gaia-mcp); "
                f"in an environment where no other package needs {name[0]} {found}, run: {install_command(extra)}"
            )
    return None


def _excluded(name: str, requirement: str) -> str | None:
    lowest, above = (re.search(rf"{sign}([\d.]+)", requirement) for sign in (">=", "<"))
    if (found := installed_version(name)) is None:
        return None
    too_old = lowest is not None and _numbers(found) < _numbers(lowest[1])
    return found if too_old or (above is not None and _numbers(found) >= _numbers(above[1])) else None


def installed_version(name: str) -> str | None:
    """The installed version of a package whose distribution has the same name; None if unknown.

    Read from the name of the distribution's folder, because `importlib.metadata` reads the description of each package:
    a tenth of a gateway's start time and a megabyte.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = re.compile(rf"{re.escape(name)}-([^-]+)\.dist-info", re.IGNORECASE)
    with os.scandir(os.path.dirname(os.path.dirname(spec.origin))) as entries:
        return next((found[1] for entry in entries if (found := folder.fullmatch(entry.name))), None)


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = [] if release is None else [int(number) for number in release[0].split(".")]
    while numbers and numbers[-1] == 0:
        del numbers[-1]
    return tuple(numbers)
