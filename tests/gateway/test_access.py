"""Who may do what at a whole gateway: clients of both eras, tokens, profiles, limits and the audit."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile, add_client, read_clients_file
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from gaia.testing import FakeServer, FakeTool
from tests.gateway.running import running
from tests.gateway.token_issuer import KeyServer, SigningKey
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import PATIENCE

MODES = ("legacy", "auto")
HIDDEN = -32602


def read(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


def servers() -> dict[str, FakeServer]:
    return {
        "files": FakeServer(
            "files",
            tools=[FakeTool(read, annotations={"readOnlyHint": True}), write],
            resources={"file:///a": "text of a", "file:///b": "text of b"},
            prompts=[review],
        ),
        "secret": FakeServer("secret", tools=[FakeTool(read, annotations={"readOnlyHint": True})]),
    }


class Clients:
    """A clients file."""

    def __init__(self, file: Path, **document: Any) -> None:
        self.file = file
        file.write_text(json.dumps(document))
        file.chmod(0o600)

    def add(self, name: str, profile: str = "everything") -> str:
        return add_client(self.file, name, profile)

    def read(self) -> ClientsFile:
        return read_clients_file(self.file)

    @contextlib.contextmanager
    def changed(self) -> Iterator[dict[str, Any]]:
        """What it says, for the test to change."""
        document = json.loads(self.file.read_text())
        yield document
        self.file.write_text(json.dumps(document))


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(
        tmp_path / "clients.json",
        clients={},
        profiles={
            "reader": {
                "servers": ["files"],
                "readOnly": True,
                "enabledPrompts": [],
                "disabledResources": ["file:///b"],
            },
            "narrow": {"limits": {"concurrent": 1, "answerBytes": 200}},
        },
        limits={"maxWait": 60},
    )


@contextlib.asynccontextmanager
async def connected(url: str, token: str | None, mode: str, path: str = "/mcp") -> AsyncIterator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        Client(streamable_http_client(url + path, http_client=http), mode=mode) as client,
    ):
        yield client


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def text_of(client: Client, tool: str, **arguments: Any) -> str:
    text: str = (await client.call_tool(tool, arguments)).content[0].text
    return text


@pytest.mark.parametrize("mode", MODES)
class TestProfiles:
    async def test_a_client_sees_and_uses_what_its_profile_allows_and_the_rest_does_not_exist(
        self, clients: Clients, mode: str
    ) -> None:
        token = clients.add("ann", "reader")
        async with running(Gateway(servers(), clients=clients.read())) as url, connected(url, token, mode) as client:
            assert await names(client) == ["files_read"]
            assert await text_of(client, "files_read", path="a") == "text of a"
            assert (await client.list_prompts()).prompts == []
            assert [one.uri for one in (await client.list_resources()).resources] == ["file:///a"]
            assert (await client.read_resource("file:///a")).contents[0].text == "text of a"
            messages = []
            for tool in ("files_write", "secret_read", "files_nothing"):
                with pytest.raises(MCPError) as refused:
                    await client.call_tool(tool, {"path": "a"})
                assert refused.value.error.code == HIDDEN
                messages.append(refused.value.error.message.replace(tool, "…"))
            assert len(set(messages)) == 1, "a hidden tool is as one that is not there"
            with pytest.raises(MCPError):
                await client.get_prompt("files_review", {"code": "x"})
            with pytest.raises(MCPError):
                await client.read_resource("file:///b")

    async def test_a_profile_at_a_path_of_its_own_gives_no_client_more_rights(
        self, clients: Clients, mode: str
    ) -> None:
        everything, reader = clients.add("ann"), clients.add("bob", "reader")
        async with running(Gateway(servers(), clients=clients.read())) as url:
            async with connected(url, everything, mode) as client:
                assert await names(client) == ["files_read", "files_write", "secret_read"]
            async with connected(url, everything, mode, "/mcp/@reader") as client:
                assert await names(client) == ["files_read"]
            async with connected(url, reader, mode, "/mcp/@everything") as client:
                assert await names(client) == ["files_read"]
            async with connected(url, everything, mode, "/mcp/secret") as client:
                assert await names(client) == ["read"]
            for path in ("/mcp/secret", "/mcp/@nothing"):
                assert (await post(url + path, reader)).status_code == 404


async def post(url: str, token: str | None) -> httpx2.Response:
    """Open a session without the help of a client."""
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.post(url, json=initialize, headers=headers)


class TestTokens:
    async def test_requests_without_a_good_token_are_refused(self, clients: Clients) -> None:
        clients.add("ann")
        async with running(Gateway(servers(), clients=clients.read())) as url:
            without, wrong = await post(f"{url}/mcp", None), await post(f"{url}/mcp", "gaia_wrong")
            assert (without.status_code, wrong.status_code) == (401, 401)
            assert without.headers["www-authenticate"] == 'Bearer realm="gaia-mcp"'
            assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
            assert "gaia_wrong" not in wrong.text

    async def test_a_session_is_of_its_client_alone(self, clients: Clients) -> None:
        ann, bob = clients.add("ann"), clients.add("bob")
        async with running(Gateway(servers(), clients=clients.read())) as url:
            opened = await post(f"{url}/mcp", ann)
            session = opened.headers["mcp-session-id"]
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            statuses = []
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                for token in (bob, ann):
                    headers = {
                        "Authorization": f"Bearer {token}",
                        "Mcp-Session-Id": session,
                        "Accept": "application/json, text/event-stream",
                    }
                    if token == bob:
                        statuses.append((await http.get(f"{url}/mcp", headers=headers)).status_code)
                        statuses.append((await http.delete(f"{url}/mcp", headers=headers)).status_code)
                    statuses.append((await http.post(f"{url}/mcp", json=ping, headers=headers)).status_code)
            assert statuses == [404, 404, 404, 200]

    async def test_clients_change_while_the_gateway_runs(self, clients: Clients) -> None:
        ann, bob = clients.add("ann"), clients.add("bob", "reader")
        gateway = Gateway(servers(), clients=clients.read())
        async with running(gateway) as url, connected(url, bob, "auto") as client:
            assert await names(client) == ["files_read"]
            with clients.changed() as document:
                del document["clients"]["ann"]
                document["profiles"]["reader"] = {"enabledTools": ["files_write"]}
            gateway.change_clients(clients.read())
            assert (await post(f"{url}/mcp", ann)).status_code == 401
            assert await names(client) == ["files_write"]

    async def test_a_profile_that_changes_ends_the_sessions_that_see_it(self, clients: Clients) -> None:
        ann = clients.add("ann")
        gateway = Gateway(servers(), clients=clients.read())
        async with running(gateway) as url:
            narrowed = await post(f"{url}/mcp/@reader", ann)
            whole = await post(f"{url}/mcp", ann)
            assert len(gateway.status().sessions) == 2
            with clients.changed() as document:
                document["profiles"]["reader"]["servers"] = ["secret"]
            gateway.change_clients(clients.read())
            assert [session.path for session in gateway.status().sessions] == ["/mcp"]
            assert narrowed.headers["mcp-session-id"] != whole.headers["mcp-session-id"]
            async with connected(url, ann, "auto", "/mcp/@reader") as client:
                assert await names(client) == ["secret_read"]


class TestSubscriptions:
    @pytest.mark.parametrize("way", ["replaced", "expired"])
    async def test_the_stream_of_a_session_ends_with_its_token(self, clients: Clients, way: str) -> None:
        ann = clients.add("ann")
        with clients.changed() as document:
            document["clients"]["ann"]["expires"] = "2999-01-01T00:00:00Z"
        gateway = Gateway(servers(), clients=clients.read(), keep_alive_interval=0.05)
        async with running(gateway) as url, httpx2.AsyncClient(timeout=PATIENCE) as http:
            session = (await post(f"{url}/mcp", ann)).headers["mcp-session-id"]
            headers = {"Authorization": f"Bearer {ann}", "Mcp-Session-Id": session, "Accept": "text/event-stream"}
            async with http.stream("GET", f"{url}/mcp", headers=headers) as response:
                assert response.status_code == 200
                assert gateway.access is not None
                if way == "replaced":
                    add_client(clients.file, "ann", replace=True)
                    gateway.change_clients(clients.read())
                else:
                    gateway.access._now = lambda: 1e11
                async for _ in response.aiter_bytes():
                    pass
            assert len(gateway.status().sessions) == 1

    async def test_a_subscription_ends_with_its_client(self, clients: Clients) -> None:
        ann = clients.add("ann")
        gateway = Gateway(servers(), clients=clients.read())
        async with running(gateway) as url, httpx2.AsyncClient(timeout=PATIENCE) as http:
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "subscriptions/listen",
                "params": {
                    "notifications": {"toolsListChanged": True},
                    "_meta": {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                        "io.modelcontextprotocol/clientCapabilities": {},
                    },
                },
            }
            headers = {
                "Authorization": f"Bearer {ann}",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "subscriptions/listen",
            }
            async with http.stream("POST", f"{url}/mcp", json=request, headers=headers) as response:
                lines = response.aiter_lines()
                while "acknowledged" not in await anext(lines):
                    pass
                with clients.changed() as document:
                    document["clients"] = {}
                gateway.change_clients(clients.read())
                rest = [line async for line in lines if line.startswith("data:")]
            assert len(rest) == 1, "the result, which ends it"


class TestIssuers:
    @pytest.fixture
    def server(self) -> Iterator[KeyServer]:
        with KeyServer() as server:
            yield server

    @pytest.fixture
    def clients(self, tmp_path: Path, server: KeyServer) -> Clients:
        return Clients(
            tmp_path / "clients.json",
            resource="https://gw.example/mcp",
            profiles={"reader": {"servers": ["files"], "readOnly": True}},
            issuers={
                "corp": {
                    "issuer": server.url,
                    "profiles": [
                        {"claim": "groups", "value": "dev", "profile": "everything"},
                        {"claim": "scope", "value": "mcp:read", "profile": "reader"},
                    ],
                    "scopes": ["mcp:read"],
                }
            },
        )

    @pytest.mark.parametrize("mode", MODES)
    async def test_claims_mean_profiles(self, clients: Clients, server: KeyServer, mode: str) -> None:
        key = SigningKey()
        server.publish(key)
        async with running(Gateway(servers(), clients=clients.read())) as url:
            async with connected(url, key.token(server.url, groups=["dev"]), mode) as client:
                assert len(await names(client)) == 3
            async with connected(url, key.token(server.url, scope="mcp:read x"), mode) as client:
                assert await names(client) == ["files_read"]
            forbidden = await post(f"{url}/mcp", key.token(server.url, scope="x"))
            assert forbidden.status_code == 403
            assert server.asked.count("/jwks") == 1

    async def test_a_client_without_a_token_finds_the_way_to_one(self, clients: Clients, server: KeyServer) -> None:
        async with running(Gateway(servers(), clients=clients.read())) as url:
            refused = await post(f"{url}/mcp/files", None)
            where = "https://gw.example/.well-known/oauth-protected-resource/mcp/files"
            assert refused.status_code == 401
            assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                document = (await http.get(url + where.removeprefix("https://gw.example"))).json()
            assert document == {
                "resource": "https://gw.example/mcp/files",
                "authorization_servers": [server.url],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["mcp:read"],
            }

    async def test_keys_are_changed_while_the_gateway_runs(self, clients: Clients, server: KeyServer) -> None:
        old, new = SigningKey("old"), SigningKey("new")
        server.publish(new)
        async with running(Gateway(servers(), clients=clients.read())) as url:
            assert (await post(f"{url}/mcp", new.token(server.url, groups=["dev"]))).status_code == 200
            assert (await post(f"{url}/mcp", old.token(server.url, groups=["dev"]))).status_code == 401
            assert server.asked.count("/jwks") == 1, "one unknown key after the other has nothing fetched at once"

    async def test_an_issuer_that_cannot_be_reached_is_said_to_be(self, clients: Clients, server: KeyServer) -> None:
        server.answers.clear()
        async with running(Gateway(servers(), clients=clients.read())) as url:
            refused = await post(f"{url}/mcp", SigningKey().token(server.url, groups=["dev"]))
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "5"


class Gate:
    """A tool that waits for the test."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.running = 0
        self.most = 0
        self.callers: list[str] = []
        self._lock = threading.Lock()

    def hold(self, who: str) -> str:
        """Wait for the test."""
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.callers.append(who)
        self.entered.release()
        assert self.open.wait(PATIENCE)
        with self._lock:
            self.running -= 1
        return who

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


async def test_tightened_limits_of_a_profile_reach_an_open_session(clients: Clients) -> None:
    token, gate = clients.add("ann", "narrow"), Gate()
    gateway = Gateway({"gate": FakeServer("gate", tools=[gate.hold])}, clients=clients.read())
    async with running(gateway) as url, connected(url, token, "legacy") as client:
        with clients.changed() as document:
            document["profiles"]["narrow"]["limits"]["answerBytes"] = 10
        gateway.change_clients(clients.read())
        gate.open.set()
        result = await client.call_tool("gate_hold", {"who": "ann"})
        assert result.is_error
        assert "answerBytes" in str(result.content)


@pytest.mark.parametrize("mode", MODES)
class TestLimits:
    async def test_so_many_calls_at_once_and_the_others_wait(self, clients: Clients, mode: str) -> None:
        token, gate = clients.add("ann", "narrow"), Gate()
        gateway = Gateway({"gate": FakeServer("gate", tools=[gate.hold])}, clients=clients.read())
        async with running(gateway) as url, connected(url, token, mode) as client:
            calls = [asyncio.create_task(text_of(client, "gate_hold", who=str(n))) for n in range(5)]
            await gate.wait_entered()
            async with asyncio.timeout(PATIENCE):
                while gateway.status().limits[0].waiting < 4:
                    await asyncio.sleep(0)
            gate.open.set()
            assert sorted(await asyncio.gather(*calls)) == ["0", "1", "2", "3", "4"]
            assert gate.most == 1
            assert gateway.status().limits[0].running == 0

    async def test_another_client_does_not_wait_behind_a_runaway_one(self, clients: Clients, mode: str) -> None:
        with clients.changed() as document:
            document["limits"]["perServer"] = {"gate": {"concurrent": 1}}
        runaway, ann, gate = clients.add("runaway"), clients.add("ann"), Gate()
        gateway = Gateway({"gate": FakeServer("gate", tools=[gate.hold])}, clients=clients.read())
        async with running(gateway) as url, connected(url, runaway, mode) as first, connected(url, ann, mode) as second:
            calls = [asyncio.create_task(text_of(first, "gate_hold", who="runaway")) for _ in range(20)]
            await gate.wait_entered()
            async with asyncio.timeout(PATIENCE):
                while sum(limit.waiting for limit in gateway.status().limits) < 19:
                    await asyncio.sleep(0)
                calls.append(asyncio.create_task(text_of(second, "gate_hold", who="ann")))
                while sum(limit.waiting for limit in gateway.status().limits) < 20:
                    await asyncio.sleep(0)
            gate.open.set()
            await asyncio.gather(*calls)
            assert gate.callers.index("ann") == 2, "the second in turn, behind the call that was running"

    async def test_an_answer_that_is_too_large_is_not_passed_on(self, clients: Clients, mode: str) -> None:
        token = clients.add("ann", "narrow")
        gateway = Gateway(servers(), clients=clients.read())
        async with running(gateway) as url, connected(url, token, mode) as client:
            assert await text_of(client, "files_read", path="a") == "text of a"
            withheld = await client.call_tool("files_read", {"path": "x" * 300})
            assert withheld.is_error
            assert "answerBytes" in withheld.content[0].text
            assert withheld.meta[FAILURE_KEY]["delivery"] == "unknown"


@pytest.mark.parametrize("mode", MODES)
class TestAudit:
    async def test_each_call_has_its_line_before_its_answer_arrives(
        self, clients: Clients, tmp_path: Path, mode: str
    ) -> None:
        token, file = clients.add("ann", "reader"), tmp_path / "audit.jsonl"

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in file.read_text().splitlines()]

        gateway = Gateway(servers(), clients=clients.file, audit=file)
        async with running(gateway) as url, connected(url, token, mode) as client:
            await names(client)
            assert lines() == []
            await text_of(client, "files_read", path="very secret")
            [line] = lines()
            assert {key: line[key] for key in ("client", "address", "method", "server", "target", "outcome")} == {
                "client": "ann",
                "address": "127.0.0.1",
                "method": "tools/call",
                "server": "files",
                "target": "read",
                "outcome": "ok",
            }
            assert line["delivery"] == "answered"
            assert line["arguments"].startswith("sha256:")
            assert line["answer_bytes"] > 0
            with pytest.raises(MCPError):
                await client.call_tool("files_write", {"path": "a"})
            await client.read_resource("file:///a")
            assert [(one.get("server"), one["target"], one["outcome"]) for one in lines()[1:]] == [
                (None, "files_write", "unknown_tool"),
                ("files", "file:///a", "ok"),
            ]
            assert "very secret" not in file.read_text()
            assert token not in file.read_text()


class TestTelemetry:
    def test_spans_and_metrics_carry_the_client(self, clients: Clients, tracing: Tracing, metering: Metering) -> None:
        token = clients.add("ann")

        async def use() -> None:
            gateway = Gateway(servers(), clients=clients.read())
            async with running(gateway) as url, connected(url, token, "auto") as client:
                await text_of(client, "files_read", path="a")

        asyncio.run(use())
        assert attributes_of(tracing.call)["gaia.mcp.gateway.client"] == "ann"
        points = metering.points("mcp.client.operation.duration")
        assert "ann" in {(point.attributes or {}).get("gaia.mcp.gateway.client") for point in points}
