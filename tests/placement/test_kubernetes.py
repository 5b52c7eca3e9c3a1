"""The Kubernetes engine, with a server that speaks Kubernetes' API as far as the engine uses it, and runs hosts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaia.mcp.client import MCPClient
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engine import Launch
from tests.placement.conftest import DEMO, are_gone, processes_of
from tests.placement.fake_kubernetes import FakeKubernetes
from tests.waiting import wait_until

kubernetes = pytest.importorskip("kubernetes", reason="the client of Kubernetes is not installed")
pytest.importorskip("cryptography")

from gaia.mcp.placement.kubernetes_engine import RULES, KubernetesEngine  # noqa: E402
from gaia.mcp.placement.kubernetes_manifests import label_of, manifests  # noqa: E402

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]


@pytest.fixture(autouse=True)
def cluster(no_leaks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes(tmp_path, RULES)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(fake.config))
    yield fake
    fake.stop()


def placed(**placement: Any) -> dict[str, Any]:
    return {**DEMO, "placement": {"engine": "kubernetes", "image": "team/servers:1", "lease": 2, **placement}}


def engine_of(entry: dict[str, Any]) -> KubernetesEngine:
    found = ServerConfig.from_dict("demo", entry).placement
    assert isinstance(found, Placement)
    return KubernetesEngine(found)


def last_error(entry: dict[str, Any]) -> str:
    client = MCPClient.from_config("demo", entry)
    try:
        assert not client.connect()
        return str(client.last_error)
    finally:
        client.disconnect()


def test_a_server_is_called_in_its_pod_and_leaves_nothing(connect: Connect, cluster: FakeKubernetes) -> None:
    client = connect(placed())
    processes = processes_of(client)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    placement = client.status.placement
    assert placement is not None
    assert (placement.node, placement.pid) == ("node-1", client.status.pid)
    # The Secret has served its purpose.
    assert cluster.secrets == {}
    engine = engine_of(placed())
    (listed,) = engine.list()
    assert (listed.name, listed.id, listed.node, listed.is_shared) == ("fault", placement.id, "node-1", False)
    client.disconnect()
    assert are_gone(processes)
    assert cluster.pods == {}
    engine.close()


def test_a_pod_that_is_lost_is_replaced(connect: Connect, cluster: FakeKubernetes) -> None:
    client = connect(placed())
    processes = processes_of(client)
    processes[0].kill()
    assert wait_until(lambda: client.status.placement is None or client.status.placement.host_pid != processes[0].pid)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert are_gone(processes)
    # The first one was deleted.
    assert wait_until(lambda: len(cluster.pods) == 1)


def test_programs_share_a_pod_by_name(connect: Connect, cluster: FakeKubernetes) -> None:
    entry = placed(lifetime="detached", name="team browser")
    first, second = connect(entry), connect(entry)
    host = processes_of(first)[0]
    assert processes_of(second)[0] == host
    first.disconnect()
    assert second.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    second.disconnect()
    assert are_gone([host])
    # What is left is deleted by the next program.
    third = connect(entry)
    assert third.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}


def test_why_there_is_no_pod_is_told(cluster: FakeKubernetes) -> None:
    cluster.unschedulable = "0/3 nodes are available: 3 Insufficient cpu."
    error = last_error({**placed(), "startTimeout": 0.5})
    assert "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu." in error
    assert cluster.pods == {}
    assert cluster.secrets == {}


def test_why_a_host_did_not_start_is_told(cluster: FakeKubernetes) -> None:
    error = last_error({**placed(), "command": "no-such-command-anywhere"})
    assert "in the pod gaia-demo-" in error
    assert "no-such-command-anywhere" in error


def test_a_missing_right_is_told(cluster: FakeKubernetes) -> None:
    cluster.rules = RULES[:2]
    engine = engine_of(placed())
    with pytest.raises(StartFailed, match="may not create secrets in the namespace team"):
        engine.look()
    engine.close()
    assert "may not create secrets" in last_error(placed())


def test_no_secret_is_left_of_a_pod_that_is_refused(cluster: FakeKubernetes) -> None:
    cluster.rules = ({**RULES[0], "verbs": ["delete", "list", "watch"]}, *RULES[1:])
    assert "may not create pods" in last_error(placed())
    assert cluster.secrets == {}


def test_all_rights_are_enough(cluster: FakeKubernetes) -> None:
    engine = engine_of(placed())
    assert engine.look().startswith("namespace team of http://127.0.0.1:")
    engine.close()


def test_a_listed_pod_can_be_ended(connect: Connect, cluster: FakeKubernetes) -> None:
    client = connect(placed())
    processes, engine = processes_of(client), engine_of(placed())
    assert engine.end(engine.list()[0].id)
    assert are_gone(processes)
    engine.close()


def test_without_settings_of_a_cluster_the_entry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no settings of a Kubernetes cluster"):
        engine_of(placed())


def test_the_manifests_are_what_kubernetes_knows() -> None:
    """A key that its client does not know would be lost in between."""
    placement = Placement(engine="kubernetes", image="i", num_cpus=0.5, memory="1G", labels={"disk": "ssd"}, node="n")
    launch = Launch(version="1", name="a b", entry={}, token="s3cret", lease=1)
    client = kubernetes.client.ApiClient()
    for manifest, kind in zip(manifests("gaia-x", "x", placement, launch, launch), ("V1Secret", "V1Pod"), strict=True):
        decoded = client._ApiClient__deserialize(manifest, kind)
        assert client.sanitize_for_serialization(decoded) == manifest
    secret, pod = manifests("gaia-x", "x", placement, launch, launch)
    assert "s3cret" in str(secret)
    assert "s3cret" not in str(pod)
    spec = pod["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "0.5", "memory": str(2**30)}
    assert spec["nodeSelector"] == {"disk": "ssd", "kubernetes.io/hostname": "n"}
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_the_role_is_what_kubernetes_knows() -> None:
    client = kubernetes.client.ApiClient()
    for rule in RULES:
        assert client.sanitize_for_serialization(client._ApiClient__deserialize(rule, "V1PolicyRule")) == rule


def test_the_role_of_the_documentation_is_what_the_engine_needs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    role = yaml.safe_load(page.partition("```yaml")[2].partition("```")[0])
    assert role["rules"] == list(RULES)


@pytest.mark.parametrize("name", ["browser", "Team Browser", "ß", "a" * 100, "a-" * 40])
def test_any_name_becomes_a_part_of_a_pod_s(name: str) -> None:
    label = label_of(name)
    assert len(label) <= 40
    assert label.strip("-").replace("-", "").isalnum()
    assert label.isascii()
    assert label != label_of(name + "x")
