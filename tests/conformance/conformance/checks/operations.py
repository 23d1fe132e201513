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


@should("OPS-6")
def says_what_became_of_a_message(t: Trial) -> None:
    """It is kept until it is deleted; a client before it gets it, and then a gap."""
    client, name = t.client(), t.channel()
    before = client.publish(name, 0).cursor
    published = client.publish(name, 1)
    id_ = published.ids[0]
    path = f"/v1/messages/{id_}?cursor={before}"
    found = t.status(client.call("GET", path), 200).json
    known = [found.get(field) for field in ("id", "fate", "channels", "kept_by", "time")]
    t.same("what is known", known, [id_, "kept", [name], [name], published.time])
    wanted = {"cursor": before, "has_passed": False, "channels": [{"channel": name, "delivers": True, "gap": None}]}
    t.same("the reader", found.get("reader"), wanted)
    t.status(client.call("DELETE", f"/v1/messages/{id_}"), 200)
    found = t.status(client.call("GET", path), 200).json
    t.same("what is known", (found.get("fate"), found.get("dropped", {}).get("reason")), ("dropped", "deleted"))
    wanted["channels"] = [{"channel": name, "delivers": False, "gap": "deleted"}]
    t.same("the reader", found.get("reader"), wanted)
    found = t.status(client.call("GET", f"/v1/messages/{id_}?cursor={published.cursor}"), 200).json
    t.true(found.get("reader", {}).get("has_passed") is True, f"expected to have passed, and {found} came")
    t.problem(client.call("GET", "/v1/messages/none"), 400, "bad-request", "id")
    t.problem(client.call("GET", "/v1/messages/0-1"), 404, "unknown-message")
