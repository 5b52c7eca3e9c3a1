"""An engine for tests of placed servers: hosts in this process, which can be lost, cut off and brought back."""

import threading
from collections.abc import Callable

from gaia.daemon_pool import DaemonPool
from gaia.mcp.client.cluster.host import ServerHost
from gaia.mcp.client.cluster.link import HostGone, HostLost, OnAnswer
from gaia.mcp.client.cluster.placement import Placement
from tests.waiting import PATIENCE


class LocalLink:
    """Messages run on threads of this process; a lost host's messages fail, and greetings wait for the next host."""

    actor_id = "local"

    def __init__(self, new_host: Callable[[], ServerHost], *, has_place: bool = True) -> None:
        self._new_host = new_host
        self._pool = DaemonPool("test-hosts", 64)
        self._lock = threading.Lock()
        self._open: list[OnAnswer] = []
        self._greetings: list[tuple[bytes, OnAnswer]] = []
        self._held: list[tuple[str, tuple[object, ...], OnAnswer]] | None = None
        """What was sent while the host is cut off."""
        self._has_ended = False
        self.is_gone = False
        self.greetings_to_lose = 0
        self.host: ServerHost | None = new_host() if has_place else None
        self.sent: list[str] = []
        """The names of the methods, as they were sent."""

    def greet(self, settings: bytes, on_answer: OnAnswer) -> None:
        if self.greetings_to_lose:
            self.greetings_to_lose -= 1
            on_answer(None, HostLost("it is being started"))
            return
        with self._lock:
            if self.host is None and not self.is_gone:
                self._greetings.append((settings, on_answer))
                return
        self._send("greet", (settings,), on_answer)

    def call(self, asked: bytes, on_answer: OnAnswer) -> None:
        self._send("call", (asked,), on_answer)

    def poll(self, incarnation: str, acknowledged: int, on_answer: OnAnswer) -> None:
        self._send("poll", (incarnation, acknowledged), on_answer)

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self._send(method, arguments, on_answer)

    def why_not_placed(self) -> str:
        return "no node has the resource 'browser'"

    def _send(self, method: str, arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        with self._lock:
            host, gone = self.host, self.is_gone
            self.sent.append(method)
            if host is not None:
                self._open.append(on_answer)
                if self._held is not None:
                    self._held.append((method, arguments, on_answer))
                    return
        if host is None:
            on_answer(None, HostGone("killed") if gone else HostLost("there is no host"))
            return
        self._pool.submit(lambda: self._run(getattr(host, method), arguments, on_answer))

    def _run(self, method: Callable[..., object], arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        answer = method(*arguments)
        with self._lock:
            if on_answer not in self._open:
                return
            self._open.remove(on_answer)
        on_answer(answer, None)

    # What tests do.

    def cut_off(self) -> None:
        """Let no message reach the host from now on."""
        with self._lock:
            self._held = []

    def heal(self) -> None:
        """Let all messages reach the host, or fail if its process has ended meanwhile."""
        with self._lock:
            held, self._held = self._held or [], None
            host, has_ended = self.host, self._has_ended
        if has_ended:
            self.replace()
            return
        for method, arguments, on_answer in held:
            self._pool.submit(lambda one=(method, arguments, on_answer): self._run(getattr(host, one[0]), *one[1:]))

    def replace(self) -> None:
        """Have another host in the place of one whose process has ended, as soon as that can be noticed."""
        with self._lock:
            self._has_ended = self._held is not None
        if self._has_ended:
            return
        self.lose()
        self.renew()

    def lose(self) -> ServerHost | None:
        """Lose the host, as an engine that has noticed it: what was sent to it fails. Returns the host."""
        with self._lock:
            host, self.host = self.host, None
            failed, self._open = self._open, []
        for on_answer in failed:
            on_answer(None, HostGone("killed") if self.is_gone else HostLost("the node died"))
        return host

    def renew(self, host: ServerHost | None = None) -> None:
        """Have another host in the place of a lost one."""
        with self._lock:
            self.host = host or self._new_host()
            greetings, self._greetings = self._greetings, []
        for settings, on_answer in greetings:
            self._send("greet", (settings,), on_answer)

    def kill(self) -> None:
        self.is_gone = True
        host = self.lose()
        for _, on_answer in self._greetings:
            on_answer(None, HostGone("killed"))
        if host is not None:
            host.stop()

    def close(self) -> None:
        """End the threads, after the test."""
        self._pool.drain(PATIENCE)


class LocalEngine:
    """Its hosts are in this process."""

    def __init__(self, *, has_place: bool = True) -> None:
        self._has_place = has_place
        self.hosts: list[ServerHost] = []
        self.links: list[LocalLink] = []

    @property
    def link(self) -> LocalLink | None:
        """The last one."""
        return self.links[-1] if self.links else None

    def close(self) -> None:
        """End all threads, after the test."""
        for link in self.links:
            link.close()

    def _new_host(self) -> ServerHost:
        host = ServerHost("node-1", on_over=self._replace)
        self.hosts.append(host)
        return host

    def _replace(self) -> None:
        self.links[-1].replace()

    def start(self, name: str, placement: Placement) -> LocalLink:
        self.links.append(LocalLink(self._new_host, has_place=self._has_place))
        return self.links[-1]
