"""Who takes the memory for messages: metrics by publisher, and a line in the log when their messages are evicted.

A publisher is a retention class and the name of a publish key, so there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from twisted.logger import Logger

from pushup.core.machine_rules import EPHEMERAL
from pushup.core.shelves import Shelf
from pushup.core.state import ReplicatedState
from pushup.metrics import Metric
from pushup.net.log_throttle import LogThrottle

NONE = "(none)"
"""What stands for the prefix of channels without a policy, and for the name of a key that has none."""

_log = Logger()

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)


def publisher_metrics(state: ReplicatedState, now: float) -> Iterator[Metric]:
    """What each publisher has published, what is kept of it and what was evicted. Every replica has the same."""
    drops, shelves = state.cache.drops, _shelves(state)
    messages = _family(CounterMetricFamily, "messages", "Messages published")
    size = _family(CounterMetricFamily, "bytes", "Bytes published, as they count against retention_bytes")
    evicted = _family(CounterMetricFamily, "evicted_messages", "Messages dropped before their retention time", "limit")
    kept = _family(GaugeMetricFamily, "cached_bytes", "Bytes that count against retention_bytes")
    age = _family(GaugeMetricFamily, "oldest_message_age_seconds", "Age of the oldest message; 0 if there is none")
    retention = _family(GaugeMetricFamily, "retention_seconds", "How long these messages are to be kept")
    for publisher in {**drops.publishers, **shelves}:
        labels, shelf = _shown(publisher), shelves.get(publisher)
        if (counts := drops.publishers.get(publisher)) is not None:
            messages.add_metric(labels, counts.messages)
            size.add_metric(labels, counts.bytes)
            for limit, count in counts.evicted.items():
                evicted.add_metric((*labels, limit), count)
        oldest = None if shelf is None else state.cache.get(shelf.first)
        kept.add_metric(labels, 0 if shelf is None else shelf.bytes)
        age.add_metric(labels, 0 if oldest is None else now - oldest.time)
        retention.add_metric(labels, state.rules.retention(publisher[0]).seconds)
    yield from (messages, size, evicted, kept, age, retention)


class EvictionLog:
    """Says who takes the memory when messages are evicted because of `retention_bytes`: once a minute at most."""

    def __init__(self, state: Callable[[], ReplicatedState], seconds: Callable[[], float], *, is_on: bool) -> None:
        """`state`: the present one; `seconds` of a monotonic clock. Unless it `is_on`, it says nothing."""
        self._state = state
        self._rarely = LogThrottle(seconds)
        self._is_on = is_on
        self._seen: dict[tuple[str, str], int] = {}

    def look(self) -> None:
        """Log what was evicted since the last line. O(publishers)."""
        cache = self._state().cache
        evicted = {name: counts.evicted["retention_bytes"] for name, counts in cache.drops.publishers.items()}
        since = {name: count - self._seen.get(name, 0) for name, count in evicted.items() if name[0] in cache.classes}
        if not (self._is_on and any(since.values()) and self._rarely.passes("evicted")):
            return
        self._seen = evicted
        worst = max(since, key=lambda name: (since[name], name))[0]
        kept = cache.classes[worst]
        losers = {owner or NONE: count for (name, owner), count in sorted(since.items()) if name == worst and count}
        _log.warn(
            "retention_bytes is used up: messages on {prefix} were evicted before their retention time, by key: "
            "{evicted}. Key {key} takes {percent:.0f} % of the {bytes} bytes there",
            prefix=_shown((worst, ""))[0],
            evicted=losers,
            key=kept.largest.owner or NONE,
            percent=100 * kept.largest.bytes / kept.bytes,
            bytes=kept.bytes,
        )


def _family(kind: type[F], name: str, text: str, *more_labels: str) -> F:
    return kind(f"pushup_publisher_{name}", text, labels=("prefix", "key", *more_labels))


def _shelves(state: ReplicatedState) -> dict[tuple[str, str], Shelf]:
    classes = state.cache.classes.values()
    return {(kept.name, owner): shelf for kept in classes for owner, shelf in kept.shelves.items()}


def _shown(publisher: tuple[str, str]) -> tuple[str, str]:
    """The values of the labels."""
    prefix, key = publisher
    return ("(ephemeral)" if prefix == EPHEMERAL else prefix or NONE), key or NONE
