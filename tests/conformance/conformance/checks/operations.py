"""Health, readiness, nodes and metrics."""

from __future__ import annotations

from conformance.registry import must, should
from conformance.trial import Trial


@must("OPS-1")
def is_alive(t: Trial) -> None:
    """/healthz says that the server is alive."""
    t.same("the answer", t.status(t.client().call("GET", "/healthz"), 200).json, {"status": "alive"})


@must("OPS-2")
def is_ready(t: Trial) -> None:
    """/readyz says ready with 200, or with 503 why not."""
    response = t.status(t.client().call("GET", "/readyz"), 200, 503)
    status = response.json.get("status")
    t.same("the status", status, "ready" if response.status == 200 else "not ready")


@must("OPS-3")
def lists_its_nodes(t: Trial) -> None:
    """/v1/nodes lists the nodes, this one among them."""
    nodes = t.status(t.client().call("GET", "/v1/nodes"), 200).json["nodes"]
    t.true(len(nodes) >= 1, "expected at least one node, and none came")
    for node in nodes:
        wanted = {"id", "name", "addresses", "cursor", "held_polls", "version"}
        t.true(wanted <= set(node), f"expected {sorted(wanted)}, and {sorted(node)} came")


@should("OPS-4")
def has_metrics(t: Trial) -> None:
    """/metrics returns text for Prometheus."""
    response = t.status(t.client().call("GET", "/metrics"), 200)
    t.true(response.headers.get("content-type", "").startswith("text/plain"), f"expected text, and {response} came")
    t.true(b"# TYPE " in response.body, f"expected metrics, and {response} came")
