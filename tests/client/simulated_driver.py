"""A driver without a network and a clock: nodes follow scripts, and time passes only when somebody waits.

Both clients can use it, as it never suspends. A node is named by the path in its URL, such as `a` in `unix:a`.
What runs in the background has threads, of which one runs at a time: of those that wait, the one whose wait ends first.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pushup.client.driver import Connection, Driver, run
from pushup.client.values import Stopped

T = TypeVar("T")


@dataclass
class Reply:
    """What a node does with a request: pieces, each after a number of seconds; then it hangs, or closes.

    A piece may be an error, which breaks the connection. `refused`: it takes no connection. `decide` gets the
    request, and returns another reply.
    """

    pieces: list[tuple[float, bytes | OSError]] = field(default_factory=list)
    closes: bool = False
    refused: bool = False
    decide: Callable[[Sent], Reply] | None = None


def answer(status: int, value: Any = None, *, after: float = 0.0, **headers: str) -> Reply:
    """A response with JSON."""
    body = b"" if value is None else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} Reason", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return Reply([(after, "\r\n".join([*lines, "", ""]).encode() + body)])


def stream(*events: dict[str, Any] | float, closes: bool = True) -> Reply:
    """A stream of these events, with pauses of so many seconds."""
    pieces: list[tuple[float, bytes | OSError]] = [(0.0, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")]
    pause = 0.0
    for event in events:
        if isinstance(event, float):
            pause += event
        else:
            line = json.dumps(event).encode() + b"\n"
            pieces.append((pause, f"{len(line):x}\r\n".encode() + line + b"\r\n"))
            pause = 0.0
    if closes:
        pieces.append((pause, b"0\r\n\r\n"))
    return Reply(pieces)


def message(number: int) -> dict[str, Any]:
    return {"id": f"e-{number}", "time": 1.0, "channels": ["a"], "data": number}


def event(number: int) -> dict[str, Any]:
    """As a stream sends it."""
    return {"id": f"e-{number}", "data": message(number)}


def polled(cursor: str, *numbers: int, **more: Any) -> Reply:
    answered = {"cursor": cursor, "messages": [message(n) for n in numbers], "more": False, "gaps": [], "closed": []}
    return answer(200, answered | more)


def ended(kind: str, status: int = 401) -> dict[str, Any]:
    """The event of a stream that ends with an error."""
    return {"event": "error", "data": {"type": f"urn:pushup:{kind}", "status": status, "detail": kind}}


REFUSED = Reply(refused=True)
HANGS = Reply()
MUTE = stream(closes=False)
CLOSES = Reply(closes=True)
RESET = Reply([(0.0, ConnectionResetError("reset"))])
DRIPS = Reply([(0.05, bytes([byte])) for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000])
NOT_HTTP = Reply([(0.0, b"SSH-2.0-OpenSSH_10.0\r\n\r\n")])
HUGE = Reply([(0.0, b"HTTP/1.1 200 OK\r\n\r\n"), *[(0.0, b" " * 4_000_000)] * 10], closes=True)


@dataclass(frozen=True)
class Sent:
    """A request that a node got, and what it did."""

    node: str
    at: float
    method: str
    target: str
    headers: dict[str, str]
    body: Any
    connection: int
    reply: Reply = field(repr=False)


class _Thread:
    """One that waits until `wakes_at`, or until `future` is done. `over`: what the background task returned."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.wakes_at = 0.0
        self.future: Future[Any] | None = None
        self.over: Future[None] = Future()


class SimulatedDriver:
    """Nodes do what `scripts` say for their requests, one after the other; without more of them they hang."""

    def __init__(self, seed: int | None = None, **scripts: Iterable[Reply]) -> None:
        """Pauses are as long as they may be, or random with a seed."""
        self.scripts = {name: iter(script) for name, script in scripts.items()}
        self.sent: list[Sent] = []
        self.open: set[int] = set()
        """The numbers of the connections that are open."""
        self.slept: list[float] = []
        self.time = 1000.0
        self.connections = 0
        self.on_wait: Callable[[], object] = lambda: None
        """Called whenever the client waits."""
        self._random = random.Random(seed) if seed is not None else None
        self.is_stopped = False
        self._running = _Thread()
        self._threads = [self._running]

    def now(self) -> float:
        return self.time

    def random(self, longest: float) -> float:
        return longest if self._random is None else self._random.uniform(0.0, longest)

    def stop(self) -> None:
        self.is_stopped = True

    def pass_time(self, seconds: float, until: float) -> None:
        """Wait. Raises: TimeoutError at `until`; Stopped."""
        self.on_wait()
        is_late = self.time + seconds > until
        self._pass_to_others(max(self.time, min(self.time + seconds, until)))
        if self.is_stopped or self._running.over.cancelled():
            raise Stopped
        if is_late:
            raise TimeoutError

    def _pass_to_others(self, wakes_at: float, future: Future[Any] | None = None) -> None:
        me = self._running
        me.wakes_at, me.future = wakes_at, future
        if self._next() is not me:
            me.goes_on.wait()
            me.goes_on.clear()

    def _next(self) -> _Thread:
        """Let the thread go on whose wait ends first, and of several the one that has not run for longest."""

        def at(thread: _Thread) -> float:
            is_ready = thread.over.cancelled() or (thread.future is not None and thread.future.done())
            return self.time if is_ready else thread.wakes_at

        before, self._running = self._running, min(self._threads, key=at)
        self.time = max(self.time, at(self._running))
        self._threads.sort(key=lambda thread: thread is self._running)
        if self._running is not before:
            self._running.goes_on.set()
        return self._running

    async def sleep(self, seconds: float) -> None:
        self.slept += [seconds] if seconds else []
        self.pass_time(seconds, float("inf"))

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            value = function()
            if value is not None:  # or it never returns
                future.set_result(value)
        except Exception as error:
            future.set_exception(error)
        return future

    def background(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        thread = _Thread()

        def call() -> None:
            thread.goes_on.wait()
            thread.goes_on.clear()
            with suppress(Stopped):
                run(coroutine)
            with suppress(InvalidStateError):  # it was cancelled
                thread.over.set_result(None)
            self._threads.remove(thread)
            self._next()

        thread.wakes_at = self.time
        self._threads.insert(0, thread)
        threading.Thread(target=call, daemon=True).start()
        return thread.over

    async def wait(self, future: Future[T], until: float) -> T:
        if len(self._threads) > 1 and not future.done():
            self.on_wait()
            self._pass_to_others(until, future)
        self.pass_time(0.0 if future.done() else float("inf"), until)
        value = future.result()
        return await value if isinstance(value, Awaitable) else value

    async def connect(self, family: int, address: Any, tls: Any, host: str, until: float) -> Connection:
        reply = next(self.scripts[address], HANGS)
        if reply.refused:
            raise ConnectionRefusedError("refused")
        self.connections += 1
        return _Connection(self, address, self.connections, reply)


class _Connection:
    def __init__(self, driver: SimulatedDriver, node: str, number: int, first: Reply) -> None:
        self._driver = driver
        self._node = node
        self._number = number
        self._first: Reply | None = first
        self._got = b""
        self._pieces: Iterator[tuple[float, bytes | OSError]] = iter(())
        self._closes = False
        self._next: tuple[float, bytes | OSError] | None = None
        driver.open.add(number)

    async def send(self, data: bytes, until: float) -> None:
        self._driver.pass_time(0.0, until)
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        first, *fields = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
        if not end or len(body) < int(headers.get("content-length", 0)):
            return
        self._got = b""
        method, target, _ = first.split()
        driver = self._driver
        value = json.loads(body) if body else None
        reply, self._first = self._first or next(driver.scripts[self._node], HANGS), None
        driver.sent.append(Sent(self._node, driver.time, method, target, headers, value, self._number, reply))
        if reply.decide is not None:
            reply = reply.decide(driver.sent[-1])
        self._pieces, self._closes = iter(reply.pieces), reply.closes or reply.refused
        self._next = None

    async def receive(self, until: float) -> bytes:
        if self._next is None:
            after, piece = next(self._pieces, (0.0 if self._closes else float("inf"), b""))
            self._next = self._driver.time + after, piece
        at, piece = self._next
        self._driver.pass_time(at - self._driver.time, until)
        self._next = None
        if isinstance(piece, OSError):
            raise piece
        return piece

    def close(self) -> None:
        self._driver.open.discard(self._number)


_check: type[Driver] = SimulatedDriver
