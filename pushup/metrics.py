"""What a node counts, in plain integers: a prometheus_client counter, with its lock and labels, costs 1 us each time.
The Prometheus text is made when `/metrics` is requested: each part of the server then says what it has counted.
"""

from __future__ import annotations

import os
import resource
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from math import nan
from typing import Any, get_args

import psutil
from prometheus_client import GC_COLLECTOR, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Metric  # the parts import it from here
from twisted.logger import Logger

from pushup import __version__
from pushup.core.answer import Answer
from pushup.core.channel import DropReason, GapReason
from pushup.core.commands import Ack
from pushup.core.errors import Refusal

Collect = Callable[[], Iterable[Metric]]
"""What a part of the server has counted, as Prometheus metric families."""

BOUNDS_SECONDS: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of histograms."""


_log = Logger(__name__)


def gauge(name: str, text: str, value: float) -> Metric:
    """A number that can go down; the name is without the prefix."""
    return GaugeMetricFamily(f"pushup_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """A number that only grows; the name is without the prefix and `_total`."""
    return CounterMetricFamily(f"pushup_{name}", text, value=value)


def counters(name: str, text: str, label: str, counts: Mapping[Any, int]) -> Metric:
    """Numbers that only grow, by the values of a label."""
    family = CounterMetricFamily(f"pushup_{name}", text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family


class Histogram:
    """Counts values in buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(BOUNDS_SECONDS, value)] += times
        self.sum += value * times

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds, each with the number of values up to it, as Prometheus expects."""
        bounds = (*map(str, BOUNDS_SECONDS), "+Inf")
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))

    def metric(self, name: str, text: str) -> Metric:
        """As a metric without labels."""
        return HistogramMetricFamily(f"pushup_{name}", text, buckets=self.buckets, sum_value=self.sum)


def histogram(name: str, text: str, label: str, histograms: Mapping[str, Histogram]) -> Metric:
    """One metric, by the values of a label."""
    family = HistogramMetricFamily(f"pushup_{name}", text, labels=(label,))
    for value, counts in histograms.items():
        family.add_metric((value,), counts.buckets, counts.sum)
    return family


class BackendCounters:
    """The counters of one backend: calls that `ended` in time, timed out (`late`) or were `refused` by a full queue;
    calls that run (`busy`) or wait now; and how long calls waited before they ran."""

    def __init__(self) -> None:
        self.ended = 0
        self.late = 0
        self.refused = 0
        self.busy = 0
        self.waiting = 0
        self.wait = Histogram()


class Metrics:
    """The counters of a node."""

    def __init__(self) -> None:
        self.messages = 0
        self.messages_by_key: dict[str, int] = {}
        """The messages published through this node, by the name of the publisher's key; there are few."""
        self.deliveries = 0
        self.answers = 0
        self.accepted_connections = 0
        self.refused_connections = 0
        self._gaps = dict.fromkeys(get_args(GapReason), 0)
        self.refusals: dict[str, int] = defaultdict(int)
        """Requests refused because of their sender or destination, by kind; there are few."""
        self.refused_publications = defaultdict(int, {each.kind: 0 for each in Refusal if each.is_of_commands})
        """Publications and other commands that the broadcast refused, by kind; there are few."""
        self.dropped: Mapping[DropReason, int] = {}
        """Messages dropped by the state of this node, by reason."""
        self.failed_outputs = 0
        self.failed_unsent = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        """Requests by route and status."""
        self.publication_latency = {ack: Histogram() for ack in get_args(Ack)}
        self._answer_delay = {"held": Histogram(), "late": Histogram()}
        self._backends: dict[str, BackendCounters] = {}

    def backend(self, name: str) -> BackendCounters:
        """The counters of a backend."""
        return self._backends.setdefault(name, BackendCounters())

    def delivered(self, answer: Answer, times: int, now: float, *, was_held: bool) -> None:
        """An answer was sent to this number of polls; `now` is by the clock of the messages' times.

        `was_held`: the polls had waited for it, so all of its messages came meanwhile.
        """
        self.answers += times
        for gap in answer.gaps:
            self._gaps[gap.reason] += times
        if answer.messages:
            self.deliveries += times * len(answer.messages)
            message = answer.messages[0 if was_held else -1]
            self._answer_delay["held" if was_held else "late"].observe(now - message.time, times)

    def collect(self) -> Iterator[Metric]:
        """The counters as Prometheus metric families."""
        yield counter("messages", "Messages published through this node", self.messages)
        yield counter("deliveries", "Messages delivered, counted once per subscriber", self.deliveries)
        yield counter("answers", "Polls answered", self.answers)
        yield counter("connections_accepted", "Connections accepted", self.accepted_connections)
        text = "Connections refused because of connections_limit"
        yield counter("connections_refused", text, self.refused_connections)
        yield counter("output_failures", "Connections closed because of output_limit_bytes", self.failed_outputs)
        yield counter("unsent_failures", "Connections closed because of unsent_limit_bytes", self.failed_unsent)
        yield counter("received_bytes", "Bytes received from clients", self.received_bytes)
        yield counter("sent_bytes", "Bytes sent to clients", self.sent_bytes)
        requests = CounterMetricFamily("pushup_requests", "Requests answered", labels=("route", "status"))
        for (route, status), count in self.requests.items():
            requests.add_metric((route, str(status)), count)
        yield requests
        text = "Time from a publication's request to its response, by the acknowledgement that it has reached"
        yield histogram("publication_seconds", text, "ack", self.publication_latency)
        text = "Time from publication to answer: of the first message for polls that waited, or else of the newest one"
        yield histogram("answer_delay_seconds", text, "poll", self._answer_delay)
        yield counters("gaps", "Gaps reported to clients", "reason", self._gaps)
        text = "Requests refused because of their sender or destination"
        yield counters("refusals", text, "kind", self.refusals)
        text = "Publications, and changes of channels, answered 503 because of the message log"
        yield counters("publications_refused", text, "reason", self.refused_publications)
        text = "Messages published through this node, by key"
        yield counters("messages_by_key", text, "key", self.messages_by_key)
        yield counters("messages_dropped", "Messages that are no longer kept", "reason", self.dropped)
        yield from self._collect_backends()

    def _collect_backends(self) -> Iterator[Metric]:
        labels = ("backend", "outcome")
        calls = CounterMetricFamily("pushup_backend_calls", "Calls to a backend, by outcome", labels=labels)
        busy = GaugeMetricFamily("pushup_backend_busy", "Calls to a backend that are running", labels=labels[:1])
        waiting = GaugeMetricFamily("pushup_backend_waiting", "Calls to a backend that are waiting", labels=labels[:1])
        for name, counts in self._backends.items():
            for outcome in ("ended", "late", "refused"):
                calls.add_metric((name, outcome), getattr(counts, outcome))
            busy.add_metric((name,), counts.busy)
            waiting.add_metric((name,), counts.waiting)
        yield from (calls, busy, waiting)
        waits = {name: counts.wait for name, counts in self._backends.items()}
        yield histogram("backend_wait_seconds", "Time that calls to a backend waited before they ran", "backend", waits)


class MetricsPage:
    """The Prometheus text of a process, from all its parts."""

    def __init__(self, build: str, *parts: Collect) -> None:
        """`build`: the commit and the form of the code that runs."""
        self._build = build
        self._parts = [*parts, self._process]

    def include(self, *parts: Collect) -> None:
        """Have these parts on the page, too."""
        self._parts += parts

    def collect(self) -> Iterator[Metric]:
        """What all parts say. One that fails is left out: an operator needs the others then."""
        for part in self._parts:
            try:
                yield from list(part())
            except Exception:
                _log.failure("some metrics are missing (please report this as a bug)")

    def _process(self) -> Iterator[Metric]:
        yield gauge("process_memory_bytes", "Resident memory of this process", _resident())
        text = "Open file descriptors of this process; 0 where the system does not say"
        yield gauge("descriptors", text, _descriptors())
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield gauge("descriptors_limit", "Maximum number of open file descriptors of this process", limit)
        build = GaugeMetricFamily("pushup_build_info", "The code that runs; always 1", labels=("version", "build"))
        build.add_metric((__version__, self._build), 1)
        yield build
        yield from GC_COLLECTOR.collect()

    def text(self) -> bytes:
        return generate_latest(self)


_process = psutil.Process()


def _resident() -> float:
    """Reading it takes a file descriptor; not a number when there is none left."""
    try:
        return float(_process.memory_info().rss)
    except OSError:
        return nan


def _descriptors() -> float:
    """In one call: to list them took 30 ms for 19,000. Linux gives the number from 6.2 on."""
    try:
        return float(os.stat("/proc/self/fd").st_size)
    except OSError:
        return 0.0
