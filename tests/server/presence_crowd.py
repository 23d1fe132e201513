"""Users who follow a channel, many in one process, by plain sockets: `python -m tests.server.presence_crowd`.

Commands come on standard input, a line of JSON each: `{"come": {...}}` with the fields of `User`, or
`{"stop": SUBJECT}`, after which that user is gone without a word. With the end of the input the process ends. On
standard output it says, as a line of JSON each, `["away", SUBJECT, SINCE, UNTIL]` if a user held no request for more
than a second, and `["stop", SUBJECT, LAST]`, when the last request of a user ended. Times are Unix times.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

POLL_SECONDS = 25.0

SILENCE_SECONDS = 40.0
"""Longer than any answer takes, and than a stream is silent."""

AWAY_SECONDS = 1.0
"""What is shorter is not written down."""


class User(NamedTuple):
    """`addresses`: to be tried in turn. `kind`: `poll`, `stream`, or `pause` to poll every `pause` seconds."""

    subject: str
    token: str
    channel: str
    addresses: list[str]
    kind: str = "poll"
    hidden: bool = False
    pause: float = 0.0


class Follower:
    """A user who follows until it is told to stop."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._cursor = "now"
        self._turn = 0
        self._sent = 0.0  # of the request under way
        self._last = time.time()  # when the last one ended
        self._task = asyncio.create_task(self._run())
        self._transport: asyncio.WriteTransport | None = None

    def stop(self) -> None:
        self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._held()
        tell("stop", self.user.subject, self._last)

    def _held(self) -> None:
        """A request that was under way has ended, and was not refused."""
        if self._sent:
            if self._sent - self._last > AWAY_SECONDS:
                tell("away", self.user.subject, self._last, self._sent)
            self._sent, self._last = 0.0, time.time()

    async def _run(self) -> None:
        while True:
            host, _, port = self.user.addresses[self._turn % len(self.user.addresses)].rpartition(":")
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection(host, int(port), limit=2**22)
                self._transport = writer.transport
                try:
                    while await self._ask(reader, writer):
                        await asyncio.sleep(self.user.pause)
                finally:
                    writer.close()
                    self._held()
            self._turn += 1
            await asyncio.sleep(random.uniform(0.1, 0.4))

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; returns whether another one may follow on this connection."""
        user = self.user
        target = f"/v1/{'events' if user.kind == 'stream' else 'poll'}?channel={user.channel}&cursor={self._cursor}"
        target += "&hidden=true" * user.hidden
        if user.kind != "stream":
            target += f"&timeout={0 if user.pause else POLL_SECONDS}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {user.token}\r\n\r\n".encode())
        self._sent = time.time()
        async with asyncio.timeout(SILENCE_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if not head.startswith("http/1.1 200 "):
            self._sent = 0.0
            return False
        if user.kind == "stream":
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    line = await reader.readline()
                if line in (b"", b"0\r\n"):  # the end, or the last chunk
                    return False
                if line.startswith(b"id:"):
                    self._cursor = line[3:].strip().decode()
        size = int(head.partition("content-length: ")[2].split("\r\n")[0])
        self._cursor = json.loads(await reader.readexactly(size))["cursor"]
        self._held()
        return "connection: close" not in head


def tell(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")


async def main() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    followers: list[Follower] = []
    while line := await lines.readline():
        command = json.loads(line)
        if "come" in command:
            followers.append(Follower(User(**command["come"])))
        for follower in followers:
            if follower.user.subject == command.get("stop"):
                follower.stop()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it may be killed
    asyncio.run(main())
