"""Servers as subprocesses that speak over their standard input and output (specification, "stdio")."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gaia.mcp.errors import StartFailed
from gaia.mcp.protocol.framing import DEFAULT_MAX_LINE_BYTES
from gaia.mcp.rpc.channel import Channel, ChannelListener
from gaia.mcp.transports.base import StandaloneTransport
from gaia.mcp.transports.command import argument_vector, find_executable, server_environment
from gaia.mcp.transports.fork_server import fork_server
from gaia.mcp.transports.sandbox import Sandbox
from gaia.mcp.transports.stdio_channel import StdioChannel
from gaia.runtime.log import enable_debug
from gaia.runtime.redaction import Redactor, secret_values, url_credentials

if TYPE_CHECKING:
    from gaia.mcp.transports.sandbox.cage import Cage


class StdioTransport(StandaloneTransport):
    """Starts an MCP server as a subprocess and talks to it over pipes. No shell is involved.

    `MCPClient` supervises it: each (re)start is one `open`. Used by itself it has the four methods of `MCPTransport`;
    several threads may then send requests at once.
    """

    network_transport = "pipe"

    tracer: Sequence[str] = ()
    """For the doctor: a command that starts a sandbox, observes it, and ends with its exit status."""

    def __init__(
        self,
        command: str,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
        debug: bool = False,
        cwd: str | None = None,
        *,
        inherit_env: bool = False,
        max_message_bytes: int = DEFAULT_MAX_LINE_BYTES,
        max_pending: int = 1024,
        sandbox: Callable[[], Sandbox | None] | None = None,
        expand: Callable[[], tuple[Sequence[str] | None, Mapping[str, str] | None, Sequence[str]]] | None = None,
    ) -> None:
        """`command` is a program; without `args` it is a command line, split as a shell would, but run without one.

        `env` is added to a small inherited environment (with `inherit_env`, to the whole one). `timeout` is in seconds.
        `expand`, if given, is called at each start. It returns the `args` and `env` to use instead, with variables
        filled in, and all values that must not be shown. `sandbox` returns the sandbox for each start (Linux). Raises
        ValueError for a command line with shell operators.
        """
        if debug:
            enable_debug()
        super().__init__(timeout, max_pending)
        self.command = command
        self.args = None if args is None else list(args)
        self.env = None if env is None else dict(env)
        self.debug = debug
        self.cwd = cwd
        self._inherit_env = inherit_env
        self._max_message_bytes = max_message_bytes
        self._sandbox = sandbox or (lambda: None)
        self._expand = expand or (lambda: (self.args, self.env, secret_values(self.env or {})))
        self._argv = argument_vector(command, args)

    def __repr__(self) -> str:
        # Arguments and environment may contain secrets.
        return f"StdioTransport({self._argv[0]!r}, connected={self.is_connected()})"

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        return self._channel.popen if isinstance(self._channel, StdioChannel) else None

    @property
    def _label(self) -> str:
        return os.path.basename(self._argv[0])

    def stderr_tail(self) -> str:
        """The last lines that the latest server wrote on its standard error, with secrets masked."""
        return self._channel.stderr_tail() if isinstance(self._channel, StdioChannel) else ""

    def prepare(self, owner: object) -> None:
        fork_server.hold(owner)

    def release(self, owner: object) -> None:
        fork_server.let_go(owner)

    def present(self, channel: Channel) -> None:
        if isinstance(channel, StdioChannel):
            self._channel = channel

    def open(self, listener: ChannelListener, name: str) -> StdioChannel:
        args, environment, secrets = self._expand()
        command, *args = argument_vector(self.command, args)
        complete = server_environment(environment, inherit_all=self._inherit_env)
        try:
            cwd = None if self.cwd is None else os.path.abspath(os.path.expanduser(self.cwd))
            if cwd is not None and not os.path.isdir(cwd):
                raise StartFailed(f"the working directory {cwd} does not exist")
            argv = [find_executable(command, complete, cwd), *args]
        except OSError as error:
            # A relative path has no meaning in a directory that has been deleted.
            raise StartFailed(f"the working directory of this program does not exist: {error}") from error
        caged = self._caged(argv, complete, cwd, environment)
        try:
            channel = StdioChannel(
                argv if caged is None else [*self.tracer, *caged.argv],
                complete if caged is None else caged.environment,
                cwd,
                listener,
                name=name,
                redact=Redactor([*secrets, *url_credentials(complete.values())]),
                max_message_bytes=self._max_message_bytes,
                max_pending=self._max_pending,
                cage=caged,
            )
        except BaseException:
            if caged is not None:
                caged.remove()
            raise
        self._channel = channel
        return channel

    def _caged(
        self, argv: list[str], complete: Mapping[str, str], cwd: str | None, environment: Mapping[str, str] | None
    ) -> Cage | None:
        settings = self._sandbox()
        if settings is None:
            return None
        if not sys.platform.startswith("linux"):
            raise StartFailed('a sandbox needs Linux; remove "sandbox" to start the server without one')
        # Imported here, because it imports modules that other systems do not have.
        from gaia.mcp.transports.sandbox.cage import cage

        return cage(settings, argv, complete, cwd, environment)
