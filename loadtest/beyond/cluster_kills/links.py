"""The links between nodes and Redis: a process that forwards connections, and can stop either direction of each link.

What is sent in a direction that is stopped is not lost, and arrives when the link is mended, as after a cut of the
network. Until then a connection that its other end has closed looks open. While both directions are stopped, nobody
can connect.

`python -m loadtest.beyond.cluster_kills.links TARGET PORT...` listens at these ports, one for each link, and takes
commands from its standard input, which it confirms by a line: `cut LINK DIRECTION` (`to` Redis, `from` it, or `both`),
`mend LINK`, and `target PORT`, which closes all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from threading import Lock

HOST = "127.0.0.1"
AT_ONCE = 65536
"""Bytes that are read at a time."""

DIRECTIONS = ("to", "from", "both")


class _Link:
    """Forwards the connections to one port."""

    def __init__(self, links: _Links) -> None:
        self._links = links
        self._open = {"to": asyncio.Event(), "from": asyncio.Event()}
        self._tasks: set[asyncio.Task[None]] = set()
        self.mend()

    def cut(self, direction: str) -> None:
        for name, is_open in self._open.items():
            if direction in (name, "both"):
                is_open.clear()

    def mend(self) -> None:
        for is_open in self._open.values():
            is_open.set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # this connection has ended
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not any(is_open.is_set() for is_open in self._open.values()):
            await self._open["to"].wait()
        there_reader, there_writer = await asyncio.open_connection(HOST, self._links.target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, there_writer, self._open["to"]))
                group.create_task(self._pump(there_reader, writer, self._open["from"]))
        except BaseExceptionGroup:
            pass
        finally:
            there_writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
        """Ends with ConnectionError, so that the other direction ends as well."""
        while True:
            data = await source.read(AT_ONCE)
            await is_open.wait()
            if not data:
                raise ConnectionError
            sink.write(data)
            await sink.drain()


class _Links:
    """All links of this process."""

    def __init__(self, target: int) -> None:
        self.target = target

    async def run(self, ports: Sequence[int]) -> None:
        links = [_Link(self) for _ in ports]
        for link, port in zip(links, ports, strict=True):
            await asyncio.start_server(link.accept, HOST, port)
        stdin = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
        _say("listening")
        while line := await stdin.readline():
            match line.decode().split():
                case ["cut", number, direction]:
                    links[int(number)].cut(direction)
                case ["mend", number]:
                    links[int(number)].mend()
                case ["target", target]:
                    self.target = int(target)
                    for link in links:
                        link.close()
            _say("done")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Links:
    """That process, seen from the one that causes faults. It ends with a `with` block."""

    def __init__(self, target: int, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        words = [sys.executable, "-m", "loadtest.beyond.cluster_kills.links", str(target), *map(str, ports)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        self._lock = Lock()
        self._expect("listening")

    def cut(self, link: int, direction: str) -> None:
        """Stop one direction of a link, or both."""
        assert direction in DIRECTIONS
        self._command(f"cut {link} {direction}")

    def mend(self, link: int) -> None:
        self._command(f"mend {link}")

    def lead_to(self, port: int) -> None:
        """From now on, all links lead to this port."""
        self._command(f"target {port}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _command(self, line: str) -> None:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            self._expect("done")

    def _expect(self, line: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != line:
            raise RuntimeError(f"the process with the links said {said!r} instead of {line!r}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_Links(int(sys.argv[1])).run([int(port) for port in sys.argv[2:]]))
