"""The readings of PushUp."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import mean, median

from loadtest.liu.papers_tables import INTERVALS, TABLE_1, TABLE_2
from loadtest.reports.readings.found import Found, beside, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Saved, number

PAPERS_MEGABYTES = 8 * 1024
MILLISECONDS = 0.1
"""What we take for the paper's "within milliseconds", in seconds."""

ACCEPTABLE_SECONDS = 0.1
ALMOST_LINEAR = 0.8
EVERYTHING = 99.9
"""Per cent of the messages."""
VERY_LITTLE = 1.1

By = Mapping[tuple[int, str], list[float]]
"""By number of connections and method, a value for each publish interval."""


def _by_interval(saved: Saved, name: str) -> By:
    rows = saved.rows(name)
    return {
        (row["connections"], row["method"]): [
            float(value) for column, value in row.items() if column not in ("connections", "method")
        ]
        for row in rows
    }


def _most(by: By) -> int:
    return max(connections for connections, _ in by)


def _papers(saved: Saved, name: str, paper: By) -> Found:
    rows = saved.rows(name)
    return beside(
        (number(row, f"{interval:g} s"), value)
        for row in rows
        for interval, value in zip(INTERVALS, paper[row["connections"], row["method"]], strict=True)
    )


def within_milliseconds(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    values = by[min(connections for connections, _ in by), "ELP"]
    return Found(f"{span(1e3 * value for value in values)} ms", max(values) < MILLISECONDS)


def table_1(saved: Saved) -> Found:
    return _papers(saved, "traffic", TABLE_1)


def table_2(saved: Saved) -> Found:
    return _papers(saved, "trip-time", TABLE_2)


def figure_7(saved: Saved) -> Found:
    by = _by_interval(saved, "traffic")
    pull, push = by[_most(by), "CP"], by[_most(by), "ELP"]
    return Found(f"{shown(pull[-1] / push[-1])}", pull[-1] > 10 * push[-1] and pull[-1] > 2 * pull[0])


def traffic_of_long_polling(saved: Saved) -> Found:
    by = _by_interval(saved, "traffic")
    values = by[_most(by), "ELP"]
    ratio = max(values) / min(values)
    return Found(f"most / least: {shown(ratio)}", ratio < 1.1)


def traffic_of_pulling(saved: Saved) -> Found:
    ratios = [
        values[-1] / values[0] for (_, method), values in _by_interval(saved, "traffic").items() if method == "CP"
    ]
    return Found(f"longest / shortest interval: {span(ratios)}", all(4 < ratio < 8 for ratio in ratios))


def figure_8(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    ratio = by[_most(by), "CP"][-1] / by[_most(by), "ELP"][-1]
    return Found(f"pull / long poll: {shown(ratio)}", ratio > 1.5)


def trip_of_pulling(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    values = by[_most(by), "CP"]
    return Found(f"longest / shortest interval: {shown(values[-1] / values[0])}", values[-1] > 1.5 * values[0])


def push_is_better(saved: Saved) -> Found:
    traffic, trip = _by_interval(saved, "traffic"), _by_interval(saved, "trip-time")
    most = _most(traffic)
    ratios = [
        [pull / push for pull, push in zip(by[most, "CP"], by[most, "ELP"], strict=True)] for by in (traffic, trip)
    ]
    text = f"pull / long poll: traffic {span(ratios[0])}, trip time {span(ratios[1])}"
    return Found(text, min(map(min, ratios)) > 1)


def alike_for_few(saved: Saved) -> Found:
    traffic, trip = _by_interval(saved, "traffic"), _by_interval(saved, "trip-time")
    few = sorted({connections for connections, _ in traffic})[:2]
    bytes_, seconds = ([mean(by[number, "ELP"]) / mean(by[number, "MLP"]) for number in few] for by in (traffic, trip))
    text = f"ELP / MLP: traffic {span(bytes_)}, trip time {span(seconds)}"
    return Found(text, all(0.9 < ratio < 1.1 for ratio in bytes_) and all(0.4 < ratio < 2.5 for ratio in seconds))


def _both(saved: Saved, column: str, name: str = "threads-or-events") -> dict[int, tuple[float, float]]:
    """By number of connections: a column for threads and for events."""
    found = {
        kind: {row["connections"]: number(row, column) for row in saved.rows(name, server=kind)}
        for kind in ("threads", "events")
    }
    return {number: (value, found["events"][number]) for number, value in found["threads"].items()}


def _ratios(saved: Saved, column: str) -> list[float]:
    return [threads / events for threads, events in _both(saved, column).values() if events]


def memory_of_a_connection(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    low, high = min(both), max(both)
    threads, events = (1e3 * (both[high][kind] - both[low][kind]) / (high - low) for kind in (0, 1))
    return Found(f"{shown(events)} KB, and {shown(threads)} KB with a thread", events < threads / 2)


def cost_of_a_delivery(saved: Saved) -> Found:
    ratios = _ratios(saved, "server's us a delivery")
    return Found(f"a delivery takes threads {span(ratios)} times the processor time", min(ratios) > 1)


def figure_9_events(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    threads, events = both[max(both)]
    text = f"{shown(events)} MB for {max(both):,}, threads {shown(threads)} MB"
    return Found(text, all(events <= 1.05 * threads for threads, events in both.values()) and events < threads / 2)


def figure_9_threads(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    many = max(connections for connections in both if connections <= 8000)
    threads, _ = both[many]
    share = threads / PAPERS_MEGABYTES
    return Found(f"{shown(threads)} MB for {many:,}: {shown(100 * share)} % of 8 GB", share > 0.9)


def figure_10(saved: Saved) -> Found:
    ratios = _ratios(saved, "mean trip s")
    return Found(f"threads / events: {span(ratios)}", min(ratios) > 1.5)


def figure_11(saved: Saved) -> Found:
    both = _both(saved, "received %", "threads-or-events-overload")
    many = min(both, key=lambda count: both[count][0] - both[count][1])
    threads, events = both[many]
    text = f"{shown(threads)} % with threads, {shown(events)} % with events; {many:,} connections"
    return Found(text, threads < 0.9 * events)


def figure_11_slowly(saved: Saved) -> Found:
    both = _both(saved, "received %")
    threads, events = (min(values[kind] for values in both.values()) for kind in (0, 1))
    return Found(f"at least {shown(threads)} % with threads, {shown(events)} % with events", threads < 0.9 * events)


def a_thread_for_each_request(saved: Saved) -> Found:
    costs = {
        kind: {
            row["connections"]: number(row, "server's us a delivery")
            for row in saved.rows("threads-or-events", server=kind)
        }
        for kind in ("threads for requests", "threads", "events")
    }
    by_request, by_connection, events = costs.values()
    # With few connections it may be less than the tick in which processor time is counted.
    counted = [count for count in by_request if all(cost[count] for cost in costs.values())]
    text = (
        f"a delivery costs {span(by_request[count] / events[count] for count in counted)} times what it costs with "
        f"events, and {span(by_request[count] / by_connection[count] for count in counted)} times what it costs "
        "with a thread for each connection"
    )
    return Found(text, all(by_request[count] > 1.5 * events[count] for count in counted))


def no_good_choice(saved: Saved) -> Found:
    many = max(_both(saved, "memory MB"))
    ratios = [
        threads / events
        for threads, events in (_both(saved, column)[many] for column in ("memory MB", "server's us a delivery"))
    ]
    text = f"threads / events, {many:,} connections: memory {shown(ratios[0])}, processor time {shown(ratios[1])}"
    return Found(text, min(ratios) > 1.5)


def _by_nodes(saved: Saved, name: str, column: str) -> dict[str, dict[int, float]]:
    """By number of nodes, then of connections."""
    found: dict[str, dict[int, float]] = {}
    for row in saved.rows(name):
        found.setdefault(row["nodes"], {})[row["connections"]] = number(row, column)
    return found


def time_of_the_front(saved: Saved) -> Found:
    by = _by_nodes(saved, "nodes", "mean trip s")
    added = [behind - by["1 node, alone"][count] for count, behind in by["1 node"].items()]
    return Found(f"HAProxy and Redis add {span(1e3 * value for value in added)} ms", max(added) < ACCEPTABLE_SECONDS)


def cost_of_four_nodes(saved: Saved) -> Found:
    by = _by_nodes(saved, "nodes", "nodes us per delivery")
    most = max(by, key=lambda name: (name != "1 node, alone", name))
    ratios = [cost / by["1 node, alone"][count] for count, cost in by[most].items()]
    return Found(
        f"{most}, in place of one alone: {span(ratios)} times the processor time", median(ratios) <= VERY_LITTLE
    )


def _shares(saved: Saved, column: str, *, served: bool = False) -> tuple[int, dict[str, float]]:
    """The greatest number of connections, and the column by number of nodes.

    `served`: the greatest number at which the most nodes deliver everything, if there is one.
    """
    by = _by_nodes(saved, "nodes-with-shares", column)
    received = _by_nodes(saved, "nodes-with-shares", "received %")[max(by)]
    all_served = [count for count, share in received.items() if share >= EVERYTHING]
    most = max(all_served if served and all_served else received)
    found = {name: values[most] for name, values in sorted(by.items())}
    if len(found) < 2:
        raise NotMeasured
    return most, found


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(shown(value) for value in values.values())


def _numbers(by_nodes: Mapping[str, float]) -> str:
    return ", ".join(name.split()[0] for name in by_nodes)


def figure_12(saved: Saved) -> Found:
    """Where messages do not arrive in time, the trip time says little: only those that do are counted."""
    most, trips = _shares(saved, "mean trip s", served=True)
    falls = all(later < earlier for earlier, later in pairwise(trips.values()))
    return Found(f"{_listed(trips)} s with {_numbers(trips)} nodes, {most:,} connections", falls)


def figure_13(saved: Saved) -> Found:
    most, received = _shares(saved, "received %")
    values = list(received.values())
    grows = all(later >= earlier for earlier, later in pairwise(values)) and values[-1] > values[0]
    return Found(f"{_listed(received)} % with {_numbers(received)} nodes, {most:,} connections", grows)


def scaling(saved: Saved) -> Found:
    most, rates = _shares(saved, "deliveries a second")
    first = rates["1 node"]
    ratios = {name: rate / first for name, rate in rates.items()}
    nodes = max(int(name.split()[0]) for name in ratios)
    text = f"deliveries, as a multiple of one node's: {_listed(ratios)}; {most:,} connections"
    return Found(text, list(ratios.values())[-1] >= ALMOST_LINEAR * nodes)
