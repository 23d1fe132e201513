"""The Helm chart: what it renders is valid, safe, and what a server takes; and the check of an upgrade under load.

tests/test_chart_files.py compares its files. What needs a Kubernetes runs in .github/workflows/chart.yml.
"""

from __future__ import annotations

import csv
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from deploy.cluster import Cluster
from pushup import __version__
from tests.deploy.chart.rendered import CHART, ROOT, Objects, PodProcess, Ports, helm, here, render
from tests.deploy.conversations import wait_until
from tests.server.caller import Caller, poll_path
from tests.server.redis_server import RedisClient, RedisServer, free_port
from tests.server.server_process import clean_environment

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

INSTALL_SECONDS = 1200.0
"""How long install.sh may take on a fresh machine; most of the time goes into compiling Helm."""

KEY = "a-publish-key-of-the-tests"
KEYS: dict[str, Any] = {"publishKeys": {"existingSecret": "keys"}}
CLUSTER: dict[str, Any] = KEYS | {"redis": {"url": "redis://valkey:6379"}}
SECRETS = {
    "pushup": {"publish_keys": KEY},
    "keys": {
        "publish_keys": f"# for the tests\nnightly {KEY}-of-backups backup\nname {KEY}\n",
        "seal": "a-ticket-key-of-the-tests",
        "webhook_key": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
    },
    "address": {"url": "redis://:a-password@valkey:6379/2"},
}
SETTINGS = """\
retention_seconds = "10m"
cors_origins = ["https://example.org"]
authorize_url = "http://application:5000/may-poll"
webhook_url = "http://application:5000/unread"

[[channels]]
prefix = "chat:"
retention_seconds = "1d"
"""

VALUES: dict[str, dict[str, Any]] = {
    "cluster": CLUSTER,
    "single node": KEYS | {"replicas": 1},
    "single node without a disk": KEYS | {"replicas": 1, "persistence": {"enabled": False}},
    "without keys": {"replicas": 1, "workers": "auto", "settings": 'allow_public_without_keys = true\nhosts = ["*"]'},
    "everything": {
        "workers": 2,
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "settings": SETTINGS,
        "publishKeys": {"existingSecret": "keys"},
        "ticketKey": {"existingSecret": "keys", "key": "seal"},
        "webhookKey": {"existingSecret": "keys"},
        "redis": {"existingSecret": "address", "key": "url"},
        "persistence": {"size": "2Gi", "storageClass": "fast"},
        "preStopSeconds": 0,
        "service": {"type": "NodePort", "nodePort": 30080, "annotations": {"a": "b"}},
        "ingress": {"enabled": True, "host": "push.example.org", "tlsSecret": "certificate", "className": "haproxy"},
        "autoscaling": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {}}],
            "redisPorts": [6379, 26379],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "application"}}}], "ports": [{"port": 5000}]}],
        },
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "serviceAccount": {"annotations": {"a": "b"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "push"},
        "env": [{"name": "SSL_CERT_FILE", "value": "/certificates/ca.pem"}],
        "volumes": [{"name": "certificates", "secret": {"secretName": "certificates"}}],
        "volumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "push", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    },
    "kind": yaml.safe_load((CHART / "kind" / "values.yaml").read_text()),
}


@pytest.fixture(scope="module")
def tools() -> Path:
    """The folder with Helm, kubeconform and the schemas."""
    done = subprocess.run(
        ["sh", ROOT / "tests" / "deploy" / "chart" / "install.sh"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(params=VALUES)
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each set of values."""
    return VALUES[request.param]


def conform(tools: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What kubeconform says about these objects."""
    places = f"{tools}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return subprocess.run(
        [tools / "kubeconform", "-strict", "-summary", "-schema-location", places, "-"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_lint_finds_nothing(tools: Path, values: dict[str, Any]) -> None:
    """`helm lint --strict`."""
    done = helm(tools, "lint", "--strict", "--quiet", CHART, values=values)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_rendered_is_valid(tools: Path, values: dict[str, Any]) -> None:
    """Each object has the fields that Kubernetes knows, and no others."""
    done = conform(tools, render(tools, values))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


def test_the_manifests_for_kind_are_valid(tools: Path) -> None:
    """Those of .github/workflows/chart.yml."""
    done = conform(tools, (CHART / "kind" / "valkey.yaml").read_text())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replicas: 3", "replicas: three"),
        ("podManagementPolicy:", "podManagement:"),
        ("terminationGracePeriodSeconds:", "gracePeriodSeconds:"),
        ("sleep: {seconds: 5}", "sleep: {second: 5}"),
        ("kind: PodDisruptionBudget", "kind: PodDisruptionPlan"),
        ("interval: 30s", "every: 30s"),
    ],
)
def test_what_is_not_valid_is_noticed(tools: Path, right: str, wrong: str) -> None:
    """The schemas know what they should."""
    text = render(tools, CLUSTER | {"podMonitor": {"enabled": True}})
    assert right in text
    assert conform(tools, text.replace(right, wrong)).returncode != 0


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"replicas": 1}, "publishKeys.existingSecret is required"),
        (KEYS, "several nodes share a log"),
        (KEYS | {"replicas": 1, "autoscaling": {"enabled": True}}, "autoscaling makes several nodes"),
        (CLUSTER | {"autoscaling": {"enabled": True, "minReplicas": 20}}, "minReplicas is greater than"),
        (KEYS | {"redis": {"url": "redis://:secret@valkey"}}, "redis.url contains a user or a password"),
        (KEYS | {"redis": {"url": "redis://valkey", "existingSecret": "address"}}, "are both set"),
        (KEYS | {"redis": {"url": "http://valkey"}}, "at '/redis/url'"),
        (CLUSTER | {"settings": "retention_seconds = 10m"}, "is not the text of a TOML file"),
        (CLUSTER | {"settings": "publish_keys = ['x']"}, "use the value publishKeys"),
        (CLUSTER | {"settings": "drain_seconds = 60"}, "use the value drainSeconds"),
        (CLUSTER | {"settings": "operator_listen = ['[::]:9090']"}, "it is port 9090 of each pod"),
        (CLUSTER | {"ingress": {"enabled": True}}, "ingress.host is required"),
        (CLUSTER | {"replica": 2}, "additional properties 'replica' not allowed"),
    ],
)
def test_values_that_cannot_work_are_refused(tools: Path, values: dict[str, Any], reason: str) -> None:
    """With a reason that says what to do."""
    done = helm(tools, "template", "pushup", CHART, values=values)
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_pod_has_no_rights(tools: Path, values: dict[str, Any]) -> None:
    """Both the nodes and the test: no root, no capabilities, no writable image, no token; and no key in a ConfigMap."""
    objects = Objects(render(tools, values))
    for pod in (objects.pod, objects.of("Pod")["spec"]):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert (
            pod["securityContext"].items()
            >= {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            }.items()
        )
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_what_is_wanted_is_made(tools: Path) -> None:
    """A single node has no budget that would keep its machine from being emptied; a cluster has one."""
    always = {"ConfigMap", "Service", "ServiceAccount", "StatefulSet", "Pod"}
    assert Objects(render(tools, VALUES["single node"])).kinds() == always
    assert Objects(render(tools, VALUES["cluster"])).kinds() == always | {"PodDisruptionBudget"}
    optional = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodMonitor"}
    everything = Objects(render(tools, VALUES["everything"]))
    assert everything.kinds() == always | {"PodDisruptionBudget"} | optional
    assert "replicas" not in everything.of("StatefulSet")["spec"]  # the autoscaler's


def test_the_ports_for_operators_are_not_in_the_service(tools: Path) -> None:
    """The Service may be public; Prometheus reads the metrics from the pods."""
    objects = Objects(render(tools, VALUES["everything"]))
    ports = {port["name"]: port["containerPort"] for port in objects.container["ports"]}
    assert ports == {"http": 8080, "operator": 9090}
    assert [port["targetPort"] for port in objects.of("Service")["spec"]["ports"]] == ["http"]
    [metrics] = objects.of("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert metrics["port"] == "operator"
    [allowed, *_] = objects.of("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in allowed["ports"]} == {*ports}
    assert f'operator_listen = ["0.0.0.0:{ports["operator"]}"]' in objects.of("ConfigMap")["data"]["pushup.toml"]


def test_the_alerts_know_the_job(tools: Path) -> None:
    """The label `job` of all metrics is the one that deploy/monitoring/alerts.yml asks for."""
    objects = Objects(render(tools, VALUES["everything"]))
    label = objects.of("PodMonitor")["spec"]["jobLabel"]
    job = objects.of("StatefulSet")["spec"]["template"]["metadata"]["labels"][label]
    assert f'up{{job="{job}"}}' in (ROOT / "deploy" / "monitoring" / "alerts.yml").read_text()


def test_a_pod_is_replaced_when_its_settings_change(tools: Path) -> None:
    """And not otherwise: a new version of the chart alone changes no pod."""

    def template(values: dict[str, Any]) -> Any:
        return Objects(render(tools, values)).of("StatefulSet")["spec"]["template"]

    assert template(CLUSTER) == template(CLUSTER | {"replicas": 5})
    assert template(CLUSTER) != template(CLUSTER | {"settings": 'retention_seconds = "10m"'})
    assert template(CLUSTER) != template(CLUSTER | {"workers": 2})


@pytest.mark.parametrize(("before", "drain"), [(5, 10), (0, 1), (30, 600)])
def test_a_node_is_not_killed_while_it_drains(tools: Path, before: int, drain: int) -> None:
    """The grace period covers the hook, the drain, and 5 s."""
    objects = Objects(render(tools, CLUSTER | {"preStopSeconds": before, "drainSeconds": drain}))
    assert objects.pod["terminationGracePeriodSeconds"] > before + drain + 5
    assert objects.container.get("lifecycle") == ({"preStop": {"sleep": {"seconds": before}}} if before else None)
    assert f"drain_seconds = {drain}\n" in objects.of("ConfigMap")["data"]["pushup.toml"]


def test_a_server_takes_the_settings(tools: Path, values: dict[str, Any], tmp_path: Path) -> None:
    """`pushup check-config` in a pod's place."""
    objects = Objects(render(tools, values))
    objects.mount(tmp_path, SECRETS, some_ports())
    done = subprocess.run(
        [sys.executable, "-m", "pushup", "check-config", "--config", tmp_path / "etc" / "pushup.toml"],
        env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a-password" not in done.stdout + done.stderr + objects.of("ConfigMap")["data"]["pushup.toml"]
    if values.get("settings") == SETTINGS:
        assert re.search(r'^retention_seconds = (600\.0|600|"10m")', done.stdout, re.M), done.stdout


def some_ports() -> Ports:
    return {8080: free_port(), 9090: free_port()}


@contextmanager
def pods(objects: Objects, folder: Path, count: int) -> Iterator[list[PodProcess]]:
    """This many nodes as processes, all ready."""
    with ExitStack() as stack:
        running = []
        for number in range(count):
            place, ports = folder / str(number), some_ports()
            objects.mount(place, SECRETS, ports)
            pod = PodProcess(objects, place, ports)
            stack.callback(pod.close)
            running.append(pod)
        for pod in running:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                wait_until(lambda p=pod, n=probe: status(p, objects.container[n]["httpGet"]["path"]) == 200, probe)  # type: ignore[misc]
        yield running


def status(pod: PodProcess, path: str) -> int:
    with Caller(pod.address) as caller:
        return caller.call("GET", path).status


@pytest.mark.parametrize("kind", ["cluster", "single node"])
def test_what_is_rendered_runs(tools: Path, kind: str, tmp_path: Path) -> None:
    """Nodes with the rendered settings, command line and files serve, drain, and show metrics only to operators.

    The test of `helm test` publishes with the key of the Secret that may; nobody does without.
    """
    with RedisServer(tmp_path / "redis") as redis:
        values = VALUES[kind] | {"drainSeconds": 1}
        values |= {"redis": {"url": redis.url}} if kind == "cluster" else {}
        objects = Objects(render(tools, values))
        with pods(objects, tmp_path, 2 if kind == "cluster" else 1) as nodes:
            first, last = nodes[0], nodes[-1]
            with Caller(last.address) as reader:
                cursor = reader.cursor()
                reader.begin("GET", poll_path("helm-test", cursor=cursor, timeout=30))
                with Caller(first.address) as caller:
                    body = {"channels": ["helm-test"], "data": 1}
                    assert caller.call("POST", "/v1/messages", body).status == 401
                    assert caller.call("GET", "/metrics").status == 404
                with Caller(first.operators) as operator:
                    assert operator.call("GET", "/metrics").text.count("\npushup_held_polls ") == 1
                run_helm_test(objects, tmp_path / "0", first)
                assert [message["data"] for message in reader.answer()["messages"]] == [1]
            for node in nodes:
                assert node.stop(objects.pod["terminationGracePeriodSeconds"]) == 0


def run_helm_test(objects: Objects, folder: Path, pod: PodProcess) -> None:
    """Run what `helm test` runs, against this node."""
    [container] = objects.of("Pod")["spec"]["containers"]
    service = f"http://{objects.of('Service')['metadata']['name']}:{objects.of('Service')['spec']['ports'][0]['port']}"
    python, *arguments = container["command"]
    assert python == "python"
    arguments = [here(text.replace(service, f"http://{pod.address}"), folder, {}) for text in arguments]
    subprocess.run([sys.executable, *arguments], env=clean_environment(), check=True, capture_output=True)


def test_a_package_has_the_version_of_pushup(tmp_path: Path) -> None:
    """`make chart` packages it, without what only the repository needs."""
    subprocess.run(
        ["make", "--no-print-directory", "chart-package", f"CHARTS={tmp_path}", f"BIN={Path(sys.executable).parent}"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    with tarfile.open(tmp_path / f"pushup-{__version__}.tgz") as package:
        names = package.getnames()
        chart = package.extractfile("pushup/Chart.yaml")
        assert chart is not None
        text = chart.read().decode()
    assert f"appVersion: {__version__}" in text
    assert "pushup/values.schema.json" in names
    assert [name for name in names if name.endswith((".py", ".pyc"))] == []


class UpgradeUnderLoad:
    """`upgrade_under_load.py` at work, whose command lasts until `finish`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        (folder / "key").write_text(cluster.publish_key)
        self._process = subprocess.Popen(
            [
                sys.executable, "-u", CHART / "upgrade_under_load.py", "--url", cluster.urls["inside"],
                "--key-file", folder / "key", "--", "sh", "-c", "read finished",
            ],
            env=clean_environment() | {"PYTHONPATH": str(ROOT)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "the clients are at work\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def finish(self) -> tuple[int, str]:
        """Its exit code, and what it says."""
        said, _ = self._process.communicate("finished\n", timeout=120)
        return self._process.returncode, said


class Service(Cluster):
    """Nodes behind a HAProxy that does what a Service does: new connections go to ready nodes, others stay."""

    def _write_front(self, nodes: int, plain: str | None = None) -> Path:
        file = super()._write_front(nodes, plain)
        text = file.read_text()
        assert " on-marked-down shutdown-sessions" in text
        file.write_text(text.replace(" on-marked-down shutdown-sessions", ""))
        return file

    def uses(self, node: str) -> bool:
        """Whether it sends new connections there."""
        with socket.socket(socket.AF_UNIX) as admin, admin.makefile() as said:
            admin.connect(str(self.admin_socket))
            admin.sendall(b"show stat\n")
            rows = csv.DictReader(said.read().removeprefix("# ").splitlines())
        return any((row["svname"], row["status"]) == (node, "UP") for row in rows)


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Service]:
    """With Redis, behind a Service."""
    with Service(nodes=2, front="tcp", settings={"drain_seconds": 5}, without=["example"]) as cluster:
        yield cluster


def test_nodes_are_replaced_under_load(two_nodes: Service, tmp_path: Path) -> None:
    """One after the other, and no client notices."""
    with UpgradeUnderLoad(two_nodes, tmp_path) as check:
        for node in two_nodes.nodes:
            two_nodes.stop_part(node)
            two_nodes.start_part(node)
            wait_until(lambda n=node: two_nodes.uses(n), f"{node} to be used")  # type: ignore[misc]
        code, said = check.finish()
    assert said.endswith("no client noticed anything\n"), said
    assert code == 0


def test_what_clients_notice_is_told(two_nodes: Service, tmp_path: Path) -> None:
    """All nodes are away for a moment, and Redis loses what it has."""
    with UpgradeUnderLoad(two_nodes, tmp_path) as check:
        for node in two_nodes.nodes:
            two_nodes.kill_part(node)
        with RedisClient(two_nodes.ports["redis"]) as redis:
            redis.ask("FLUSHALL")
        for node in two_nodes.nodes:
            two_nodes.start_part(node)
        code, said = check.finish()
    busy, quiet = "subscriber of upgrade-busy", "subscriber of upgrade-quiet"
    for what in ("publisher: cannot reach", f"{busy}: cannot reach", f"{busy}: a gap, lost", f"{quiet}: a gap, lost"):
        assert re.search(rf"^\d+ x {what}", said, re.M), said
    assert code == 1
