"""What a node counts. Plain integers on the way, since a counter with a lock and labels costs 1 us a time; the
Prometheus text (prometheus-client) is made of them when somebody asks for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from pushup.core.answer import Answer
from pushup.core.commands import Command, Outcome, Publish, Published

DELAY_BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the answer delay histogram; what is beyond was not waited for but lay in the cache."""


class Histogram:
    """Counts by upper bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and how many were up to it, as Prometheus wants them."""
        bounds = (*map(str, self._bounds), "+Inf")
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))

    @property
    def sum(self) -> float:
        return self._sum


class BackendCounters:
    """What is counted of one backend: calls that `ended` in time, were given up as `late`, or were `refused` because
    too many waited; those that run (`busy`) and wait now; and how long calls have waited before they ran."""

    def __init__(self) -> None:
        self.ended = 0
        self.late = 0
        self.refused = 0
        self.busy = 0
        self.waiting = 0
        self.wait = Histogram(DELAY_BOUNDS_SECONDS)


class Metrics:
    """The counters of a node."""

    def __init__(self) -> None:
        self.messages = 0
        self.deliveries = 0
        self.answers = 0
        self.gaps = 0
        self.accepted_connections = 0
        self.refused_connections = 0
        self._refusals: dict[str, int] = {}
        self.failed_outputs = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._answer_delay = Histogram(DELAY_BOUNDS_SECONDS)
        self._backends: dict[str, BackendCounters] = {}

    def backend(self, name: str) -> BackendCounters:
        """The counters of a backend."""
        return self._backends.setdefault(name, BackendCounters())

    def refused(self, kind: str) -> None:
        """A request was refused for who sent it, or where: one of few kinds."""
        self._refusals[kind] = self._refusals.get(kind, 0) + 1

    def applied(self, command: Command, outcome: Outcome) -> None:
        """An entry was applied."""
        if type(command) is Publish and type(outcome) is Published:
            self.messages += outcome.count

    def delivered(self, answer: Answer, times: int, now: float) -> None:
        """An answer was given to so many polls."""
        self.answers += times
        self.gaps += times * len(answer.gaps)
        if answer.messages:
            self.deliveries += times * len(answer.messages)
            self._answer_delay.observe(now - answer.messages[-1].time, times)

    def collect(self) -> Iterator[Metric]:
        """What is counted here, as Prometheus families."""
        counters = (
            ("messages", self.messages, "Messages published"),
            ("deliveries", self.deliveries, "Messages delivered, once for each subscriber"),
            ("answers", self.answers, "Polls answered"),
            ("gaps", self.gaps, "Gaps told"),
            ("connections_accepted", self.accepted_connections, "Connections accepted"),
            ("connections_refused", self.refused_connections, "Connections refused at connections_limit"),
            ("output_failures", self.failed_outputs, "Connections given up at output_limit_bytes"),
            ("received_bytes", self.received_bytes, "Bytes read from clients"),
            ("sent_bytes", self.sent_bytes, "Bytes taken by the kernel for clients"),
        )
        for name, value, text in counters:
            yield CounterMetricFamily(f"pushup_{name}", text, value=value)
        yield HistogramMetricFamily(
            "pushup_answer_delay_seconds",
            "From a publication to the answers that carry it, newest message",
            buckets=self._answer_delay.buckets,
            sum_value=self._answer_delay.sum,
        )
        refusals = CounterMetricFamily("pushup_refusals", "Requests refused for who sent them", labels=("kind",))
        for kind, count in self._refusals.items():
            refusals.add_metric((kind,), count)
        yield refusals
        yield from self._collect_backends()

    def _collect_backends(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("pushup_backend_calls", "Calls of a backend", labels=("backend", "outcome"))
        busy = GaugeMetricFamily("pushup_backend_busy", "Calls of a backend that run", labels=("backend",))
        waiting = GaugeMetricFamily("pushup_backend_waiting", "Calls of a backend that wait", labels=("backend",))
        wait = HistogramMetricFamily(
            "pushup_backend_wait_seconds", "How long calls of a backend waited before they ran", labels=("backend",)
        )
        for name, counters in self._backends.items():
            for outcome in ("ended", "late", "refused"):
                calls.add_metric((name, outcome), getattr(counters, outcome))
            busy.add_metric((name,), counters.busy)
            waiting.add_metric((name,), counters.waiting)
            wait.add_metric((name,), counters.wait.buckets, counters.wait.sum)
        yield from (calls, busy, waiting, wait)


class MetricsPage:
    """The Prometheus text of a node: its counters, and gauges that are read when the page is."""

    def __init__(self, metrics: Metrics, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        """`gauges`: name without prefix -> (what it tells, how to read it)."""
        self._metrics = metrics
        self._gauges = {**gauges, "process_memory_bytes": ("Resident memory of this process", _resident)}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.collect()
        for name, (text, read) in self._gauges.items():
            yield GaugeMetricFamily(f"pushup_{name}", text, value=read())

    def text(self) -> bytes:
        return generate_latest(self._registry)


_process = psutil.Process()


def _resident() -> float:
    return float(_process.memory_info().rss)
