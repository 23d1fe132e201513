"""Multithreaded long polling (PushUp §4, MLP): a thread waits for each polling request.

Only the concurrency model differs from PushUp: the state, the HTTP interface, the responses and the parser are shared.
One lock guards the state. Each thread waits on its own event, so a message wakes only the threads that it is for.

The paper starts a thread for each request, and closes the connection after the response. Here connections are kept, so
there are two ways. `--thread-for connection`: a thread reads a request, waits while the poll is held, writes the
response, and reads the next request; polls do not pay for starting and ending threads. `--thread-for request`: the main
thread waits until a connection has something to read, and starts a thread that reads it, waits, answers and ends.

One limitation of the model is left in place: a thread that waits for a message does not notice that its client has
disconnected.
"""

from __future__ import annotations

import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from random import random
from typing import Any

import click

from loadtest.kit.application import (
    Access,
    Ack,
    Answer,
    Api,
    Client,
    Command,
    Cursor,
    Entry,
    ErrorResponder,
    Held,
    HeldOnGrants,
    HeldPolls,
    Holder,
    HoldLimits,
    HoldsState,
    Limits,
    MemoryBroadcast,
    Metrics,
    Node,
    OnConfirmation,
    OneProcess,
    OnOutcome,
    Origins,
    Outcome,
    Poll,
    PollAccess,
    PollLimits,
    PollReader,
    PublicationLimits,
    Publishers,
    PushUpError,
    ReplicatedState,
    Request,
    RequestLimits,
    RequestParser,
    Response,
    ResponseOptions,
    ResponseWriter,
    Streamed,
    Subscription,
    open_socket,
    problem,
    tune_garbage_collector,
)
from loadtest.load.servers import raise_file_limit

READ_BYTES = 4096
WOKEN_AT_A_TIME = 256
"""Threads woken per acquisition of the lock; as many as PushUp answers in one reactor iteration."""


class _Node(HoldsState):
    """The state that all threads share. Call everything except `wake` and `expire` with the lock held."""

    def __init__(self, *, hold_jitter: float) -> None:
        self.lock = threading.Lock()
        self.metrics = Metrics()
        self._hold_jitter = hold_jitter
        self._broadcast = MemoryBroadcast(epoch=secrets.token_hex(4), limits=Limits(), steady_time=time.time)
        self._broadcast.start(self)
        self.find_end = self._broadcast.find_end
        self.later: Callable[..., object] = threading.Timer  # for backups; nobody makes any

    # Called by the broadcast.

    def start_from(self, state: ReplicatedState) -> None:
        self.state = state
        self._polls: HeldPolls[Holder] = HeldPolls(self.state)

    def apply(self, entry: Entry) -> Outcome:
        outcome = self.state.apply(entry)
        self._polls.wake(self.state.touched)
        return outcome

    def member(self, id: str) -> Any:  # noqa: A002
        raise NotImplementedError("a broadcast in memory never asks for it: there is only one node")

    # Called by the HTTP interface.

    def soon(self, call: Callable[[], None]) -> None:
        call()

    @property
    def here(self) -> Cursor:
        return self.state.cursor

    def poll(self, poll: Poll, holder: Holder, at_most: float = float("inf")) -> Answer | Subscription[Holder]:
        now = time.monotonic()
        hold_seconds = poll.timeout * (1 - self._hold_jitter * random())  # noqa: S311
        until_end = poll.selection.end - self._broadcast.now()
        return self._polls.subscribe(poll, holder, now, now + min(hold_seconds, at_most, until_end))

    def abandon(self, subscription: Subscription[Any]) -> None:
        self._polls.abandon(subscription)

    def submit(self, command: Command, on_outcome: OnOutcome) -> None:
        self._broadcast.append(command, on_outcome)

    def subscribers(self, name: str) -> int:
        return self._polls.subscribers(name)

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        self._broadcast.confirm(ack, cursor, seconds, on_confirmation)

    def members(self) -> list[Any]:
        return []

    def answer_balancer(self, host: str) -> None:
        return None

    def trace(self, message: Cursor, reader: Cursor | None) -> None:
        return None

    @property
    def readers(self) -> Any:
        raise AssertionError("there are no streams and no subjects here")

    @property
    def presence(self) -> Any:
        raise AssertionError("there are no subjects here")

    def members_of(self, channel: str) -> Any:
        raise AssertionError("there are no members here")

    @property
    def webhook_caller(self) -> Any:
        raise AssertionError("no message waits for readers here")

    is_draining = False

    @property
    def held_on_grants(self) -> HeldOnGrants:
        raise AssertionError("there are no streams and no subjects here")

    def wake(self) -> None:
        """Answer the held polls that new entries have woken."""
        while self._polls.has_deliveries:
            with self.lock:
                _answer_all(self._polls.deliver(WOKEN_AT_A_TIME))

    def expire(self) -> None:
        """Answer the held polls whose deadline has passed."""
        with self.lock:
            _answer_all(self._polls.expire(time.monotonic(), WOKEN_AT_A_TIME))


def _answer_all(answers: list[tuple[Holder, Answer]]) -> None:
    for holder, answer in answers:
        holder.answer(answer)


_check: type[Node] = _Node


class _Writer:
    """Encodes responses for all threads. Call it with the lock held."""

    def __init__(self) -> None:
        self._writer = ResponseWriter()
        self._second = 0

    def at_this_second(self) -> ResponseWriter:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._writer.set_time(now)
        return self._writer


class _Connection:
    """A client's connection. Its requests are served one after another, by one thread or by one for each."""

    def __init__(self, sock: socket.socket, node: _Node, api: Api, writer: _Writer) -> None:
        self._socket = sock
        self._node = node
        self._api = api
        self._writer = writer
        self._parser = RequestParser(RequestLimits(), api.admit)
        self._answered = threading.Event()
        self._response = b""
        self._options: ResponseOptions | None = None
        self._held: Subscription[Any] | None = None
        self.route = ""

    def run(self) -> None:
        """Serve all requests of the connection, until it ends."""
        while self.serve_next():
            pass
        self.close()

    def serve_next(self) -> bool:
        """Wait for bytes, and answer the requests that they complete. Whether the connection goes on."""
        try:
            data = self._socket.recv(READ_BYTES)
            return bool(data) and self._receive(data)
        except OSError:  # the client has disconnected
            return False

    def close(self) -> None:
        self._socket.close()
        self._parser.discard()

    def fileno(self) -> int:
        return self._socket.fileno()

    def _receive(self, data: bytes) -> bool:
        """Raises: OSError."""
        try:
            requests = self._parser.feed(data)
        except PushUpError as error:
            for request in self._parser.requests:
                self._serve(request)
            self._refuse(error)
            return False
        for request in requests:
            self._serve(request)
        if self._parser.wants_continue:
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return not self._parser.ended

    def _serve(self, request: Request) -> None:
        """Answer one request; blocks while a poll is held. Raises: OSError."""
        self._answered.clear()
        self._options = None
        if request.method == b"HEAD" or not request.keep_alive:
            self._options = ResponseOptions(request.method == b"HEAD", not request.keep_alive)
        with self._node.lock:
            self._api(request, self)
        while not self._answered.is_set():
            assert self._held is not None
            if not self._answered.wait(max(0.0, self._held.deadline - time.monotonic())):
                self._node.expire()
        self._held = None
        try:
            self._socket.sendall(self._response)
        finally:
            self._node.wake()

    def _refuse(self, error: PushUpError) -> None:
        with self._node.lock:
            data = self._writer.at_this_second().response(problem(error), ResponseOptions(close=True))
        self._socket.sendall(data)

    # Called by the HTTP interface, with the lock held.

    @property
    def client(self) -> Client:
        return Client(*self._socket.getpeername()[:2])

    def answer(self, answer: Answer) -> None:
        self._response = self._writer.at_this_second().answer(answer, self._options)
        self._answered.set()

    def respond(self, response: Response) -> None:
        self._response = self._writer.at_this_second().response(response, self._options)
        self._answered.set()

    def hold(self, held: Held) -> None:
        assert isinstance(held, Subscription)
        self._held = held

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        raise AssertionError("this server has no event streams")

    def write(self, data: bytes) -> bool:
        raise AssertionError("this server has no event streams")

    def finish(self, data: bytes) -> None:
        raise AssertionError("this server has no event streams")


def _make_connection(hold_jitter: float) -> Callable[[socket.socket], _Connection]:
    """What all connections share, as a function that makes one."""
    node, writer = _Node(hold_jitter=hold_jitter), _Writer()
    access = Access()
    api = Api(
        node,
        polls=PollReader(PollLimits()),
        publication_limits=PublicationLimits(),
        publication_limit_bytes=RequestLimits().body_limit_bytes,
        access=access,
        poll_access=PollAccess(node, access, time.time),
        origins=Origins(),
        error_responder=ErrorResponder(node.metrics, time.monotonic),
        publishers=Publishers(node.metrics, time.monotonic),
        machine=OneProcess(lambda: b"", node.subscribers),
    )
    return lambda sock: _Connection(sock, node, api, writer)


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except OSError:
        time.sleep(0.01)  # out of file descriptors
        return None


def _start(serve: Callable[[], None], connection: _Connection) -> None:
    """Serve in a new thread; close the connection if the system has none for it."""
    try:
        threading.Thread(target=serve, daemon=True).start()
    except RuntimeError as error:  # out of threads, or of memory for them
        connection.close()
        click.echo(f"Connection closed, as no thread could be started for it: {error}", err=True)


def _thread_for_connection(listener: socket.socket, make: Callable[[socket.socket], _Connection]) -> None:
    while True:
        if (sock := _accept(listener)) is not None:
            connection = make(sock)
            _start(connection.run, connection)


def _thread_for_request(listener: socket.socket, make: Callable[[socket.socket], _Connection]) -> None:
    """A connection is watched only while no thread serves it."""
    waiting = select.epoll()
    waiting.register(listener, select.EPOLLIN)
    idle: dict[int, _Connection] = {}

    def watch(connection: _Connection, how: Callable[[int, int], None]) -> None:
        idle[connection.fileno()] = connection
        how(connection.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def serve(connection: _Connection) -> None:
        if connection.serve_next():
            watch(connection, waiting.modify)
        else:
            connection.close()

    while True:
        for fd, _ in waiting.poll():
            if fd != listener.fileno():
                connection = idle.pop(fd)
                _start(partial(serve, connection), connection)
            elif (sock := _accept(listener)) is not None:
                watch(make(sock), waiting.register)


THREAD_FOR = {"connection": _thread_for_connection, "request": _thread_for_request}


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", default="127.0.0.1:8080", show_default=True)
@click.option("--log-level", hidden=True)
@click.option("--thread-for", type=click.Choice([*THREAD_FOR]), default="connection", show_default=True)
@click.option("--hold-jitter", default=HoldLimits().hold_jitter, show_default=True, help="As the setting of PushUp.")
def main(command: str, *, listen: str, log_level: str | None, thread_for: str, hold_jitter: float) -> None:
    """Serve PushUp's HTTP interface with threads."""
    raise_file_limit()
    tune_garbage_collector()
    listener = open_socket(listen)
    listener.setblocking(True)
    host, port = listener.getsockname()[:2]
    click.echo(f"Server listens on http://{host}:{port}")
    try:
        THREAD_FOR[thread_for](listener, _make_connection(hold_jitter))
    except KeyboardInterrupt:
        sys.exit(0)  # the threads are daemons, so nothing waits for them


if __name__ == "__main__":
    main()
