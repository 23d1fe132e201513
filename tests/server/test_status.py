"""`pushup status`: one screen about a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

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


@contextmanager
def answering(answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    """The URL of a server with these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, value = answers[self.path]
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_two_nodes_of_one_name() -> None:
    """As those of one machine have; what differs between them is told, too."""
    node = {"name": "one", "cursor": "e-1", "held_polls": 0, "addresses": ["127.0.0.1:1"], "version": "1"}
    nodes = [{**node, "id": id_, "settings": {"publish_keys": f"digest{id_}"}} for id_ in "ba"]
    with answering({"/readyz": (200, {"status": "ready"}), "/v1/nodes": (200, {"nodes": nodes})}) as url:
        ended = run("status", "--url", url)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1
    assert [line[:7] for line in lines[3:5]] == ["one (a)", "one (b)"]
    assert lines[-3:] == ["publish_keys differs:", "  one (a)  digesta", "  one (b)  digestb"]


def test_a_proxy_that_hides_readyz() -> None:
    """Its error is shown, and is not taken for a node that is not ready."""
    with answering({"/readyz": (404, {"message": "no route"}), "/v1/nodes": (200, {"nodes": []})}) as url:
        assert error_of("status", "--url", url).startswith("Error: 404 ")
