"""Servers on loopback sockets that do, byte for byte, what a test says."""

import contextlib
import datetime as dt
import ipaddress
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread, Task, hold_io_thread, release_io_thread
from gaia.http.request import HttpSettings
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import run
from tests.waiting import PATIENCE

Script = Callable[[socket.socket], None]
Scripted = Callable[..., "RawServer"]
Connected = Callable[..., "BlockingConnection"]


class RawServer:
    """Runs one script for each connection that is made, in turn, on one thread; the last one again and again."""

    def __init__(self, scripts: tuple[Script, ...], scheme: str = "http") -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = Url.parse(f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/mcp")
        self.connections = 0
        self.received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        """What `request_of` has read."""
        self._peers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="raw-server")
        self._thread.start()

    def request_of(self, peer: socket.socket) -> bytes:
        """Read one request, with its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += _some(peer)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += _some(peer)
        self.received.put(head + b"\r\n\r\n" + body)
        return head + b"\r\n\r\n" + body

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            # Wakes up the thread; closing does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._peers.append(peer)
            # A client that leaves is what many tests are about.
            with contextlib.suppress(OSError):
                script(peer)
            peer.close()


def _some(peer: socket.socket) -> bytes:
    data = peer.recv(65536)
    if not data:
        raise ConnectionError("the client has left")
    return data


@pytest.fixture
def scripted(no_leaks: None) -> Iterator[Scripted]:
    """Start a server: the arguments are its scripts, which get the server and the connection."""
    with contextlib.ExitStack() as stack:

        def start(*scripts: Callable[[RawServer, socket.socket], None], scheme: str = "http") -> RawServer:
            running: list[RawServer] = []
            ready = threading.Event()

            def bound(script: Callable[[RawServer, socket.socket], None]) -> Script:
                def run(peer: socket.socket) -> None:
                    ready.wait(PATIENCE)
                    script(running[0], peer)

                return run

            running.append(RawServer(tuple(bound(script) for script in scripts), scheme))
            ready.set()
            stack.callback(running[0].stop)
            return running[0]

        yield start


class BlockingConnection(HttpConnection):
    """A connection that is used by one thread, which waits for it."""

    def request(self, *arguments: Any, **keywords: Any) -> "BlockingResponse":  # type: ignore[override]
        return BlockingResponse(run(super().request(*arguments, **keywords)))


class BlockingResponse:
    def __init__(self, response: Response) -> None:
        self._response = response

    def read(self) -> bytes:
        return run(self._response.read())

    def chunks(self) -> Iterator[bytes]:
        while chunk := run(self._response.chunk()):
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def __enter__(self) -> "BlockingResponse":
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()


@pytest.fixture
def io(no_leaks: None) -> Iterator[IoThread]:
    user = object()
    held = hold_io_thread(user, lambda: None)
    yield held
    assert release_io_thread(user, held, PATIENCE)


def on_io(io: IoThread, exchange: Coroutine[Any, Any, Any]) -> tuple[Task, "Future[Any]"]:
    """Have the I/O thread drive an exchange. What becomes of it."""
    outcome: Future[Any] = Future()

    async def note() -> None:
        try:
            outcome.set_result(await exchange)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcome.set_exception(error)

    task = Task(io, note(), lambda _: None)
    io.post(lambda: io.begin(task))
    return task, outcome


@pytest.fixture(params=[False, True], ids=["awaits", "waits_here"])
def connected(no_leaks: None, request: pytest.FixtureRequest) -> Iterator[Connected]:
    """A connection, for the I/O thread or for that of a caller; the keywords are fields of its settings."""
    with contextlib.ExitStack() as stack:

        def make(**settings: Any) -> BlockingConnection:
            connection = BlockingConnection(HttpSettings(**settings))
            connection.waits_here = request.param
            stack.callback(connection.close)
            return connection

        yield make


def answering(*answers: bytes) -> Callable[[RawServer, socket.socket], None]:
    """A script: for each request on the connection the next answer; then the connection is closed."""

    def script(server: RawServer, peer: socket.socket) -> None:
        for answer in answers:
            server.request_of(peer)
            peer.sendall(answer)

    return script


def ok(body: bytes = b"hello", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (headers, len(body), body)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for 127.0.0.1 and localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    usage = {name: name in ("digital_signature", "key_cert_sign") for name in _USAGES}
    public = key.public_key()
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return file


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@pytest.fixture
def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_side(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


@pytest.fixture
def silent(no_leaks: None) -> Iterator[Url]:
    """The URL of a socket that accepts no connection: those that it may keep waiting are there."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield Url.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/")


def secured(context: ssl.SSLContext, *answers: bytes) -> Callable[[RawServer, socket.socket], None]:
    """A script: as `answering`, over TLS."""

    def script(server: RawServer, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE)
        with context.wrap_socket(peer, server_side=True) as secure:
            answering(*answers)(server, secure)

    return script


class Tls:
    """Servers with the certificate of the test, and connections that trust it."""

    def __init__(
        self, scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext
    ) -> None:
        self._scripted, self._connected = scripted, connected
        self.server_side, self.client_side = server_side, client_side

    def serve(self, *connections: list[bytes]) -> RawServer:
        """A server with these answers on each connection."""
        return self._scripted(*(secured(self.server_side, *answers) for answers in connections), scheme="https")

    def connection(self, **settings: Any) -> BlockingConnection:
        return self._connected(tls=self.client_side, **settings)


@pytest.fixture
def tls(scripted: Scripted, connected: Connected, server_side: ssl.SSLContext, client_side: ssl.SSLContext) -> Tls:
    return Tls(scripted, connected, server_side, client_side)
