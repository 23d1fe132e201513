"""deploy/monitoring: each alert fires when something is wrong, in a real Prometheus, and clears when it is mended."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest
import yaml

from deploy.monitoring.dashboard import dashboard
from tests.deploy.prometheus import ALERTS, Prometheus, prometheus
from tests.server.blocking_backend import Question, Verdict, WebBackend
from tests.server.caller import Caller
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, running

pytestmark = pytest.mark.long

CONNECTIONS = 40
QUOTA = '[[quotas]]\nper = "address"\nrequests_per_second = 40\n'
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_the_rules() -> None:
    """By promtool: what fires for which numbers, with the durations as they are."""
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=ALERTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_tested_and_has_a_row_in_the_runbook() -> None:
    """By its name, which is also the end of the link in the alert."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    alerts = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule}
    fires = re.findall(r"exp_samples: .*alertname=\"(\w+)\"", (ALERTS.parent / "alerts_test.yml").read_text())
    assert {*fires} == {*alerts}
    page = (ALERTS.parents[2] / "docs/operate/alerts.md").read_text()
    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## PushUp")] == [*alerts]
    for name, link in alerts.items():
        assert link.endswith(f"/docs/operate/alerts.md#{name.lower()}")


class Publisher:
    """Publishes and polls at each of these servers, ten times a second, whatever the answer."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def publish_at(self, server: Server, size: int = 10, *, falls_behind: bool = False) -> None:
        thread = threading.Thread(target=self._publish, args=(server.address, size, falls_behind))
        self._threads.append(thread)
        thread.start()

    def _publish(self, address: str, size: int, falls_behind: bool) -> None:
        cursor = "earliest"
        with Caller(address) as caller:
            while not self._ended.wait(0.1):
                with suppress(Exception):
                    caller.call("POST", "/v1/messages?ack_timeout=1", {"channels": ["news"], "data": "x" * size})
                    reply = caller.call("GET", f"/v1/poll?channel=news&timeout=0&cursor={cursor}")
                    if cursor == "earliest" or not falls_behind:
                        cursor = reply.value["cursor"]
                    continue
                caller.close()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


class Servers:
    """A cluster of two nodes, and one server for each other thing that may go wrong."""

    def __init__(self, directory: Path, stack: ExitStack, application: WebBackend) -> None:
        self.redis = stack.enter_context(RedisServer(directory / "redis", flags={"appendonly": "yes"}))
        cluster = RedisCluster(self.redis, directory, stack)
        self.a, self.b = cluster.start(), cluster.start()
        (directory / "gate.toml").write_text(QUOTA)
        flags = {
            "disk": ("--broadcast", f"journal:{directory}/journal.db"),
            "small": ("--set", "retention_bytes=2MiB", "--set", "retention_seconds=20"),
            "gate": (
                "--config", str(directory / "gate.toml"), "--set", f"connections_limit={CONNECTIONS}",
                "--set", f"authorize_url={application.url}", "--set", "authorize_timeout_seconds=0.3",
            ),
            "workers": ("--set", "workers=2"),
        }  # fmt: skip
        started = {
            name: stack.enter_context(running(directory / f"{name}.log", given)) for name, given in flags.items()
        }
        self.disk, self.small, self.gate, self.workers = started.values()
        self.addresses = {"a": self.a.address, "b": self.b.address}
        self.addresses |= {name: server.address for name, server in started.items()}
        for server in (self.a, self.b, *started.values()):
            server.expect_log("")  # any line


def _fill_disk(server: Server, directory: Path) -> None:
    largest = max(file.stat().st_size for file in directory.glob("journal.db*"))
    server.process.rlimit(psutil.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))


@contextmanager
def _flood(server: Server) -> Iterator[None]:
    """Send requests as fast as they are answered."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            with suppress(OSError, HTTPException), server.caller() as caller:
                while not ended.is_set():
                    caller.call("GET", "/v1/cursor")

    with _in_thread(send, ended):
        yield


@contextmanager
def _in_thread(function: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _many_connections(server: Server) -> Iterator[None]:
    with ExitStack() as stack:
        ended = threading.Event()

        def connect_more() -> None:
            while not ended.wait(0.2):
                with suppress(OSError):
                    stack.enter_context(server.connect())

        for _ in range(CONNECTIONS - 3):
            stack.enter_context(server.connect())
        with _in_thread(connect_more, ended):
            yield


def test_what_goes_wrong_is_told_and_cleared(tmp_path: Path) -> None:
    """Several faults at once, each at a server of its own; then what may happen to Redis, one after the other."""
    publisher, hung = Publisher(), threading.Event()

    def answer(_question: Question) -> Verdict:
        if hung.is_set():
            hung_until.wait(20)
        return Verdict()

    hung_until = threading.Event()
    application = WebBackend()
    application.answer = answer
    with ExitStack() as stack:
        application.start()
        stack.callback(application.stop)
        servers = Servers(tmp_path, stack, application)
        told = stack.enter_context(prometheus(tmp_path, servers.addresses))
        stack.callback(publisher.end)
        for server in (servers.a, servers.b, servers.disk, servers.gate):
            publisher.publish_at(server)
        _nothing_fires(told)

        hung.set()
        told.wait_for(("PushUpCallsAreLate", "gate"))  # before others have all its connections
        with ExitStack() as faults:
            servers.redis.kill()
            _fill_disk(servers.disk, tmp_path)
            flood = Publisher()
            flood.publish_at(servers.small, 60_000, falls_behind=True)
            faults.callback(flood.end)
            faults.enter_context(_flood(servers.gate))
            faults.enter_context(_many_connections(servers.gate))
            allowed = servers.small.process.rlimit(psutil.RLIMIT_NOFILE)
            servers.small.process.rlimit(psutil.RLIMIT_NOFILE, (servers.small.process.num_fds() + 1, allowed[1]))
            servers.workers.process.children()[0].kill()
            told.wait_for(
                ("PushUpNotReady", "a"), ("PushUpRefusesPublications", "b"), ("PushUpRefusesPublications", "disk"),
                ("PushUpHistoryShrinks", "small"), ("PushUpLosesMessages", ""), ("PushUpLosesSomeMessages", ""),
                ("PushUpFlood", "gate"), ("PushUpConnectionsNearLimit", "gate"), ("PushUpRefusesConnections", "gate"),
                ("PushUpDescriptorsNearLimit", "small"), ("PushUpWorkerDied", "workers"),
            )  # fmt: skip
            hung.clear()
            hung_until.set()
            servers.small.process.rlimit(psutil.RLIMIT_NOFILE, allowed)
            servers.disk.process.rlimit(psutil.RLIMIT_FSIZE, UNLIMITED)
            servers.redis.start()
        told.wait_until_clear()

        servers.redis.ask("CONFIG", "SET", "maxmemory", 1)
        told.wait_for(("PushUpRefusesPublications", "a"), ("PushUpNotReady", "b"))
        assert told.query('pushup_publications_refused_total{instance="a", reason="OOM"} > 0')
        servers.redis.ask("CONFIG", "SET", "maxmemory", 0)
        told.wait_until_clear()

        servers.redis.signal(signal.SIGSTOP)
        told.wait_for(("PushUpRefusesPublications", "a"), ("PushUpNotReady", "b"))
        servers.redis.signal(signal.SIGCONT)
        told.wait_until_clear()

        servers.b.signal(signal.SIGSTOP)
        time.sleep(2)
        servers.b.signal(signal.SIGCONT)
        told.wait_for(("PushUpStoodStill", "b"))
        told.wait_until_clear()

        servers.b.signal(signal.SIGSTOP)
        told.wait_for(("PushUpDown", "b"), ("PushUpNodeMissing", "a"))
        servers.b.signal(signal.SIGCONT)
        told.wait_until_clear()
        _every_panel_shows_something(told)


def test_the_dashboard_is_as_generated() -> None:
    assert json.loads((ALERTS.parent / "dashboard.json").read_text()) == dashboard()


@pytest.mark.parametrize("metric", ["pushup_nodes", "pushup_log_lag_seconds"])
def test_the_workers_of_a_node_are_not_added_up(metric: str) -> None:
    """Each knows all nodes, and four of them that are a second behind are not four seconds behind."""
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    assert [each for each in shown if each.endswith(f"({metric})")] == [f"max by (instance) ({metric})"]


def test_the_lines_of_a_panel_have_different_names() -> None:
    """By the labels of their series, and by what else their legends say."""
    for panel in dashboard()["panels"]:
        legends = [target["legendFormat"] for target in panel.get("targets", ())]
        assert len(legends) == len({*legends}), panel["title"]


def _nothing_fires(told: Prometheus) -> None:
    """For as long as the longest `for` is here."""
    threading.Event().wait(5)
    assert told.pager.fired == set()


def _every_panel_shows_something(told: Prometheus) -> None:
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 20
    assert [each for each in expressions if not told.query(each.replace("$__rate_interval", "1m"))] == []
