"""What a server inherits from us: the variables that programs need to run and to be installed, and no secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gaia.runtime.redaction import sounds_secret

INHERITED = (
    # POSIX
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "USER", "LOGNAME", "SHELL", "TMPDIR",
    # Windows
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA",
    "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME",
    "USERPROFILE", "WINDIR",
)  # fmt: skip
"""What programs need to run, by names."""

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
"""They sound like secrets, and say where such are kept."""

_ANY_SPELLING = os.name == "nt"
"""Whether the system's own variables have no case."""

_INSTALLERS = ("UV_", "PIP_", "NPM_", "NODE_")
_OF_SHELLS = frozenset(("_", "OLDPWD", "PWD", "SHLVL"))


def is_install_setting(name: str) -> bool:
    """Whether a variable says how to reach the network and package indexes, and is no secret by its name.

    Programs such as ``uvx``, ``npx`` and ``pip`` read these. Proxies are spelt in capitals or not, and npm ignores
    case. A value may still have a URL with a password: see `url_credentials`.
    """
    capitals = name.upper()
    if capitals in _NO_SECRETS:
        return True
    return _INSTALL_SETTING.fullmatch(capitals) is not None and not sounds_secret(name)


def server_environment(extra: Mapping[str, str] | None, *, inherit_all: bool) -> dict[str, str]:
    """The environment for a server: the inherited part, overlaid with `extra`.

    Of a name that programs read in several spellings, only those in `extra` are there if it has one.
    """
    configured = extra or {}
    replaced = {_key(name) for name in configured}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if _key(name) not in replaced and (inherit_all or _inherits(name, value))
    }
    return {**inherited, **configured}


def withheld(extra: Mapping[str, str] | None) -> list[str]:
    """The names of our variables that a server does not inherit, those of package managers first."""
    got = {_key(name) for name in server_environment(extra, inherit_all=False)}
    names = [name for name in os.environ if _key(name) not in got and name not in _OF_SHELLS]
    return sorted(names, key=lambda name: (not name.upper().startswith(_INSTALLERS), name))


def _inherits(name: str, value: str) -> bool:
    # A value that starts with "()" is an exported bash function, which is code.
    return (name in INHERITED or is_install_setting(name)) and not value.startswith("()")


def _key(name: str) -> str:
    """The same for all spellings that mean one variable: of any on Windows, elsewhere of those read in both cases."""
    capitals = name.upper()
    in_any_case = _ANY_SPELLING or capitals.endswith("_PROXY") or capitals.startswith("NPM_CONFIG_")
    return capitals if in_any_case else name
