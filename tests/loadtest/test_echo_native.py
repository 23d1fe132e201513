"""The echo servers in C (`loadtest/libman/native/`), as processes."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress

import pytest

from loadtest.libman.runs import AIO, AIO_WAYS, NATIVE, Kind, native_kinds
from loadtest.load.programs import program
from loadtest.load.servers import Server, running

SMALL_BYTES = 8192
"""Of the server's buffer for sending and the client's for receiving, so that the server writes a message in parts."""

BUFFER_BYTES = 100_000
CONNECTIONS = 12
SECONDS = 20.0
GLIBC_THREADS = 20


def _server(kind: Kind, threads: int = 0, buffer_bytes: int = BUFFER_BYTES) -> AbstractContextManager[Server]:
    wait = [] if kind.wait == "-" else ["--wait", kind.wait]
    return running(
        "--engine", kind.engine, *wait, "--threads", str(threads or kind.threads), "--buffer-bytes", str(buffer_bytes),
        "--send-buffer-bytes", str(SMALL_BYTES),
        program=program(*sorted(NATIVE.glob("*.c"))),
    )  # fmt: skip


def _connected(server: Server) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
    client.connect(server.address)
    client.setblocking(False)
    return client


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


class _Client:
    """Sends its own bytes as far as the server takes them, and reads only when it takes no more."""

    def __init__(self, server: Server, seed: int) -> None:
        self.socket = _connected(server)
        self._data = random.Random(seed).randbytes(250_000 + seed)
        self._sent = 0
        self._got = bytearray()

    def is_done(self) -> bool:
        before = self._sent
        with suppress(BlockingIOError):
            self._sent += self.socket.send(self._data[before : before + 65536])
        if self._sent == before:
            with suppress(BlockingIOError):
                self._got += self.socket.recv(65536)
        return len(self._got) == len(self._data)

    def is_right(self) -> bool:
        return bytes(self._got) == self._data

    def has_ended(self) -> bool:
        with suppress(BlockingIOError):
            return self.socket.recv(1) == b""
        return False


@pytest.mark.parametrize("kind", native_kinds(), ids=lambda kind: kind.name)
def test_what_was_sent_comes_back(kind: Kind) -> None:
    """On each of many connections, in order, in parts; twice, as the second ones have the descriptors of the first."""
    with _server(kind) as server:
        for turn in range(2):
            _echo_to_all([_Client(server, turn * CONNECTIONS + number) for number in range(CONNECTIONS)])


def _echo_to_all(clients: list[_Client]) -> None:
    _until(lambda: sum(client.is_done() for client in clients) == len(clients), "something is missing")
    assert all(client.is_right() for client in clients)
    for client in clients:
        client.socket.shutdown(socket.SHUT_WR)
    _until(lambda: all(client.has_ended() for client in clients), "the server does not close a connection")
    for client in clients:
        client.socket.close()


@pytest.mark.parametrize("kind", native_kinds(), ids=lambda kind: kind.name)
def test_a_reset_ends_one_connection_only(kind: Kind) -> None:
    """In the middle of a message that the client does not read; the server goes on, and closes its end."""
    with _server(kind) as server:
        stays = _connected(server)
        stays.settimeout(SECONDS)
        stays.sendall(b"here")
        assert stays.recv(100) == b"here"
        files = server.file_count()
        for _ in range(3):
            breaks = _connected(server)
            breaks.send(bytes(SMALL_BYTES))
            breaks.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            breaks.close()
        stays.sendall(b"still there")
        assert stays.recv(100) == b"still there"
        _until(lambda: server.file_count() <= files, "a connection is left open")
        stays.close()


@pytest.mark.parametrize("way", AIO_WAYS)
def test_posix_aio_is_not_robust(way: str) -> None:
    """With as many silent connections as glibc has threads, the server stands still; with more threads it does not."""
    for threads, answers in ((0, False), (2 * GLIBC_THREADS, True)):
        with _server(Kind(AIO, way), threads, 100) as server, ExitStack() as stack:
            for _ in range(GLIBC_THREADS):
                stack.enter_context(_connected(server))
            time.sleep(0.2)  # until their reads block
            client = stack.enter_context(_connected(server))
            client.settimeout(SECONDS if answers else 0.3)
            client.sendall(b"hello")
            if answers:
                assert client.recv(100) == b"hello"
                continue
            with pytest.raises(TimeoutError):
                client.recv(100)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--engine", "reactor", "--wait", "sleep"), "there is no wait strategy sleep"),
        (("--engine", "proactor"), "there is no engine proactor"),
        (("--engine", "posix-aio", "--wait", "poll"), "POSIX AIO has no poll"),
        (("--engine", "reactor", "--wait", "poll", "--threads", "2"), "it has no threads for them"),
        ((), "--engine is missing"),
    ],
)
def test_a_wrong_flag_is_told(flags: tuple[str, ...], says: str) -> None:
    command = [program(*sorted(NATIVE.glob("*.c"))), "serve", "--listen", "127.0.0.1:0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert says in done.stderr
