"""The readings of PushUp."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile
from statistics import mean, median

from loadtest.liu.nodes import WITH_A_CORE_EACH
from loadtest.liu.papers_tables import INTERVALS, TABLE_1, TABLE_2
from loadtest.liu.threads_or_events import SWARM_AT_ITS_LIMIT
from loadtest.reports.readings.found import CLOSE, Criterion, Found, beside, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Row, Saved, number

PAPERS_MEGABYTES = 8 * 1024
MILLISECONDS = 10
"""At most; what we take for the paper's "within milliseconds"."""

ACCEPTABLE_MS = 100
ALMOST_LINEAR = 0.8
EVERYTHING = 99.9
"""Per cent of the messages."""
VERY_LITTLE = 1.1
MUCH = 5
SIGNIFICANT = 1.5
AS_THE_LOGARITHM = 2
"""By how much more than the logarithm a time may grow: more memory is slower, too."""

BUSY = 0.9
"""The share of a core that a node uses if it has no time left."""

ALIKE = (0.75, 1.33)
ALIKE_TRIPS = (0.5, 2)
"""The paper calls trip times alike that are a factor of two apart, with 10 connections."""

COST = "server's us a delivery"
THREADS = "threads for requests"
"""The paper's design: a thread for each polling request."""

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
        if f"{interval:g} s" in row
    )


def within_milliseconds(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    most = {count: 1e3 * max(values) for (count, method), values in by.items() if method == "ELP"}
    text = ", ".join(f"{shown(value)} ms with {count:,} connections" for count, value in most.items())
    metric = "mean trip at the slowest interval, {:,} connections, ms"
    rules = [Criterion(metric.format(count), value, most=MILLISECONDS) for count, value in most.items()]
    return Found(f"at most {text}", tuple(rules))


table_1 = partial(_papers, name="traffic", paper=TABLE_1)
table_2 = partial(_papers, name="trip-time", paper=TABLE_2)
table_1_closing = partial(_papers, name="traffic-closing", paper=TABLE_1)
table_2_closing = partial(_papers, name="trip-time-closing", paper=TABLE_2)


def _all_received(saved: Saved, name: str) -> Found:
    least = min(number(row, "received %") for row in saved.rows(name))
    return Found(f"{shown(least)} % or more in each case", (Criterion("received in each case, %", least, 100),))


all_received = partial(_all_received, name="push-or-pull")
all_received_closing = partial(_all_received, name="push-or-pull-closing")


def _over_intervals(values: Sequence[float], least: float = SIGNIFICANT, most: float = math.inf) -> Criterion:
    return Criterion("pulling, longest / shortest interval", values[-1] / values[0], least, most)


def _lossy(saved: Saved, column: str) -> dict[tuple[str, float, float], float]:
    """By method, loss and interval, with a connection for each request, as in the paper."""
    return {
        (row["method"], row["lost packets %"], row["publish interval s"]): number(row, column)
        for row in saved.rows("packet-loss", **{"connections are": "closed"})
    }


def packet_loss(saved: Saved) -> Found:
    """Whether losses make pulling slower, and the more the rarer messages are."""
    trips, dropped = _lossy(saved, "mean trip s"), _lossy(saved, "dropped a message")
    losses, intervals = {loss for _, loss, _ in trips}, {interval for _, _, interval in trips}
    none, most, short, long = min(losses), max(losses), min(intervals), max(intervals)
    text = "; ".join(
        f"{method} {shown(trips[method, none, long])} s, with {shown(most)} % lost {shown(trips[method, most, long])} s"
        for method in ("CP", "ELP")
    )
    pulled, pushed = dropped["CP", most, long], dropped["ELP", most, long]
    lost = pulled / pushed if pushed else None
    rules = (
        Criterion("packets lost for a message, pull / long poll", lost, 10),
        Criterion(
            "mean trip of pulling, most loss / none", trips["CP", most, short] / trips["CP", none, short], VERY_LITTLE
        ),
        _over_intervals([trips["CP", most, short], trips["CP", most, long]]),
    )
    return Found(f"{text}; a message every {long:g} s", rules)


def received_with_loss(saved: Saved) -> Found:
    received: dict[float, float] = {}
    for row in saved.rows("packet-loss"):
        lost = row["lost packets %"]
        received[lost] = min(number(row, "received %"), received.get(lost, 100.0))
    text = ", ".join(f"{shown(share)} % with {shown(lost)} % of the packets lost" for lost, share in received.items())
    least = received[max(received)]
    return Found(f"at least {text}", (Criterion("received with the most loss, %", least, most=EVERYTHING),))


def figure_7(saved: Saved) -> Found:
    by = _by_interval(saved, "traffic")
    pull, push = by[_most(by), "CP"], by[_most(by), "ELP"]
    ratio = pull[-1] / push[-1]
    rules = Criterion("pull / long poll at the longest interval", ratio, 10), _over_intervals(pull, 2)
    return Found(shown(ratio), rules)


def traffic_of_long_polling(saved: Saved) -> Found:
    by = _by_interval(saved, "traffic")
    values = by[_most(by), "ELP"]
    ratio = max(values) / min(values)
    return Found(f"most / least: {shown(ratio)}", (Criterion("most / least over the intervals", ratio, most=1.1),))


def traffic_of_pulling(saved: Saved) -> Found:
    lines = [values for (_, method), values in _by_interval(saved, "traffic").items() if method == "CP"]
    text = f"longest / shortest interval: {span(values[-1] / values[0] for values in lines)}"
    linear = INTERVALS[-1] / INTERVALS[0]
    worst = max(lines, key=lambda values: abs(values[-1] / values[0] - linear))
    return Found(text, (_over_intervals(worst, 0.8 * linear, 1.2 * linear),))


def figure_8(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    pull, push = by[_most(by), "CP"], by[_most(by), "ELP"]
    ratio = pull[-1] / push[-1]
    rules = Criterion("pull / long poll at the longest interval", ratio, SIGNIFICANT), _over_intervals(pull)
    return Found(f"pull / long poll: {shown(ratio)}", rules)


def trip_of_pulling(saved: Saved) -> Found:
    by = _by_interval(saved, "trip-time")
    values = by[_most(by), "CP"]
    return Found(f"longest / shortest interval: {shown(values[-1] / values[0])}", (_over_intervals(values),))


def push_is_better(saved: Saved) -> Found:
    traffic, trip = _by_interval(saved, "traffic"), _by_interval(saved, "trip-time")
    most = _most(traffic)
    ratios = [
        [pull / push for pull, push in zip(by[most, "CP"], by[most, "ELP"], strict=True)] for by in (traffic, trip)
    ]
    text = f"pull / long poll: traffic {span(ratios[0])}, trip time {span(ratios[1])}"
    names = (f"least {what}, pull / long poll, {most:,} connections" for what in ("traffic", "trip time"))
    return Found(text, tuple(Criterion(name, min(each), SIGNIFICANT) for name, each in zip(names, ratios, strict=True)))


def _alike_for_few(saved: Saved, suffix: str) -> Found:
    traffic, trip = (_by_interval(saved, name + suffix) for name in ("traffic", "trip-time"))
    few = sorted({connections for connections, _ in traffic})[:2]
    bytes_, seconds = ([mean(by[number, "ELP"]) / mean(by[number, "MLP"]) for number in few] for by in (traffic, trip))
    text = f"ELP / MLP: traffic {span(bytes_)}, trip time {span(seconds)}"
    rules = [
        Criterion(f"{what}, ELP / MLP, {count:,} connections", ratio, *alike)
        for what, ratios, alike in (("traffic", bytes_, ALIKE), ("trip time", seconds, ALIKE_TRIPS))
        for count, ratio in zip(few, ratios, strict=True)
    ]
    return Found(text, tuple(rules))


alike_for_few = partial(_alike_for_few, suffix="")
alike_for_few_closing = partial(_alike_for_few, suffix="-closing")


def _both(saved: Saved, column: str, name: str = "threads-or-events") -> dict[int, tuple[float, float]]:
    """By number of connections: a column for threads and for events."""
    found = {
        kind: {row["connections"]: number(row, column) for row in saved.rows(name, server=kind)}
        for kind in (THREADS, "events")
    }
    return {number: (value, found["events"][number]) for number, value in found[THREADS].items()}


def _ratios(saved: Saved, column: str) -> list[float]:
    return [threads / events for threads, events in _both(saved, column).values() if events]


def memory_of_a_connection(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    low, high = min(both), max(both)
    threads, events = (1e3 * (both[high][kind] - both[low][kind]) / (high - low) for kind in (0, 1))
    text = f"{shown(events)} KB, and {shown(threads)} KB with a thread"
    return Found(text, (Criterion("memory of a connection, threads / events", threads / events, MUCH),))


def cost_of_a_delivery(saved: Saved) -> Found:
    ratios = _ratios(saved, COST)
    text = f"a delivery takes threads {span(ratios)} times the processor time"
    return Found(text, (Criterion("least processor time of a delivery, threads / events", min(ratios), SIGNIFICANT),))


def figure_9_events(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    threads, events = both[max(both)]
    text = f"{shown(events)} MB for {max(both):,}, threads {shown(threads)} MB"
    rules = [
        Criterion(f"memory, threads / events, {count:,} connections", both[count][0] / both[count][1], least)
        for count, least in ((min(both), 1), (max(both), SIGNIFICANT))
    ]
    return Found(text, tuple(rules))


def figure_9_threads(saved: Saved) -> Found:
    both = _both(saved, "memory MB")
    many = max(connections for connections in both if connections <= 8000)
    threads, _ = both[many]
    share = 100 * threads / PAPERS_MEGABYTES
    text = f"{shown(threads)} MB for {many:,}: {shown(share)} % of 8 GB"
    return Found(text, (Criterion("threads' share of 8 GB, %", share, 90),))


def figure_10(saved: Saved) -> Found:
    ratios = _ratios(saved, "mean trip s")
    text = f"threads / events: {span(ratios)}"
    return Found(text, (Criterion("least mean trip, threads / events", min(ratios), SIGNIFICANT),))


def _received(saved: Saved, name: str) -> Found:
    both = _both(saved, "received %", name)
    many = min(both, key=lambda count: both[count][0] - both[count][1])
    threads, events = both[many]
    text = f"{shown(threads)} % with threads, {shown(events)} % with events; {many:,} connections"
    return Found(text, (Criterion("least received %, threads / events", threads / events, most=0.9),))


figure_11 = partial(_received, name="threads-or-events-overload")
figure_11_slowly = partial(_received, name="threads-or-events")


def range_operations(saved: Saved) -> Found:
    rows = sorted(saved.rows("range-operations"), key=lambda row: number(row, "items"))
    few, many = rows[0], rows[-1]
    ratios = {name: number(many, name) / number(few, name) for name in few if name != "items"}
    text = f"{many['items']:,} items / {few['items']:,}: {span(ratios.values())} times the time"
    most = AS_THE_LOGARITHM * math.log(many["items"]) / math.log(few["items"])
    return Found(
        text,
        tuple(
            Criterion(f"{name.removesuffix(' us')}, most / fewest items", ratio, most=most)
            for name, ratio in ratios.items()
        ),
    )


def until_messages_are_lost(saved: Saved) -> Found:
    """Up to which load each server delivers (nearly) everything, in deliveries a second; at less load, too."""
    rows = saved.rows("threads-or-events-loss")
    most = {
        kind: max((number(row, "due a second") for row in _until_one_is_lost(rows, kind)), default=0.0)
        for kind in (THREADS, "events")
    }
    threads = f"up to {shown(most[THREADS])}" if most[THREADS] else "at none of these loads"
    text = f"everything up to {shown(most['events'])} deliveries a second, with threads {threads}"
    ratio = most["events"] / most[THREADS] if most[THREADS] else math.inf
    return Found(text, (Criterion("most that is delivered, events / threads", ratio, SIGNIFICANT),))


def _until_one_is_lost(rows: Sequence[Row], kind: str) -> Iterator[Row]:
    loads = sorted((row for row in rows if row["server"] == kind), key=lambda row: number(row, "due a second"))
    return takewhile(lambda row: number(row, "received %") >= EVERYTHING, loads)


def a_thread_for_each_request(saved: Saved) -> Found:
    costs = {
        kind: {row["connections"]: number(row, COST) for row in saved.rows("threads-or-events", server=kind)}
        for kind in (THREADS, "threads", "events")
    }
    by_request, by_connection, events = costs.values()
    # With few connections it may be less than the tick in which processor time is counted.
    counted = [count for count in by_request if all(cost[count] for cost in costs.values())]
    text = (
        f"a delivery costs {span(by_request[count] / events[count] for count in counted)} times what it costs with "
        f"events, and {span(by_request[count] / by_connection[count] for count in counted)} times what it costs "
        "with a thread for each connection"
    )
    least = min(by_request[count] / events[count] for count in counted)
    return Found(text, (Criterion("least processor time of a delivery, threads / events", least, SIGNIFICANT),))


def no_good_choice(saved: Saved) -> Found:
    many = max(_both(saved, "memory MB"))
    ratios = [threads / events for threads, events in (_both(saved, column)[many] for column in ("memory MB", COST))]
    text = f"threads / events, {many:,} connections: memory {shown(ratios[0])}, processor time {shown(ratios[1])}"
    names = (f"{what}, threads / events, {many:,} connections" for what in ("memory", "processor time"))
    return Found(text, tuple(Criterion(name, ratio, SIGNIFICANT) for name, ratio in zip(names, ratios, strict=True)))


def idle_connections(saved: Saved) -> Found:
    """What a message costs with the most idle connections that a way of waiting was measured with, and with none."""
    costs: dict[str, dict[int, float]] = {}
    for row in saved.rows("idle-connections"):
        costs.setdefault(row["wait"], {})[row["idle connections"]] = number(row, "server's us a message")
    most = {wait: max(by) for wait, by in costs.items()}
    ratios = {wait: by[most[wait]] / by[0] for wait, by in costs.items()}
    text = ", ".join(
        f"{wait} {shown(by[0])} us with no idle connection, {shown(by[most[wait]])} with {most[wait]:,}"
        for wait, by in costs.items()
    )
    metric = "{}, a message with {:,} idle connections / with none"
    rules = [
        Criterion(metric.format(wait, most[wait]), ratio, *((0, ALIKE[1]) if wait == "epoll" else (2,)))
        for wait, ratio in ratios.items()
    ]
    return Found(text, tuple(rules))


def _by_nodes(saved: Saved, name: str, column: str) -> dict[str, dict[int, float]]:
    """By number of nodes, then of connections."""
    found: dict[str, dict[int, float]] = {}
    for row in saved.rows(name):
        found.setdefault(row["nodes"], {})[row["connections"]] = number(row, column)
    return found


def time_of_the_front(saved: Saved) -> Found:
    by = _by_nodes(saved, "nodes", "mean trip s")
    added = [1e3 * (behind - by["1 node, alone"][count]) for count, behind in by["1 node"].items()]
    text = f"HAProxy and Redis add {span(added)} ms"
    return Found(text, (Criterion("most that they add to the mean trip, ms", max(added), most=ACCEPTABLE_MS),))


def cost_of_four_nodes(saved: Saved) -> Found:
    by = _by_nodes(saved, "nodes", "nodes us per delivery")
    most = max(by, key=lambda name: (name != "1 node, alone", name))
    ratios = [cost / by["1 node, alone"][count] for count, cost in by[most].items()]
    haproxy, redis = (_by_nodes(saved, "nodes", column)[most] for column in ("haproxy us", "redis us"))
    text = (
        f"{most}, in place of one alone: {span(ratios)} times the processor time; a delivery takes HAProxy another "
        f"{span(haproxy.values())} us, and Redis {span(redis.values())}"
    )
    balanced = median((cost + haproxy[count]) / cost for count, cost in by[most].items())
    rules = (
        Criterion(f"median processor time, {most} / one alone", median(ratios), most=VERY_LITTLE),
        Criterion(f"{most} with HAProxy / without", balanced, most=VERY_LITTLE),
    )
    return Found(text, rules)


def scaling_with_a_core_each(saved: Saved) -> Found:
    """Derived from processor time; and whether a node that has a core delivers what was derived for it."""
    by = _by_nodes(saved, "nodes-a-core-each", WITH_A_CORE_EACH)
    most = max(by, key=lambda name: (name != "1 node, alone", name))
    count = int(most.split()[0])
    times = [rate / by["1 node"][number] for number, rate in by[most].items()]
    haproxy = _by_nodes(saved, "nodes-a-core-each", "HAProxy's cores for that")[most]
    full = [
        number(row, "deliveries / derived")
        for row in saved.rows("nodes-full-core")
        if number(row, "node's share of a processor") >= BUSY
        and number(row, "swarm's share of its processor") <= SWARM_AT_ITS_LIMIT
    ]
    text = (
        f"derived: {most} deliver {span(times)} times as much as one, {span(by[most].values())} a second; HAProxy "
        f"needs {span(haproxy.values())} cores for that"
    )
    if full:
        text += f". A node alone that keeps its core busy delivers {span(full)} of what is derived for it"
    rules = (
        Criterion(f"median, derived for {most} / {count} times that for one", median(times) / count, ALMOST_LINEAR),
        Criterion("a node alone with a busy core, delivered / derived, least", min(full, default=None), 1 - CLOSE),
    )
    return Found(text, rules)


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


def _steps(values: Mapping[str, float]) -> list[float]:
    """Each value, by the one of a node less."""
    return [later / earlier for earlier, later in pairwise(values.values())]


def figure_12(saved: Saved) -> Found:
    """Where messages do not arrive in time, the trip time says little: only those that do are counted."""
    most, trips = _shares(saved, "mean trip s", served=True)
    text = f"{_listed(trips)} s with {_numbers(trips)} nodes, {most:,} connections"
    return Found(text, (Criterion("mean trip with a node more / without it, greatest", max(_steps(trips)), most=1),))


def figure_13(saved: Saved) -> Found:
    most, received = _shares(saved, "received %")
    text = f"{_listed(received)} % with {_numbers(received)} nodes, {most:,} connections"
    return Found(text, (Criterion("received % with a node more / without it, least", min(_steps(received)), 1),))


def scaling(saved: Saved) -> Found:
    most, rates = _shares(saved, "deliveries a second")
    first = rates["1 node"]
    ratios = {name: rate / first for name, rate in rates.items()}
    nodes = max(int(name.split()[0]) for name in ratios)
    text = f"deliveries, as a multiple of one node's: {_listed(ratios)}; {most:,} connections"
    metric = f"deliveries with {nodes} nodes / {nodes} times those with one"
    return Found(text, (Criterion(metric, ratios[f"{nodes} nodes"] / nodes, ALMOST_LINEAR),))
