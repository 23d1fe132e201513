"""A proxy in front of a good server that makes it a bad one: each fault spoils requests or responses in one way.

Requests are passed on as bytes, so that odd ones stay odd; responses are read one by one.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from conformance.registry import Failed
from conformance.wire import Address, Response, Wire

LATE_SECONDS = 4.0
"""How late the answers of a late server are: later than the tests wait."""


class Fault(NamedTuple):
    """How a server is bad. `request` gets bytes that a client has sent; `response` may return None for no response."""

    request: Callable[[bytes], bytes] = lambda data: data
    response: Callable[[Response], Response | None] = lambda response: response
    late: Callable[[Response], float] = lambda response: 0.0
    closes: bool = False
    chunks: bool = False
    one_at_a_time: bool = False
    bare: tuple[str, ...] = ()
    """Header fields that are left out."""


@contextmanager
def spoiled(server: str, fault: Fault) -> Iterator[str]:
    """A bad server in front of a good one, until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=500)
    turn = threading.Lock()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_serve, args=(client, Address.of(server), fault, turn), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _serve(client: socket.socket, server: Address, fault: Fault, turn: threading.Lock) -> None:
    if fault.one_at_a_time:
        with turn:
            _pass_on(client, server, fault)
    else:
        _pass_on(client, server, fault)


def _pass_on(client: socket.socket, server: Address, fault: Fault) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    upstream = Wire(server, 300.0)
    heads = threading.Event()
    there = threading.Thread(target=_requests, args=(client, upstream, fault, heads), daemon=True)
    there.start()
    try:
        while True:
            response = upstream.any_response(head=heads.is_set())
            heads.clear()
            spoilt = response if response.status < 200 else fault.response(response)
            if spoilt is None:
                continue
            time.sleep(fault.late(spoilt))
            client.sendall(_encode(spoilt, fault))
            if spoilt.closes or fault.closes:
                break
    except (Failed, OSError):
        pass
    for sock in (client, upstream.socket):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def _requests(client: socket.socket, upstream: Wire, fault: Fault, heads: threading.Event) -> None:
    try:
        while data := client.recv(65536):
            if data.startswith(b"HEAD "):
                heads.set()
            upstream.send(fault.request(data))
        upstream.half_close()
    except (Failed, OSError):
        upstream.close()


def _encode(response: Response, fault: Fault) -> bytes:
    headers = {n: v for n, v in response.headers.items() if n not in fault.bare}
    body = response.body
    if fault.chunks and response.status >= 200 and response.status != 204:
        headers.pop("content-length", None)
        headers["transfer-encoding"] = "chunked"
        body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    elif body:
        headers["content-length"] = str(len(body))
    if fault.closes:
        headers["connection"] = "close"
    lines = [f"HTTP/1.1 {response.status} -", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


# Ways to spoil.


def answers(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change the answers to polls."""

    def spoil(response: Response) -> Response:
        value = _value(response)
        if response.status != 200 or not isinstance(value, dict) or "messages" not in value or "gaps" not in value:
            return response
        changed = change(value)
        return response._replace(body=json.dumps(value if changed is None else changed).encode())

    return spoil


def publications(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change what publishers are told, or whoever creates a channel."""

    def spoil(response: Response) -> Response:
        value = _value(response)
        if response.status != 201 or not isinstance(value, dict):
            return response
        changed = change(value)
        return response._replace(body=json.dumps(value if changed is None else changed).encode())

    return spoil


def objects(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change any other object."""

    def spoil(response: Response) -> Response:
        value = _value(response)
        if not isinstance(value, dict):
            return response
        changed = change(value)
        return response._replace(body=json.dumps(value if changed is None else changed).encode())

    return spoil


def status(old: Callable[[int], bool], new: int) -> Callable[[Response], Response]:
    """Another status, also inside of the problem."""

    def spoil(response: Response) -> Response:
        return response._replace(status=new) if old(response.status) else response

    return spoil


def header(name: str, value: str) -> Callable[[Response], Response]:
    """Another value of a header field."""
    return lambda response: response._replace(headers={**response.headers, name: value})


def replaced(pattern: bytes, by: bytes) -> Callable[[bytes], bytes]:
    """Requests with a text replaced."""
    return lambda data: re.sub(pattern, by, data)


def _value(response: Response) -> Any:
    try:
        return json.loads(response.body)
    except ValueError:
        return None
