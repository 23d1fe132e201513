"""The promises of docs/internals/architecture.md, each with its test. Promise 7: `test_stopping`."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

from tests.server.caller import gaps_of, poll_path, sequence
from tests.server.conftest import Serve
from tests.server.follower import LAST, Follower
from tests.server.raw_client import RawClient, get
from tests.server.server_process import Server, wait_until

MIB = 1024 * 1024


def test_promises_1_and_2_followers_miss_nothing_and_get_nothing_twice(server: Server, channel: str) -> None:
    """50 reconnecting clients get every message of their channels, once and in order, along a chain of cursors."""
    draw = random.Random(20_261)
    channels = [f"{channel}:{n}" for n in range(6)]
    published: list[tuple[str, frozenset[str], object]] = []
    with server.caller() as caller:
        cursor = caller.cursor()
        followers = [
            Follower(server.address, tuple(draw.sample(channels, draw.randint(1, 4))), cursor, seed)
            for seed in range(50)
        ]
        for follower in followers:
            follower.start()
        for number in range(200):
            if draw.random() < 0.3:
                time.sleep(draw.uniform(0, 0.02))
            to = draw.sample(channels, draw.randint(1, 3))
            if number % 10:
                published.append((caller.publish(to, number)["id"], frozenset(to), number))
            else:
                batch = [{"channels": to, "data": [number, place]} for place in range(3)]
                reply = caller.call("POST", "/v1/messages", {"messages": batch})
                assert reply.status == 201
                published += [(i, frozenset(to), m["data"]) for i, m in zip(reply.value["ids"], batch, strict=True)]
        last = caller.publish(channels, LAST)
        published.append((last["id"], frozenset(channels), LAST))
    assert [sequence(p[0]) for p in published] == sorted({sequence(p[0]) for p in published})
    for follower in followers:
        follower.join(60)
        assert not follower.is_alive()
        assert not follower.errors, follower.errors
        got = [(m["id"], frozenset(m["channels"]), m["data"]) for m in follower.messages]
        asked = frozenset(follower.channels)
        assert got == [(i, on & asked, data) for i, on, data in published if on & asked]
        assert not follower.gaps
    server.wait_for_held(0)


def test_promise_1_what_is_not_delivered_is_told_as_a_gap(serve: Serve) -> None:
    """A subscriber gets every message acknowledged since its cursor, or a gap; and a gap only if something is lost."""
    draw = random.Random(7)
    kept = 5
    with serve(retention_messages=kept) as server, server.caller() as caller:
        cursor = caller.cursor()
        number = 0
        for _ in range(200):
            new = [number + n for n in range(draw.choice((0, 1, 2, 4, 5, 6, 9)))]
            number += len(new)
            for data in new:
                caller.publish(["a"], data)
            answer = caller.poll("a", cursor=cursor, timeout=0)
            cursor = answer["cursor"]
            assert [m["data"] for m in answer["messages"]] == new[-kept:]
            assert gaps_of(answer) == ([("a", "evicted")] if len(new) > kept else [])


def test_promise_1_closing_a_channel_tells_of_lost_messages(serve: Serve) -> None:
    """Messages lost when their channel closed are reported as a gap, and so is a cursor from before a restart."""
    with serve() as server, server.caller() as caller:
        cursor = caller.cursor()
        caller.publish(["a"], "gone")
        assert caller.call("DELETE", "/v1/channels/a").status == 204
        answer = caller.poll("a", cursor=cursor, timeout=0)
        assert gaps_of(answer) == [("a", "closed")]
        assert answer["closed"] == ["a"]
    with serve() as server, server.caller() as caller:
        answer = caller.poll("a", "b", cursor=answer["cursor"], timeout=10)
        assert gaps_of(answer) == [("a", "lost"), ("b", "lost")]


def test_promise_2_any_cursor_resumes_exactly(server: Server, channel: str) -> None:
    """From every possible cursor, a client gets exactly the messages after it."""
    with server.caller() as caller:
        cursors = [caller.publish([channel], n)["cursor"] for n in range(30)]
        for place, cursor in enumerate(cursors):
            answer = caller.poll(channel, cursor=cursor, timeout=0)
            assert [m["data"] for m in answer["messages"]] == list(range(place + 1, 30))


def _stick(server: Server, stack: ExitStack, requests: int) -> RawClient:
    """A client that repeatedly requests large answers and reads none."""
    client = stack.enter_context(server.connect(receive_buffer_bytes=4096))
    client.send_what_fits(get(poll_path("large", timeout=0)) * requests, quiet_seconds=0.2)
    return client


def test_promise_3_stuck_clients_delay_nobody_and_cost_their_output_buffer(serve: Serve, stack: ExitStack) -> None:
    """Clients that pipeline polls and read nothing cost at most their output buffer, while others are served."""
    stuck_clients, output_limit = 12, MIB
    with serve(output_limit_bytes=output_limit) as server, server.caller() as caller, server.caller() as live:
        for _ in range(20):
            caller.publish(["large"], "x" * 60_000)
        live.poll("large", timeout=0)
        before = server.memory_bytes
        stuck = [_stick(server, stack, requests=300) for _ in range(stuck_clients)]
        held = [stack.enter_context(server.connect(receive_buffer_bytes=4096)) for _ in range(stuck_clients)]
        for client in held:  # these wait, and are then sent more than their link takes
            client.send(get(poll_path("more", timeout=60)) + get(poll_path("large", timeout=0)) * 20)
        server.wait_for_held(stuck_clients)
        cursor = live.cursor()
        for number in range(30):
            live.begin_poll("live", cursor=cursor)
            caller.publish(["live", "more"], [number, "x" * 30_000])
            answer = live.answer()
            cursor = answer["cursor"]
            assert [m["data"][0] for m in answer["messages"]] == [number]
        assert server.metric("connections") == 2 * stuck_clients + 3
        grown = server.memory_bytes - before
        assert grown < 2 * stuck_clients * output_limit + 16 * MIB
        for client in (stuck[0], held[-1]):  # when it reads after all, the answers to its requests are still there
            assert client.read_response().status == 200
            assert client.read_response().status == 200


def test_promise_3_stuck_streams_cost_one_budget_together(serve: Serve, stack: ExitStack) -> None:
    """Streams that differ in one channel and read nothing are ended when all of them leave too much unread."""
    stuck_clients, limit = 60, 4 * MIB
    with serve(unsent_limit_bytes=limit) as server, server.caller() as caller:
        server.expect_log("unsent_limit_bytes .4194304. was exceeded")
        for number in range(stuck_clients):
            client = stack.enter_context(server.connect(receive_buffer_bytes=4096))
            client.send(get(f"/v1/events?channel=all&channel=own:{number}"))
        reader = stack.enter_context(server.connect())
        reader.send(get("/v1/events?channel=all"))
        wait_until(lambda: server.metric("streams") == stuck_clients + 1, "all streams")
        before, received = server.memory_bytes, 0
        for number in range(300):
            caller.publish(["all"], [number, "x" * 60_000])
            while received < (number + 1) * 60_000:  # it gets each message at once
                received += len(reader.socket.recv(65536))
            if server.metric("unsent_failures_total") > 0.8 * stuck_clients:
                break
        else:
            raise AssertionError("the kernel has accepted everything")
        wait_until(lambda: server.metric("unsent_bytes") <= limit, "the end of slow streams")
        assert server.memory_bytes - before < limit + 32 * MIB


def test_promise_3_a_stuck_client_cannot_send_for_ever(serve: Serve) -> None:
    """Behind a held poll, only a limited number of requests are read; when it ends, the vanished client is dropped."""
    with serve() as server:
        requests = get(poll_path("a", timeout=1)) * 400_000
        before = server.memory_bytes
        with server.connect() as client:
            sent = client.send_what_fits(requests, quiet_seconds=0.5)
            assert sent < len(requests)
            assert server.memory_bytes - before < 8 * MIB
        server.wait_for_held(0)


def test_promise_3_stuck_client_is_given_up(serve: Serve, stack: ExitStack) -> None:
    """A client that reads nothing of its answer for `idle_timeout_seconds` is disconnected."""
    with serve(idle_timeout_seconds="2s") as server, server.caller() as caller:
        for _ in range(20):
            caller.publish(["large"], "x" * 60_000)
        for _ in range(5):
            _stick(server, stack, requests=200)
        wait_until(lambda: server.metric("connections") <= 2, "the stuck clients to be disconnected")


BAD_REQUESTS = [
    ("GET", "/v1/poll?channel=a&timeout=nan", None, 400, "timeout"),
    ("GET", "/v1/poll?channel=a%FF", None, 400, None),
    ("GET", "/v1/poll?" + "channel=a&" * 1000, None, 414, None),
    ("POST", "/v1/poll", b'{"channels": ["a"], "wait": 1}', 400, "wait"),
    ("POST", "/v1/poll", b"", 400, None),
    ("POST", "/v1/messages", b'{"channels": ["a"], "data": NaN}', 400, None),
    ("POST", "/v1/messages", b'{"channels": ["a"], "data": ' + b"[" * 200_000, 400, None),
    ("POST", "/v1/messages", b'{"channels": ["a"]}', 400, "data"),
    ("POST", "/v1/messages", b'{"channels": ["a"], "data": "' + b"x" * 70_000 + b'"}', 413, "data"),
    ("POST", "/v1/messages", b'"' + b"x" * 1_100_000 + b'"', 413, None),
    ("POST", "/v1/messages", b'{"channels": ["12"], "data": 1}', 404, "channels"),
    ("POST", "/v1/channels", b'{"name": "a", "ttl": -1}', 400, "ttl"),
    ("POST", "/v1/channels/a/renew", b'{"ttl": "long"}', 400, "ttl"),
    ("DELETE", "/v1/channels/a", None, 404, "channel"),
    ("GET", "/v1/nothing", None, 404, None),
    ("PUT", "/v1/poll?channel=a", None, 405, None),
]


def test_promise_5_bad_input_is_named_and_changes_nothing(serve: Serve) -> None:
    """Invalid input gets a 4xx problem that names the field; it changes nothing, is not logged and leaves nothing."""
    with serve() as server, server.caller() as caller:
        before = caller.cursor(), server.process.num_fds()
        for method, path, body, status, field in BAD_REQUESTS:
            case = (method, path[:80], (body or b"")[:80])
            with server.connect() as client:
                length = f"Content-Length: {len(body or b'')}"
                client.send_what_fits(
                    f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode() + (body or b"")
                )
                response = client.read_response()
                assert response.is_problem, (case, response)
                assert (response.status, response.value.get("field")) == (status, field), (case, response)
        assert caller.call("GET", "/v1/channels").value == {"channels": [], "more": False}
        assert server.metric("messages_total") == 0
        # A command refused by the state still had a place in the order, so the cursor may move; nothing else may.
        assert caller.poll("a", cursor=before[0], timeout=0)["messages"] == []
        server.wait_for_held(0)
        wait_until(lambda: server.process.num_fds() <= before[1] + 1, "the connections to be forgotten")


def test_promise_6_memory_is_bounded_and_the_oldest_goes_first(serve: Serve) -> None:
    """However much is published, the kept messages take at most `retention_bytes`; gaps report the rest."""
    kept_bytes, message_bytes, published = 4 * MIB, 32_000, 3000
    with serve(retention_bytes=kept_bytes, retention_messages=100_000) as server, server.caller() as caller:
        server.expect_log("retention_bytes is used up")
        first = caller.publish(["a", "b"], [0, "x" * message_bytes])["cursor"]
        before = server.memory_bytes
        for start in range(1, published, 20):
            batch = [{"channels": ["a"], "data": [start + n, "x" * message_bytes]} for n in range(20)]
            assert caller.call("POST", "/v1/messages", {"messages": batch}).status == 201
            assert start % 500 != 1 or server.metric("cached_bytes") <= kept_bytes
        last = start + 19
        assert server.metric("cached_bytes") <= kept_bytes
        assert server.memory_bytes - before < kept_bytes + 24 * MIB < published * message_bytes
        answer = caller.poll("a", cursor=first)
        assert gaps_of(answer) == [("a", "evicted")]
        seen = [m["data"][0] for m in answer["messages"]]
        while answer["more"]:
            answer = caller.poll("a", cursor=answer["cursor"])
            seen += [m["data"][0] for m in answer["messages"]]
        assert seen == list(range(seen[0], last + 1))
        assert kept_bytes * 0.8 < len(seen) * (message_bytes + 1024) <= kept_bytes
        assert caller.poll("b", timeout=0)["messages"] == []


def test_promise_6_the_heap_does_not_grow_for_large_blocks(serve: Serve) -> None:
    """By default, glibc takes blocks from the heap that are as large as one that was freed. While large tables and
    small objects come and go, the heap then grows without end."""
    with serve(workers=2, message_limit_bytes=700_000) as server, server.caller() as caller:
        caller.publish(["a"], "x" * 650_000)
        assert caller.call("DELETE", "/v1/channels/a").status == 204
        before = _heap_bytes(server)
        for _ in range(10):
            caller.publish(["a"], "x" * 600_000)
        assert _heap_bytes(server) - before < 3 * MIB


def _heap_bytes(server: Server) -> int:
    """What the heaps of all its processes take."""
    processes = [server.process, *server.process.children()]
    return sum(part.rss for process in processes for part in process.memory_maps() if part.path == "[heap]")
