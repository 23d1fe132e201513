"""`pushup why`: a message that did not arrive, in a cluster and with one server."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.server.command_line import error_of, run
from tests.server.conftest import Serve
from tests.server.redis_cluster import RedisCluster, cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, wait_until

KEY = "a-publish-key-of-27-letters"


def why(server: Server, *arguments: str) -> str:
    """What the command prints; it must succeed."""
    ended = run("why", *arguments, PUSHUP_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def of_node_1(cluster: RedisCluster, id_: str) -> tuple[str, str]:
    """What node 0 says of node 1: its id, and whether it still reports; and the rest. Empty if it says nothing."""
    about, _, rest = why(cluster.nodes[0], id_).partition("  node       node1 (")[2].partition("\n")[0].partition(") ")
    return about, rest


def test_a_flood_evicted_it(tmp_path: Path) -> None:
    """Both nodes say so; only the one that accepted it says that it has, and each knows when both have applied it."""
    with RedisServer(tmp_path / "redis") as redis, cluster_at(redis, tmp_path, 2, retention_messages=3) as cluster:
        cursor = cluster.wait_until_one()
        one, two = cluster.callers
        id_ = one.publish(["a"], "missed")["id"]
        for n in range(10):
            two.publish(["a"], n)
        cluster.wait_until_one()
        for server, accepted in zip(cluster.nodes, ("by this node", "not by this node"), strict=True):
            lines = why(server, id_, "--cursor", cursor).splitlines()
            assert lines[0].startswith(f"{id_}, as node node")
            told = [line.strip() for line in lines[1:]]
            assert f"accepted   {accepted}" in told
            (now,) = [line for line in told if line.startswith("now ")]
            assert now.startswith("now        dropped at 20")
            assert now.endswith(" UTC: evicted because of retention_messages")
            assert f"cursor     {cursor} is before the message: its client has not passed it" in told
            assert "a poll of a from there gets a gap (evicted)" in told
        assert [gap["reason"] for gap in two.poll("a", cursor=cursor, timeout=0)["gaps"]] == ["evicted"]

        def have_reported() -> bool:
            nodes = json.loads(why(cluster.nodes[1], id_, "--json"))["nodes"]
            return sorted(node["name"] for node in nodes if node["applied"]) == ["node0", "node1"]

        wait_until(have_reported, "both nodes to report that they have applied it")


def test_a_node_that_stands_still(tmp_path: Path) -> None:
    """The other node says that it has not applied the message; and that it has, once it goes on."""
    with RedisServer(tmp_path / "redis") as redis, cluster_at(redis, tmp_path, 2) as cluster:
        before = cluster.callers[1].publish(["a"], "early")["id"]
        wait_until(lambda: of_node_1(cluster, before)[1].startswith("reported it"), "a report")
        cluster.nodes[1].signal(signal.SIGSTOP)
        id_ = cluster.callers[0].publish(["a"], "late")["id"]
        wait_until(lambda: of_node_1(cluster, id_)[0].endswith(", no longer reports"), "the other node to be missed")
        said = of_node_1(cluster, id_)[1]
        assert said.startswith("has not applied it: its last report, 20")
        assert said.endswith(f", was {before}")
        cluster.nodes[1].signal(signal.SIGCONT)
        wait_until(lambda: of_node_1(cluster, id_)[1].startswith("reported it as applied at 20"), "it to go on")
        assert "  now        kept" in why(cluster.nodes[1], id_).splitlines()


def test_what_a_server_says(serve: Serve) -> None:
    """Of a kept message; of one from before it was started; and to somebody without the right to ask."""
    with serve(publish_keys=f"ops {KEY}") as server, server.caller() as caller:
        headers = {"Authorization": f"Bearer {KEY}"}
        body = {"channels": ["a", "b"], "data": "hello"}
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        published = caller.call("POST", "/v1/messages", body, headers | {"traceparent": trace}).value
        lines = why(server, published["id"], "--key", KEY, "--cursor", published["cursor"]).splitlines()
        assert lines[1].startswith("  published  20")
        assert lines[1].endswith(" UTC with key ops, 7 bytes")
        assert lines[2:5] == ["  channels   a, b", "  accepted   by this node", f"  trace      {trace}"]
        assert lines[5] == "  now        kept"
        assert lines[-3].startswith(f"  cursor     {published['cursor']} is at the message or after it: ")
        assert lines[-1].strip() == "a poll of b from there gets neither the message nor a gap"
        assert "no message has this id" in error_of("why", "other-7", "--key", KEY, PUSHUP_URL=server.url)
        ahead = why(server, published["id"].rpartition("-")[0] + "-99", "--key", KEY)
        assert "  now        not known here: this node has not applied its entry yet" in ahead.splitlines()
        assert "401" in error_of("why", published["id"], PUSHUP_URL=server.url)
