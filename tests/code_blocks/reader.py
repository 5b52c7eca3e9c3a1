"""Follows a page of the documentation as its readers do: block by block, in one home and one working directory."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.config.server_config import ServerConfig, unknown_keys
from tests.code_blocks.blocks import Block
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm
from tests.waiting import PATIENCE, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INTERRUPTED = {0, 130, -signal.SIGINT}
"""How a program may end after Ctrl-C."""

MODEL_ANSWER = "That is all."

_PORT = re.compile(r"(--port[ =]|\bport=|\blocalhost:|\b127\.0\.0\.1:|\b0\.0\.0\.0:)(\d{4,5})\b")

_Snapshot = dict[str, tuple[int, bytes]]


class BlockFailed(Exception):
    """A block did not do what its page says; the message has its place, and what it printed."""


@dataclass
class Reader:
    """One page's reader."""

    directory: Path
    """Empty."""
    path: Path
    """The folder of `commands`."""
    ports: dict[str, str] = field(default_factory=dict)
    """The free port that each port of the page is replaced by."""
    background: list[tuple[Block, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    chain: list[Block] = field(default_factory=list)
    """The last Python block, and those before it that it continues."""

    def __post_init__(self) -> None:
        self.home, self.work = self.directory / "home", self.directory / "work"
        self.home.mkdir()
        self.work.mkdir()

    def follow(self, blocks: Iterable[Block]) -> None:
        """Handle the blocks in order, all of them. Raises BlockFailed for those that failed.

        The files that the page includes are in the working directory from the start.
        """
        blocks, failures = list(blocks), []
        for block in blocks:
            if block.language == "{literalinclude}":
                included = (ROOT / block.page).parent / block.argument
                self._save(included.name, included.read_text(encoding="utf-8"))
        with scripted_llm() as model:
            try:
                for number, block in enumerate(blocks):
                    try:
                        self._handle(block, self.directory / f"block-{number}", model)
                    except BlockFailed as failure:
                        failures.append(failure)
                for block, process, output in self.background:
                    try:
                        self._interrupt(block, process, output)
                    except BlockFailed as failure:
                        failures.append(failure)
            finally:
                for _, process, _ in self.background:
                    _kill(process)
        if failures:
            raise BlockFailed("\n\n".join(map(str, failures)))

    def _handle(self, block: Block, scratch: Path, model: ScriptedLLM) -> None:
        _parse(block, scratch.with_suffix(".json"))
        if name := block.value("file"):
            self._save(name, block.code)
            return
        if block.value("not-run") is not None or block.missing or block.language not in ("python", "console"):
            return
        model.replies[:] = [Reply(calls=[_model_call(value)]) for value in block.values("model")]
        model.replies += [Reply(MODEL_ANSWER)] * 10
        model.requests.clear()
        environment = self._environment(model, block)
        for command in block.values("before"):
            before = subprocess.run(
                ["bash", "-e", "-c", command], cwd=self.work, env=environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=PATIENCE,
            )  # fmt: skip
            if before.returncode:
                raise BlockFailed(f"{block}: before: {command}: {before.stdout}{before.stderr}")
        files = self._snapshot()
        for command in self._commands(block, scratch):
            self._run(block, command, environment, scratch.with_suffix(".out"))
        changes = _difference(files, self._snapshot())
        saves = block.value("saves") is not None
        if bool(changes) != saves:
            told = f"wrote {', '.join(changes)}: it must not, or needs `saves`" if changes else "saved nothing"
            raise BlockFailed(f"{block}: {told}")

    def _save(self, name: str, text: str) -> None:
        file = self.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._with_free_ports(text), encoding="utf-8")

    # Running.

    def _commands(self, block: Block, scratch: Path) -> list[list[str]]:
        if block.language == "console":
            commands = [self._with_free_ports(command) for command in commands_of(block)]
            # A command that needs Ctrl-C is alone; others share a shell, and so its variables.
            scripts = list(map(self._with_free_port, commands)) if block.value("until") else ["\n".join(commands)]
            return [["bash", "-e", "-o", "pipefail", "-c", each] for each in scripts]
        self.chain = [*self.chain, block] if block.value("continues") is not None else [block]
        # Each line stands where it stands in the page, so that a traceback names it.
        lines: list[str] = []
        for each in self.chain:
            lines += [""] * (each.line - len(lines))
            lines += each.code.splitlines()
        file = scratch.with_suffix(".py")
        file.write_text(self._with_free_ports("\n".join(lines) + "\n"), encoding="utf-8")
        return [["python-block", str(file), block.page]]

    def _environment(self, model: ScriptedLLM, block: Block) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GAIA_", "OTEL_", "XDG_"))}
        return kept | {
            "HOME": str(self.home),
            "USERPROFILE": str(self.home),
            "PATH": os.pathsep.join([str(self.path), str(Path(sys.executable).parent), os.defpath]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "120",
            "DOCS": str(ROOT / "docs"),
            "PIP_NO_INDEX": "1",
            "no_proxy": "127.0.0.1,localhost",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": model.base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "none",
            "GAIA_LLM_BASE_URL": model.base_url,
            "GAIA_LLM_MODEL": "scripted",
            "GAIA_LLM_API_KEY": "none",
            **dict(value.split("=", 1) for value in block.values("env")),
        }

    def _run(self, block: Block, command: list[str], environment: dict[str, str], output: Path) -> None:
        typed = output.with_suffix(".in")
        typed.write_text("".join(f"{line}\n" for line in block.values("input")))
        with typed.open("rb") as stdin, output.open("wb") as stdout:
            # In a process group of its own, which gets Ctrl-C as that of a terminal does.
            process = subprocess.Popen(
                command, cwd=self.work, env=environment, stdin=stdin, stdout=stdout, stderr=stdout, process_group=0,
                executable=None if os.sep in command[0] else _which(command[0], environment["PATH"]),
            )  # fmt: skip
        background = block.value("background")
        awaited = [background] if background else block.values("until")
        try:
            if awaited:
                wait_until(lambda: self._is_there(awaited, output) or process.poll() is not None)
                if process.poll() != 0 and not self._is_there(awaited, output):
                    raise BlockFailed(_told(block, f"did not show {' or '.join(awaited)}", output))
                if background:
                    self.background.append((block, process, output))
                elif process.poll() is None:
                    self._interrupt(block, process, output)
            else:
                self._wait(block, process, output)
            for text in block.values("shows"):
                if not _contains(output, [text]):
                    raise BlockFailed(_told(block, f"did not show {text!r}", output))
        finally:
            if not background:
                _kill(process)

    def _is_there(self, awaited: list[str], output: Path) -> bool:
        """Whether one of the texts has been printed, or one of them is ``port N`` and the port accepts connections."""
        ports = [self.ports.get(text.removeprefix("port ")) for text in awaited if text.startswith("port ")]
        return _contains(output, awaited) or any(port and _accepts(int(port)) for port in ports)

    def _wait(self, block: Block, process: subprocess.Popen[bytes], output: Path) -> None:
        expected = int(block.value("exit") or 0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        if process.returncode != expected:
            raise BlockFailed(_told(block, f"ended with {process.returncode}, not with {expected}", output))

    def _interrupt(self, block: Block, process: subprocess.Popen[bytes], output: Path) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise BlockFailed(_told(block, "did not end after Ctrl-C", output)) from None
        if status not in INTERRUPTED:
            raise BlockFailed(_told(block, f"ended with {status} after Ctrl-C", output))

    def _with_free_ports(self, text: str) -> str:
        def free(match: re.Match[str]) -> str:
            if match[2] not in self.ports:
                with socket.create_server(("127.0.0.1", 0)) as unused:
                    self.ports[match[2]] = str(unused.getsockname()[1])
            return match[1] + self.ports[match[2]]

        return _PORT.sub(free, text)

    def _with_free_port(self, command: str) -> str:
        """`command`, not listening at the port that is used by default: other examples run at the same time."""
        listens = command.startswith("gaia mcp gateway") and "--port" not in command
        return self._with_free_ports(f"{command} --port 8765") if listens else command

    # Files.

    def _snapshot(self) -> _Snapshot:
        found: _Snapshot = {}
        for root in (self.home, self.work):
            for path in root.rglob("*"):
                content = path.read_bytes() if path.is_file() else b""
                found[str(path.relative_to(self.directory))] = (path.lstat().st_mode, content)
        return found


def commands_of(block: Block) -> list[str]:
    """The commands of a console block, without the output that it shows and without those that it skips."""
    if not any(line.startswith("$ ") for line in block.code.splitlines()):
        commands = block.code.splitlines()
    else:
        commands = []
        lines = iter(block.code.splitlines())
        for line in lines:
            if not line.startswith("$ "):
                continue
            command = line.removeprefix("$ ")
            heredoc = re.search(r"<<-?\s*'?\"?(\w+)", command)
            while command.endswith("\\") or (heredoc and command.rpartition("\n")[2].strip() != heredoc[1]):
                command += "\n" + next(lines).removeprefix("> ")
            commands.append(command)
    for value in block.values("skip"):
        match = re.fullmatch(r"(.+) \((.+)\)", value)
        if match is None:
            raise BlockFailed(f"{block}: write it as `skip: COMMAND (REASON)`, not {value!r}")
        left = [command for command in commands if not command.startswith(match[1])]
        if len(left) == len(commands):
            raise BlockFailed(f"{block}: no command begins with {match[1]!r}")
        commands = left
    return commands


def _parse(block: Block, file: Path) -> None:
    """Parse a block that can be parsed, and load the servers in it from `file`. Raises BlockFailed."""
    try:
        if block.language == "python":
            compile("\n" * block.line + block.code, block.page, "exec", dont_inherit=True)
        elif block.is_data:
            for data in _parsed(block):
                _check_servers(data, file)
    except (ValueError, SyntaxError, yaml.YAMLError, configparser.Error) as error:
        raise BlockFailed(f"{block}: {error}") from error


def _parsed(block: Block) -> list[Any]:
    """The documents in a block of data. Raises what its parser raises."""
    if block.language == "json":
        return [json.loads(block.code)]
    if block.language == "toml":
        return [tomllib.loads(block.code)]
    if block.language == "yaml":
        return list(yaml.safe_load_all(block.code))
    # Units of systemd repeat keys.
    configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True).read_string(block.code)
    return []


def _check_servers(data: Any, file: Path) -> None:
    """Load the servers in `data`, if it is a configuration or one entry. Raises ValueError."""
    if not isinstance(data, dict):
        return
    if not data.keys() & {"mcpServers", "servers"}:
        if not ("command" in data or "url" in data):
            return
        data = {"mcpServers": {"server": data}}
    file.write_text(json.dumps(data), encoding="utf-8")
    MCPConfig(file)
    for name, entry in (data.get("mcpServers") or data["servers"]).items():
        ServerConfig.from_dict(name, entry)
        if unknown := unknown_keys(entry):
            raise ValueError(f"server {name!r} has unknown keys: {unknown}")


def _model_call(value: str) -> tuple[str, Any]:
    name, _, arguments = value.partition(" ")
    return name, json.loads(arguments or "{}")


def _which(command: str, path: str) -> str:
    return shutil.which(command, path=path) or command


def _contains(output: Path, texts: list[str]) -> bool:
    printed = output.read_text(encoding="utf-8", errors="replace")
    return any(text in printed for text in texts)


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _told(block: Block, what: str, output: Path) -> str:
    printed = output.read_text(encoding="utf-8", errors="replace")[-4000:]
    return f"{block}: {what}. It printed:\n{printed}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _difference(before: _Snapshot, after: _Snapshot) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
