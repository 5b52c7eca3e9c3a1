"""Which key was meant by one that means nothing, and whether it was to limit the server."""

import pytest

from gaia.mcp.config.entry_errors import limits, remark, similar_key
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError

KNOWN = [key for key in ServerConfig.__struct_encode_fields__ if key != "name"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *((key, "disabledTools") for key in ("disabledTool", "disabled_tools", "deniedTools", "denyTools", "deny")),
        *(
            (key, "disabledTools")
            for key in ("excludeTools", "disallowedTools", "blockedTools", "blacklist", "toolsDeny")
        ),
        *(
            (key, "enabledTools")
            for key in ("enabledTool", "allowedTools", "allow", "includeTools", "tools", "whitelist")
        ),
        *((key, "enabledTools") for key in ("toolFilter", "allowlist", "only_tools", "permittedTools")),
        *((key, "pinTools") for key in ("pinTool", "pin_tools", "pin", "pinnedTools", "pinTols")),
        *((key, "sandbox") for key in ("sandBox", "sanbox", "sandboxed", "sandbox_mode")),
        *((key, "disabled") for key in ("disable", "disabeld", "enabled", "isActive")),
        *((key, "captureContent") for key in ("capture_content", "captureContents")),
        *((key, None) for key in ("trust", "trusted", "trustLocal")),
    ],
)
def test_a_key_that_was_to_limit_a_server_is_an_error(key: str, meant: str | None) -> None:
    similar = similar_key(key, KNOWN)
    assert similar == meant
    assert limits(key, similar, value=False)
    with pytest.raises(ConfigError, match=f"server 'x': the key '{key}' means nothing here"):
        ServerConfig.from_dict("x", {"command": "x", key: False})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *(("timout", "timeout"), ("comand", "command"), ("Args", "args"), ("health_interval", "healthInterval")),
        *(("inheritEnvironment", "inheritEnv"), ("autoApprove", None), ("alwaysAllow", None), ("description", None)),
        *(("envFile", None), ("pingInterval", None), ("zzz", None), ("", None), ("größe", None)),
    ],
)
def test_any_other_key_is_left_aside(key: str, meant: str | None) -> None:
    similar = similar_key(key, KNOWN)
    if meant is not None:
        assert similar == meant
    assert not limits(key, similar, value=False)
    assert ServerConfig.from_dict("x", {"command": "x", key: False}).command == "x"


def test_switching_a_server_on_limits_nothing() -> None:
    assert not limits("enabled", "disabled", value=True)
    assert limits("enabled", "disabled", value=False)


def test_a_key_beyond_all_measure_resembles_none() -> None:
    assert similar_key("sandbox" * 100_000, KNOWN) is None


def test_what_is_said_of_a_key() -> None:
    assert remark("timout", "timeout") == "the key 'timout' means nothing here; did you mean 'timeout'?"
    assert remark("zzz", None) == "the key 'zzz' means nothing here"
