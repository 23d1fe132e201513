"""Hsu §4.3, the limited service problem: 2,000 polls need a backend that takes 5 s, and at most 20 calls may run.

The calls run in threads of the server (`HelperPool`), or in a helper process as in the paper (`helper_process`), to
which the server sends a request for each. Do they slow down clients that do not need the backend? 100 clients with
valid tickets each receive a message every second. One run measures their response delay while the backend is idle, and
then while the 2,000 polls wait for it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean

from loadtest.kit.values import Tickets
from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table, Value, percentile

POLLS = 2000
THREADS = 20
SLEEP_SECONDS = 5.0
DEADLINE_SECONDS = 12.0
GOOD_CLIENTS = 100
KEY = "the key of this experiment"
HANDLER = "loadtest.hsu.slow_authorizer:may_poll"

POOL, PROCESS = "threads of the server", "a helper process"
HELPERS = (POOL, PROCESS)

LONGEST_COUNT = 100
LONGEST = f"{LONGEST_COUNT} longest ms"
"""The paper's metric: their mean."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(polls=POLLS, sleep=1.0, deadline=3.0, seconds=5.0)
    return measure(polls=POLLS, sleep=SLEEP_SECONDS, deadline=DEADLINE_SECONDS, seconds=30.0)


def measure(*, polls: int, sleep: float, deadline: float, seconds: float) -> tuple[list[Table], list[Figure]]:
    """Measure for `seconds` with the backend idle, then as long with it busy, at least until all polls are answered."""
    progress = Progress(2 * len(HELPERS))
    delay_rows: list[tuple[Value, ...]] = []
    poll_rows: list[tuple[Value, ...]] = []
    ratios = []
    for helper in HELPERS:
        with _serving(helper, sleep=sleep, deadline=deadline) as (server, most):
            files = server.file_count()
            good = _Good(server)
            progress.step(f"{helper}: the backend is idle")
            idle = good.measure(seconds)
            progress.step(f"{helper}: {polls} polls wait for the backend")
            crowd = _Crowd(good.loop, server, polls)
            busy = good.measure(max(seconds, deadline + sleep + 1))
            crowd.close()
            good.loop.close()
            time.sleep(sleep + 1)
            left = server.file_count() - files
            ran = int(most.read_text())
        ratios.append(percentile(busy, 0.5) / percentile(idle, 0.5))
        for state, delays in (("idle", idle), ("busy", busy)):
            longest = fmean(sorted(delays)[-LONGEST_COUNT:])
            times = [1e3 * value for value in (*(percentile(delays, p) for p in (0.5, 0.99)), max(delays), longest)]
            delay_rows.append((helper, state, len(delays), *times))
        statuses = crowd.statuses
        poll_rows.append((helper, polls, statuses[200], statuses[503], crowd.other, crowd.unanswered, ran, left))
    progress.end()
    delays_table = Table(
        "slow-backend-delays",
        "Response delay of polls that do not need the backend; ratios of the medians "
        + " and ".join(f"{ratio:.2f}" for ratio in ratios),
        ("helper", "backend", "answers", "p50 ms", "p99 ms", "max ms", LONGEST),
        delay_rows,
    )
    polls_table = Table(
        "slow-backend-polls",
        f"{polls} polls that need the backend: it takes {sleep:g} s, {THREADS} calls at a time, timeout {deadline:g} s",
        ("helper", "polls", "200", "503", "other", "unanswered", "most concurrent calls", "files left open"),
        poll_rows,
    )
    return [delays_table, polls_table], []


@contextmanager
def _serving(helper: str, *, sleep: float, deadline: float) -> Iterator[tuple[Server, Path]]:
    """A server with this helper, and the file with the most calls that have run at the same time."""
    with ExitStack() as stack:
        most = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "most"
        most.write_text("0")
        environment = {"LOADTEST_MOST_FILE": str(most), "LOADTEST_SLEEP_SECONDS": str(sleep)}
        settings: dict[str, Value] = {"authorize_timeout_seconds": deadline, "ticket_key": KEY}
        if helper == POOL:
            settings |= {"authorizer": HANDLER, "authorize_at_most": THREADS}
        else:
            flags = ("--handler", HANDLER, "--workers", str(THREADS))
            process = stack.enter_context(
                running(*flags, module="loadtest.hsu.helper_process", environment=environment)
            )
            # The queue is the helper's here, so the server passes all on.
            settings |= {"authorize_url": f"http://{process.host}:{process.port}/may", "authorize_at_most": 2 * POLLS}
        yield stack.enter_context(running(*_flags(settings), environment=environment)), most


def _flags(settings: Mapping[str, Value]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


class _Good:
    """Clients with valid tickets, and one that publishes to each of them in turn."""

    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self._delays: list[float] = []
        tickets = Tickets(KEY.encode())
        self._publisher = Connection(self.loop, server.address, lambda connection, status, body: None)
        self._channels = [f"good:{number}" for number in range(GOOD_CLIENTS)]
        for channel in self._channels:
            now = int(time.time())
            ticket = tickets.seal((channel,), issued_at=now, expires=now + 3600, subject="")
            self._follow(server, channel, f"PushUp-Ticket: {ticket}\r\n")

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
