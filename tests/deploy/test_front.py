"""HAProxy in front of real nodes: routing, and what clients notice when nodes, Redis or HAProxy fail."""

from __future__ import annotations

import re
import select
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPException, RemoteDisconnected
from threading import Event
from typing import Any

import psutil
import pytest

from deploy.cluster import Cluster
from pushup.net.api.browser_client import NAMES
from tests.deploy.conversations import caller, held, hold, hold_at, publish, wait_for_message, wait_until
from tests.server.caller import Caller, data_of, poll_path
from tests.server.raw_client import WAIT_SECONDS, RawClient, get

FORBIDDEN = [
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages?channel=a"),
    ("POST", "/v1//messages"),
    ("POST", "/v1/%6dessages"),
    ("POST", "/v1/poll/../messages"),
    ("POST", "/v1/channels"),
    ("GET", "/v1/channels"),
    ("DELETE", "/v1/channels/a"),
    ("POST", "/v1/channels/a/renew"),
    ("GET", "/v1/nodes"),
    ("DELETE", "/v1/events"),
    ("POST", "/v1/pushup.js"),
    ("GET", "/v1/channels/a.js"),
    ("GET", "/v1"),
    ("DELETE", "/v1/poll"),
    ("POST", "/v1/cursor"),
    ("DELETE", "/v1/presence"),
    ("GET", "/metrics"),
    ("GET", "/readyz"),
    ("GET", "/healthz"),
]


@pytest.mark.parametrize(("method", "path"), FORBIDDEN)
def test_nobody_outside_reaches_more_than_polls(cluster: Cluster, stack: ExitStack, method: str, path: str) -> None:
    """Even with the key, requests from outside get a problem response that says where to publish."""
    body = {"channels": ["forbidden"], "data": 1}
    key = {"Authorization": f"Bearer {cluster.publish_key}"}
    reply = caller(cluster.urls["plain"], stack).call(method, path, body if method == "POST" else None, key)
    assert reply.status == reply.value["status"] == 403
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert "internal address" in reply.value["detail"]
    assert caller(cluster.urls["inside"], stack).poll("forbidden", timeout=0)["messages"] == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_presence_is_public(cluster: Cluster, stack: ExitStack, method: str) -> None:
    """PushUp answers, and not HAProxy: these channels have no members, and no page of a stranger closes."""
    body = {"channels": ["a"]} if method == "POST" else None
    reply = caller(cluster.urls["plain"], stack).call(
        method, "/v1/presence?channel=a" if body is None else "/v1/presence", body
    )
    assert reply.status == (404 if method == "GET" else 204)
    assert method == "POST" or "has no presence" in reply.value["detail"]


def test_tickets_in_urls_are_public(cluster: Cluster, stack: ExitStack) -> None:
    """PushUp answers, and not HAProxy: there is no token."""
    reply = caller(cluster.urls["plain"], stack).call("POST", "/v1/url-tickets", {"channels": ["a"]})
    assert "are public" not in reply.value["detail"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["plain", "inside"])
def test_scripts_are_public(cluster: Cluster, stack: ExitStack, side: str, name: str) -> None:
    reply = caller(cluster.urls[side], stack).call("GET", f"/v1/{name}")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")


@pytest.mark.parametrize("path", ["//v1/messages", "/V1/messages", "/v1%2fmessages", "/./v1/messages"])
def test_alternative_spellings_of_a_path_do_not_get_through(cluster: Cluster, stack: ExitStack, path: str) -> None:
    """Anything that is not exactly a poll goes to the application at most, which does not know it."""
    body = {"channels": ["forbidden"], "data": 1}
    key = {"Authorization": f"Bearer {cluster.publish_key}"}
    reply = caller(cluster.urls["plain"], stack).call("POST", path, body, key)
    assert reply.status in (400, 403, 404)
    assert reply.headers["Server"] == "gunicorn" or reply.status == 403
    assert caller(cluster.urls["inside"], stack).poll("forbidden", timeout=0)["messages"] == []


def test_published_inside_and_read_outside(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """The inside can publish, but only with a key, and clients polling outside get the message, by GET and by POST."""
    by_get = hold(cluster, 1, stack, channel)
    by_post = hold(cluster, 1, stack, channel, "POST")
    without_key = caller(cluster.urls["inside"], stack).call("POST", "/v1/messages", {"channels": ["a"], "data": 1})
    assert without_key.status == 401
    assert publish(cluster, [channel], "hello").status == 201
    assert [data_of(client.answer()) for client in by_get + by_post] == [["hello"], ["hello"]]


def test_the_inside_is_the_whole_interface_and_no_more(cluster: Cluster, stack: ExitStack) -> None:
    """Channels and nodes can be listed from inside; metrics cannot, as they would come from a random node."""
    inside = caller(cluster.urls["inside"], stack)
    key = {"Authorization": f"Bearer {cluster.publish_key}"}
    assert inside.call("GET", "/v1/channels", headers=key).status == 200
    assert inside.call("GET", "/metrics").status == 404


def test_ordinary_requests_go_to_the_application(cluster: Cluster, stack: ExitStack) -> None:
    """Every other path belongs to the application, even unknown ones."""
    client = caller(cluster.urls["plain"], stack)
    assert "All questions" in client.call("GET", "/").text
    reply = client.call("GET", "/nowhere")
    assert (reply.status, reply.headers["Server"]) == (404, "gunicorn")


def test_polls_are_spread_evenly(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """Of 40 held polls, each of the four nodes holds ten."""
    before = held(cluster)
    hold(cluster, 40, stack, channel)
    after = held(cluster)
    assert [after[name] - before[name] for name in cluster.nodes] == [10, 10, 10, 10]


def test_a_node_drops_the_poll_of_a_client_that_disconnects(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """When a client disconnects, HAProxy closes the poll at the node."""
    for client in hold(cluster, 8, stack, channel):
        client.close()
    wait_until(lambda: sum(held(cluster).values()) == 0, "the nodes to let go")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_polls_of_a_node_that_dies_go_on_elsewhere(
    cluster: Cluster, stack: ExitStack, channel: str, method: str
) -> None:
    """kill -9 of a node: its clients notice nothing, and get what is published afterwards."""
    clients = hold(cluster, 12, stack, channel, method)
    cluster.kill_part("node2")
    try:
        wait_until(lambda: sum(held(cluster).values()) == 12, "the polls at the other nodes")
        assert publish(cluster, [channel], "after").status == 201
        assert [data_of(client.answer()) for client in clients] == [["after"]] * 12
    finally:
        cluster.start_part("node2")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_polls_of_a_node_that_hangs_go_on_elsewhere(
    cluster: Cluster, stack: ExitStack, channel: str, method: str
) -> None:
    """SIGSTOP of a node: its clients notice nothing, and publications with a key succeed, wherever they were sent."""
    clients = hold(cluster, 12, stack, channel, method)
    cluster.freeze_part("node2")
    try:
        with ThreadPoolExecutor(8) as threads:
            replies = [threads.submit(publish, cluster, [f"{channel}-other"], n, f"{channel}-{n}") for n in range(8)]
            assert [reply.result().status for reply in replies] == [201] * 8
        wait_until(lambda: _held_elsewhere(cluster, "node2") == 12, "the polls at the other nodes")
        assert publish(cluster, [channel], "after").status == 201
        assert [data_of(client.answer()) for client in clients] == [["after"]] * 12
    finally:
        cluster.thaw_part("node2")
    reader = caller(cluster.urls["plain"], stack)
    for _ in range(2):  # when the node resumes and processes its queue, nothing is delivered twice
        assert sorted(data_of(reader.poll(f"{channel}-other", timeout=0))) == [*range(8)]
        wait_until(lambda: cluster.server_states()["polls/node2"] == "UP", "HAProxy to use it again")


def test_a_node_that_resumes_catches_up(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """Frozen for longer than its lease and Redis' timeout, it gives nobody a stale answer, a gap or a duplicate."""
    cursor = caller(cluster.urls["node2"], stack).cursor()
    held_there, late, other = (caller(cluster.urls[name], stack) for name in ("node2", "node2", "node1"))
    held_there.begin_poll(channel, cursor=cursor, timeout=50)
    wait_until(lambda: held(cluster)["node2"] == 1, "the held poll")
    cluster.freeze_part("node2")
    try:
        for number in range(5):
            assert publish(cluster, [channel], number, f"{channel}-{number}").status == 201
        answers = [other.poll(channel, cursor=cursor, timeout=0)]  # a node may have the last one a moment later

        def has_all() -> bool:
            answers.append(other.poll(channel, cursor=cursor, timeout=0))
            return data_of(answers[-1]) == [*range(5)]

        wait_until(has_all, "all messages at the other node")
        newest = answers[-1]
        # Both are in its socket when it resumes, before it has read any of the log.
        late.begin_poll(channel, cursor=newest["cursor"], timeout=50)
        again = caller(cluster.urls["node2"], stack)
        again.begin(
            "POST", "/v1/messages", {"channels": [channel], "data": 4},
            {"Authorization": f"Bearer {cluster.publish_key}", "Idempotency-Key": f"{channel}-4"},
        )  # fmt: skip
        wait_until(lambda: len(_nodes(cluster, stack)) == 3, "the others to count it out")
    finally:
        cluster.thaw_part("node2")
    chain: list[object] = []
    answer = held_there.answer()
    while True:
        assert answer["gaps"] == []
        chain += data_of(answer)
        if len(chain) >= 5:
            break
        answer = held_there.poll(channel, cursor=answer["cursor"], timeout=10)
    assert chain == [*range(5)]
    told = again.finish()
    assert told.status in (201, 503)  # 503 if it has not caught up with the log yet
    wait_until(lambda: len(_nodes(cluster, stack)) == 4, "the others to count it in")
    assert publish(cluster, [channel], "after").status == 201
    answer = _answer_or_again(late, channel, newest["cursor"])
    assert (data_of(answer), answer["gaps"]) == (["after"], [])


def _answer_or_again(client: Caller, channel: str, cursor: str) -> dict[str, Any]:
    """The response to a poll in progress; a poll that the node refused is retried."""
    reply = client.finish()
    while reply.status == 503 or not reply.value["messages"]:
        cursor = reply.value.get("cursor", cursor)
        reply = client.call("GET", poll_path(channel, cursor=cursor, timeout=10))
    answer: dict[str, Any] = reply.value
    return answer


def _nodes(cluster: Cluster, stack: ExitStack) -> list[object]:
    """The active nodes, as the first node sees them."""
    key = {"Authorization": f"Bearer {cluster.publish_key}"}
    nodes: list[object] = caller(cluster.urls["node1"], stack).call("GET", "/v1/nodes", headers=key).value["nodes"]
    return nodes


def _held_elsewhere(cluster: Cluster, name: str) -> int:
    """How many polls all other nodes hold; this one cannot answer."""
    return sum(held(cluster, [other for other in cluster.nodes if other != name]).values())


def test_a_node_that_drains_answers_what_it_holds(stack: ExitStack, channel: str) -> None:
    """SIGTERM of a node is graceful: HAProxy sends it no more requests, and closes no connection."""
    with Cluster(nodes=2, settings={"drain_seconds": 4}, without=["example"]) as cluster:
        clients = hold(cluster, 40, stack, channel)
        cluster.parts["node1"].ask_to_stop()
        wait_until(lambda: cluster.server_states()["polls/node1"] == "NOLB", "HAProxy to see that it drains")
        new = hold_at(cluster, ["node2"], 5, stack, channel)
        wait_until(lambda: not cluster.parts["node1"].runs, "it to end")
        assert held(cluster, ["node2"]) == {"node2": 25}, "polls of the node that stopped were asked again"
        assert publish(cluster, [channel], "after").status == 201
        answers = [data_of(client.answer()) for client in clients + new]
        assert (answers.count([]), answers.count(["after"])) == (20, 25)


def test_a_node_without_polls_stops_after_haproxy_has_noticed(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """HAProxy sends it no more requests before it ends, so no publication fails, although none has a key."""
    with ThreadPoolExecutor(5) as threads:
        ended = Event()
        publishers = [threads.submit(_publish_once_each, cluster, f"{channel}-{n}", ended) for n in range(4)]
        try:
            for name in ("node1", "node2"):
                seen = {state := cluster.server_states()[f"polls/{name}"]}
                stopping = threads.submit(cluster.stop_part, name)
                while not state.startswith("DOWN"):
                    state = cluster.server_states()[f"polls/{name}"]
                    seen.add(state)
                stopping.result()
                cluster.start_part(name)
                assert "NOLB" in seen, "it ended before HAProxy had seen that it is not ready"
                wait_until(lambda name=name: cluster.server_states()[f"polls/{name}"] == "UP", "HAProxy to use it")  # type: ignore[misc]
        finally:
            ended.set()
        statuses = sum((publisher.result() for publisher in publishers), Counter())
    assert set(statuses) == {201}, statuses


def _publish_once_each(cluster: Cluster, channel: str, ended: Event) -> Counter[int]:
    """Publish until `ended`, without keys and over one connection; returns the statuses of the responses."""
    statuses: Counter[int] = Counter()
    with ExitStack() as stack:
        inside = caller(cluster.urls["inside"], stack)
        key = {"Authorization": f"Bearer {cluster.publish_key}"}
        while not ended.wait(0.002):
            statuses[inside.call("POST", "/v1/messages", {"channels": [channel], "data": 1}, key).status] += 1
    return statuses


def test_clients_do_not_notice_restarts(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """While nodes are stopped, killed and started, readers get every message once and in order, and no error.

    Except where HAProxy's log says "DC": when it marks a node down, it also ends a poll that is just being connected
    there, without a response and without a retry at another node.
    """
    start = caller(cluster.urls["plain"], stack).cursor()
    with ThreadPoolExecutor(10) as threads:
        readers = [threads.submit(_read_to_end, cluster.urls["plain"], channel, start) for _ in range(8)]
        ended = Event()
        publisher = threads.submit(_publish_until, cluster, channel, ended)
        try:
            for name, end in (("node1", cluster.stop_part), ("node2", cluster.kill_part), ("node3", cluster.kill_part)):
                end(name)
                cluster.start_part(name)
        finally:
            ended.set()
            published = publisher.result()
            assert publish(cluster, [channel], "end").status == 201
        assert published > 20
        results = [reader.result() for reader in readers]
        assert [read for read, _ in results] == [[*range(published), "end"]] * len(readers)
        closed = sum(closed for _, closed in results)
        wait_until(lambda: _ended_while_connecting(cluster, channel) == closed, f"{closed} lines with DC in the log")


def _ended_while_connecting(cluster: Cluster, channel: str) -> int:
    """How many polls of a channel HAProxy ended because it marked their node down before they were connected to it."""
    log = cluster.parts["haproxy"].log.read_text()
    return len(re.findall(rf" DC-- .*channel={re.escape(channel)}&", log))


def _read_to_end(url: str, channel: str, cursor: str) -> tuple[list[object], int]:
    """What one reader gets, and how often its connection was closed without a response; any other error is raised."""
    read: list[object] = []
    closed = 0
    with ExitStack() as stack:
        client = caller(url, stack)
        while read[-1:] != ["end"]:
            try:
                answer = client.poll(channel, cursor=cursor, timeout=10)
            except RemoteDisconnected:
                closed += 1
                client.close()
                continue
            assert answer["gaps"] == []
            read += data_of(answer)
            cursor = answer["cursor"]
    return read, closed


def _publish_until(cluster: Cluster, channel: str, ended: Event) -> int:
    """Publish numbers until `ended`; retries one with its key if its outcome is unknown. Returns how many."""
    number = 0
    with ExitStack() as stack:
        inside = caller(cluster.urls["inside"], stack)
        while not ended.wait(0.01):
            key = {"Authorization": f"Bearer {cluster.publish_key}", "Idempotency-Key": f"{channel}-{number}"}
            try:
                reply = inside.call("POST", "/v1/messages", {"channels": [channel], "data": number}, key)
                number += reply.status == 201
            except (HTTPException, OSError):
                inside.close()
    return number


def test_polls_are_held_without_redis(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """No node is ready: cached messages are served, polls wait, publishers get an error; then everything resumes."""
    client = caller(cluster.urls["plain"], stack)
    cursor = client.cursor()  # without Redis, only polls with a cursor are answered
    assert publish(cluster, [channel], "before").status == 201
    wait_for_message(cluster, channel)
    cluster.stop_part("redis")
    try:
        wait_until(
            lambda: all(cluster.server_states()[f"polls/{name}"] == "NOLB" for name in cluster.nodes),
            "all nodes to be not ready",
        )
        answer = client.poll(channel, cursor=cursor, timeout=10)
        assert data_of(answer) == ["before"]
        client.begin_poll(channel, cursor=answer["cursor"], timeout=50)
        wait_until(lambda: sum(held(cluster).values()) == 1, "the held poll")
        refused = publish(cluster, [channel], "meanwhile")
        assert refused.status == 503
        assert refused.value["type"] == "urn:pushup:unavailable"
        assert "Retry-After" in refused.headers
    finally:
        cluster.start_part("redis")
    wait_until(lambda: publish(cluster, [channel], "after").status == 201, "Redis to be back")
    assert data_of(client.answer()) == ["after"]


def test_a_reload_breaks_nothing(cluster: Cluster, stack: ExitStack, channel: str) -> None:
    """Held polls complete, requests during the reload are answered, and the new file takes effect."""
    clients = hold(cluster, 8, stack, channel)
    asking = caller(cluster.urls["plain"], stack)
    cluster.reload_haproxy(nodes=3)
    try:
        assert asking.call("GET", "/v1/cursor").status == 200
        assert "polls/node3" in cluster.server_states()
        assert "polls/node4" not in cluster.server_states()
        assert sum(held(cluster).values()) == 8
        assert publish(cluster, [channel], "after").status == 201
        assert [data_of(client.answer()) for client in clients] == [["after"]] * 8
    finally:
        cluster.reload_haproxy()


def test_plain_requests_from_elsewhere_are_redirected_to_tls(cluster: Cluster, stack: ExitStack) -> None:
    """Only loopback is served without TLS; here HAProxy also listens on another address of this machine."""
    others = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    if not others:
        pytest.skip("this machine has no address but loopback")
    port = cluster.ports["tcp"]  # this front does not use it
    cluster.reload_haproxy(plain=f"{cluster.address('plain')},{others[0]}:{port}")
    try:
        reply = caller(f"http://{others[0]}:{port}", stack).call("GET", poll_path("a", timeout=0))
        assert reply.status == 308
        assert reply.headers["Location"] == f"https://localhost:{cluster.ports['tls']}{poll_path('a', timeout=0)}"
    finally:
        cluster.reload_haproxy()


def test_plain_tcp_distributes_connections_in_turn(stack: ExitStack, channel: str) -> None:
    """haproxy-tcp.cfg: of eight connections, each of four nodes gets two, and any node publishes to all."""
    with Cluster(nodes=4, front="tcp", without=["example"]) as cluster:
        clients = hold(cluster, 7, stack, channel)  # the eighth connection fetches the cursor
        assert sorted(held(cluster).values()) == [1, 2, 2, 2]
        assert publish(cluster, [channel], "to all").status == 201
        assert [data_of(client.answer()) for client in clients] == [["to all"]] * 7
        cluster.kill_part("node1")
        assert caller(cluster.urls["plain"], stack).call("GET", "/v1/cursor").status == 200
        cluster.start_part("node1")


def test_several_haproxies_in_front_of_the_same_nodes(stack: ExitStack, channel: str) -> None:
    """Each has a port of its own, and what is published through one reaches the clients of the other."""
    with Cluster(nodes=2, front="tcp", haproxies=2, without=["example"]) as cluster:
        assert cluster.fronts == {"haproxy": "tcp", "haproxy2": "tcp2"}
        clients = [caller(f"http://{cluster.address('tcp2')}", stack) for _ in range(4)]
        for client in clients:
            client.begin_poll(channel, cursor="now", timeout=50)
        wait_until(lambda: sum(held(cluster).values()) == 4, "the held polls")
        assert publish(cluster, [channel], "to all").status == 201  # through the first one
        assert [data_of(client.answer()) for client in clients] == [["to all"]] * 4
        cluster.kill_part("haproxy")
        assert caller(f"http://{cluster.address('tcp2')}", stack).call("GET", "/v1/cursor").status == 200


def test_plain_tcp_ends_the_connections_of_a_node_that_hangs(stack: ExitStack, channel: str) -> None:
    """haproxy-tcp.cfg: its clients reconnect to another node. No other connection is closed."""
    with Cluster(nodes=2, front="tcp", without=["example"]) as cluster:
        clients = [stack.enter_context(RawClient(cluster.address("tcp"))) for _ in range(8)]
        for client in clients:
            client.send(get(poll_path(channel, cursor="now", timeout=50)))
        wait_until(lambda: held(cluster) == {"node1": 4, "node2": 4}, "the held polls")
        cluster.freeze_part("node1")
        cut_off: list[RawClient] = []
        while len(cut_off) < 4:
            readable, _, _ = select.select([c.socket for c in clients if c not in cut_off], [], [], WAIT_SECONDS)
            assert readable, f"{len(cut_off)} of 4 clients of the node were cut off"
            cut_off += [client for client in clients if client.socket in readable]
        assert [client.read_to_end() for client in cut_off] == [b""] * 4
        assert publish(cluster, [channel], "after").status == 201
        left = [client.read_response().value for client in clients if client not in cut_off]
        assert [data_of(answer) for answer in left] == [["after"]] * 4


def test_plain_tcp_leaves_a_node_that_drains_its_clients(stack: ExitStack, channel: str) -> None:
    """haproxy-tcp.cfg: it gets no new connections, and answers the polls it holds."""
    with Cluster(nodes=2, front="tcp", settings={"drain_seconds": 4}, without=["example"]) as cluster:
        clients = [caller(cluster.urls["plain"], stack) for _ in range(40)]
        for client in clients:
            client.begin_poll(channel, cursor="now", timeout=50)
        wait_until(lambda: held(cluster) == {"node1": 20, "node2": 20}, "the held polls")
        cluster.parts["node1"].ask_to_stop()
        wait_until(lambda: not cluster.parts["node1"].runs, "it to end")
        assert publish(cluster, [channel], "after").status == 201
        answers = [data_of(client.answer()) for client in clients]
        assert (answers.count([]), answers.count(["after"])) == (20, 20)


def test_the_nodes_name_the_client_behind_haproxy() -> None:
    """Not HAProxy, and not what the client claims to be."""
    settings = {"log_level": "debug"}
    with Cluster(nodes=1, broadcast="memory:", settings=settings, without=("example",)) as cluster:
        log = cluster.parts["node1"].log
        for front, host in (("plain", "127.0.0.7"), ("inside", "127.0.0.8")):
            address = ("127.0.0.1", cluster.ports[front])
            with socket.create_connection(address, WAIT_SECONDS, (host, 0)) as client:
                client.sendall(b"GET /v1/cursor HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200")
            wait_until(lambda line=f" ms {host}": line in log.read_text(), "a line with the client's address")  # type: ignore[misc]
        assert "192.0.2.1" not in log.read_text()


def test_raw_streams_outlive_the_nodes(stack: ExitStack) -> None:
    """Without a node they are empty, before HAProxy has noticed as well as afterwards, so that browsers try again."""
    with Cluster(nodes=1, broadcast="memory:", without=("example",)) as cluster:
        client = caller(cluster.urls["plain"], stack)
        cluster.kill_part("node1")
        _expect_an_empty_stream(client)
        wait_until(lambda: cluster.server_states()["polls/node1"].startswith("DOWN"), "HAProxy to notice")
        _expect_an_empty_stream(client)
        cluster.start_part("node1")


def _expect_an_empty_stream(client: Caller) -> None:
    reply = client.call("GET", "/v1/events?channel=a&format=raw")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
    assert "data:" not in reply.text
    assert client.call("GET", "/v1/events?channel=a").status in (502, 503)
