"""A real Prometheus with our alerts, and a real Alertmanager that tells this process which of them fire."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from deploy.front import HERE
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

ALERTS = HERE / "monitoring" / "alerts.yml"

WAIT_SECONDS = 60.0

SHORTER = {"1m": "1s", "2m": "3s", "3m": "30s", "5m": "4s", "10m": "5s", "30m": "6s", "1h": "12s", "6h": "15s"}
"""The durations in the rules, and those of the test. 3m is for Prometheus to find its targets: that takes 10 s here."""

CONFIGURATION = """
global: {scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}
rule_files: [alerts.yml]
alerting:
  alertmanagers:
    - static_configs: [{targets: ["127.0.0.1:%(alertmanager)s"]}]
scrape_configs:
  - job_name: pushup
    static_configs: %(targets)s
"""

ROUTES = """
route: {receiver: test, group_by: [alertname, instance], group_wait: 0s, group_interval: 500ms, repeat_interval: 1h}
receivers:
  - name: test
    webhook_configs: [{url: "http://127.0.0.1:%(webhook)s/", send_resolved: true}]
"""


class Pager:
    """Which alerts fire, by name and instance, as Alertmanager has told; `fired`: which ever did."""

    def __init__(self) -> None:
        self.firing: set[tuple[str, str]] = set()
        self.fired: set[tuple[str, str]] = set()
        pager = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                pager.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def take(self, told: dict[str, Any]) -> None:
        """What Alertmanager has sent."""
        for alert in told["alerts"]:
            one = (alert["labels"]["alertname"], alert["labels"].get("instance", ""))
            if alert["status"] == "firing":
                self.firing.add(one)
                self.fired.add(one)
            else:
                self.firing.discard(one)


class Prometheus:
    """It scrapes and has begun to evaluate its rules."""

    def __init__(self, port: int, pager: Pager) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self.pager = pager

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/query?{query}", timeout=10) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found

    def wait_for(self, *wanted: tuple[str, str]) -> None:
        """Wait until each of these alerts has fired since `wait_until_clear`."""
        deadline = time.monotonic() + WAIT_SECONDS
        while missing := set(wanted) - self.pager.fired:
            assert time.monotonic() < deadline, f"{missing} did not fire; {self.pager.fired} did"
            time.sleep(0.1)

    def wait_until_clear(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.pager.firing:
            assert time.monotonic() < deadline, f"still firing: {self.pager.firing}"
            time.sleep(0.1)
        self.pager.fired.clear()


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run both. `targets`: name and address of each server that is scraped; its name becomes the label `instance`."""
    ports = {"alertmanager": free_port(), "prometheus": free_port()}
    pager = Pager()
    jobs = [{"targets": [address], "labels": {"instance": name}} for name, address in targets.items()]
    rules = re.sub(r"\b\d+[mh]\b(?!})", lambda found: SHORTER[found[0]], ALERTS.read_text())
    (directory / "alerts.yml").write_text(rules)
    (directory / "prometheus.yml").write_text(CONFIGURATION % {**ports, "targets": json.dumps(jobs)})
    (directory / "routes.yml").write_text(ROUTES % {"webhook": pager.server.server_address[1]})
    commands = (
        ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
         f"--web.listen-address=127.0.0.1:{ports['prometheus']}", "--rules.alert.resend-delay=500ms"],
        ["prometheus-alertmanager", f"--config.file={directory}/routes.yml", f"--storage.path={directory}/alerts",
         f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", "--cluster.listen-address="],
    )  # fmt: skip
    with ExitStack() as stack:
        threading.Thread(target=pager.server.serve_forever, daemon=True).start()
        stack.callback(pager.server.server_close)
        stack.callback(pager.server.shutdown)
        for command in commands:
            log = stack.enter_context((directory / f"{command[0]}.log").open("ab"))
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(process.kill)
        one = Prometheus(ports["prometheus"], pager)
        wait_until(lambda: _is_up(one, len(targets)), "Prometheus to have scraped all")
        yield one


def _is_up(one: Prometheus, count: int) -> bool:
    try:
        return len(one.query("up == 1")) == count
    except OSError:
        return False
