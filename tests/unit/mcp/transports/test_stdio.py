"""`StdioTransport`: what it is given, and what it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gaia.mcp.errors import StartFailed
from gaia.mcp.transports import StdioTransport
from tests.unit.mcp.transports.conftest import SECRET, Configure, Listener, call


class TestSettings:
    def test_the_defaults_are_those_of_the_specification(self) -> None:
        transport = StdioTransport("server")
        assert (transport.command, transport.args, transport.env, transport.cwd) == ("server", None, None, None)
        assert (transport.timeout, transport.debug) == (30, False)
        assert transport._process is None

    def test_repr_shows_no_secrets(self) -> None:
        with_args = StdioTransport("/bin/server", ["--token", SECRET], env={"API_TOKEN": SECRET})
        with_line = StdioTransport(f"/bin/server --token {SECRET}")
        assert repr(with_args) == repr(with_line) == "StdioTransport('/bin/server', connected=False)"


class TestStarting:
    @pytest.mark.process
    def test_it_runs_a_command_line(self, quick: None) -> None:
        transport = StdioTransport(f"{sys.executable} -I -S -c 'import time; time.sleep(300)'")
        assert transport.connect()
        assert transport.is_connected()
        transport.disconnect()

    def test_a_working_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        with pytest.raises(StartFailed, match=f"the working directory {missing} does not exist"):
            StdioTransport(sys.executable, [], cwd=str(missing)).open(Listener(), "test")

    def test_variables_are_expanded_anew_at_each_start(self, fault_server: Configure) -> None:
        configuration = fault_server()
        tokens = iter(["first", "second"])
        transport = StdioTransport(
            **configuration,
            expand=lambda: (configuration["args"], {"TOKEN": next(tokens)}, []),
            env={"TOKEN": "${TOKEN}"},
        )
        for expected in ("first", "second"):
            transport.connect()
            assert call(transport, "env")["TOKEN"] == expected
            transport.disconnect()
        assert transport.env == {"TOKEN": "${TOKEN}"}
