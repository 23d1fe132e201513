"""Who follows a channel, with real servers that are killed, stopped for a while and replaced: no false leave."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.server.caller import Caller
from tests.server.conftest import Serve
from tests.server.redis_cluster import RedisCluster, cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import wait_until, workers_of
from tests.server.token_issuer import SETTINGS, TokenIssuer

GRACE_SECONDS = 2.0

LEAVE_SECONDS = 3.0 + 5.0 + GRACE_SECONDS + 3.0
"""How long members of a node that was killed stay: its lease, until others say so, the grace, and the decision."""

POLL_SECONDS = 25.0
"""Longer than all that happens: the poll that is held has to answer for its member."""

POLICY = '[[channels]]\nprefix = "room:"\npresence = true\npoll = "anyone"\n'

TIMES = {"presence_grace_seconds": f"{GRACE_SECONDS}s", "presence_hidden_seconds": "4s", **SETTINGS}


@pytest.fixture(scope="session")
def wait_strategy() -> str:
    """One is enough, since nothing here depends on it."""
    return "epoll"


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "presence.toml"
    path.write_text(POLICY)
    return path


class Page:
    """A user's page, which polls one server until that fails, and then another."""

    def __init__(self, subject: str, addresses: Callable[[], list[str]], first: int) -> None:
        self.subject = subject
        self.is_open = True
        self._addresses = addresses
        self._turn = first
        self._cursor = "now"
        self._transport: asyncio.WriteTransport | None = None
        claims: dict[str, Any] = {"poll": ["*"], "presence": {"name": subject}}
        self._token = TokenIssuer(600, subject, **claims).token()

    async def run(self) -> None:
        while self.is_open:
            addresses = self._addresses()
            host, _, port = addresses[self._turn % len(addresses)].rpartition(":")
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection(host, int(port))
                self._transport = writer.transport
                try:
                    goes_on = True
                    while self.is_open and goes_on:
                        goes_on = await asyncio.wait_for(self._poll(reader, writer), POLL_SECONDS + 8)
                finally:
                    writer.close()
            self._turn += 1
            await asyncio.sleep(0.1)

    def leave(self) -> None:
        """Without a word; in the thread of the pages."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def _poll(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Poll once; returns whether to go on at this server."""
        target = f"/v1/poll?channel=room:1&cursor={self._cursor}&timeout={POLL_SECONDS}"
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        writer.write(head.encode())
        reply = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(reply.partition("content-length: ")[2].split("\r\n")[0])
        body = await reader.readexactly(size)
        if " 200 " not in reply.split("\r\n")[0]:
            return False
        self._cursor = json.loads(body)["cursor"]
        return "connection: close" not in reply


class Pages:
    """Many pages, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.pages: list[Page] = []
        self._thread.start()

    def open(self, subjects: list[str], addresses: Callable[[], list[str]], first: int = 0) -> None:
        for subject in subjects:
            page = Page(subject, addresses, first)
            self.pages.append(page)
            asyncio.run_coroutine_threadsafe(page.run(), self._loop)

    def close(self, *subjects: str) -> None:
        """These pages come back no more, as if their machines had failed with the server."""
        for page in self.pages:
            if page.subject in subjects:
                self._loop.call_soon_threadsafe(page.leave)

    def end(self) -> None:
        for page in self.pages:
            page.is_open = False

        async def stop() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    pages = Pages()
    yield pages
    pages.end()


class Seen:
    """What the channel was told, from some snapshot on."""

    def __init__(self, caller: Callable[[], Caller]) -> None:
        self._caller = caller
        listed = caller().call("GET", "/v1/presence?channel=room:1").value
        self._cursor = listed["cursor"]
        self.members = {member["subject"] for member in listed["members"]}
        self.happened: Counter[str] = Counter()

    def read(self) -> None:
        """Everything until now."""
        answer: dict[str, Any] = {"more": True}
        while answer["more"]:
            answer = self._caller().poll("room:1", cursor=self._cursor, timeout=0)
            assert not answer["gaps"]
            self._cursor = answer["cursor"]
            for message in answer["messages"]:
                data = message["data"]
                joined = [member["subject"] for member in data.get("joins", ())]
                assert not self.members & set(joined)
                assert set(data.get("leaves", ())) <= self.members
                self.members = (self.members | set(joined)) - set(data.get("leaves", ()))
                self.happened.update([f"{who} joins" for who in joined])
                self.happened.update([f"{who} leaves" for who in data.get("leaves", ())])
                assert data["count"] == len(self.members)

    def wait_for(self, members: set[str], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.members != members:
            assert time.monotonic() < deadline, f"{self.members ^ members} after {seconds} s; {self.happened}"
            time.sleep(0.2)
            self.read()

    def stays_for(self, seconds: float) -> None:
        """Nobody comes or goes."""
        before = self.happened.copy()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.2)
            self.read()
        assert self.happened == before


@contextmanager
def cluster(tmp_path: Path, settings_file: Path, nodes: int) -> Iterator[RedisCluster]:
    environment = {"PUSHUP_CONFIG": str(settings_file)}
    with (
        RedisServer(tmp_path / "redis") as redis,
        cluster_at(redis, tmp_path, nodes, environment=environment, **TIMES) as found,
    ):
        yield found


def users(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def test_a_node_is_killed_and_only_who_does_not_come_back_leaves(
    tmp_path: Path, settings_file: Path, pages: Pages
) -> None:
    """Fifty pages at each of three nodes. One node is killed, and one of its pages with it."""
    with cluster(tmp_path, settings_file, 3) as nodes:
        living = [node.address for node in nodes.nodes]
        for number, letter in enumerate("abc"):
            pages.open(users(letter, 50), lambda: living, number)
        seen = Seen(lambda: nodes.callers[1])
        everybody = {user for letter in "abc" for user in users(letter, 50)}
        seen.wait_for(everybody, 10)
        pages.close("a7")
        nodes.nodes[0].signal(signal.SIGKILL)
        killed_at = time.monotonic()
        living.remove(nodes.nodes[0].address)
        seen.wait_for(everybody - {"a7"}, LEAVE_SECONDS)
        assert time.monotonic() - killed_at > GRACE_SECONDS
        seen.stays_for(1.0)
        assert Counter(text.split()[1] for text in seen.happened) == {"joins": 150, "leaves": 1}
        lists = [caller.call("GET", "/v1/presence?channel=room:1").value for caller in nodes.callers[1:]]
        assert [{member["subject"] for member in one["members"]} for one in lists] == [seen.members] * 2
        nodes.nodes.pop(0)  # its log ends with nothing


def test_nodes_are_stopped_for_a_while_and_replaced(tmp_path: Path, settings_file: Path, pages: Pages) -> None:
    """As when a machine is suspended for 5 s, and in a rolling restart: nobody leaves, and nobody joins again."""
    with cluster(tmp_path, settings_file, 2) as nodes:
        living = [node.address for node in nodes.nodes]
        pages.open(users("a", 20), lambda: living, 0)
        pages.open(users("b", 20), lambda: living, 1)
        seen = Seen(lambda: nodes.callers[-1])
        everybody = {*users("a", 20), *users("b", 20)}
        seen.wait_for(everybody, 10)
        nodes.nodes[0].signal(signal.SIGSTOP)
        seen.stays_for(5.0)
        nodes.nodes[0].signal(signal.SIGCONT)
        seen.stays_for(2.0)
        for number in range(2):
            living.append(nodes.start(environment={"PUSHUP_CONFIG": str(settings_file)}, **TIMES).address)
            living.remove(nodes.nodes[number].address)
            nodes.stop(number)
            seen.stays_for(1.0)
        seen.stays_for(GRACE_SECONDS + 1.0)
        assert seen.members == everybody


def test_two_workers_and_one_is_killed(serve: Serve, settings_file: Path, pages: Pages, stack: ExitStack) -> None:
    """Its members come to the other one or to the next; two pages of one user are one member."""
    flags = ("--config", str(settings_file), "--workers", "2")
    with serve(*flags, **TIMES) as server:
        server.expect_log("the parent process has ended")
        server.expect_log("worker .* (died|was killed|has ended)")
        pages.open(users("a", 20) * 2, lambda: [server.address])
        caller = stack.enter_context(server.caller())

        def reconnected() -> Caller:
            return caller

        seen = Seen(reconnected)
        seen.wait_for(set(users("a", 20)), 10)
        before = workers_of(server)
        before[0].kill()
        wait_until(
            lambda: len(workers_of(server)) == 2 and before[0].pid not in [w.pid for w in workers_of(server)],
            "a worker",
        )
        caller.close()
        caller = stack.enter_context(server.caller())
        pages.close("a3")
        seen.wait_for(set(users("a", 20)) - {"a3"}, LEAVE_SECONDS)
        seen.stays_for(GRACE_SECONDS + 3.0)
        assert seen.happened["a3 leaves"] == 1
        assert len(seen.happened) == 21
