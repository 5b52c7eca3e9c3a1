"""`gaia api serve`, as far as it gets without serving."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from gaia.agents.base import ApiAgent
from gaia.api import app as served
from gaia.cli.main import app
from tests.silent_agent import SilentAgent


class CodeAgent(ApiAgent, SilentAgent):
    """The model ``gaia-code``."""


class DataAgent(ApiAgent, SilentAgent):
    """The model ``gaia-data``."""


CODE, DATA = f"{__name__}:CodeAgent", f"{__name__}:DataAgent"


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run ``gaia api`` in this process."""
    return lambda *words: CliRunner().invoke(app, ["api", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([CODE, DATA, CODE], "two agents are the same model: gaia-code, gaia-code, gaia-data"),
        (["tests.silent_agent:SilentAgent"], "is no ApiAgent, but of type SilentAgent"),
        (["CodeAgent"], "not of the form package.module:AgentClass"),
        ([CODE, "--host", "0.0.0.0"], "can be reached from other machines"),
        ([CODE, "--token", ""], "the token is empty"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(words: list[str], message: str, invoke: Callable[..., Result]) -> None:
    result = invoke("serve", *words)

    assert result.exit_code == 2
    assert message in result.stderr


def test_each_agent_is_served_as_a_model(invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[str] = []

    def serve(agents: list[ApiAgent], options: object, started: Callable[[str], None], max_threads: int) -> None:
        models.extend(f"{agent.get_model_id()} {max_threads}" for agent in agents)
        started("http://127.0.0.1:1/v1")

    monkeypatch.setattr(served, "serve", serve)
    result = invoke("serve", CODE, DATA, "--threads", "3")

    assert (result.exit_code, models) == (0, ["gaia-code 3", "gaia-data 3"])
    assert result.stderr == "API endpoint: http://127.0.0.1:1/v1\n"
