"""An authorization server's keys and tokens, and a web server on this machine that publishes the keys."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

RESOURCE = "https://gw.example/mcp"

_ALGORITHMS = jwt.algorithms.get_default_algorithms()


class SigningKey:
    """A private key, and the public one as it is published."""

    def __init__(self, kid: str | None = "k1", algorithm: str = "ES256") -> None:
        self.algorithm = algorithm
        self.kid = kid
        self._private: Any
        if algorithm.startswith(("RS", "PS")):
            self._private = rsa.generate_private_key(65537, 2048)
        elif algorithm == "EdDSA":
            self._private = ed25519.Ed25519PrivateKey.generate()
        else:
            self._private = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(_ALGORITHMS[algorithm].to_jwk(self._private.public_key()))  # type: ignore[attr-defined]
        self.public = {**public, "use": "sig"} | ({} if kid is None else {"kid": kid})

    def token(self, issuer: str, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of this moment; a claim of None is left out."""
        given = {"iss": issuer, "aud": RESOURCE, "sub": "ann", "exp": int(time.time()) + 600, **claims}
        body = {name: value for name, value in given.items() if value is not None}
        named = {"kid": self.kid} if self.kid is not None else {}
        return jwt.encode(body, self._private, self.algorithm, headers={"typ": "at+jwt", **named, **(headers or {})})


class KeyServer:
    """Answers GET by path: a JSON document, or bytes, or a status. A context."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                answer = outer.answers.get(self.path, 404)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def publish(self, *keys: SigningKey, path: str = "/jwks") -> None:
        """Publish keys, and the metadata that says where they are."""
        self.answers[path] = {"keys": [key.public for key in keys]}
        metadata = {"issuer": self.url, "jwks_uri": self.url + path}
        self.answers["/.well-known/oauth-authorization-server"] = metadata

    def __enter__(self) -> "KeyServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
