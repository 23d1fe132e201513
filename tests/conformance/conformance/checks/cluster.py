"""A second node of the same service."""

from __future__ import annotations

from conformance.follower import Follower
from conformance.registry import must
from conformance.trial import Client, Trial

BOTH = ("native", "second node")


@must("ORD-6", *BOTH)
def wakes_polls_on_other_nodes(t: Trial) -> None:
    """A poll held at one node is answered by a publication at the other."""
    here, there = t.client(0), t.client(1)
    for n in range(10):
        name = t.channel()
        there.begin_poll(name)
        t.sleep(0.05)
        here.publish(name, n)
        t.same("the messages", there.answer().data, [n])
        here, there = there, here


@must("CUR-6", *BOTH)
def takes_cursors_to_other_nodes(t: Trial) -> None:
    """A cursor of one node, taken to the other at once, misses nothing and repeats nothing."""
    nodes, name = (t.client(0), t.client(1)), t.channel()
    follower = Follower(t, name)
    for n in range(60):
        nodes[n % 2].publish(name, n)
        client = nodes[(n + 1) % 2]
        client.begin_poll(name, follower.cursor)
        follower.take(client.answer())
        t.same("the messages so far", follower.data, list(range(n + 1)))


@must("PUB-8", *BOTH)
def takes_cursors_of_publications_to_other_nodes(t: Trial) -> None:
    """A poll at the other node with the cursor of a publication waits for what comes after it."""
    here, there = t.client(0), t.client(1)
    for n in range(20):
        name = t.channel()
        cursor = here.publish(name, "before").cursor
        there.begin_poll(name, cursor)
        t.true(there.wire.silent(0.05), "expected no answer before the next publication, and one came")
        here.publish(name, n)
        t.same("the messages", there.answer().data, [n])


@must("CUR-5", *BOTH)
def has_one_end(t: Trial) -> None:
    """The current cursor of one node gets at the other what is published later, and nothing is missed."""
    here, there = t.client(0), t.client(1)
    for n in range(10):
        name = t.channel()
        cursor = there.call("GET", "/v1/cursor").json["cursor"]
        here.publish(name, n)
        there.begin_poll(name, cursor)
        t.same("the messages", there.answer().data, [n])


@must("ORD-3", *BOTH)
def has_one_order(t: Trial) -> None:
    """Subscribers at both nodes get the messages of publishers at both in the same order."""
    names = (t.channel(), t.channel())
    followers = [Follower(t, names), Follower(t, names)]

    def publish(client: Client, letter: str) -> None:
        for n in range(60):
            client.publish(names[n % 2], f"{letter}{n}")

    t.together(
        lambda: publish(t.client(0), "a"),
        lambda: publish(t.client(1), "b"),
        lambda: followers[0].read(t.client(0), 120),
        lambda: followers[1].read(t.client(1), 120),
    )
    t.same("the order at the other node", followers[1].data, followers[0].data)


@must("KEY-7", *BOTH)
def shares_keys(t: Trial) -> None:
    """A key that was used at one node publishes nothing at the other, also at the same moment."""
    for _ in range(10):
        name, key = t.channel(), t.name()
        body = {"channels": [name], "data": "once"}
        clients = [t.client(n % 2) for n in range(4)]
        for client in clients:
            client.begin(t.native.call("POST", "/v1/messages", body, headers=(("Idempotency-Key", key),)))
        ids = {t.status(client.finish(), 201).json["id"] for client in clients}
        t.same("the number of ids", len(ids), 1)


@must("GAP-6", *BOTH)
def tells_of_closings_everywhere(t: Trial) -> None:
    """A channel that is closed at one node is closed at the other."""
    here, there, name = t.client(0), t.client(1), t.channel()
    there.begin_poll(name, here.publish(name, 1).cursor)
    t.sleep(0.2)
    t.status(here.call("DELETE", f"/v1/channels/{name}"), 204)
    t.same("the channels closed", there.answer().closed, (name,))


@must("ACK-2", *BOTH)
def is_stable_on_all_nodes(t: Trial) -> None:
    """What is acknowledged as stable is at the other node at once."""
    here, there = t.client(0), t.client(1)
    for n in range(10):
        name = t.channel()
        body = {"channels": [name], "data": n, "ack": "stable", "ack_timeout": 20}
        here.begin(t.native.call("POST", "/v1/messages", body))
        value = t.status(here.finish(within=25), 201).json
        t.same("the acknowledgement", value["ack"], "stable")
        t.true(value["nodes"] >= 2, f"expected two nodes at least, and {value['nodes']} came")
        t.same("the messages at the other node", there.poll(name).data, [n])


@must("OPS-3", *BOTH)
def lists_both_nodes(t: Trial) -> None:
    """Both nodes list both, and agree."""
    lists = [t.status(t.client(n).call("GET", "/v1/nodes"), 200).json["nodes"] for n in (0, 1)]
    ids = [sorted(node["id"] for node in nodes) for nodes in lists]
    t.true(len(ids[0]) >= 2, f"expected two nodes at least, and {ids[0]} came")
    t.same("the nodes that the other one lists", ids[1], ids[0])
