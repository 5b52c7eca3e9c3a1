import pytest

from gaia.mcp.config.placement import Placement, Replicas
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError


def configured(**placement: object) -> ServerConfig:
    return ServerConfig.from_dict("it", {"command": "server", "placement": placement})


class TestKeys:
    def test_all_of_them(self) -> None:
        placement = configured(
            engine="ray",
            resources={"browser": 1},
            numCpus=0.5,
            memory="2G",
            replicas={"min": 1, "max": 8, "targetInFlight": 2},
            strategy="spread",
            stateless=True,
            runtimeEnv={"pip": ["playwright"]},
            address="head:6379",
            maxPending=8,
        ).placement
        assert placement == Placement(
            resources={"browser": 1},
            num_cpus=0.5,
            memory="2G",
            replicas=Replicas(min=1, max=8, target_in_flight=2),
            strategy="spread",
            stateless=True,
            runtime_env={"pip": ["playwright"]},
            address="head:6379",
            max_pending=8,
        )

    def test_those_of_a_shared_server(self) -> None:
        placement = configured(lifetime="detached", name="team-browser").placement
        assert placement == Placement(lifetime="detached", name="team-browser")

    @pytest.mark.parametrize(
        ("keys", "problem"),
        [
            ({"lifetime": "detached", "replicas": 2, "stateless": True}, "replicas"),
            ({"name": "team-browser"}, "name"),
            ({"engine": "slurm"}, "placement.engine"),
            ({"strategy": "random"}, "placement.strategy"),
            (
                {"resource": {"browser": 1}},
                "placement: the key 'resource' means nothing here; did you mean 'resources'?",
            ),
            ({"colour": 1}, "expected some of engine, resources, numCpus, memory"),
            ({"replicas": {"target": 1}}, "placement.replicas: the key 'target' means nothing here"),
            ({"resources": {"browser": -1}}, "browser: expected an amount from 0 upwards"),
            ({"resources": {"CPU": 1}}, 'give it as "numCpus"'),
            ({"resources": {"memory": 1}}, 'give it as "memory"'),
            ({"numCpus": -1}, "numCpus: expected an amount"),
            ({"memory": "2 GB of it"}, "memory: expected bytes, or a size"),
            ({"replicas": 0}, "replicas: must be from 1"),
            ({"replicas": 3}, '"stateless": true'),
            ({"replicas": {"min": 3, "max": 2}, "stateless": True}, "placement.replicas.min: expected 1 <= min <= max"),
            (
                {"replicas": {"max": 2, "targetInFlight": 0}, "stateless": True},
                "placement.replicas.targetInFlight: must be 1",
            ),
            ({"maxPending": 0}, "maxPending: must be from 1"),
            ({"address": " "}, "address: is empty"),
        ],
    )
    def test_what_is_wrong_is_named(self, keys: dict[str, object], problem: str) -> None:
        with pytest.raises(ConfigError) as raised:
            configured(**keys)
        assert problem in raised.value.message
        assert "'it'" in raised.value.message

    def test_only_a_command_can_be_placed(self) -> None:
        with pytest.raises(ConfigError, match="placement: only for a server with a command"):
            ServerConfig.from_dict("it", {"url": "https://example.com/mcp", "placement": {}})


class TestDemand:
    def test_amounts_of_zero_are_left_out(self) -> None:
        assert Placement().demand == {}

    def test_names_are_those_of_the_engine(self) -> None:
        assert Placement(num_cpus=1, memory="1K", resources={"gpu": 2}).demand == {"CPU": 1, "memory": 1024, "gpu": 2}
