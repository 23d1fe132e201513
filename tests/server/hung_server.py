"""Servers that hang in one of the ways in which a call can wait without end."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"

DRIP_SECONDS = 0.05
"""The pause between two bytes of a response that never ends."""

Answer = Callable[[socket.socket, threading.Event], None]


def _nothing(sock: socket.socket, over: threading.Event) -> None:
    over.wait()


def _half_a_body(sock: socket.socket, over: threading.Event) -> None:
    sock.sendall(HEAD + b'{"cursor": "')
    over.wait()


def _a_byte_at_a_time(before: bytes, byte: bytes) -> Answer:
    def answer(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(before)
        while not over.wait(DRIP_SECONDS):
            sock.sendall(byte)

    return answer


ANSWERS: dict[str, Answer] = {
    "no response": _nothing,
    "half a response": _half_a_body,
    "a head byte by byte": _a_byte_at_a_time(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "a body byte by byte": _a_byte_at_a_time(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
}
"""What a server does on each connection."""

HANGS = (*ANSWERS, "no connection", "no TLS handshake", "no address")


@contextmanager
def hung_server(how: str, use_lookup: Callable[[Callable[..., object]], None]) -> Iterator[str]:
    """The URL of a server that hangs until the `with` block ends; `how` is one of HANGS."""
    over = threading.Event()
    with ExitStack() as stack:
        stack.callback(over.set)
        if how == "no address":

            def look_up(*arguments: object, **options: object) -> object:
                over.wait()
                raise OSError("no address")

            use_lookup(look_up)
            yield "http://localhost:1"
            return
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listening.getsockname()
        if how == "no connection":
            _fill(stack, address)
        else:
            thread = threading.Thread(target=_serve, args=(listening, ANSWERS.get(how, _nothing), over))
            thread.start()
            stack.callback(thread.join)
            stack.callback(listening.shutdown, socket.SHUT_RDWR)
            stack.callback(over.set)
        yield f"{'https' if how == 'no TLS handshake' else 'http'}://127.0.0.1:{address[1]}"


def _fill(stack: ExitStack, address: tuple[str, int]) -> None:
    """Connect until the kernel accepts no further connection for a program that takes none."""
    for _ in itertools.count():
        sock = stack.enter_context(socket.socket())
        sock.settimeout(0.5)
        try:
            sock.connect(address)
        except TimeoutError:
            return


def _serve(listening: socket.socket, answer: Answer, over: threading.Event) -> None:
    def take(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.recv(65536)
            answer(sock, over)

    threads = []
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listening.accept()
            threads.append(threading.Thread(target=take, args=(sock,)))
            threads[-1].start()
    for thread in threads:
        thread.join()
