"""Hsu §4.1 to §4.3: 2,000 polls need a backend that answers slowly, and takes 20 calls at a time.

The calls run in a handler that blocks the event loop (`blocking_server`), in threads of the server (`HelperPool`), or
in a helper process as in the paper (`helper_process`), to which the server sends a request for each. Do they slow down
clients that do not need the backend? 100 clients with valid tickets each receive a message every second; their response
delays are measured while the backend is idle, and then from the arrival of the polls until all have been served.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from loadtest.hsu.slow_authorizer import MOST_VARIABLE, SLEEP_VARIABLE
from loadtest.kit.values import Tickets
from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import LOAD_CORE, Server, running
from loadtest.reports.results import Figure, Progress, Table, Value, percentile, shown

THREADS = 20
GOOD_CLIENTS = 100
MESSAGES_A_SECOND = 100
KEY = "the key of this experiment"

BLOCKING, POOL, PROCESS = "a handler that blocks", "threads of the server", "a helper process"
HELPERS = (BLOCKING, POOL, PROCESS)

PATIENCE_SECONDS = 600.0
"""How long a poll may wait for its turn: all are to be served."""

IDLE = 0.0
"""In place of the time of a call: no poll needs the backend."""

CLOSING_SECONDS = 1.0
"""After that, a file that is still open was forgotten."""

LONGEST_COUNT = 100
LONGEST = f"{LONGEST_COUNT} longest ms"
"""The paper's metric: their mean."""


class Scale(NamedTuple):
    """`calls`: how many seconds the backend takes for each of the polls; `seconds`: how long it is measured idle."""

    polls: int
    calls: Sequence[float]
    seconds: float
    rounds: int


FULL = Scale(2000, (0.01, 0.03, 0.1), 12.0, 3)
QUICK = Scale(200, (0.05,), 2.0, 1)


class Backend(NamedTuple):
    """The function that asks the backend, as `package.module:function`, and its environment variables."""

    authorizer: str
    environment: Mapping[str, str]


class Outcome(NamedTuple):
    """`idle` and `busy`: the other clients' delays in seconds; `served`: seconds until all polls had been answered.

    `waits`: how long each of those polls waited.
    """

    idle: list[float]
    busy: list[float]
    waits: list[float]
    statuses: Mapping[int, int]
    unanswered: int
    served: float
    most_calls: int
    files_left: int


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Each helper with each time of a call; medians of all rounds, and the spread of the paper's metric."""
    progress = Progress(scale.rounds * len(HELPERS) * len(scale.calls))
    found: dict[tuple[str, float], list[Outcome]] = {}
    for turn in range(scale.rounds):
        for seconds in scale.calls:
            for helper in HELPERS[:: -1 if turn % 2 else 1]:
                progress.step(f"{helper}: {scale.polls} polls, {1e3 * seconds:g} ms each")
                backend = Backend("loadtest.hsu.slow_authorizer:may_poll", {SLEEP_VARIABLE: str(seconds)})
                found.setdefault((helper, seconds), []).append(ask(helper, backend, scale.polls, scale.seconds))
    progress.end()
    calls = (IDLE, *scale.calls)
    delays = {(helper, IDLE): [one.idle for call in scale.calls for one in found[helper, call]] for helper in HELPERS}
    delays |= {case: [one.busy for one in outcomes] for case, outcomes in found.items()}
    delays = {case: delays[case] for helper in HELPERS for case in delays if case[0] == helper}
    longest = {case: [1e3 * longest_waits(each) for each in rounds] for case, rounds in delays.items()}
    delay_rows: list[tuple[Value, ...]] = [
        (
            helper, seconds, sum(map(len, rounds)),
            *(1e3 * median(percentile(each, share) for each in rounds) for share in (0.5, 0.99, 1.0)),
            median(longest[helper, seconds]),
            f"{shown(min(longest[helper, seconds]))} {shown(max(longest[helper, seconds]))}",
        )
        for (helper, seconds), rounds in delays.items()
    ]  # fmt: skip
    poll_rows: list[tuple[Value, ...]] = [
        (
            helper, seconds, scale.polls, min(one.statuses.get(200, 0) for one in outcomes),
            max(one.statuses.get(503, 0) for one in outcomes), max(one.unanswered for one in outcomes),
            max(one.served for one in outcomes), max(one.most_calls for one in outcomes),
            max(one.files_left for one in outcomes),
        )
        for (helper, seconds), outcomes in sorted(found.items(), key=lambda item: HELPERS.index(item[0][0]))
    ]  # fmt: skip
    medians = f"medians of {scale.rounds}"
    return [
        Table(
            "slow-backend-delays",
            f"Response delay of polls that do not need the backend, by the time of a call (0: idle); {medians}",
            ("helper", "call s", "answers", "p50 ms", "p99 ms", "max ms", LONGEST, f"{LONGEST}, from to"),
            delay_rows,
        ),
        Table(
            "slow-backend-polls",
            f"{scale.polls} polls that need the backend, {THREADS} calls at a time; the worst of {scale.rounds}",
            ("helper", "call s", "polls", "200", "503", "unanswered", "answered after s", "most concurrent calls",
             "files left open"),
            poll_rows,
        ),
    ], [
        Figure(
            "slow-backend",
            f"{scale.polls} requests of a slow backend (Hsu §4)",
            "the backend takes (ms)",
            f"others' {LONGEST_COUNT} longest response times (s)",
            {name: [(1e3 * call, median(longest[name, call]) / 1e3) for call in calls] for name in HELPERS},
            spreads={
                name: [(min(each) / 1e3, max(each) / 1e3) for each in (longest[name, call] for call in calls)]
                for name in HELPERS
            },
        )
    ]  # fmt: skip


def longest_waits(delays: Sequence[float]) -> float:
    """The paper's metric: the mean of the 100 longest."""
    return fmean(sorted(delays)[-LONGEST_COUNT:])


def ask(helper: str, backend: Backend, polls: int, seconds: float) -> Outcome:
    """So many polls at once need the backend, after `seconds` without."""
    with _serving(helper, backend) as (server, most):
        files = server.file_count()
        good = _Good(server)
        idle = good.measure(seconds)
        crowd = _Crowd(good.loop, server, polls)
        busy = good.measure(LONGEST_COUNT / MESSAGES_A_SECOND, crowd)
        crowd.close()
        good.loop.close()
        deadline = time.time() + CLOSING_SECONDS
        while (left := server.file_count() - files) > 0 and time.time() < deadline:
            time.sleep(0.02)
        ran = int(most.read_text())
    return Outcome(idle, busy, crowd.waits, crowd.statuses, crowd.unanswered, crowd.seconds, ran, left)


@contextmanager
def _serving(helper: str, backend: Backend) -> Iterator[tuple[Server, Path]]:
    """A server with this helper, and the file with the most calls that have run at the same time."""
    with ExitStack() as stack:
        most = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "most"
        most.write_text("0")
        environment = {**backend.environment, MOST_VARIABLE: str(most)}
        settings: dict[str, Value] = {"authorize_timeout_seconds": PATIENCE_SECONDS, "ticket_key": KEY}
        # A server that is blocked for long would take connections for idle whose requests it has not read yet.
        settings["idle_timeout_seconds"] = PATIENCE_SECONDS
        if helper == PROCESS:
            flags = ("--handler", backend.authorizer, "--workers", str(THREADS))
            process = stack.enter_context(
                running(*flags, module="loadtest.hsu.helper_process", environment=environment, core=LOAD_CORE)
            )
            # The queue is the helper's here, so the server passes all on.
            url = f"http://{process.host}:{process.port}/may"
            settings |= {"authorize_url": url, "authorize_at_most": 2 * FULL.polls}
        else:
            settings |= {"authorizer": backend.authorizer, "authorize_at_most": THREADS}
        module = "loadtest.hsu.blocking_server" if helper == BLOCKING else "pushup"
        yield stack.enter_context(running(*_flags(settings), module=module, environment=environment)), most


def _flags(settings: Mapping[str, Value]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


class _Crowd:
    """Polls without tickets, each on its own connection; answered as soon as they are authorized.

    `began`: when they were sent; `waits`: from then until each answer; `seconds`: until the last one.
    """

    def __init__(self, loop: Loop, server: Server, count: int) -> None:
        self.statuses: dict[int, int] = {}
        self.waits: list[float] = []
        self._clients = [Connection(loop, server.address, self._responded) for _ in range(count)]
        self.began = time.time()
        for number, client in enumerate(self._clients):
            client.get(f"/v1/poll?channel=slow:{number}&timeout=0")

    def _responded(self, client: Connection, status: int, body: bytes) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.waits.append(time.time() - self.began)

    @property
    def seconds(self) -> float:
        return max(self.waits, default=0.0)

    @property
    def unanswered(self) -> int:
        return len(self._clients) - sum(self.statuses.values())

    def close(self) -> None:
        for client in self._clients:
            client.close()


class _Good:
    """Clients with valid tickets, and one that publishes to each of them in turn."""

    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self._delays: list[float] = []
        self._published = 0
        tickets = Tickets(KEY.encode())
        self._publisher = Connection(self.loop, server.address, lambda connection, status, body: None)
        self._channels = [f"good:{number}" for number in range(GOOD_CLIENTS)]
        for channel in self._channels:
            now = int(time.time())
            ticket = tickets.seal((channel,), issued_at=now, expires=now + 3600, subject="")
            self._follow(server, channel, f"PushUp-Ticket: {ticket}\r\n")

    def measure(self, seconds: float, crowd: _Crowd | None = None) -> list[float]:
        """Publish for `seconds`, and until the crowd has been answered; returns the delays until the responses.

        What did not come counts as the longest delay.
        """
        self._delays = []
        self._published = 0
        end = time.time() + seconds
        patience = end + PATIENCE_SECONDS
        due = time.time() + 0.2 if crowd is None else crowd.began
        while (now := time.time()) < patience and (now < end or (crowd is not None and crowd.unanswered)):
            self.loop.run_until(due)
            self._publish(due)
            due += 1 / MESSAGES_A_SECOND
        while len(self._delays) < self._published and time.time() < patience:
            self.loop.run_until(time.time() + 0.1)
        return self._delays + [PATIENCE_SECONDS] * (self._published - len(self._delays))

    def _follow(self, server: Server, channel: str, headers: str) -> None:
        def received(client: Connection, status: int, body: bytes) -> None:
            now = time.time()
            answer = json.loads(body)
            client.get(f"/v1/poll?channel={channel}&cursor={answer['cursor']}&timeout=60", headers)
            self._delays.extend(now - message["data"] for message in answer["messages"])

        Connection(self.loop, server.address, received).get(f"/v1/poll?channel={channel}&cursor=now", headers)

    def _publish(self, due: float) -> None:
        channel = self._channels[self._published % GOOD_CLIENTS]
        self._published += 1
        self._publisher.post("/v1/messages", json.dumps({"channels": [channel], "data": due}).encode())
