"""A small server that speaks the few requests of Kubernetes' API that the engine makes, and runs pods as processes.

It grants what the engine's RULES say, and nothing else.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAMESPACE = "team"


class FakePod:
    def __init__(self, cluster: "FakeKubernetes", body: dict[str, Any]) -> None:
        self.body = body
        self.name = body["metadata"]["name"]
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        body["status"] = {"phase": "Pending"}
        self.log = cluster.folder / f"{self.name}.log"
        self.log.touch()
        self.process: subprocess.Popen[bytes] | None = None
        self._cluster = cluster

    def run(self) -> None:
        (container,) = self.body["spec"]["containers"]
        secret = self._cluster.secrets[self.body["spec"]["volumes"][0]["secret"]["secretName"]]
        mount = self._cluster.folder / self.name
        mount.mkdir()
        for name, text in secret["stringData"].items():
            (mount / name).write_text(text)
        shell, option, script = container["command"]
        script = (
            script.replace("exec python ", f"exec {sys.executable} ")
            .replace("/launch/", f"{mount}/")
            .replace("/tmp/in", f"{mount}/in")
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([shell, option, script], stdout=log, stderr=log, start_new_session=True)
        threading.Thread(target=self._wait, name=f"pod-{self.name}").start()
        self.body["spec"]["nodeName"] = "node-1"
        self.body["status"] = {
            "phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [{"state": {"running": {}}}],
        }  # fmt: skip

    def _wait(self) -> None:
        assert self.process is not None
        code = self.process.wait()
        shutil.rmtree(self._cluster.folder / self.name)
        with self._cluster.changed:
            terminated = {"reason": "Error" if code else "Completed", "exitCode": code}
            self.body["status"]["phase"] = "Failed" if code else "Succeeded"
            self.body["status"]["containerStatuses"] = [{"state": {"terminated": terminated}}]
            self._cluster.tell("MODIFIED", self)


class FakeKubernetes:
    def __init__(self, folder: Path, rules: Any) -> None:
        self.folder = folder
        self.rules = rules
        self.changed = threading.Condition(threading.RLock())
        self.secrets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, FakePod] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.unschedulable = ""
        """Why pods get no node, if they get none."""
        self.is_over = False
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: cluster.answer(self)
                raise AttributeError(name)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.config = folder / "config"
        named = {"clusters": "cluster", "users": "user", "contexts": "context"}
        values: dict[str, Any] = {
            "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"},
            "user": {},
            "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE},
        }
        lists = {key: [{"name": "x", one: values[one]}] for key, one in named.items()}
        self.config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **lists}))

    def stop(self) -> None:
        for pod in list(self.pods.values()):
            if pod.process is not None:
                pod.process.kill()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def tell(self, kind: str, pod: FakePod) -> None:
        with self.changed:
            self.events.append((kind, json.loads(json.dumps(pod.body))))
            self.changed.notify_all()

    def answer(self, http: BaseHTTPRequestHandler) -> None:
        url = urlsplit(http.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(http.headers.get("Content-Length") or 0)
        body = json.loads(http.rfile.read(length)) if length else {}
        if url.path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
            allowed = asked["namespace"] == NAMESPACE and self._allows(resource, asked["verb"])
            self._send(http, 201, {"status": {"allowed": allowed}})
            return
        _, _, _, _, namespace, resource, *rest = url.path.split("/")
        name, part = (*rest, "", "")[:2]
        verb = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}[http.command]
        verb = "watch" if query.get("watch") else verb
        if namespace != NAMESPACE or not self._allows("/".join(filter(None, (resource, part))), verb):
            self._refuse(http, 403, f"may not {verb} {resource} {part} in {namespace}")
        elif verb == "watch" or part == "log":
            http.close_connection = True
            with contextlib.suppress(OSError):
                self._log(http, self.pods[name]) if part else self._watch(
                    http, query["fieldSelector"].partition("=")[2]
                )
        else:
            self._object(http, resource, verb, name, body)

    def _allows(self, resource: str, verb: str) -> bool:
        return any(resource in rule["resources"] and verb in rule["verbs"] for rule in self.rules)

    def _object(self, http: BaseHTTPRequestHandler, resource: str, verb: str, name: str, body: dict[str, Any]) -> None:
        with self.changed:
            known: dict[str, Any] = self.pods if resource == "pods" else self.secrets
            if verb == "list":
                self._send(http, 200, {"items": [pod.body for pod in self.pods.values()]})
            elif verb == "create":
                self._create(http, resource, body)
            elif name not in known:
                self._refuse(http, 404, f"{resource} {name} not found")
            elif verb == "get":
                encoded = {
                    key: base64.b64encode(text.encode()).decode() for key, text in known[name]["stringData"].items()
                }
                self._send(http, 200, {**known[name], "data": encoded})
            else:
                gone = known.pop(name)
                self._send(http, 200, {})
                if isinstance(gone, FakePod):
                    threading.Thread(target=self._delete, args=(gone,), name=f"delete-{name}").start()

    def _create(self, http: BaseHTTPRequestHandler, resource: str, body: dict[str, Any]) -> None:
        known: dict[str, Any] = self.pods if resource == "pods" else self.secrets
        name = body["metadata"]["name"]
        if name in known:
            self._refuse(http, 409, f"{resource} {name} already exists")
            return
        known[name] = FakePod(self, body) if resource == "pods" else body
        self._send(http, 201, body)
        if resource == "pods":
            if self.unschedulable:
                reason = {"status": "False", "reason": "Unschedulable", "message": self.unschedulable}
                body["status"]["conditions"] = [{"type": "PodScheduled", **reason}]
            else:
                known[name].run()
            self.tell("ADDED", known[name])

    def _delete(self, pod: FakePod) -> None:
        if pod.process is not None:
            pod.process.terminate()
            pod.process.wait()
        self.tell("DELETED", pod)

    def _watch(self, http: BaseHTTPRequestHandler, name: str) -> None:
        _begin_chunks(http)
        with self.changed:
            # The present state comes first.
            seen = len(self.events)
            new = [("ADDED", json.loads(json.dumps(self.pods[name].body)))] if name in self.pods else []
        while True:
            for kind, body in new:
                if body["metadata"]["name"] == name:
                    _send_chunk(http, json.dumps({"type": kind, "object": body}).encode() + b"\n")
            with self.changed:
                while not self.is_over and len(self.events) == seen:
                    self.changed.wait()
                new, seen = self.events[seen:], len(self.events)
            if self.is_over:
                _send_chunk(http, b"")
                return

    def _log(self, http: BaseHTTPRequestHandler, pod: FakePod) -> None:
        _begin_chunks(http)
        assert pod.process is not None
        sent = 0
        while True:
            is_over = pod.process.poll() is not None
            text = pod.log.read_bytes()
            if text[sent:]:
                _send_chunk(http, text[sent:])
            sent = len(text)
            if is_over or self.is_over:
                _send_chunk(http, b"")
                return
            with self.changed:
                self.changed.wait(0.02)

    def _refuse(self, http: BaseHTTPRequestHandler, status: int, message: str) -> None:
        self._send(http, status, {"kind": "Status", "message": message})

    def _send(self, http: BaseHTTPRequestHandler, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        http.send_response(status)
        http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)


def _begin_chunks(http: BaseHTTPRequestHandler) -> None:
    http.send_response(200)
    http.send_header("Transfer-Encoding", "chunked")
    http.end_headers()


def _send_chunk(http: BaseHTTPRequestHandler, data: bytes) -> None:
    """As the API server does. Raises OSError if the client has left; an empty chunk is the end."""
    http.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
