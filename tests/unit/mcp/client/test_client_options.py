"""What the options of a client leave to its manager, and which keywords of the client they come from."""

from typing import Any, get_type_hints
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.client_engine import ClientEngine
from gaia.mcp.client.client_options import ClientOptions, ClientSettings, SharedServices
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.policy import RestartPolicy


def test_each_setting_is_an_option_and_the_other_way_round() -> None:
    assert set(get_type_hints(ClientSettings)) | {"features"} == set(ClientOptions.__struct_fields__)


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="health_intervall"):
        MCPClient("s", Mock(), health_intervall=1.0)  # type: ignore[call-arg]


def test_a_manager_takes_no_other_keyword_and_looks_at_them_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.client.mcp_client_manager.MCPConfig", Mock(side_effect=AssertionError))
    unknown: Any = {"relayed": True}
    with pytest.raises(TypeError, match="relayed"):
        MCPClientManager(**unknown)
    with pytest.raises(ValueError, match="elicitation_modes"):
        MCPClientManager(elicitation_modes=())


@pytest.mark.parametrize("name", ["health_interval", "probe_timeout", "max_timeout", "drain_timeout"])
def test_only_some_durations_may_be_left_open(name: str) -> None:
    setting: Any = {name: None}
    with pytest.raises(ValueError, match=f"{name}: must be a number of seconds"):
        MCPClient("s", Mock(), **setting)
    with pytest.raises(ValueError, match=f"{name}: must be a number of seconds"):
        ServerConfig(command="x", **setting)
    assert ClientOptions(start_timeout=None, idle_stop=None).start_timeout is None


def test_the_manager_decides_what_is_left_open() -> None:
    policy, ask = RestartPolicy(max_restarts=1), Mock()
    defaults = ClientOptions(
        pin_tools="block",
        restart_policy=policy,
        output_validation="error",
        health_interval=1.0,
        features=ClientFeatures(on_sampling=ask),
    )
    open_ = ClientOptions().or_else(defaults)
    assert (open_.pin_tools, open_.restart_policy, open_.output_validation) == ("block", policy, "error")
    assert open_.features.on_sampling is ask
    assert open_.health_interval == 30.0, "each server's own"


def test_what_is_decided_stays() -> None:
    own, ask = RestartPolicy(max_restarts=1), Mock()
    options = ClientOptions(
        pin_tools="off", restart_policy=own, output_validation="off", features=ClientFeatures(on_sampling=ask)
    )
    defaults = ClientOptions(
        pin_tools="block",
        restart_policy=RestartPolicy(),
        output_validation="error",
        features=ClientFeatures(on_sampling=Mock()),
    )
    assert options.or_else(defaults) == options


@pytest.mark.parametrize(
    ("start_timeout", "timeout", "ready", "probe"),
    [(None, 0.5, 60.0, 5.0), (None, 90.0, 90.0, 5.0), (300.0, 30.0, 300.0, 5.0), (4.0, 30.0, 4.0, 2.0)],
)
def test_a_start_has_a_time_of_its_own(start_timeout: float | None, timeout: float, ready: float, probe: float) -> None:
    options = ClientOptions(start_timeout=start_timeout).in_effect(timeout)
    assert (options.start_timeout, options.probe_timeout) == (ready, probe)


@pytest.mark.parametrize("joined", [False, True])
def test_a_client_ends_the_threads_that_are_its_own(joined: bool) -> None:
    shared = SharedServices(callbacks=Mock(), server_request_threads=Mock(), steps=Mock(), owned=not joined)
    engine = ClientEngine("s", Mock(), ClientOptions(), shared, None)
    engine.join(shared, ClientOptions())
    engine.disconnect(0.0)
    assert shared.callbacks.close.called is not joined  # type: ignore[attr-defined]
    assert shared.server_request_threads.close.called is not joined  # type: ignore[attr-defined]
    assert shared.steps.drain.called is not joined  # type: ignore[attr-defined]
