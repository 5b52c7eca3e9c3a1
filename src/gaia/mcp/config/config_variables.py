"""``${VAR}`` in a server's configuration: expanded for a start, kept in saves; and the secrets in an entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.mcp.authorization.config import AuthConfig, auth_secrets
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.transports.sandbox import Sandbox
from gaia.runtime.redaction import secret_headers, secret_url_parts, secret_values, sounds_secret

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MIN_SECRET_LENGTH = 4


def plain_secrets(mapping: Mapping[str, Any]) -> list[str]:
    """Keys of an entry that seem to hold a secret as plain text, such as ``env.API_KEY``, instead of ``${API_KEY}``."""
    return [
        f"{place}.{name}"
        for place in ("env", "headers")
        if isinstance(values := mapping.get(place), Mapping)
        for name, value in values.items()
        if sounds_secret(name) and isinstance(value, str) and value and not variables_in(value)
    ]


def expand(config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """A copy in which values of `environ` replace ``${VAR}`` and ``${VAR:-default}``.

    Variables are expanded in the values of `env`, `headers` and `auth`, in `url`, in `args` and in the paths of
    `sandbox`, nowhere else. As in a shell, the default, which is taken literally, counts for variables that are unset
    or empty. Any other ``$`` stays, and the value of a variable is not expanded again. Raises ConfigError for a
    variable that is unset and has no default.
    """

    def text(where: str, value: str) -> str:
        def replacement(match: re.Match[str]) -> str:
            variable, default = match.groups()
            found = environ.get(variable)
            if default is not None:
                return found or default
            if found is None:
                raise ConfigError(
                    f"server {config.name!r}: {where}: the environment variable {variable} is not set; "
                    f"set it, or give a default: ${{{variable}:-…}}"
                )
            return found

        return _replace_variables(value, replacement)

    def values(where: str, mapping: dict[str, str] | None) -> dict[str, str] | None:
        return mapping and {key: text(f"{where}.{key}", value) for key, value in mapping.items()}

    changes: dict[str, Any] = {
        "env": values("env", config.env),
        "headers": values("headers", config.headers),
        "url": config.url and text("url", config.url),
        "args": config.args and [text(f"args[{index}]", value) for index, value in enumerate(config.args)],
        "auth": config.auth and _expanded_auth(config.name, config.auth, text),
    }
    if isinstance(config.sandbox, Sandbox):
        paths = {
            key: [text(f"sandbox.{key}[{index}]", path) for index, path in enumerate(getattr(config.sandbox, key))]
            for key in ("read", "write")
        }
        changes["sandbox"] = msgspec.structs.replace(config.sandbox, **paths)
    try:
        return msgspec.structs.replace(config, **changes)
    except ValueError as error:
        raise ConfigError(f"server {config.name!r}: {error}") from error


def keep_variables(entry: Any, before: Any, environ: Mapping[str, str]) -> Any:
    """Put ``${VAR}`` back: a text equal to the expansion of the text at its place in `before` becomes that text.

    So a program that has read a secret from its environment does not save it in place of ``${NAME}``.
    """
    if isinstance(entry, dict) and isinstance(before, dict):
        return {key: keep_variables(value, before.get(key), environ) for key, value in entry.items()}
    if isinstance(entry, list) and isinstance(before, list):
        if len(entry) == len(before):
            return [keep_variables(*pair, environ) for pair in zip(entry, before, strict=True)]
        # Arguments were added or removed, so each may be any of the earlier ones.
        written = {_expanded(text, environ): text for text in before if isinstance(text, str) and variables_in(text)}
        return [written.get(text, text) if text and isinstance(text, str) else text for text in entry]
    if isinstance(entry, str) and isinstance(before, str):
        return before if entry == _expanded(before, environ) else entry
    return entry


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    return _replace_variables(text, lambda match: environ.get(match[1]) or match[2] or "")


def _replace_variables(text: str, replacement: Callable[[re.Match[str]], str]) -> str:
    # No variable ends after the last brace, so the rest is cut off: each unclosed ``${`` would be searched to its end.
    beginning, brace, rest = text.rpartition("}")
    return _VARIABLE.sub(replacement, beginning + brace) + rest


def variables_in(text: str) -> list[str]:
    """The names of the variables that `expand` would replace in a text."""
    return [match[1] for match in _VARIABLE.finditer(text, 0, text.rfind("}") + 1)]


def secrets(config: ServerConfig) -> list[str]:
    """The values of an expanded configuration that must not be shown. Very short values in `auth` are left out."""
    found = secret_values(config.env or {}) + secret_headers(config.headers or {}) + secret_url_parts(config.url or "")
    found += [value for value in auth_secrets(config.auth) if len(value) >= _MIN_SECRET_LENGTH]
    return list(dict.fromkeys(found))


def _expanded_auth(server: str, auth: AuthConfig, text: Callable[[str, str], str]) -> AuthConfig:
    changes: dict[str, str] = {}
    for name, key in zip(auth.__struct_fields__, auth.__struct_encode_fields__, strict=True):
        if isinstance(value := getattr(auth, name), str):
            changes[name] = expanded = text(f"auth.{key}", value)
            # A form and a header carry UTF-8; an environment variable may have any bytes.
            if expanded.encode("utf-8", "ignore").decode() != expanded:
                raise ConfigError(f"server {server!r}: auth.{key}: not UTF-8; correct it, or the variable in it")
    try:
        return msgspec.structs.replace(auth, **changes)
    except ValueError as error:
        raise ConfigError(f"server {server!r}: auth: {error}") from error
