"""`pushup status`: one screen about a cluster."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.server.blocking_backend import Question, Verdict, WebBackend
from tests.server.command_line import error_of, run
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import running, wait_until

KEYS = {"PUSHUP_PUBLISH_KEYS": "a-publish-key-of-27-letters"}
OTHER_KEYS = {"PUSHUP_PUBLISH_KEYS": "another-key-of-25-letters"}


def test_a_server_alone(tmp_path: Path) -> None:
    """One node, which is ready; without a server, it says so."""
    with running(tmp_path / "log", ("--set", "node_name=one")) as server:
        ended = run("status", "--url", server.url)
        assert ended.returncode == 0
        first, empty, head, row = ended.stdout.splitlines()
        assert (first, empty) == ("ready", "")
        assert head.split() == ["node", "behind", "held", "polls", "addresses", "version"]
        assert row.startswith("one   0       0           127.0.0.1:")
        assert json.loads(run("status", "--json", "--url", server.url).stdout)["nodes"][0]["name"] == "one"
    assert "Error: " in error_of("status", "--url", f"http://127.0.0.1:{free_port()}")


def test_nodes_with_other_keys(tmp_path: Path) -> None:
    """The setting that differs is named, with what each node has, but no key; the log of the other node says it."""
    with RedisServer(tmp_path / "redis") as redis, ExitStack() as stack:
        cluster = RedisCluster(redis, tmp_path, stack)
        first = cluster.start(environment=KEYS)
        first.expect_log("has other settings than this node: publish_keys")
        second = cluster.start(environment=OTHER_KEYS)
        second.expect_log("node node0 has other settings than this node: publish_keys")
        wait_until(lambda: any("other settings" in line for line in second.log_lines()), "the line")

        def differs() -> bool:
            ended = run("status", "--url", first.url, PUSHUP_KEY=KEYS["PUSHUP_PUBLISH_KEYS"])
            lines = ended.stdout.splitlines()
            if "publish_keys differs:" not in lines:
                return False
            assert ended.returncode == 1
            assert [line.split()[0] for line in lines[-2:]] == ["node0", "node1"]
            assert "letters" not in ended.stdout
            return True

        wait_until(differs, "both nodes to be known")
        for node in (first, second):
            assert node.metric("nodes_with_other_settings") == 1


def status_of(backend: WebBackend, **answers: tuple[int, Any]) -> subprocess.CompletedProcess[str]:
    """What the command makes of these answers, by the last part of the path."""

    def answer(question: Question) -> Verdict:
        status, value = answers[question.path.rpartition("/")[2]]
        return Verdict(status, json.dumps(value).encode())

    backend.answer = answer
    return run("status", "--url", backend.url.removesuffix("/may"))


def test_two_nodes_of_one_name(backend: WebBackend) -> None:
    """As those of one machine have; what differs between them is told, too."""
    node = {"name": "one", "cursor": "e-1", "held_polls": 0, "addresses": ["127.0.0.1:1"], "version": "1"}
    nodes = [{**node, "id": id_, "settings": {"publish_keys": f"digest{id_}"}} for id_ in "ba"]
    ended = status_of(backend, readyz=(200, {"status": "ready"}), nodes=(200, {"nodes": nodes}))
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1
    assert [line[:7] for line in lines[3:5]] == ["one (a)", "one (b)"]
    assert lines[-3:] == ["publish_keys differs:", "  one (a)  digesta", "  one (b)  digestb"]


def test_a_node_that_is_behind(backend: WebBackend) -> None:
    """By how many entries. One of an earlier release says nothing of its settings, so none differs."""
    node = {"held_polls": 0, "addresses": ["127.0.0.1:1"], "version": "1"}
    one = {**node, "name": "one", "id": "a", "cursor": "e-7", "settings": {"publish_keys": "digest"}}
    two = {**node, "name": "two", "id": "b", "cursor": "e-5"}
    ended = status_of(backend, readyz=(200, {"status": "ready"}), nodes=(200, {"nodes": [two, one]}))
    assert [line.split()[:2] for line in ended.stdout.splitlines()[3:]] == [["one", "0"], ["two", "2"]]
    assert ended.returncode == 0


def test_a_proxy_that_hides_readyz(backend: WebBackend) -> None:
    """Its error is shown, and is not taken for a node that is not ready."""
    ended = status_of(backend, readyz=(404, {"message": "no route"}), nodes=(200, {"nodes": []}))
    assert (ended.returncode, ended.stderr[:20]) == (1, "Error: 404 Not Found")
