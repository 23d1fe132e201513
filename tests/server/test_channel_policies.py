"""Real servers with `[[channels]]`: some channels keep messages for less time; a flood costs only who publishes it."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.caller import Caller, data_of, gaps_of
from tests.server.conftest import Serve
from tests.server.redis_cluster import cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import wait_until

SHORT = '[[channels]]\nprefix = "short:"\nretention_seconds = "1s"\n'

LOUD, QUIET = "a-key-of-the-loud-publisher", "a-key-of-the-quiet-publisher"


def policy(path: Path, prefix: str, **fields: object) -> Path:
    """A settings file with one policy."""
    path.write_text(f'[[channels]]\nprefix = "{prefix}"\n' + "".join(f"{k} = {v}\n" for k, v in fields.items()))
    return path


def kept(caller: Caller, channel: str, cursor: str) -> tuple[list[Any], list[str]]:
    """The data of the messages after a cursor, and the reasons of gaps."""
    answer = caller.poll(channel, cursor=cursor, timeout=0)
    return data_of(answer), [reason for _, reason in gaps_of(answer)]


def test_channels_with_a_short_retention(serve: Serve, tmp_path: Path, stack: ExitStack) -> None:
    """Their messages are soon gone, with a gap, at all workers. One that is on another channel, too, stays as there."""
    file = policy(tmp_path / "pushup.toml", "short:", retention_seconds='"1s"')
    with serve("--config", str(file), "--workers", "2") as server, server.caller() as caller:
        start = caller.cursor()
        caller.publish(["short:x"], 1)
        caller.publish(["long"], 2)
        caller.publish(["short:y", "long"], 3)
        for each in [stack.enter_context(server.caller()) for _ in range(8)]:
            wait_until(lambda by=each: kept(by, "short:x", start) == ([], ["expired"]), "the gap")  # type: ignore[misc]
            assert kept(each, "long", start) == ([2, 3], [])
            assert kept(each, "short:y", start) == ([3], [])


@pytest.mark.parametrize(
    "settings", ['retention_bytes = "400KiB"\n', '[[channels]]\nprefix = "room:"\nretention_bytes = "400KiB"\n']
)
def test_a_flood_costs_only_who_publishes_it(serve: Serve, tmp_path: Path, settings: str) -> None:
    """The other publisher's messages stay, although they are older; a channel of both has no holes. The log tells."""
    file = tmp_path / "pushup.toml"
    file.write_text(f'publish_keys = ["loud {LOUD}", "quiet {QUIET}"]\n{settings}')
    with serve("--config", str(file)) as server, server.caller() as caller:
        told = r"retention_bytes is used up: .*by key: {'loud': \d+, 'quiet': 1}\. Key loud takes 99 %"
        server.expect_log(told)

        def publish(key: str, channel: str, data: object) -> None:
            headers = {"Authorization": f"Bearer {key}"}
            assert caller.call("POST", "/v1/messages", {"channels": [channel], "data": data}, headers).status == 201

        start = caller.cursor()
        for number in range(3):
            publish(QUIET, "room:quiet", number)
        publish(QUIET, "room:loud", "in between")
        for number in range(30):
            publish(LOUD, "room:loud", f"{number} {'x' * 60_000}")
        assert kept(caller, "room:quiet", start) == ([0, 1, 2], [])
        messages, gaps = kept(caller, "room:loud", start)
        assert (messages[0][:3], gaps) == ("24 ", ["evicted"])
        assert server.metric("cached_bytes") <= 400 * 1024
        wait_until(lambda: any(re.search(told, line) for line in server.log_lines()), "a line in the log")


def test_another_policy_at_a_restart(serve: Serve, tmp_path: Path) -> None:
    """A journal goes on with it: what it does not keep is dropped, and new channels have its lifetime."""
    flags = ("--broadcast", f"journal:{tmp_path}/journal", "--config", str(tmp_path / "pushup.toml"))
    policy(tmp_path / "pushup.toml", "a:", retention_seconds='"1h"', channel_ttl_seconds='"3h"')
    with serve(*flags) as server, server.caller() as caller:
        start = caller.cursor()
        caller.publish(["a:b"], 1)
        opened = caller.call("GET", "/v1/channels/a:b").value
        server.end()
    policy(tmp_path / "pushup.toml", "a:", retention_seconds='"10ms"', channel_ttl_seconds='"2h"')
    with serve(*flags) as server, server.caller() as caller:
        wait_until(lambda: kept(caller, "a:b", start) == ([], ["expired"]), "the message to expire")
        assert caller.call("GET", "/v1/channels/a:b").value["expires"] == opened["expires"]
        time = caller.publish(["a:c"], 2)["time"]
        assert caller.call("GET", "/v1/channels/a:c").value["expires"] == pytest.approx(time + 7200.0, abs=1.0)


def test_nodes_agree_on_another_policy(redis: RedisServer, tmp_path: Path) -> None:
    """Restarted one by one, they go on by the policy of the log until both have the new one."""
    redis.start()
    old, new = (policy(tmp_path / f"{most}.toml", "a:", retention_messages=most) for most in (5, 2))
    with cluster_at(redis, tmp_path, 2, environment={"PUSHUP_CONFIG": str(old)}) as cluster:

        def kept_by(*nodes: int) -> list[int]:
            """How many messages these nodes keep after so many that each keeps all it may."""
            callers = [cluster.callers[node] for node in nodes]
            for _ in range(10):
                last = callers[0].publish(["a:b"], 1)["cursor"]
            for each in callers:
                each.poll("a:b", cursor=last, timeout=0)  # is answered when the node has the last one
            return [len(data_of(each.poll("a:b", cursor="earliest", timeout=0))) for each in callers]

        agreed = "all nodes are ready: from here on the log uses the limits"
        assert kept_by(0, 1) == [5, 5]
        cluster.stop(0)
        cluster.start(environment={"PUSHUP_CONFIG": str(new)})
        assert kept_by(1, 2) == [5, 5]
        cluster.stop(1)
        cluster.start(environment={"PUSHUP_CONFIG": str(new)})
        wait_until(lambda: any(agreed in line for node in cluster.nodes for line in node.log_lines()), "the new limits")
        assert kept_by(2, 3) == [2, 2]
