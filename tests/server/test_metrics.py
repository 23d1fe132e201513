"""/metrics of servers of each kind: promtool finds nothing to say, and each metric is documented."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.server.conftest import Serve
from tests.server.redis_cluster import cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, wait_until

pytestmark = pytest.mark.long  # Prometheus is installed for these only

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate" / "monitoring.md"


def checked_page(server: Server) -> str:
    """/metrics of a server that is in use; promtool finds nothing to say about it, and the page names all of it."""
    with server.caller() as caller, server.caller() as waiting:
        waiting.begin_poll("a", cursor="now", timeout=20)
        wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the server to be ready")
        caller.publish(["a"], 1)
        caller.publish(["a"], 2)
        caller.call("GET", "/v1/nowhere")
        text = caller.call("GET", "/metrics").text
    told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=20)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    documented = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) - documented == set()
    return text


def value(text: str, name: str, **labels: str) -> float:
    """One of the values in the text."""
    shown = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
    found = re.search(rf"^pushup_{name}{re.escape('{' + shown + '}') if shown else ''} (\S+)$", text, re.MULTILINE)
    assert found is not None, (name, text)
    return float(found[1])


def test_in_memory(serve: Serve) -> None:
    """The requests before this one have been counted."""
    with serve() as server:
        text = checked_page(server)
    assert value(text, "requests_total", route="/v1/messages", status="201") == 2
    assert value(text, "requests_total", route="(none)", status="404") == 1
    assert value(text, "publication_seconds_count", ack="accepted") == 2


def test_a_process_that_was_stopped(serve: Serve) -> None:
    """It tells so itself, afterwards: as a metric, and in its log."""
    with serve() as server:
        before = server.metric("stood_still_seconds_total")
        server.signal(signal.SIGSTOP)
        time.sleep(2.2)
        server.signal(signal.SIGCONT)
        wait_until(lambda: server.metric("stood_still_seconds_total") >= before + 1.2, "it to notice")
        assert any("this process stood still for " in line for line in server.log_lines())


def test_with_a_journal(serve: Serve, tmp_path: Path) -> None:
    """It says how long commits take."""
    with serve(broadcast=f"journal:{tmp_path / 'journal.db'}") as server:
        text = checked_page(server)
    assert value(text, "journal_commit_seconds_count") >= 2
    assert value(text, "journal_commit_seconds_sum") > 0


def test_with_workers(serve: Serve, tmp_path: Path) -> None:
    """Each of them has gauges of its own, and the parent knows how far each lags behind."""
    with serve(workers=2, broadcast=f"journal:{tmp_path / 'journal.db'}") as server:
        text = checked_page(server)
    assert value(text, "workers", worker="parent") == 2
    for number in "12":
        assert value(text, "ready", worker=number) == 1
        assert value(text, "worker_lag_entries", worker=number) >= 0
    assert value(text, "journal_commit_seconds_count") >= 2


def test_with_redis(tmp_path: Path) -> None:
    """What it says of Redis is so."""
    with RedisServer(tmp_path / "redis") as redis, cluster_at(redis, tmp_path, 1) as cluster:
        text = checked_page(cluster.nodes[0])
    assert value(text, "redis_up") == 1
    assert value(text, "redis_round_trip_seconds_count") > 0
    assert value(text, "redis_used_memory_bytes") > 100_000
    assert value(text, "redis_maxmemory_bytes") == 0
    assert f'pushup_redis_info{{address="127.0.0.1:{redis.port}",role="master",version="' in text
