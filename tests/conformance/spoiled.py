"""A proxy in front of a good server that makes it a bad one: each fault spoils requests or responses in one way.

Requests are passed on as bytes, so that odd ones stay odd; responses are read one by one, and event streams piece by
piece (`spoiled_streams`).
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from conformance.events import READERS, media_type
from conformance.registry import Failed
from conformance.wire import Address, Body, Response, Wire
from spoiled_streams import StreamFault

PATIENCE_SECONDS = 300.0

LATE_SECONDS = 3.0
"""How late the answers of a late server are: later than the tests wait."""


class Fault(NamedTuple):
    """How a server is bad. `request` gets bytes as a client has sent them."""

    request: Callable[[bytes], bytes] = lambda data: data
    response: Callable[[Response], Response] = lambda response: response
    late: Callable[[Response], float] = lambda response: 0.0
    closes: bool = False
    stays_open: bool = False
    chunks: bool = False
    one_at_a_time: bool = False
    bare: tuple[str, ...] = ()
    """Header fields that are left out."""
    stream: StreamFault = StreamFault()


class _Proxy:
    """Passes everything on, spoilt; its threads end with it."""

    def __init__(self, server: Address, fault: Fault) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=500)
        self._server = server
        self._fault = fault
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def close(self) -> None:
        self._over.set()
        _shut(self.listener)
        with self._lock:
            for sock in self._sockets:
                _shut(sock)
        for thread in self._threads:
            thread.join(10)

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self.listener:
            while not self._over.is_set():
                try:
                    client, _ = self.listener.accept()
                except OSError:
                    return
                with self._lock:
                    self._sockets.append(client)
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, self._turn if self._fault.one_at_a_time else ExitStack():
            try:
                upstream = Wire(self._server, PATIENCE_SECONDS)
            except OSError:
                return
            with upstream.socket:
                with self._lock:
                    self._sockets.append(upstream.socket)
                if not self._over.is_set():
                    self._pass_on(client, upstream)
                _shut(client)
                _shut(upstream.socket)

    def _pass_on(self, client: socket.socket, upstream: Wire) -> None:
        fault = self._fault
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        heads = threading.Event()
        self._begin(self._requests, client, upstream, heads)
        try:
            while True:
                if not upstream.pending:
                    upstream.socket.recv(1, socket.MSG_PEEK)  # until the request is known that is answered
                is_head = heads.is_set()
                head = upstream.head(_deadline())
                heads.clear()
                body = Body(upstream, head)
                if head.status == 200 and media_type(head) in READERS and not is_head:
                    if not self._stream(client, head, body):
                        break
                    continue
                response = head if is_head else head._replace(body=body.rest(_deadline()))
                spoilt = response if response.status < 200 else fault.response(response)
                self._over.wait(fault.late(spoilt))
                client.sendall(_encode(spoilt, fault))
                if (spoilt.closes and not fault.stays_open) or fault.closes:
                    break
        except (Failed, OSError):
            pass
        if fault.stays_open:
            self._over.wait(LATE_SECONDS)

    def _stream(self, client: socket.socket, head: Response, body: Body) -> bool:
        """Pass an event stream on; returns whether the connection can be used after it."""
        fault = self._fault
        in_chunks = body.is_chunked or fault.chunks
        spoilt = fault.response(head)
        client.sendall(_head(spoilt, {"transfer-encoding": "chunked"} if in_chunks else {}, fault))
        self._over.wait(fault.stream.late_seconds)
        for data in fault.stream.spoil(media_type(head), iter(lambda: body.piece(_deadline()), b"")):
            if data:
                client.sendall(_chunk(data) if in_chunks else data)
        if in_chunks and not fault.stream.breaks_off:
            client.sendall(b"0\r\n\r\n")
        return body.is_chunked and not fault.stream.breaks_off and not spoilt.closes and not fault.closes

    def _requests(self, client: socket.socket, upstream: Wire, heads: threading.Event) -> None:
        try:
            while data := client.recv(65536):
                if data.startswith(b"HEAD "):
                    heads.set()
                upstream.send(self._fault.request(data))
            upstream.half_close()
        except (Failed, OSError):
            _shut(upstream.socket)


@contextmanager
def spoiled(server: str, fault: Fault) -> Iterator[str]:
    """A bad server in front of a good one, until the end of the block."""
    proxy = _Proxy(Address.of(server), fault)
    try:
        yield f"http://127.0.0.1:{proxy.listener.getsockname()[1]}"
    finally:
        proxy.close()


def _shut(sock: socket.socket) -> None:
    """Break a connection off, whoever reads from it; its own thread closes the socket."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _deadline() -> float:
    return time.monotonic() + PATIENCE_SECONDS


def _encode(response: Response, fault: Fault) -> bytes:
    body = response.body
    if fault.chunks and response.status >= 200 and response.status != 204:
        chunks = (_chunk(body) if body else b"") + b"0\r\n\r\n"
        return _head(response, {"transfer-encoding": "chunked"}, fault) + chunks
    return _head(response, {"content-length": str(len(body))} if body else {}, fault) + body


def _head(response: Response, framing: dict[str, str], fault: Fault) -> bytes:
    """The head of a response with the framing of its body, if that is to be changed."""
    headers = {n: v for n, v in response.headers.items() if n not in fault.bare}
    if "transfer-encoding" in framing:
        headers.pop("content-length", None)
    headers |= framing
    if fault.closes:
        headers["connection"] = "close"
    lines = [f"HTTP/1.1 {response.status} -", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# Ways to spoil.


def answers(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change the answers to polls."""
    return _changed(change, lambda status, value: status == 200 and "messages" in value and "gaps" in value)


def publications(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change what publishers are told, or whoever creates a channel."""
    return _changed(change, lambda status, value: status == 201)


def objects(change: Callable[[dict[str, Any]], Any]) -> Callable[[Response], Response]:
    """Change any object."""
    return _changed(change, lambda status, value: True)


def _changed(
    change: Callable[[dict[str, Any]], Any], is_meant: Callable[[int, dict[str, Any]], bool]
) -> Callable[[Response], Response]:
    """`change` may change the object, or return another."""

    def spoil(response: Response) -> Response:
        value = _value(response)
        if not isinstance(value, dict) or not is_meant(response.status, value):
            return response
        changed = change(value)
        return response._replace(body=json.dumps(value if changed is None else changed).encode())

    return spoil


def status(old: Callable[[int], bool], new: int) -> Callable[[Response], Response]:
    """Another status, also inside of the problem."""
    return lambda response: response._replace(status=new) if old(response.status) else response


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
