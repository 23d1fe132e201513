"""Whatever is found in Redis: within 30 s a gap is told and service is normal, or the log names the key to remove."""

from __future__ import annotations

from random import Random

import pytest

from tests.broadcast.redis.commands import Data, SortedSet, Stream
from tests.broadcast.redis.following_nodes import Cluster
from tests.core.builders import poll, publish

PREFIX = b"{pushup}:5:"
STATE = PREFIX + b"state"
FORMAT_KEY = b"{pushup}:state"
FIELDS = tuple(b"epoch sequence time tag run saved checkpoint rows waits cluster founded replicated".split())
"""Of the state, but for the version: a higher one is that of a newer release, and is refused."""
KEYS = tuple(PREFIX + name for name in b"state log rows loads leases members vouchers".split())
WAYS = ("delete", "garbage", "empty", "+1", "-1", "huge")


def damage(data: Data, field: bytes, way: str) -> None:
    """Change one field of the state."""
    state = data[STATE]
    before = state.get(field, b"0")
    number = int(before) if before.isdigit() else 0
    values = {"garbage": b"?!", "empty": b"", "+1": b"%d" % (number + 1), "-1": b"%d" % (number - 1), "huge": b"9" * 30}
    if way == "delete":
        state.pop(field, None)
    else:
        state[field] = values[way]


def serves(cluster: Cluster, channel: str) -> bool:
    """Whether all nodes are ready, and each gets what another publishes."""
    nodes = cluster.nodes
    if any(node.node.why_not_ready() is not None for node in nodes) or len({node.cursor for node in nodes}) > 1:
        return False
    for node in nodes:
        outcomes = node.append(publish(channel))
        cluster.advance(0.2)
        if len(outcomes) != 1 or isinstance(outcomes[0], Exception):
            return False
    return len({node.cursor for node in nodes}) == 1


def recovers(cluster: Cluster, seconds: float = 30.0) -> bool:
    for _ in range(round(seconds)):
        cluster.advance(1.0, 0.25)
        if serves(cluster, "b"):
            return True
    return False


def check_clients(cluster: Cluster, cursor: str, last: str) -> None:
    """Who was at `cursor` gets the message after it, or a gap, on every node; a new one has what the others have."""
    cluster.start()
    cluster.advance(2.0)  # an epoch may have begun just now
    nodes = cluster.nodes
    for node in nodes:
        assert node.state.snapshot() == nodes[0].state.snapshot()
        answer = node.poll(poll("a", cursor=cursor))
        assert answer.gaps or [message.id for message in answer.messages] == [last], answer


def start(random: Random) -> tuple[Cluster, str, str]:
    """Two nodes with some messages, at any moment between two saves; a cursor, and the id of the message after it."""
    cluster = Cluster(2)
    cluster.advance(1.0)
    for _ in range(random.randrange(3, 8)):
        cluster.publish(random.choice(cluster.nodes), "a", key=str(random.random()))
        cluster.advance(random.choice([0.05, 0.3, 1.2]))
    cursor = cluster.nodes[0].cursor
    last = cluster.publish(cluster.nodes[0], "a")
    cluster.advance(random.choice([0.05, 1.5]))
    return cluster, cursor, f"{last.epoch}-{last.sequence}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_field(field: bytes, way: str, log: list[str]) -> None:
    """Of the state, at any moment."""
    cluster, cursor, last = start(Random(f"{field!r} {way}"))
    damage(cluster.redis.data, field, way)
    if way in ("garbage", "+1"):
        cluster.start()
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_that_no_node_remembers(field: bytes, log: list[str]) -> None:
    """All nodes start again, and find it so."""
    cluster, cursor, last = start(Random(repr(field)))
    cluster.end()
    damage(cluster.redis.data, field, "delete")
    cluster.start()
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()


@pytest.mark.parametrize("way", ["+1", "-1"])
def test_a_checkpoint_that_is_not_where_the_state_says(way: str, log: list[str]) -> None:
    """A save that went on from there would leave the entry between out, and a node that starts later would lack it."""
    cluster = Cluster(2)
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(2.5)
    cursor = cluster.nodes[0].cursor
    last = cluster.publish(cluster.nodes[0], "a")
    assert int(cluster.redis.data[STATE][b"saved"]) == last.sequence - 1, "the last one is not saved yet"
    damage(cluster.redis.data, b"saved", way)
    assert recovers(cluster), log
    cluster.advance(2.5)
    check_clients(cluster, cursor, f"{last.epoch}-{last.sequence}")
    cluster.end()


@pytest.mark.parametrize("place", ["*", "next", "far"])
def test_a_stray_entry_in_the_stream(place: str, log: list[str]) -> None:
    """Somebody has added one, with whatever id."""
    cluster, cursor, last = start(Random(place))
    stream = cluster.redis.data[PREFIX + b"log"]
    assert isinstance(stream, Stream)
    number = {"*": int(cluster.redis.now() * 1000), "next": stream.last + 1, "far": 10**15}[place]
    stream.add(b"%d-0" % number, [b"hello", b"world"])
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()


@pytest.mark.parametrize("kind", ["string", "zset", "hash", "stream"])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_type(key: bytes, kind: str, log: list[str]) -> None:
    """The log names it, or it was replaced by itself; when it is removed, service returns."""
    cluster, cursor, last = start(Random(f"{key!r} {kind}"))
    stream = Stream()
    stream.add(b"1-0", [b"hello", b"world"])
    made = {"string": b"x", "zset": SortedSet({b"x": 1.0}), "hash": {b"x": b"y"}, "stream": stream}
    cluster.redis.data.expires.pop(key, None)
    cluster.redis.data[key] = made[kind]
    cluster.start()
    if not recovers(cluster):
        named = [line for line in log if f"{key.decode()}: not of the type" in line and "remove it" in line]
        assert 1 <= len(named) <= len(cluster.nodes), log
        cluster.redis.data.pop(key)
        assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()


@pytest.mark.parametrize("kind", ["number", "string", "zset", "hash"])
def test_a_damaged_format(kind: str, log: list[str]) -> None:
    """Nobody knows whether another release was used. The log says which key to remove if not: nothing is lost then."""
    cluster, cursor, last = start(Random(kind))
    made = {"number": b"6", "string": b"?!", "zset": SortedSet({b"x": 1.0}), "hash": {b"x": b"y"}}
    cluster.redis.data[FORMAT_KEY] = made[kind]
    cluster.start()
    assert not recovers(cluster, 5.0)
    assert any(f"remove {FORMAT_KEY.decode()} only" in line for line in log), log
    cluster.redis.data.pop(FORMAT_KEY)
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    for node in cluster.nodes:
        assert not node.poll(poll("a", cursor=cursor)).gaps
    cluster.end()


def test_a_damaged_version(log: list[str]) -> None:
    """A node that starts takes it for that of a newer release; the log says what to remove if it is not."""
    cluster, cursor, last = start(Random("version"))
    damage(cluster.redis.data, b"version", "huge")
    cluster.start()
    assert not recovers(cluster, 5.0)
    assert any(f"ends in :{STATE.decode().partition(':')[2]};" in line for line in log), log
    cluster.redis.data.pop(STATE)
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_gone(key: bytes, log: list[str]) -> None:
    cluster, cursor, last = start(Random(repr(key)))
    cluster.redis.data.pop(key, None)
    assert recovers(cluster), log
    check_clients(cluster, cursor, last)
    cluster.end()
