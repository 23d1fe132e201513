"""Proxies between a browser and HAProxy that are in the way, as those of companies and of mobile networks are.

A `Relay` passes on bytes, so it may be in front of TLS as well. A `Gateway` reads HTTP/1.1. In front of a gateway an
`edge` may speak HTTP/2 with the browser, as a content delivery network does.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection
from typing import Any, Self

from deploy.cluster import HOST, free_ports, installed

READ_BYTES = 64 * 1024
HEAD_SECONDS = 75.0
"""The longest that a connection may stay without a request."""

START_SECONDS = 10.0

END_SECONDS = 0.1
"""How long it may take until a connection that is just being accepted, or was aborted, is closed."""

EDGE = """
defaults
    mode http
    timeout connect 5s
    timeout client 75s
    timeout server 75s
    timeout http-request 10s
frontend edge
    bind {host}:{port} ssl crt {certificate} alpn h2,http/1.1
    default_backend gateway
backend gateway
    option http-no-delay
    http-reuse never
    retries 0
    server gateway {host}:{gateway}
"""


class Relay:
    """Passes on bytes in either direction, in a thread of its own; `port` is where it listens.

    Its faults begin and end at any time, and may be combined:

    delay: seconds by which each byte is held back, in each direction
    cut_after: seconds after which each connection is closed; 0 for never
    """

    def __init__(self, target: int) -> None:
        self.delay = 0.0
        self.cut_after = 0.0
        self._target = target
        self._is_away = False
        self._connections: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        (self.port,) = free_ports(1)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, HOST, self.port))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def go_away(self) -> None:
        """Close all connections, and each new one at once."""
        self._is_away = True
        self.cut()

    def come_back(self) -> None:
        self._is_away = False

    def cut(self) -> None:
        """Close all connections."""
        self._call(self._cut_all())

    def fall_silent(self) -> None:
        """Pass on nothing any more on the connections that there are, and do not close them. New ones work."""
        self._silent |= self._connections

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _end(self) -> None:
        self._is_away = True
        await asyncio.sleep(END_SECONDS)  # asyncio does not close what it is just accepting when a server is closed
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(END_SECONDS)

    async def _cut_all(self) -> None:
        for writer in [*self._connections]:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_away:
            writer.transport.abort()
            return
        self._connections.add(writer)
        end = self._loop.call_later(self.cut_after, writer.transport.abort) if self.cut_after else None
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            if end:
                end.cancel()
            self._connections.discard(writer)
            self._silent.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, self._target)
        try:
            ways = (self._pass_on(reader, back, writer), self._pass_on(there, writer, writer))
            await _first(*ways)
            await asyncio.sleep(2 * self.delay)  # what is on the way still arrives
        finally:
            back.transport.abort()

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, key: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(READ_BYTES):
            if key in self._silent:
                continue
            if self.delay:
                self._loop.call_later(self.delay, sink.write, data)
            else:
                sink.write(data)


class Gateway(Relay):
    """A proxy that understands HTTP/1.1: it passes on one request and its response on each connection, and closes it.

    It passes on no response before it has all of it.

    refuses: it answers 502 to everything
    """

    refuses = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1]) if length else 0)
        if self.refuses:
            page = b"<h1>502 Bad Gateway</h1>"
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(page), page))
        else:
            there, back = await asyncio.open_connection(HOST, self._target)
            try:
                head = re.sub(rb"\r\n(?:connection|keep-alive):[^\r]*", b"", head, flags=re.IGNORECASE)
                back.write(head[:-2] + b"Connection: close\r\n\r\n" + body)
                answer = asyncio.ensure_future(there.read())  # to its end
                await _first(answer, reader.read(1))  # or the client has gone
                if not answer.done() or answer.cancelled():
                    return
                writer.write(answer.result())
            finally:
                back.transport.abort()
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def _first(*work: Coroutine[Any, Any, object] | asyncio.Future[bytes]) -> None:
    """Wait until one of them is done, and cancel the others. Raises: what the first one raised."""
    futures = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in futures:
            future.cancel()
    for future in done:
        future.result()


@contextmanager
def edge(gateway: int, certificate: Path, folder: Path) -> Iterator[int]:
    """HAProxy in front of a gateway, for TLS and HTTP/2, until the end of the block. Yields its port."""
    (port,) = free_ports(1)
    file = folder / f"edge-{port}.cfg"
    file.write_text(EDGE.format(host=HOST, port=port, certificate=certificate, gateway=gateway))
    with (folder / f"edge-{port}.log").open("wb") as log:
        process = subprocess.Popen([installed("haproxy"), "-db", "-f", file], stdout=log, stderr=log)  # noqa: S603
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert process.poll() is None, "HAProxy has ended"
            try:
                create_connection((HOST, port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "HAProxy does not listen"
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(START_SECONDS)
