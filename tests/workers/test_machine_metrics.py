"""One metrics page of many processes."""

from __future__ import annotations

from math import nan

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from pushup.metrics import Metrics, MetricsPage
from pushup.workers.machine_metrics import NOT_ADDED_UP, Family, Sample, counters, families, one_page
from tests.net.in_memory_node import InMemoryNode


def counter(name: str, value: float, **labels: str) -> Family:
    return Family(name, "counter", f"text of {name}", [Sample(f"{name}_total", labels, value)])


def gauge(name: str, *values: float, **labels: str) -> Family:
    return Family(name, "gauge", "", [Sample(name, labels, value) for value in values])


def lines(text: bytes) -> list[str]:
    """Without comments."""
    return [line for line in text.decode().splitlines() if not line.startswith("#")]


def test_counters_are_added_up() -> None:
    """Label by label; one that only some processes have counts, too."""
    page = one_page({
        "1": [counter("calls", 1, kind="x"), counter("calls", 2, kind="y")],
        "2": [counter("calls", 10, kind="y"), counter("calls", 20, kind="z")],
        "3": [counter("others", 5)],
    })  # fmt: skip
    assert lines(page) == [
        'calls_total{kind="x"} 1.0',
        'calls_total{kind="y"} 12.0',
        'calls_total{kind="z"} 20.0',
        "others_total 5.0",
    ]
    assert b"# HELP calls_total text of calls\n# TYPE calls_total counter\n" in page
    assert page.count(b"# TYPE calls_total") == 1


def test_the_order_of_labels_does_not_matter() -> None:
    """They are the same labels."""
    one = Family("a", "counter", "", [Sample("a_total", {"x": "1", "y": "2"}, 1)])
    two = Family("a", "counter", "", [Sample("a_total", {"y": "2", "x": "1"}, 2)])
    assert lines(one_page({"1": [one], "2": [two]})) == ['a_total{x="1",y="2"} 3.0']


def test_each_gauge_gets_the_name_of_its_process() -> None:
    """Beside its other labels; processes keep their order."""
    page = one_page({"2": [gauge("polls", 3, pool="x")], "1": [gauge("polls", 4, pool="x")], "parent": []})
    assert lines(page) == ['polls{pool="x",worker="2"} 3.0', 'polls{pool="x",worker="1"} 4.0']


def test_what_the_parent_says_of_a_worker() -> None:
    """It keeps the worker's number."""
    page = one_page({"1": [], "parent": [gauge("lag", 3, worker="1")]})
    assert lines(page) == ['lag{worker="1"} 3.0']


def test_each_worker_drops_the_same_messages() -> None:
    """So their counts are not added up, and those of workers that have ended say nothing."""
    pages = {name: [counter("pushup_messages_dropped", 5, reason="expired")] for name in ("1", "2")}
    assert lines(one_page(pages)) == [
        'pushup_messages_dropped_total{reason="expired",worker="1"} 5.0',
        'pushup_messages_dropped_total{reason="expired",worker="2"} 5.0',
    ]
    assert counters(pages.values()) == []
    assert {metric.name for metric in InMemoryNode().page.collect()} >= NOT_ADDED_UP


def test_histograms_are_added_up() -> None:
    """Bucket by bucket, and their sums."""

    def histogram(low: int, high: int) -> list[Family]:
        buckets = [("0.1", low), ("+Inf", high)]
        return families([HistogramMetricFamily("wait", "seconds", buckets=buckets, sum_value=high / 2)])

    page = one_page({"1": histogram(1, 4), "2": histogram(10, 20)})
    assert lines(page) == [
        'wait_bucket{le="0.1"} 11.0',
        'wait_bucket{le="+Inf"} 24.0',
        "wait_count 24.0",
        "wait_sum 12.0",
    ]


def test_the_counters_of_the_past() -> None:
    """Have no gauges, can be added up again, and change nothing of what they are made of."""
    first = [counter("a", 1), gauge("polls", 3)]
    second = [counter("a", 2), counter("b", 5)]
    past = counters([[], first])
    assert past == [counter("a", 1)]
    past = counters([past, second])
    assert past == [counter("a", 3), counter("b", 5)]
    assert (first, second) == ([counter("a", 1), gauge("polls", 3)], [counter("a", 2), counter("b", 5)])
    one_page({"1": first, "parent": past})
    assert past == [counter("a", 3), counter("b", 5)]


def test_values_of_prometheus_can_be_sent() -> None:
    """And are the same when they arrive."""
    calls = CounterMetricFamily("calls", "how many", labels=("kind",))
    calls.add_metric(("x",), 5)
    polls, big = GaugeMetricFamily("polls", "held", value=3), CounterMetricFamily("big", "", value=2**53)
    sent = families([calls, polls, big])
    assert msgspec.json.decode(msgspec.json.encode(sent), type=list[Family]) == sent
    assert sent == [
        Family("calls", "counter", "how many", [Sample("calls_total", {"kind": "x"}, 5.0)]),
        Family("polls", "gauge", "held", [Sample("polls", {}, 3.0)]),
        Family("big", "counter", "", [Sample("big_total", {}, 2.0**53)]),
    ]


def test_what_is_not_a_number_is_left_out() -> None:
    """Such as memory that could not be read because no descriptor was left: JSON cannot have it."""
    sent = families([GaugeMetricFamily("memory", "", value=nan), GaugeMetricFamily("polls", "", value=3)])
    read = msgspec.json.decode(msgspec.json.encode(sent), type=list[Family])
    assert lines(one_page({"1": read})) == ['polls{worker="1"} 3.0']


def test_the_page_of_a_server_can_be_read() -> None:
    """All metrics that a node has, of two nodes: with the same names as without workers."""
    page = MetricsPage("", Metrics().collect)
    pages = {name: families(page.collect()) for name in ("1", "2")}
    merged = {family.name: family for family in text_string_to_metric_families(one_page(pages).decode())}
    alone = {family.name: family for family in text_string_to_metric_families(page.text().decode())}
    assert {name: family.type for name, family in merged.items()} == {n: family.type for n, family in alone.items()}
    assert [family.name for family in merged.values()] == [family.name for family in alone.values()]


def test_no_pages_are_an_empty_page() -> None:
    """And no error."""
    assert one_page({}) == b""
