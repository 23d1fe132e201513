"""`GET /v1/backup`: all that a node keeps, as of one entry, though it changes while it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pushup.broadcast.formats import FORMAT
from pushup.broadcast.journal_copy import write_copy
from pushup.broadcast.journal_file import JournalFile
from pushup.core.cursor import Cursor
from pushup.core.grant import NOTHING
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from pushup.net.api.backing_up import PAUSE_SECONDS, send_backup
from pushup.net.requests_and_responses import Request
from tests.net.event_reader import read_chunks
from tests.net.in_memory_node import AroundMemory, InMemoryNode, RecordingExchange

KEYS = (
    "all key-of-this-test-with-usual-rights",
    "nightly key-of-this-test-to-back-up backup",
)
USUAL = {"Authorization": "Bearer key-of-this-test-with-usual-rights"}
BACKUP = {"Authorization": "Bearer key-of-this-test-to-back-up"}


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(publish_keys=KEYS, limits=Limits(retention_messages=3000))


def publish(node: InMemoryNode, count: int, channel: str = "a") -> None:
    for first in range(0, count, 100):
        messages = [{"channels": [channel], "data": n} for n in range(first, min(count, first + 100))]
        assert node.call("POST", "/v1/messages", {"messages": messages}, **USUAL).status == 201


def begun(node: InMemoryNode, method: str = "GET", target: str = "/v1/backup") -> RecordingExchange:
    return node.begin(method, target, **BACKUP)


def body_of(exchange: RecordingExchange) -> bytes:
    """What was written, without the framing of chunks."""
    assert exchange.held is None, "it has not ended"
    return read_chunks(exchange.written)[0]


def turn(node: InMemoryNode) -> None:
    """Until the next piece."""
    node.turn()
    node.clock.advance(PAUSE_SECONDS)


def finish(node: InMemoryNode) -> None:
    """All pieces."""
    for _ in range(50):
        turn(node)


def last_line(exchange: RecordingExchange) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(body_of(exchange).splitlines()[-1])
    return last


def copied(parts: Iterable[bytes], path: Path) -> ReplicatedState:
    """The state in the journal that is made of a backup."""
    write_copy(path, parts)
    file = JournalFile(path)
    found = file.load()
    file.close()
    assert found is not None
    return restore(found)


def test_everything_is_in_it(node: InMemoryNode, tmp_path: Path) -> None:
    publish(node, 700)
    publish(node, 3, "b")
    exchange = begun(node)
    finish(node)
    assert exchange.responses[0].content_type == b"application/x-ndjson"
    assert copied([body_of(exchange)], tmp_path / "copy").snapshot() == node.state.snapshot()
    assert last_line(exchange)["format"] == FORMAT


@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_state_after_one_entry(node: InMemoryNode, tmp_path: Path, seed: int) -> None:
    """Whatever comes meanwhile: messages that are evicted, channels that are closed and opened again."""
    random = Random(seed)
    publish(node, 2500)
    before = node.state.cursor.sequence
    snapshots = {}
    exchange = begun(node)
    while exchange.held is not None:
        for _ in range(random.randrange(3)):
            if random.random() < 0.2:
                node.call("DELETE", f"/v1/channels/{random.choice('ab')}", **USUAL)
            else:
                publish(node, random.choice((1, 100, 300)), random.choice("ab"))
            snapshots[node.state.cursor.sequence] = node.state.snapshot()
        snapshots[node.state.cursor.sequence] = node.state.snapshot()
        turn(node)
    body = body_of(exchange)
    cuts = sorted(random.randrange(len(body)) for _ in range(50))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    state = copied(parts, tmp_path / "copy")
    assert state.cursor.sequence >= before
    assert state.snapshot() == snapshots[state.cursor.sequence]
    assert not node.state.change_log.is_on, "nobody else wants to know"


def test_changes_are_recorded_for_the_broadcast_as_well(node: InMemoryNode, tmp_path: Path) -> None:
    """A journal saves its checkpoint while a backup is read, and each time gets what has changed since the last one."""
    follower = node.node
    publish(node, 2500)
    follower.note_changes()
    exchange = begun(node)
    seen = 0
    while exchange.held is not None:
        seen += 1
        if seen < 8:
            publish(node, 100)
            changes = follower.changes()
            assert changes.head.sequence == node.state.cursor.sequence
            assert len([row for row in changes.rows if row.key.startswith("messages/") and not row.is_removed]) == 100
            assert follower.changed_count == 100
            follower.note_changes()
        turn(node)
    assert seen > 8
    assert copied([body_of(exchange)], tmp_path / "copy").snapshot() == node.state.snapshot()
    publish(node, 10)
    assert follower.changed_count == 10 + 10 + 1, "messages, those that they evict, and their channel"
    assert node.state.change_log.is_on


class Worker(AroundMemory):
    """A broadcast whose end has to be asked for."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.asked: list[Callable[[Cursor], None]] = []

    def find_end(self, on_end: Callable[[Cursor], None]) -> None:
        self.asked.append(on_end)


def test_it_waits_for_what_others_have_acknowledged(tmp_path: Path) -> None:
    """Rows are read when this node knows what came before the backup."""
    node = InMemoryNode(publish_keys=KEYS, broadcast=Worker)
    exchange = begun(node)
    finish(node)
    publish(node, 5)
    assert isinstance(node.broadcast, Worker)
    (on_end,) = node.broadcast.asked
    on_end(node.state.cursor)
    finish(node)
    assert copied([body_of(exchange)], tmp_path / "copy").message_count == 5


def test_a_client_that_does_not_read_holds_nothing_up(node: InMemoryNode, tmp_path: Path) -> None:
    """Nothing more is read until it has taken what was sent; when it has left, another backup may begin."""
    publish(node, 2500)
    exchange = begun(node)
    exchange.blocks = True
    finish(node)
    size = len(exchange.written)
    finish(node)
    assert len(exchange.written) == size
    assert begun(node).responses[0].status == 503
    assert exchange.streamed is not None
    exchange.blocks = False
    exchange.streamed.drained()
    finish(node)
    assert copied([body_of(exchange)], tmp_path / "copy").snapshot() == node.state.snapshot()
    left = begun(node)
    assert left.streamed is not None
    left.streamed.cancel()
    left.written = b""
    finish(node)
    assert left.written == b""
    again = begun(node)
    finish(node)
    assert "head" in last_line(again)


def test_it_says_why_it_is_not_complete(node: InMemoryNode) -> None:
    """The node has moved to another state; or the client is too slow."""
    publish(node, 2500)
    exchange = begun(node)
    turn(node)
    node.node.start_from(restore(node.state.snapshot()))
    finish(node)
    assert "new epoch" in last_line(exchange)["error"]
    slow = RecordingExchange()
    request = Request(b"GET", b"/v1/backup", {}, keep_alive=True)
    send_backup(node.node, request, b"", slow, NOTHING, changes_limit=100)
    turn(node)
    publish(node, 101)
    finish(node)
    assert "reads too slowly" in last_line(slow)["error"]
    assert node.node.outgoing is None


def test_http_1_0_gets_no_chunks(node: InMemoryNode) -> None:
    publish(node, 1)
    exchange = RecordingExchange()
    request = Request(b"GET", b"/v1/backup", {}, keep_alive=False, is_1_0=True)
    send_backup(node.node, request, b"", exchange, NOTHING)
    finish(node)
    assert "head" in json.loads(exchange.written.splitlines()[-1])


def test_head_and_parameters(node: InMemoryNode) -> None:
    """HEAD gets the head, and no backup is under way then; parameters are refused."""
    exchange = begun(node, "HEAD")
    finish(node)
    assert (exchange.responses[0].status, exchange.written, exchange.held) == (200, b"", None)
    assert node.call("GET", "/v1/backup?channel=a", **BACKUP).status == 400
    again = begun(node)
    finish(node)
    assert "head" in last_line(again)


def test_who_may(node: InMemoryNode) -> None:
    """Only a key that says so; it may do nothing else. Without keys, nobody."""
    assert node.call("GET", "/v1/backup").status == 401
    assert node.call("GET", "/v1/backup", **USUAL).status == 403
    assert node.call("GET", "/v1/channels", **BACKUP).status == 403
    refused = InMemoryNode().call("GET", "/v1/backup")
    assert (refused.status, "right backup" in refused.json["detail"]) == (403, True)
    with pytest.raises(ValueError, match="write backup alone"):
        node.access.use_publish_keys(("nightly key-of-this-test-to-back-up backup=a:*",))
