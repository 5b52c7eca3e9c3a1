"""Loads an agent from a text such as ``package.module:AgentClass``, and checks that packages are installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, TypeVar

from gaia.runtime.extras import missing

AgentT = TypeVar("AgentT")


class AgentNotLoaded(Exception):
    """The text names no agent that can be served. The message gives the reason."""


def load_agent(target: str, base: type[AgentT]) -> AgentT:
    """The agent that `target` names: an object, or a class or function that returns one when called without arguments.

    As with ``python -m``, the working directory is searched too.
    """
    module_name, separator, name = target.partition(":")
    if not (module_name and separator and name):
        raise AgentNotLoaded(f"{target!r} is not of the form package.module:AgentClass")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise AgentNotLoaded(f"There is no module {error.name!r}") from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AgentNotLoaded(f"{module_name!r} has no {name!r}") from None
    agent = found() if isinstance(found, type) or (callable(found) and not isinstance(found, base)) else found
    if not isinstance(agent, base):
        raise AgentNotLoaded(f"{target!r} is no {base.__name__}, but of type {type(agent).__name__}")
    return agent


class ServingUnavailable(ImportError):
    """A package of an extra is missing or has an unusable version. The message has the install command."""


def require(*packages: str, extra: str = "serve") -> None:
    """Raise `ServingUnavailable` unless all `packages` of ``gaia-mcp[<extra>]`` are installed."""
    if (lack := missing(extra, *packages)) is not None:
        what = "Serving" if extra == "serve" else f"The {extra}"
        raise ServingUnavailable(f"{what} needs {lack}")
