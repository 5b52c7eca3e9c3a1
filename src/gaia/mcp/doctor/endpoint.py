"""Checks the connection to a server with a URL: name, connection, certificate, and the answer to a plain request.

The checks open their own connection, so that a network problem does not look like a problem of the server.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gaia.mcp.doctor.diagnosis import Check, Verdict, failed, ok, skipped, warned
from gaia.runtime.extras import install_command

if TYPE_CHECKING:
    from gaia.http.url import Url

_SECONDS = 10.0
_RENEW_DAYS = 14


def check_endpoint(url: str, headers: Mapping[str, str]) -> Iterator[Check]:
    """The checks ``address``, ``connection`` and ``http``. Stops after a failed one."""
    try:
        # The client's own modules, because their reading of the URL and of the environment is checked.
        import httptools  # noqa: F401 - what the client itself needs

        from gaia.http.streams import tls_context
        from gaia.http.url import Proxies, Url
    except ModuleNotFoundError as error:
        remedy = f"Run: {install_command('http')}"
        yield failed("address", f"servers over HTTP need the package {error.name}, which is not installed", remedy)
        return
    try:
        target = Url.parse(url)
    except ValueError as error:
        yield failed("address", str(error), 'Mend "url".')
        return
    try:
        proxy = Proxies.from_environment().for_url(target)
        context = tls_context() if target.scheme == "https" else None
    except (ValueError, OSError) as error:
        detail = f"what the environment says of proxies or certificates cannot be used: {error}"
        yield failed("address", detail, "Mend HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE or SSL_CERT_DIR.")
        return
    if proxy is not None:
        yield skipped("address", "it is reached through a proxy, which looks up the name")
        return
    address = _look_up(target.host, target.port)
    yield address
    if address.verdict is Verdict.FAIL:
        return
    began = time.perf_counter()
    try:
        connection = _connect(target, context)
    except (OSError, http.client.HTTPException) as error:
        yield _refused(target, error)
        return
    with contextlib.closing(connection):
        yield _connected(target, connection, time.perf_counter() - began)
        yield _ask(target, connection, headers)


def _look_up(host: str, port: int) -> Check:
    """Look up a name on a thread, which may be abandoned, because the system's resolver has no deadline."""
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)

    began = time.perf_counter()
    threading.Thread(target=ask, name="mcp-doctor-resolver", daemon=True).start()
    try:
        found = answer.result(_SECONDS)
    except (OSError, UnicodeError) as error:
        late = f"no answer within {_SECONDS:g} s"
        reason = (getattr(error, "strerror", None) or error) if answer.done() else late
        remedy = 'Is the name in "url" right, and this machine online?'
        return failed("address", f"{host} has no address: {reason}", remedy, time.perf_counter() - began)
    detail = host if found == [host] else f"{host} is {', '.join(found[:3])}"
    return ok("address", detail, time.perf_counter() - began)


def _connect(url: Url, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(url.host, url.port, timeout=_SECONDS)
    if context is not None:
        connection = http.client.HTTPSConnection(url.host, url.port, timeout=_SECONDS, context=context)
    connection.connect()
    return connection


def _connected(url: Url, connection: http.client.HTTPConnection, seconds: float) -> Check:
    if not isinstance(connection.sock, ssl.SSLSocket):
        return ok("connection", f"connected to {url.address}", seconds)
    detail = f"{connection.sock.version()}"
    expires = (connection.sock.getpeercert() or {}).get("notAfter")
    if not isinstance(expires, str):
        return ok("connection", detail, seconds)
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(expires), UTC)
    detail += f", certificate valid until {until:%Y-%m-%d}"
    if (until - datetime.now(UTC)).days < _RENEW_DAYS:
        return warned("connection", detail, "The certificate ends soon; tell the operators of the server.", seconds)
    return ok("connection", detail, seconds)


def _refused(url: Url, error: Exception) -> Check:
    place = url.address
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = "Set SSL_CERT_FILE if the server has a certificate of your own authority."
        return failed("connection", f"the certificate of {place} is not accepted: {error.verify_message}", remedy)
    if isinstance(error, ssl.SSLError):
        return failed("connection", f"no TLS with {place}: {error.reason}", 'Is it http:// and not https:// in "url"?')
    reason = getattr(error, "strerror", None) or str(error)
    return failed("connection", f"cannot connect to {place}: {reason}", "Does the server run, and listen there?")


def _ask(url: Url, connection: http.client.HTTPConnection, headers: Mapping[str, str]) -> Check:
    """Send a GET, which changes nothing at the server (specification, "Listening for Messages from the Server")."""
    began = time.perf_counter()
    late, opened = threading.Event(), connection.sock

    def give_up() -> None:
        late.set()
        # Wakes the reading thread. The plain socket's method is used, because a TLS socket's own waits for the peer.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(opened, socket.SHUT_RDWR)

    # The connection's timeout limits only silence, and a server can send "100 Continue" for ever.
    timer = threading.Timer(_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        connection.request("GET", url.target, headers={"Accept": "text/event-stream", **headers})
        response = connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        timed_out = isinstance(error, TimeoutError) or late.is_set()
        detail = f"no answer within {_SECONDS:g} s" if timed_out else f"no HTTP answer: {error!r}"
        return failed("http", detail, "Is it an HTTP server?")
    finally:
        timer.cancel()
    seconds = time.perf_counter() - began
    status = response.status
    detail = f"{status} {response.reason}".strip()
    if status in (401, 403):
        # Only the client uses stored logins, so the handshake shows whether they are sufficient.
        return ok("http", f"{detail}, which is an answer: it wants to know who you are", seconds)
    if 300 <= status < 400:
        target = response.headers.get("Location", "nowhere")
        return warned("http", f"{detail}: it sends us on to {target[:200]}", 'Put that address into "url".', seconds)
    if status == 404:
        detail += f": there may be nothing at {url.target.partition('?')[0]}"
        return warned("http", detail, "Is the path right?", seconds)
    if status >= 500:
        return failed("http", f"{detail}: the server is in trouble", "Tell the operators of the server.", seconds)
    # The specification requires 405 from a server without server-initiated messages. Some servers send 400 or 406.
    return ok("http", f"{detail}, which is an answer", seconds)
