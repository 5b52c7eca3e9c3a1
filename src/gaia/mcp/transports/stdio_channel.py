"""One running server behind pipes: its process, and the threads for its input, output and error output."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gaia.mcp.errors import StartFailed
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.framing import LineFramer
from gaia.mcp.rpc.channel import ChannelListener, Ending, Frame
from gaia.mcp.transports.base import open_channels
from gaia.mcp.transports.direct_process import DirectProcess
from gaia.mcp.transports.pipe_reader import PipeReader
from gaia.mcp.transports.pipe_writer import PipeWriter, enlarge
from gaia.mcp.transports.process import ServerProcess
from gaia.mcp.transports.reaped_process import NoReapers, ReapedProcess
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import Redactor
from gaia.runtime.threads import EngineThread
from gaia.runtime.untrusted_text import clean

if TYPE_CHECKING:
    from gaia.mcp.transports.sandbox.cage import Cage

logger = get_logger(__name__)

_READ_BYTES = 64 * 1024
_LARGE_READ_BYTES = 1024 * 1024
_FEW_LINES = 64
_JOIN_SECONDS = 2.0
_DRAIN_SECONDS = 0.5
"""How long to wait for a server's last output, which is available at once unless another process holds the pipes."""
_LOOK_SECONDS = 0.01


class StdioChannel:
    def __init__(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        cwd: str | None,
        listener: ChannelListener,
        *,
        name: str,
        redact: Redactor,
        max_message_bytes: int,
        max_pending: int,
        cage: Cage | None = None,
    ) -> None:
        """Start the server and the threads. Raises StartFailed, and then leaves nothing behind."""
        thread_name = f"mcp-{name}"
        self.redact = redact
        self._listener = listener
        self._cage = cage
        self._framer = LineFramer(max_message_bytes)
        self._stderr = StderrTail(name, redact)
        self.stderr_tail = self._stderr.text
        self._readers: list[threading.Thread] = []
        self._reader: PipeReader | None = None
        self._drained_by: float | None = None
        """When to stop waiting for the last output; None before the server's end. Two threads may set it: either is
        right."""
        self._writer: PipeWriter | None = None
        self.is_forked = False
        how = (argv, environment, cwd, thread_name, self._server_exited)
        self._process: ServerProcess
        try:
            self._process = ReapedProcess(*how)
        except NoReapers:
            self._process = DirectProcess(*how)
        self.pid, self.popen = self._process.pid, self._process.popen
        open_channels.add(self)
        try:
            # stderr is read before the first byte is sent: a server that logs a lot must not block on it.
            self._start(f"{thread_name}-stderr", self._read_stderr)
            reader = self._reader = PipeReader(
                self._process.stdout,
                _Chunks(self._process.stdout.fileno()).read,
                self._framer.lines,
                listener.message_received,
                listener.channel_ended,
                listener.awaits_answers,
            )
            self._start(f"{thread_name}-reader", lambda: self._read_stdout(reader))
            self._writer = PipeWriter(
                self._process.stdin, thread_name, max_pending=max_pending, on_broken=self._input_closed, reader=reader
            )
            self.send = self._writer.send
            """See `Channel.send`. It is the writer's method itself, because every call passes here."""
        except BaseException as error:
            self.close(0.0)
            if isinstance(error, RuntimeError):
                raise StartFailed(f"no threads for the server: {error}") from error
            raise

    def is_alive(self) -> bool:
        return not self.is_forked and self._process.wait(0) is None

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        """Does nothing: the bytes on the pipe are the same in all revisions."""

    def ending(self, wait: float) -> Ending | None:
        ending = self._process.wait(wait)
        if ending is None:
            return None
        self._drain_last_words()
        return self._with_stderr(ending)

    def memory(self) -> int:
        return self._process.memory()

    def stop_writing(self) -> bool:
        return not self.is_forked and self._writer is not None and self._writer.close()

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        if self._writer is not None:
            self._writer.close()
        else:
            self._process.stdin.close()
        ending = self._process.stop(grace)
        if self._cage is not None:
            ending = self._cage.ending_of_server(ending)
            self._cage.remove()
        if self._drain(_JOIN_SECONDS):
            for pipe in (self._process.stdout, self._process.stderr):
                pipe.close()
        else:
            # If this thread closed the descriptor, a reader in the middle of a read could read another file that gets
            # the same number. So the reader closes its pipe when the surviving process closes the other side.
            logger.error("output_still_open", pid=self.pid)
        open_channels.discard(self)
        return self._with_stderr(ending)

    def after_fork(self) -> None:
        """Close the child's copies of the pipes, so that only the parent decides when the server's input ends."""
        self.is_forked = True
        if self._writer is not None:
            self._writer.after_fork()
        if self._reader is not None:
            self._reader.after_fork()
        self._process.after_fork()

    def _server_exited(self) -> None:
        self._drain_last_words()
        self._listener.channel_ended()

    def _input_closed(self) -> None:
        """The server has closed its input, most likely because it is about to exit. On the writer thread."""
        self._process.wait(_DRAIN_SECONDS)
        self._server_exited()

    def _drain_last_words(self) -> None:
        """Wait until the output that the server wrote before its end is read. Later calls do not wait again.

        A process that the server left behind, such as the one behind ``npx``, may hold the output open. This waits for
        it only as long as it may answer a request.
        """
        if self._drained_by is None:
            self._drained_by = time.monotonic() + _DRAIN_SECONDS
        while (remaining := self._drained_by - time.monotonic()) > 0:
            if self._drain(min(_LOOK_SECONDS, remaining)):
                return
            if not self._listener.awaits_answers() and self._is_all_read():
                self._drained_by = time.monotonic()

    def _is_all_read(self) -> bool:
        """Whether the pipes are empty, but another process holds them open. If none does, they will end soon."""
        if not hasattr(select, "poll"):
            return False
        events = select.poll()
        for pipe in (self._process.stdout, self._process.stderr):
            # The thread that reads a pipe closes it at its end, which raises ValueError here.
            with contextlib.suppress(ValueError):
                events.register(pipe, select.POLLIN)
        return not events.poll(0)

    def _drain(self, timeout: float) -> bool:
        """False if output is still open after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if self._reader is not None:
            # A loop that is blocked or closed does not read to the end: let the thread check that.
            self._reader.look()
        for thread in self._readers:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._readers)

    def _with_stderr(self, ending: Ending) -> Ending:
        if self._cage is not None:
            ending = self._cage.ending_of_server(ending)
        return msgspec.structs.replace(ending, stderr_tail=self._stderr.text())

    def _start(self, name: str, target: Callable[[], None]) -> None:
        # The log events of the thread belong to the trace of this start.
        context = contextvars.copy_context()
        thread = EngineThread(lambda: context.run(target), name, self._listener.channel_ended)
        thread.start()
        self._readers.append(thread)

    def _read_stdout(self, reader: PipeReader) -> None:
        reader.run()
        try:
            rest = self._framer.finish()
            if rest is not None:
                self._listener.message_received(rest)
        finally:
            self._listener.channel_ended()

    def _read_stderr(self) -> None:
        with self._process.stderr as pipe:
            for chunk in iter(_Chunks(pipe.fileno()).read, b""):
                self._stderr.feed(chunk)
        self._stderr.finish()


class _Chunks:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = _READ_BYTES
        self._enlarged = False

    def read(self) -> bytes:
        """Wait for output and return it; empty at the end of the pipe."""
        try:
            chunk = os.read(self._descriptor, self._size)
        except OSError as error:
            logger.warning("pipe_read_failed", error=str(error))
            return b""
        # A full read with few lines is part of a large message. Large buffers cost too much for normal reads, and a
        # flood of short lines is better left in the pipe.
        is_large = len(chunk) >= _READ_BYTES and _has_few_lines(chunk)
        self._size = _LARGE_READ_BYTES if is_large else _READ_BYTES
        if self._size == _LARGE_READ_BYTES and not self._enlarged:
            self._enlarged = True
            enlarge(self._descriptor)
        return chunk


def _has_few_lines(chunk: bytes) -> bool:
    # Counting all lines of a large chunk takes twenty times as long.
    end = -1
    for _ in range(_FEW_LINES + 1):
        end = chunk.find(b"\n", end + 1)
        if end < 0:
            return True
    return False


_SHOWN_BYTES = 16 * 1024
_SHOWN_LINES = 20


class StderrTail:
    """Keeps the last 16 KiB of a stream. The thread that reads the pipe feeds it; any thread may read it."""

    def __init__(self, server: str, redact: Redactor) -> None:
        self._server = server
        self._redact = redact
        self._kept_bytes = _SHOWN_BYTES + redact.longest
        self._lock = reentrant_lock()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._cut = False
        self._line = b""
        """The last, incomplete line, for the log. Belongs to the thread that reads."""

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            self._chunks.append(chunk[-self._kept_bytes :])
            self._size += len(self._chunks[-1])
            self._cut = self._cut or len(chunk) > self._kept_bytes
            while self._size - len(self._chunks[0]) >= self._kept_bytes:
                self._size -= len(self._chunks.popleft())
                self._cut = True
        if logger.is_enabled_for(logging.DEBUG):
            # Whole lines, because a secret that is cut in two is not recognised.
            lines, _, self._line = (self._line + chunk).rpartition(b"\n")
            self._log(lines)
            if len(self._line) > self._kept_bytes:
                self.finish()

    def finish(self) -> None:
        self._log(self._line)
        self._line = b""

    def text(self) -> str:
        """The last lines, with secrets masked and control characters removed."""
        with self._lock:
            kept, cut = b"".join(self._chunks), self._cut
        # Masked again after cleaning, which joins text that terminal sequences kept apart.
        text = self._redact(clean(self._redact(kept.decode("utf-8", "replace"))))
        if cut:
            # Drop a possible end of a secret whose beginning is lost.
            text = text[self._redact.longest :]
        return "\n".join(text.splitlines()[-_SHOWN_LINES:]).strip()

    def _log(self, text: bytes) -> None:
        if text:
            logger.debug("server_stderr", server=self._server, text=self._redact(text.decode("utf-8", "replace")))
