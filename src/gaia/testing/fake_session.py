"""`FakeSession`: the conversation of one client with a fake server, in both eras of the protocol."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from typing import Any

from gaia.agents.base.mcp_context import InputRequired, MCPCapabilityMissing, MCPRequestCancelled
from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.errors import JsonRpcError
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, SUBSCRIPTION_ID, UNSUPPORTED_VERSION
from gaia.mcp.protocol.exchange import META
from gaia.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    encode_notification,
    encode_result,
)
from gaia.mcp.rpc.channel import Ending
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import exception_text
from gaia.runtime.threads import DaemonPool
from gaia.testing.fake_context import FakeContext, FakeRequests, RequestId
from gaia.testing.fake_state import FakeCall, FakeServerState, Fault
from gaia.testing.fake_tool import Json

_MISSING_CAPABILITY, _RESOURCE_NOT_FOUND = -32021, -32002
_WANTED_AS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class FakeSession:
    """One client's state in one generation of a fake server. The test's functions run on `threads`. Thread-safe."""

    def __init__(
        self,
        state: FakeServerState,
        generation: int,
        threads: DaemonPool,
        write: Callable[[bytes], None],
        end: Callable[[Ending], None],
    ) -> None:
        """`write` sends a line to the client; `end` ends the server. Both do nothing after the server's end."""
        self._state = state
        self._generation = generation
        self._threads = threads
        self._write = write
        self._end = end
        self._is_stateless = state.revision in STATELESS_REVISIONS
        self._requests = FakeRequests(write)
        self._lock = reentrant_lock()
        """Guards the attributes below. Not held while a message is written."""
        self._client: Json = {}
        self._log_level = "debug"
        self._subscribed: set[str] = set()
        self._listening: dict[RequestId, Json] = {}
        self._running: dict[RequestId, FakeContext] = {}
        self._is_closed = False
        self._held: list[Callable[[], None]] = []
        of_the_era: dict[str, Callable[[Json], Json]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": lambda params: self._subscribe(params, self._subscribed.add),
            "resources/unsubscribe": lambda params: self._subscribe(params, self._subscribed.discard),
        }
        if self._is_stateless:
            of_the_era = {"server/discover": self._discover}
        self._answers: dict[str, Callable[[Json], Json]] = {
            "tools/list": lambda _: {"tools": state.tools.definitions()},
            "resources/list": lambda _: {"resources": state.resources.definitions()},
            "resources/templates/list": lambda _: {"resourceTemplates": []},
            "prompts/list": lambda _: {"prompts": state.prompts.definitions()},
            **of_the_era,
        }

    # For the channel.

    def received(self, message: Json) -> None:
        method, identifier, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            self._requests.answered(message)
        elif identifier is None:
            if method == "notifications/cancelled":
                self._cancelled(params.get("requestId"))
        else:
            self._requested(identifier, method, params)

    def resume(self) -> None:
        """Continue hanging calls, and protect running calls from pending hangs."""
        with self._lock:
            for context in self._running.values():
                context.may_hang = False
            held, self._held = self._held, []
        for go_on in held:
            self._threads.submit(go_on)

    def tell(self, method: str, params: Json) -> None:
        uri = params.get("uri")
        with self._lock:
            is_wanted = not self._is_stateless and (uri is None or uri in self._subscribed)
            listening = dict(self._listening)
        for identifier, wants in listening.items():
            if wants.get(_WANTED_AS.get(method, "")) or uri in wants.get("resourceSubscriptions", ()):
                self._notify(method, {**params, "_meta": {SUBSCRIPTION_ID: identifier}})
        if is_wanted:
            self._notify(method, params)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, {}
        for context in running.values():
            context.scope.cancel()

    # Requests.

    def _requested(self, identifier: RequestId, method: str, params: Json) -> None:
        try:
            if self._is_stateless:
                self._check_revision(method, params.get("_meta") or {})
            if method in ("tools/call", "resources/read", "prompts/get"):
                self._begin(identifier, method, params)
            elif method == "subscriptions/listen" and self._is_stateless:
                self._listen(identifier, params)
            elif (answer := self._answers.get(method)) is not None:
                self._respond(identifier, self._cacheable(answer(params)))
            else:
                raise JsonRpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")
        except JsonRpcError as error:
            self._refuse(identifier, error)
        except Exception as error:  # noqa: BLE001 - the thread is one of the engine's
            self._refuse(identifier, JsonRpcError(INTERNAL_ERROR, exception_text(error)))

    def _cacheable(self, result: Json) -> Json:
        """Add the stateless era's caching members, which forbid caching because tests change the items."""
        return {**result, "ttlMs": 0, "cacheScope": "private"} if self._is_stateless else result

    def _check_revision(self, method: str, meta: Json) -> None:
        revision = meta.get(f"{META}protocolVersion")
        if method == "initialize":
            raise JsonRpcError(METHOD_NOT_FOUND, "unknown method 'initialize'")
        if revision != self._state.revision:
            data = {"supported": [self._state.revision], "requested": revision}
            raise JsonRpcError(UNSUPPORTED_VERSION, f"unsupported protocol version {revision!r}", data)
        self._client = {
            "capabilities": meta.get(f"{META}clientCapabilities") or {},
            "clientInfo": meta.get(f"{META}clientInfo") or {},
        }

    def _initialize(self, params: Json) -> Json:
        self._client = params
        revision = params.get("protocolVersion")
        # The newest revision is the first.
        known = HANDSHAKE_REVISIONS[HANDSHAKE_REVISIONS.index(self._state.revision) :]
        return {"protocolVersion": revision if revision in known else known[0], **self._introduction()}

    def _discover(self, _params: Json) -> Json:
        introduction = self._introduction()
        meta = {f"{META}serverInfo": introduction.pop("serverInfo")}
        return {"supportedVersions": [self._state.revision], **introduction, "_meta": meta}

    def _introduction(self) -> Json:
        changes = {"listChanged": True}
        resources = {**changes, "subscribe": True}
        return {
            "capabilities": {"tools": changes, "prompts": changes, "resources": resources, "logging": {}},
            "serverInfo": {"name": self._state.name, "version": "1.0.0"},
            **({} if self._state.instructions is None else {"instructions": self._state.instructions}),
        }

    def _set_level(self, params: Json) -> Json:
        if params.get("level") not in LOG_LEVELS:
            raise JsonRpcError(INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
        self._log_level = params["level"]
        return {}

    def _subscribe(self, params: Json, change: Callable[[str], None]) -> Json:
        with self._lock:
            change(params["uri"])
        return {}

    def _listen(self, identifier: RequestId, params: Json) -> None:
        wanted = params.get("notifications") or {}
        with self._lock:
            self._listening[identifier] = wanted
        acknowledged = {"notifications": wanted, "_meta": {SUBSCRIPTION_ID: identifier}}
        self._notify("notifications/subscriptions/acknowledged", acknowledged)

    def _cancelled(self, identifier: Any) -> None:
        with self._lock:
            self._listening.pop(identifier, None)
            context = self._running.pop(identifier, None)
        if context is not None:
            if context.record is not None:
                context.record.cancelled = True
            context.scope.cancel()

    # Requests that functions of the test answer.

    def _begin(self, identifier: RequestId, method: str, params: Json) -> None:
        context = FakeContext(identifier, method, params, self._requests, self._notify)
        context.protocol_version = self._state.revision
        context.client_capabilities = self._client.get("capabilities") or {}
        context.client_info = self._client.get("clientInfo") or {}
        context.is_stateless = self._is_stateless
        if not self._is_stateless:
            context.log_level = lambda: self._log_level
        context.work_begins(self._state.begin_work())
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._running[identifier] = context
        if is_closed:
            context.scope.cancel()
        faults = []
        if method == "tools/call":
            arguments = params.get("arguments") or {}
            context.record = FakeCall(str(params.get("name")), arguments, self._generation, context.meta)
            faults = self._state.record(context.record)
        self._threads.submit(functools.partial(self._go_on, context, faults))

    def _result_of(self, context: FakeContext) -> Json:
        name, arguments = context.params.get("name"), context.params.get("arguments") or {}
        if context.method == "resources/read":
            if (resource := self._state.resources.get(uri := context.params.get("uri"))) is None:
                raise JsonRpcError(_RESOURCE_NOT_FOUND, f"unknown resource {uri!r}")
            return self._cacheable(resource.read())
        kind, offered = ("tool", self._state.tools) if context.record else ("prompt", self._state.prompts)
        if (item := offered.get(name)) is None:
            raise JsonRpcError(INVALID_PARAMS, f"unknown {kind} {name!r}")
        return item.run(arguments, context)

    def _go_on(self, context: FakeContext, faults: list[Fault]) -> None:
        for position, fault in enumerate(faults):
            if fault.kind == "delay":
                context.work_ended()
                if self._waits(context, fault.seconds):
                    return
                context.work_begins(self._state.begin_work())
            elif fault.kind == "junk":
                self._write(fault.data)
            elif fault.kind == "hang":
                with self._lock:
                    is_held = context.may_hang
                    if is_held:
                        self._held.append(functools.partial(self._go_on, context, faults[position + 1 :]))
                if is_held:
                    context.work_ended()
                    return
            elif not fault.after:
                self._end(fault.ending)
                return
        answer = self._answer_of(context)
        ending = next((fault.ending for fault in faults if fault.kind == "end"), None)
        if ending is not None:
            self._end(ending)
        else:
            self._answer(context, answer)
        context.work_ended()

    def _answer(self, context: FakeContext, answer: Json | JsonRpcError | None) -> None:
        with self._lock:
            # From here on, the client may use the id again.
            is_wanted = self._running.pop(context.identifier, None) is not None
        if not is_wanted or answer is None:
            return
        if isinstance(answer, JsonRpcError):
            self._refuse(context.identifier, answer)
        else:
            self._respond(context.identifier, answer)

    def _answer_of(self, context: FakeContext) -> Json | JsonRpcError | None:
        try:
            return self._result_of(context)
        except JsonRpcError as error:
            return error
        except MCPRequestCancelled:
            return None
        except MCPCapabilityMissing as missing:
            return JsonRpcError(_MISSING_CAPABILITY, str(missing), {"requiredCapabilities": {missing.capability: {}}})
        except InputRequired as required:
            return {
                "resultType": "input_required",
                "inputRequests": required.requests,
                "requestState": json.dumps(context.answers),
            }
        except Exception as error:  # noqa: BLE001 - a function of the test may raise anything
            return JsonRpcError(INTERNAL_ERROR, exception_text(error))

    def _waits(self, context: FakeContext, seconds: float) -> bool:
        """Let `seconds` of the clock pass. True if the call ended earlier."""
        clock, ended = self._state.clock, threading.Lock()
        ended.acquire()
        forget = context.scope.on_cancel(ended.release)
        has_ended = clock.acquire(ended, clock.monotonic() + seconds)
        forget()
        return has_ended

    # Messages to the client.

    def _respond(self, identifier: RequestId, result: Json) -> None:
        if self._is_stateless:
            result = {"resultType": "complete", **result}
        try:
            line = encode_result(identifier, result)
        except ValueError as error:
            self._refuse(identifier, JsonRpcError(INTERNAL_ERROR, f"the result cannot be sent: {error}"))
        else:
            self._write(line)

    def _refuse(self, identifier: RequestId, error: JsonRpcError) -> None:
        details: Json = {"code": error.code, "message": error.message}
        if error.data is not None:
            details["data"] = error.data
        self._write(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": details}).encode())

    def _notify(self, method: str, params: Json) -> None:
        self._write(encode_notification(method, params))
