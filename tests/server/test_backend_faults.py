"""Applications that are slow, broken or down, and real threads: clients that have a ticket notice none of it."""

from __future__ import annotations

import gc
import queue
import socket
import statistics
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from pushup.backends.helper_pool import IDLE_SECONDS, HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.tickets import Tickets
from pushup.metrics import BackendCounters
from tests.backends.outcomes import Outcome
from tests.server.blocking_backend import rude_backend
from tests.server.caller import Caller, data_of, poll_path
from tests.server.conftest import Serve
from tests.server.raw_client import get
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, set_flags, wait_until

KEY = "the-key-of-all-nodes"

# A web backend that does not behave.


def never_answers(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def closes_at_once(sock: socket.socket) -> None:
    sock.close()


def closes_when_asked(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.close()


def dribbles_a_head(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        sock.sendall(b"X-%d: x\r\n" % number)
        time.sleep(0.02)


def dribbles_a_body(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n")
    for byte in b'{"allow": true':
        sock.sendall(bytes([byte]))
        time.sleep(0.02)
    time.sleep(20)


def never_ends_its_body(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        sock.sendall(b" " * 65536)


def never_ends_its_chunks(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        sock.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def breaks_off(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"allow": true}')
    sock.close()


def talks_garbage(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n" + bytes(range(256)) * 10)
    sock.close()


def talks_unasked(sock: socket.socket) -> None:
    sock.sendall(b"220 mail.example.org ESMTP\r\n")
    sock.recv(65536)


def lies_about_its_length(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nContent-Length: many\r\n\r\n{}")
    sock.close()


def never_ends_its_head(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        sock.sendall(b"X: " + b"x" * 60_000 + b"\r\n")


RUDE = [
    never_answers, closes_at_once, closes_when_asked, dribbles_a_head, dribbles_a_body, never_ends_its_head,
    never_ends_its_body, never_ends_its_chunks, breaks_off,
    talks_garbage, talks_unasked, lies_about_its_length,
]  # fmt: skip


def sealed(*channels: str) -> dict[str, str]:
    """A header field with a ticket that is valid for an hour."""
    now = int(time.time())
    return {"PushUp-Ticket": Tickets(KEY.encode()).seal(channels, issued_at=now, expires=now + 3600, subject="")}


def busy(server: Server) -> float:
    return server.metric('backend_busy{backend="authorization"}')


def assert_refused_while_others_poll(server: Server, asked: Caller, caller: Caller) -> None:
    """A poll that needs the application ends with 503 in time; meanwhile, one with a ticket gets its messages."""
    asked.begin_poll("a", timeout=20)  # longer than the client waits
    cursor = caller.cursor()
    for number in range(5):
        message = caller.publish(["b"], number)
        reply = caller.call("GET", poll_path("b", cursor=cursor, timeout=5), headers=sealed("b"))
        assert data_of(reply.value) == [number]
        cursor = message["cursor"]
    reply = asked.finish()
    assert (reply.status, reply.value["type"]) == (503, "urn:pushup:unavailable")
    assert int(reply.headers["Retry-After"]) > 0
    assert server.metric("held_polls") == 0


@pytest.mark.parametrize("behaviour", RUDE)
def test_misbehaving_backend(serve: Serve, behaviour: Callable[[socket.socket], None]) -> None:
    """Whatever a backend does with its connections, polls that need it get 503, and others notice nothing."""
    with (
        rude_backend(behaviour) as backend,
        serve(
            authorize_url=backend.url,
            authorize_timeout_seconds=0.5,
            authorize_at_most=2,
            ticket_key=KEY,
            log_format="json",
        ) as server,
        server.caller() as asked,
        server.caller() as caller,
    ):
        server.expect_log("authorization is failing")
        assert_refused_while_others_poll(server, asked, caller)
        wait_until(lambda: backend.connections >= 1, "the backend's thread to accept")
        assert backend.connections <= 2
        wait_until(lambda: busy(server) == 0, "the places to be free")
        memory = server.memory_bytes
        for _ in range(2):
            assert asked.call("GET", poll_path("a")).status == 503
        assert server.memory_bytes - memory < 16 * 1024 * 1024
        files = [c for c in server.process.net_connections("tcp") if c.status == "ESTABLISHED"]
        assert len(files) <= 2 + 2, "the two clients, and no more connections to the backend than it may have"


def test_unreachable_backend(serve: Serve) -> None:
    """If nobody listens at the URL, or its host does not resolve, clients are told to retry."""
    for url in (f"http://127.0.0.1:{free_port()}/may", "http://no-such-host.invalid/may"):
        with (
            serve(authorize_url=url, authorize_timeout_seconds=2, ticket_key=KEY, log_format="json") as server,
            server.caller() as asked,
            server.caller() as caller,
        ):
            server.expect_log("authorization is failing")
            assert_refused_while_others_poll(server, asked, caller)
            wait_until(lambda server=server: busy(server) == 0, "the places to be free")  # type: ignore[misc]


# A function that blocks.

AT_MOST = 20
TIMEOUT_SECONDS = 10
SLOW_POLLS = 2000
ROUNDS = 100

AUTHORIZER = f"""
    import threading, time
    from pathlib import Path

    lock = threading.Lock()
    busy = peak = begun = 0

    def may_poll(channels, headers):
        global busy, peak, begun
        if not channels[0].startswith("slow:"):
            return True
        with lock:
            begun += 1
            name = "the first may return" if begun <= {AT_MOST} else "all may return"
            busy += 1
            if busy > peak:
                peak = busy
                Path("peak").write_text(str(peak))
        while not Path(name).exists():
            time.sleep(0.1)
        with lock:
            busy -= 1
        return True
"""


def delays(poller: Caller, publisher: Caller, rounds: int) -> float:
    """The median time from a publication to the answer of a held poll with a ticket, in seconds."""
    cursor = publisher.cursor()
    headers = sealed("fast")
    measured = []
    for number in range(rounds):
        poller.begin("GET", poll_path("fast", cursor=cursor, timeout=20), headers=headers)
        time.sleep(0.002)  # so that the poll is held when the message arrives
        began = time.perf_counter()
        publisher.publish(["fast"], number)
        answer = poller.answer()
        measured.append(time.perf_counter() - began)
        assert data_of(answer) == [number]
        cursor = answer["cursor"]
    return statistics.median(measured)


def test_2000_polls_on_a_slow_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While 2,000 polls wait for a slow function, at most 20 calls of it run, all polls are answered in time,
    and polls with tickets are answered as fast as ever."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(AUTHORIZER))
    settings = {
        "authorizer": "mine:may_poll", "authorize_at_most": AT_MOST, "authorize_timeout_seconds": TIMEOUT_SECONDS,
        "ticket_key": KEY, "log_format": "json",
    }  # fmt: skip
    flags = set_flags(settings)
    with (
        running(tmp_path / "server.log", flags) as server,
        server.caller() as poller,
        server.caller() as publisher,
        ExitStack() as stack,
    ):
        server.expect_log("authorization is failing")
        assert poller.call("GET", poll_path("quick", timeout=0)).status == 200
        before = delays(poller, publisher, ROUNDS)
        files = server.process.num_fds()
        clients = [stack.enter_context(server.connect()) for _ in range(SLOW_POLLS)]
        for number, client in enumerate(clients):
            client.send(get(poll_path(f"slow:{number}", timeout=0)))
        wait_until(
            lambda: server.metric('backend_waiting{backend="authorization"}') == SLOW_POLLS - AT_MOST, "all to wait"
        )
        assert busy(server) == AT_MOST
        meanwhile = delays(poller, publisher, ROUNDS)
        assert server.metric('backend_waiting{backend="authorization"}') == SLOW_POLLS - AT_MOST, "they wait no more"
        (tmp_path / "the first may return").touch()
        responses = [client.read_response() for client in clients]
        (tmp_path / "all may return").touch()
        wait_until(lambda: busy(server) == 0, "the last calls to return")
        after = delays(poller, publisher, ROUNDS)
        with capsys.disabled():
            print(  # noqa: T201 - a figure to look at
                f"\nmedian delay with {SLOW_POLLS} polls on a slow backend {meanwhile * 1000:.2f} ms, "
                f"before {before * 1000:.2f} ms, after {after * 1000:.2f} ms"
            )
        assert meanwhile < 3 * max(before, after) + 0.005
        statuses = [response.status for response in responses]
        assert statuses.count(200) == AT_MOST, "those that ran first; the next ran when their time was over"
        assert statuses.count(503) == SLOW_POLLS - AT_MOST
        for response in responses:
            if response.status == 503:
                assert int(response.headers["retry-after"]) > 0
            else:
                assert response.value["ticket"]
        assert int((tmp_path / "peak").read_text()) == AT_MOST
        assert server.metric('backend_waiting{backend="authorization"}') == 0
        calls = {
            outcome: server.metric(f'backend_calls_total{{backend="authorization",outcome="{outcome}"}}')
            for outcome in ("ended", "late", "refused")
        }
        assert calls == {"ended": AT_MOST + 1, "late": SLOW_POLLS - AT_MOST, "refused": 0}
        assert server.metric("held_polls") == 0
        assert len([line for line in server.log_lines() if "authorization is failing" in line]) == 1
        assert poller.call("GET", poll_path("quick", timeout=0)).status == 200
        stack.close()
        wait_until(lambda: server.process.num_fds() <= files, "the files to be closed")
        assert server.metric("connections") <= 3
        assert server.trouble() == []


# Real threads.


class ThreadReactor(Clock):
    """Calls from threads wait until they are picked up."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.Queue[Callable[[], object]] = queue.Queue()

    def callFromThread(self, function: Callable[..., object], *args: Any, **kw: Any) -> None:
        self._calls.put(lambda: function(*args, **kw))

    def take_up(self, count: int) -> None:
        """Make this many calls from threads, each in a turn of its own."""
        for _ in range(count):
            self._calls.get(timeout=10)()
            self.advance(0)


class DatabaseConnection:
    """Thread-local state."""


def pool_threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"PoolThread-{name}-")]


def test_each_thread_keeps_its_own_connection() -> None:
    """20 calls at a time over three threads use three connections, one per thread; all are closed when idle."""
    reactor, counters = ThreadReactor(), BackendCounters()
    limits = ServiceLimits(at_most=3, queue_limit=100, deadline_seconds=3600.0)
    pool = HelperPool("database", limits, reactor=reactor, counters=counters)
    local = threading.local()
    made: list[weakref.ref[DatabaseConnection]] = []
    lock = threading.Lock()
    running, peak = 0, 0

    def work(fails: bool) -> tuple[int, int]:
        nonlocal running, peak
        if not hasattr(local, "connection"):
            local.connection = DatabaseConnection()
            made.append(weakref.ref(local.connection))
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        if fails:
            raise ZeroDivisionError
        return threading.get_ident(), id(local.connection)

    def use() -> set[tuple[int, int]]:
        outcomes = [Outcome(pool.call(work, number % 5 == 4)) for number in range(20)]
        reactor.take_up(20)
        for outcome in outcomes[4::5]:
            assert isinstance(outcome.error, ZeroDivisionError)
        return {outcome.result for number, outcome in enumerate(outcomes) if number % 5 < 4}

    try:
        for generation in range(1, 4):
            pairs = use() | use()
            assert len(pairs) == len({thread for thread, _ in pairs}) == len({connection for _, connection in pairs})
            assert 1 <= len(pairs) <= 3
            assert len(pool_threads("database")) <= 3
            assert all(thread.daemon for thread in pool_threads("database"))
            reactor.advance(IDLE_SECONDS)
            reactor.advance(IDLE_SECONDS)
            wait_until(lambda: not pool_threads("database"), "the threads to end")
            gc.collect()
            # a thread is in no list any more when it is about to drop what is its own
            wait_until(lambda: all(connection() is None for connection in made), "the connections to be closed")
            assert len(made) <= 3 * generation
        assert peak == 3
    finally:
        pool.stop()


def test_ended_threads_do_not_pile_up() -> None:
    """However often threads start and end, no more of their objects are kept than the maximum number of threads."""
    reactor, counters = ThreadReactor(), BackendCounters()
    limits = ServiceLimits(at_most=2, queue_limit=100, deadline_seconds=3600.0)
    pool = HelperPool("piling", limits, reactor=reactor, counters=counters)
    seen: list[weakref.ref[threading.Thread]] = []

    def work() -> None:
        seen.append(weakref.ref(threading.current_thread()))
        time.sleep(0.002)

    try:
        for _ in range(20):
            outcomes = [Outcome(pool.call(work)) for _ in range(2)]
            reactor.take_up(2)
            assert all(outcome.fired for outcome in outcomes)
            reactor.advance(IDLE_SECONDS)
            reactor.advance(IDLE_SECONDS)
            wait_until(lambda: not pool_threads("piling"), "the threads to end")
        gc.collect()
        kept = {thread for ref in seen if (thread := ref()) is not None}
        assert len(seen) == 40
        assert len(kept) <= 4
    finally:
        pool.stop()


def test_a_pool_that_is_stopped_lets_its_threads_end() -> None:
    """After a stop, idle threads have ended, and a busy one ends when its call returns."""
    reactor, counters = ThreadReactor(), BackendCounters()
    limits = ServiceLimits(at_most=3, queue_limit=100, deadline_seconds=3600.0)
    pool = HelperPool("stopped", limits, reactor=reactor, counters=counters)
    leave = threading.Event()
    outcomes = [Outcome(pool.call(leave.wait, seconds)) for seconds in (0.0, 0.0, 10.0)]
    reactor.take_up(2)
    pool.stop()
    wait_until(lambda: len(pool_threads("stopped")) == 1, "two threads to end")
    leave.set()
    reactor.take_up(1)
    assert [outcome.result for outcome in outcomes] == [False, False, True]
    wait_until(lambda: not pool_threads("stopped"), "the last thread to end")
