"""Turns a configured command into an argument vector and an environment. No shell is ever used."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

from gaia.mcp.errors import ConfigError, StartFailed
from gaia.runtime.redaction import sounds_secret

_SHOWN_PLACES = 3

# Literal text for a shell: an escaped character, and quoted text (within double quotes it still substitutes).
_LITERAL = re.compile(r"""\\.|'[^']*'|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(|`")
_OPERATOR = re.compile(r"\$\(|`|[();<>|&]+")


def split_command(command: str) -> list[str]:
    """The words of a command line such as ``"npx -y some-server /tmp"``.

    Raises ConfigError (a ValueError) for an empty or unbalanced line, and for shell operators: the server would get
    them as arguments.
    """
    try:
        words = shlex.split(command, posix=os.name != "nt")
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split into words: {error}") from error
    if not words:
        raise ConfigError("the command is empty; give the program to start, for example 'uvx mcp-server-time'")
    operator = _shell_operator(command)
    if operator is not None:
        raise ConfigError(
            f"the command {command!r} contains {operator!r}, but servers are started without a shell. "
            f"Give command and args apart: "
            f'{{"command": {_json(words[0])}, "args": [...]}}; if you need a shell, name it: '
            f'{{"command": "sh", "args": ["-c", {_json(command)}]}}'
        )
    return words


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shell_operator(command: str) -> str | None:
    def active(literal: re.Match[str]) -> str:
        unescaped = re.sub(r"\\.", " ", literal[1] or "", flags=re.DOTALL)
        return " ".join(_SUBSTITUTION.findall(unescaped))

    found = _OPERATOR.search(_LITERAL.sub(active, command))
    return None if found is None else found[0]


def find_executable(command: str, environment: Mapping[str, str], cwd: str | None) -> str:
    """The absolute path of `command`, looked up on the server's PATH; ``~`` is expanded.

    A relative path starts at `cwd`. On Windows ``npx`` also finds ``npx.cmd``. Raises StartFailed with advice.
    """
    expanded = os.path.expanduser(command)
    if os.path.dirname(expanded):
        expanded = os.path.join(cwd or "", expanded)
    search_path = environment.get("PATH", os.defpath)
    found = shutil.which(expanded, path=search_path)
    if found is not None:
        # A relative entry of PATH starts at the present directory, not at the server's.
        return os.path.abspath(found)
    if os.path.dirname(expanded):
        state = "is not executable" if os.path.exists(expanded) else "does not exist"
        raise StartFailed(f"the command {command!r} cannot be started: {expanded} {state}")
    places = [entry for entry in search_path.split(os.pathsep) if entry]
    raise StartFailed(
        f"the command {command!r} was not found on the server's PATH ({_shortened(places)}); "
        "install it, or give its full path as the command"
    )


def _shortened(places: Sequence[str]) -> str:
    shown = ", ".join(places[:_SHOWN_PLACES])
    return shown if len(places) <= _SHOWN_PLACES else f"{shown}, …"


def argument_vector(command: str, args: Sequence[str] | None) -> list[str]:
    """`command` with `args`; a command without args may be a whole command line."""
    return split_command(command) if args is None else [command, *args]


INHERITED = (
    # POSIX
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "USER", "LOGNAME", "SHELL", "TMPDIR",
    # Windows
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA",
    "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME",
    "USERPROFILE", "WINDIR",
)  # fmt: skip

_INSTALL_SETTING = re.compile(
    r"""
    .*_PROXY                                                    # proxies, and hosts without one
    | SSL_CERT_(FILE|DIR) | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE # certificate authorities
    | NODE_EXTRA_CA_CERTS | NODE_USE_SYSTEM_CA | NODE_USE_ENV_PROXY
    | UV_(?! PROJECT | WORKING_DIR | ENV_FILE | NO_ENV_FILE     # of the application's own project
           | PUBLISH | INTERNAL ).+
    | PIP_( INDEX_URL | EXTRA_INDEX_URL | NO_INDEX | FIND_LINKS | TRUSTED_HOST | CERT | CONFIG_FILE | CACHE_DIR
          | DEFAULT_TIMEOUT | RETRIES | KEYRING_PROVIDER )
    | NPM_CONFIG_(?! NODE[_-]OPTIONS | OTP                      # options of node would be those of this process
           | ( CALL | PACKAGE | GLOBAL | LOCATION | DRY[_-]RUN  # `npm exec` and `npm run` set them for themselves,
             | WORKSPACES? | INCLUDE[_-]WORKSPACE[_-]ROOT       # and an npx would run the same command again
             | LOCAL[_-]PREFIX | SCRIPT[_-]SHELL | IF[_-]PRESENT )$ ).+
    """,
    re.VERBOSE,
)
_NO_SECRETS = frozenset(("UV_KEYRING_PROVIDER", "PIP_KEYRING_PROVIDER"))
"""These sound like secrets, but only say where secrets are kept."""

_ANY_SPELLING = os.name == "nt"

_INSTALLERS = ("UV_", "PIP_", "NPM_", "NODE_")
_OF_SHELLS = frozenset(("_", "OLDPWD", "PWD", "SHLVL"))


def is_install_setting(name: str) -> bool:
    """Whether a variable says how to reach the network and package indexes, and does not sound like a secret.

    Programs such as ``uvx``, ``npx`` and ``pip`` read these. Proxies are read in both cases, and npm ignores case. A
    value may still contain a URL with a password: see `url_credentials`.
    """
    capitals = name.upper()
    if capitals in _NO_SECRETS:
        return True
    return _INSTALL_SETTING.fullmatch(capitals) is not None and not sounds_secret(name)


def server_environment(extra: Mapping[str, str] | None, *, inherit_all: bool) -> dict[str, str]:
    """The inherited environment, overlaid with `extra`. Other spellings of variables in `extra` are not inherited."""
    configured = extra or {}
    replaced = {_key(name) for name in configured}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if _key(name) not in replaced and (inherit_all or _inherits(name, value))
    }
    return {**inherited, **configured}


def withheld(extra: Mapping[str, str] | None) -> list[str]:
    """The names of this program's variables that a server does not inherit, those of package managers first."""
    got = {_key(name) for name in server_environment(extra, inherit_all=False)}
    names = [name for name in os.environ if _key(name) not in got and name not in _OF_SHELLS]
    return sorted(names, key=lambda name: (not name.upper().startswith(_INSTALLERS), name))


def _inherits(name: str, value: str) -> bool:
    # A value that starts with "()" is an exported bash function, which is code.
    return (name in INHERITED or is_install_setting(name)) and not value.startswith("()")


def _key(name: str) -> str:
    """The same for all spellings of one variable: on Windows any, elsewhere of names that are read in both cases."""
    capitals = name.upper()
    in_any_case = _ANY_SPELLING or capitals.endswith("_PROXY") or capitals.startswith("NPM_CONFIG_")
    return capitals if in_any_case else name
