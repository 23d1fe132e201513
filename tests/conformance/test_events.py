"""The readers of event streams, and of bodies that come in pieces."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from conformance.events import Event, LinesOfJson, ServerSentEvents
from conformance.registry import Failed
from conformance.wire import Address, Body, Wire

TEXT = (
    '\ufeffid: e-1\n\n:comment\nretry: 5\n\nid:e-2\ndata: {"a":\ndata:  1}\nother: x\n\n'
    "event: gap\ndata: [2]\n\n: only a comment\n\ndata: 3"
).encode()

EVENTS = [Event(id="e-1"), Event(id="e-2", data={"a": 1}), Event("gap", "", [2])]
"""Those of `TEXT`. The last one is not complete."""


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_server_sent_events(end: bytes, size: int) -> None:
    """Lines may end in three ways, and pieces anywhere."""
    reader, text = ServerSentEvents(), TEXT.replace(b"\n", end)
    assert [e for at in range(0, len(text), size) for e in reader.feed(text[at : at + size])] == EVENTS


def test_an_event_need_not_wait_for_the_rest_of_a_line_end() -> None:
    """CR alone ends a line; an LF that comes later belongs to it."""
    reader = ServerSentEvents()
    assert reader.feed(b"data: 1\r\r") == [Event(data=1)]
    assert reader.feed(b"\ndata: 2\n\n") == [Event(data=2)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_of_json(size: int) -> None:
    """Each line is an event; what it does not know is nothing."""
    reader = LinesOfJson()
    text = '{"retry":5}\n\n{"id":"e-1"}\r\n{"event":"gap","data":[2],"x":1}\n{"id":"é","data":"\\n"}\n{"id":'.encode()
    events = [e for at in range(0, len(text), size) for e in reader.feed(text[at : at + size])]
    assert events == [Event(id="e-1"), Event("gap", "", [2]), Event(id="é", data="\n")]


@pytest.mark.parametrize("line", [b"[]", b"{", b'{"id":1}', b"\xff"])
def test_lines_that_are_no_events(line: bytes) -> None:
    """Each is a failure that says what was expected."""
    with pytest.raises(Failed, match="expected"):
        LinesOfJson().feed(line + b"\n")


@pytest.mark.parametrize(
    ("head", "pieces", "expected"),
    [
        ("Transfer-Encoding: chunked", [b"3\r\nab", b"c\r", b"\n1;x=y\r\nd\r\n0\r\nT: x\r\n\r\n"], b"abcd"),
        ("Content-Length: 3", [b"a", b"bc"], b"abc"),
        ("X: y", [b"a", b"b"], b"ab"),
        ("Transfer-Encoding: chunked", [b"3\r\nab"], None),
        ("Transfer-Encoding: chunked", [b"1\r\nab\r\n0\r\n\r\n"], None),
        ("Transfer-Encoding: chunked", [b"1\r\na\r\n"], None),
        ("Content-Length: 3", [b"ab"], None),
    ],
)
def test_bodies_in_pieces(head: str, pieces: list[bytes], expected: bytes | None) -> None:
    """A piece is there as soon as it comes, wherever it was cut; None: the end is false."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        came = threading.Semaphore(0)

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
                for piece in pieces:
                    came.acquire(timeout=20)
                    client.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        wire = Wire(Address.of(f"http://127.0.0.1:{port}"), 20.0)
        try:
            assert _read(wire, came) == expected
        finally:
            came.release(len(pieces))
            wire.close()
            thread.join()


def _read(wire: Wire, came: threading.Semaphore) -> bytes | None:
    """The body of the next response; each piece is sent when the one before has been read."""
    found = b""
    body = Body(wire, wire.response(head=True))
    try:
        came.release()
        while piece := body.piece(time.monotonic() + 20):
            found += piece
            came.release()
    except Failed:
        return None
    return found
