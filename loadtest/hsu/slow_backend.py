"""Hsu §4.3, the limited service problem: 2,000 polls need a backend that takes 5 s, and a helper pool of 20 calls it.

Do they slow down clients that do not need the backend? 100 clients with valid tickets each receive a message every
second. One run measures their response delay while the backend is idle, and then while the 2,000 polls wait for it.
"""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table, percentile
from pushup.backends.tickets import Tickets

POLLS = 2000
THREADS = 20
SLEEP_SECONDS = 5.0
DEADLINE_SECONDS = 12.0
GOOD_CLIENTS = 100
KEY = "the key of this experiment"


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(polls=POLLS, sleep=SLEEP_SECONDS, deadline=DEADLINE_SECONDS, seconds=14.0 if quick else 60.0)


def measure(*, polls: int, sleep: float, deadline: float, seconds: float) -> tuple[list[Table], list[Figure]]:
    """Measure for `seconds` with the backend idle, then as long with it busy, at least until all polls are answered."""
    progress = Progress(2)
    with tempfile.TemporaryDirectory() as folder:
        most = Path(folder) / "most"
        most.write_text("0")
        flags = {
            "authorizer": "loadtest.hsu.slow_authorizer:may_poll",
            "authorize_at_most": THREADS,
            "authorize_timeout_seconds": deadline,
            "ticket_key": KEY,
        }
        environment = {"LOADTEST_MOST_FILE": str(most), "LOADTEST_SLEEP_SECONDS": str(sleep)}
        sets = [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
        with running(*sets, environment=environment) as server:
            files = server.file_count()
            good = _Good(server)
            progress.step("the backend is idle")
            idle = good.measure(seconds)
            progress.step(f"{polls} polls wait for the backend")
            crowd = _Crowd(good.loop, server, polls)
            busy = good.measure(max(seconds, deadline + sleep + 1))
            crowd.close()
            good.loop.close()
            time.sleep(sleep + 1)
            left = server.file_count() - files
        ran = int(most.read_text())
    progress.end()
    ratio = percentile(busy, 0.5) / percentile(idle, 0.5)
    rows = [
        (name, len(delays), 1e3 * percentile(delays, 0.5), 1e3 * percentile(delays, 0.99), 1e3 * max(delays))
        for name, delays in (("idle", idle), ("busy", busy))
    ]
    delays = Table(
        "slow-backend-delays",
        f"Response delay of polls that do not need the backend; ratio of the medians {ratio:.2f}",
        ("backend", "answers", "p50 ms", "p99 ms", "max ms"),
        rows,
    )
    polls_table = Table(
        "slow-backend-polls",
        f"{polls} polls that need the backend: it takes {sleep:g} s, {THREADS} threads call it, timeout {deadline:g} s",
        ("polls", "200", "503", "other", "unanswered", "most concurrent calls", "files left open"),
        [[polls, crowd.statuses[200], crowd.statuses[503], crowd.other, crowd.unanswered, ran, left]],
    )
    return [delays, polls_table], []


class _Good:
    """Clients with valid tickets, and one that publishes to each of them in turn."""

    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self._delays: list[float] = []
        tickets = Tickets(KEY.encode())
        self._publisher = Connection(self.loop, server.address, lambda connection, status, body: None)
        self._channels = [f"good:{number}" for number in range(GOOD_CLIENTS)]
        for channel in self._channels:
            headers = f"PushUp-Ticket: {tickets.seal((channel,), int(time.time()) + 3600)}\r\n"
            self._follow(server, channel, headers)

    def measure(self, seconds: float) -> list[float]:
        """Publish for `seconds`; returns the delays from publication to response, in seconds."""
        self._delays = []
        start = time.time() + 0.2
        for number in range(int(seconds * GOOD_CLIENTS)):
            channel = self._channels[number % GOOD_CLIENTS]
            self.loop.at(start + number / GOOD_CLIENTS, partial(self._publish, channel))
        self.loop.run_until(start + seconds + 0.5)
        return self._delays

    def _follow(self, server: Server, channel: str, headers: str) -> None:
        def received(client: Connection, status: int, body: bytes) -> None:
            now = time.time()
            answer = json.loads(body)
            client.get(f"/v1/poll?channel={channel}&cursor={answer['cursor']}&timeout=60", headers)
            self._delays.extend(now - message["data"] for message in answer["messages"])

        Connection(self.loop, server.address, received).get(f"/v1/poll?channel={channel}&cursor=now", headers)

    def _publish(self, channel: str) -> None:
        self._publisher.post("/v1/messages", json.dumps({"channels": [channel], "data": time.time()}).encode())


class _Crowd:
    """Polls without tickets, each on its own connection; answered as soon as they are authorized."""

    def __init__(self, loop: Loop, server: Server, count: int) -> None:
        self.statuses = {200: 0, 503: 0}
        self.other = 0
        self._clients = [Connection(loop, server.address, self._responded) for _ in range(count)]
        for number, client in enumerate(self._clients):
            client.get(f"/v1/poll?channel=slow:{number}&timeout=0")

    def _responded(self, client: Connection, status: int, body: bytes) -> None:
        if status in self.statuses:
            self.statuses[status] += 1
        else:
            self.other += 1

    @property
    def unanswered(self) -> int:
        return len(self._clients) - sum(self.statuses.values()) - self.other

    def close(self) -> None:
        for client in self._clients:
            client.close()
