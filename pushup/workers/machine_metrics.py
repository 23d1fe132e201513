"""The metrics of all workers on one page: counters are added up, and each gauge gets the label `worker`, unless it has
one: the parent process says some things of each worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

NOT_ADDED_UP = frozenset((
    "pushup_messages_dropped",
    "pushup_publisher_messages",
    "pushup_publisher_bytes",
    "pushup_publisher_evicted_messages",
))  # fmt: skip
"""Counters that get the label, too: each worker counts the same messages, from its own copy of the state."""


class Sample(Struct, array_like=True, forbid_unknown_fields=True):
    """One value, with its name and labels."""

    name: str
    labels: dict[str, str]
    value: float


class Family(Struct, array_like=True, forbid_unknown_fields=True):
    """The values of one metric. `type`: as in Prometheus' text format."""

    name: str
    type: str
    text: str
    samples: list[Sample]


def families(metrics: Iterable[Metric]) -> list[Family]:
    """The same as values that can be sent: JSON has no other numbers than finite ones."""
    return [
        Family(m.name, m.type, m.documentation, [
            Sample(s.name, s.labels, float(s.value)) for s in m.samples if isfinite(s.value)
        ])
        for m in metrics
    ]  # fmt: skip


def counters(pages: Iterable[list[Family]]) -> list[Family]:
    """The sums of all that only grows."""
    return _merged({str(number): page for number, page in enumerate(pages)}, with_gauges=False)


def one_page(pages: Mapping[str, list[Family]]) -> bytes:
    """The text of all pages, by the name of the process that each is of."""
    return generate_latest(_Page(_merged(pages, with_gauges=True)))


def _merged(pages: Mapping[str, list[Family]], *, with_gauges: bool) -> list[Family]:
    merged: dict[str, Family] = {}
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for process, page in pages.items():
        for family in page:
            is_of_each = family.type == "gauge" or family.name in NOT_ADDED_UP
            if is_of_each and not with_gauges:
                continue
            total = merged.setdefault(family.name, Family(family.name, family.type, family.text, []))
            for sample in family.samples:
                if is_of_each:
                    total.samples.append(Sample(sample.name, {"worker": process, **sample.labels}, sample.value))
                    continue
                key = sample.name, tuple(sorted(sample.labels.items()))
                if key in sums:
                    sums[key].value += sample.value
                else:
                    sums[key] = Sample(sample.name, sample.labels, sample.value)
                    total.samples.append(sums[key])
    return list(merged.values())


class _Page:
    """Gives the families to prometheus_client."""

    def __init__(self, merged: list[Family]) -> None:
        self._merged = merged

    def collect(self) -> Iterator[Metric]:
        for family in self._merged:
            metric = Metric(family.name, family.text, family.type)
            for sample in family.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric
