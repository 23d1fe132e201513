"""`python -m deploy.monitoring.dashboard > deploy/monitoring/dashboard.json`: the dashboard for Grafana, to import."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

COLUMNS, WIDTH, HEIGHT = 3, 8, 7
"""Panels in a row, and the size of each in Grafana's grid, which is 24 wide."""


class Panel(NamedTuple):
    """A graph of these expressions of Prometheus, each with the legend of its series."""

    title: str
    unit: str
    lines: dict[str, str]


def _rate(metric: str, by: str = "instance", named: str = "") -> dict[str, str]:
    """How fast a counter grows. `named`: the end of the legend, where a panel has several."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return {f"sum by ({by}) (rate(pushup_{metric}_total[$__rate_interval])) or vector(0)": legend + named}


def _sum(metric: str, by: str = "instance") -> dict[str, str]:
    """A gauge, of all workers of a node together."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return {f"sum by ({by}) (pushup_{metric})": legend}


def _most(metric: str) -> dict[str, str]:
    """A gauge that each worker of a node has for itself, or says of the whole cluster: the highest."""
    return {f"max by (instance) (pushup_{metric})": "{{instance}}"}


def _of_publishers(expression: str, by: str = "prefix, key") -> dict[str, str]:
    """What every node and worker counts the same."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return {f"max by ({by}) ({expression}) or vector(0)": legend}


def _share(used: str, limit: str) -> dict[str, str]:
    """How much of a limit is in use, by the worker of a node that uses most."""
    return {f"max by (instance) (pushup_{used} / pushup_{limit})": "{{instance}}"}


def _quantiles(histogram: str, labels: str = "") -> dict[str, str]:
    """The median, and what one of a hundred exceeds."""
    rate = f"sum by (le) (rate(pushup_{histogram}_bucket{labels}[$__rate_interval]))"
    return {f"histogram_quantile({share}, {rate}) or vector(0)": f"p{100 * share:g}" for share in (0.5, 0.99)}


LOSSES = {"pushup:loss_ratio:rate1h": "1 h", "pushup:loss_ratio:rate6h": "6 h"}

PUBLISHED = "rate(pushup_publisher_bytes_total[$__rate_interval])"
EVICTED = "rate(pushup_publisher_evicted_messages_total[$__rate_interval])"

ROWS = {
    "Is anything lost?": [
        Panel("Gaps told", "cps", _rate("gaps", "reason")),
        Panel("Gaps per delivery; at most 0.0001", "percentunit", LOSSES),
        Panel("Publications refused", "cps", _rate("publications_refused", "instance, reason")),
    ],
    "Who is there?": [
        Panel("Ready", "none", _sum("ready")),
        Panel("Nodes known to each", "none", _most("nodes")),
        Panel("Builds", "none", {"count by (version, build) (pushup_build_info)": "{{version}} {{build}}"}),
    ],
    "Traffic": [
        Panel("Messages published", "cps", _rate("messages")),
        Panel("Messages by key", "cps", _rate("messages_by_key", "key")),
        Panel("Bytes published, by prefix and key", "Bps", _of_publishers(PUBLISHED)),
        Panel("Deliveries", "cps", _rate("deliveries")),
        Panel("Held polls and streams", "none", _sum("held_polls")),
        Panel("Bytes", "Bps", _rate("received_bytes", named=" received") | _rate("sent_bytes", named=" sent")),
        Panel("Requests", "cps", _rate("requests", "route, status")),
        Panel("Requests refused", "cps", _rate("refusals", "instance, kind")),
    ],
    "How far from each limit?": [
        Panel("Connections", "percentunit", _share("connections", "connections_limit")),
        Panel("File descriptors", "percentunit", _share("descriptors", "descriptors_limit")),
        Panel("Cache", "percentunit", _share("cached_bytes", "retention_bytes")),
        Panel("Cache, by prefix and key", "bytes", _of_publishers("pushup_publisher_cached_bytes")),
        Panel("Messages evicted, by prefix and key", "cps", _of_publishers(EVICTED, "prefix, key, limit")),
        Panel("Age of the oldest message", "percentunit", _share("oldest_message_age_seconds", "retention_seconds")),
        Panel("Unsent output", "percentunit", _share("unsent_bytes", "unsent_limit_bytes")),
        Panel("Memory of Redis", "percentunit", _share("redis_used_memory_bytes", "redis_maxmemory_bytes")),
        Panel("Memory", "bytes", _sum("process_memory_bytes")),
    ],
    "What is slow?": [
        Panel("Until an answer to a held poll", "s", _quantiles("answer_delay_seconds", '{poll="held"}')),
        Panel("Until a publication is acknowledged", "s", _quantiles("publication_seconds")),
        Panel("How late the event loop is", "s", _quantiles("reactor_lag_seconds")),
        Panel("Replies of Redis", "s", _quantiles("redis_round_trip_seconds")),
        Panel("Entries in Redis, not applied for", "s", _most("log_lag_seconds")),
        Panel("Commits of the journal", "s", _quantiles("journal_commit_seconds")),
        Panel("Calls that wait", "none", _sum("backend_waiting", "instance, backend")),
        Panel("Calls, by outcome", "cps", _rate("backend_calls", "backend, outcome")),
        Panel("Webhooks, by outcome", "cps", _rate("webhooks", "outcome")),
    ],
}


def dashboard() -> dict[str, Any]:
    """What Grafana imports; its data source is chosen then."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for number, panel in enumerate(row):
            place = {"h": HEIGHT, "w": WIDTH, "x": WIDTH * (number % COLUMNS), "y": y + HEIGHT * (number // COLUMNS)}
            panels.append(_panel(panel) | {"gridPos": place})
        y += HEIGHT * -(-len(row) // COLUMNS)
    return {
        "title": "PushUp",
        "uid": "pushup",
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [{"type": "datasource", "name": "source", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.lines.items())
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1) + "\n")
