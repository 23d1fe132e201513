"""The readings of Mishra & Yang."""

from __future__ import annotations

from functools import partial
from statistics import median

from loadtest.mishra.latency import INTERVALS_MS, STRICT_TOTAL, STRONG_TIME, WEAK_TOTAL
from loadtest.mishra.micro_costs import PAPER
from loadtest.mishra.team import EVENTS, THREADS
from loadtest.mishra.throughput import SATURATED
from loadtest.mishra.waits import ACKNOWLEDGES, AT_ONCE, LATER, UNTIL_LAST
from loadtest.reports.readings.found import CLOSE, Criterion, Found, beside, close, span
from loadtest.reports.results import shown
from loadtest.reports.saved import Row, Saved, number

NO_LESS, NO_MORE = 0.98, 1.02
"""Of the other's throughput; what lies between is no difference."""

CLEARLY = 1.1
SLIGHTLY_MORE = (NO_MORE, 1.6)
FAR_LESS = 3
SEMANTICS_ALIKE = 1.12
"""The paper's slowest semantics beside its fastest, at most."""
ORDERED = {semantics.name for semantics in (WEAK_TOTAL, STRONG_TIME, STRICT_TOTAL)}


def complexity(saved: Saved) -> Found:
    (events,), (threads,) = (saved.rows("group-complexity", implementation=driver) for driver in (EVENTS, THREADS))
    columns = ("lines of code", "threads", "places that wait")
    parts = [f"{column} {events[column]} to {threads[column]}" for column in columns]
    rules = [
        Criterion(f"{column}, threads / events", number(threads, column) / number(events, column), CLEARLY)
        for column in columns
    ]
    return Found("; ".join(parts), tuple(rules))


def _lines(figure: int, saved: Saved) -> dict[float, tuple[float, float]]:
    """By arrival rate: the throughput with events and with threads."""
    found = {
        driver: {
            number(row, "arrivals a second"): number(row, "delivered a second")
            for row in saved.rows("group-throughput", figure=figure, implementation=driver)
        }
        for driver in (EVENTS, THREADS)
    }
    return {rate: (value, found[THREADS][rate]) for rate, value in found[EVENTS].items()}


def _figure(figure: int, saved: Saved) -> Found:
    lines = _lines(figure, saved)
    most = [max(values[kind] for values in lines.values()) for kind in (0, 1)]
    rules = (
        Criterion(
            "greatest at a rate, threads / events", max(other / one for one, other in lines.values()), most=NO_MORE
        ),
        Criterion("at best, threads / events", most[1] / most[0], most=0.9),
    )
    return Found(f"at most {shown(most[0])} a second, threads {shown(most[1])}", rules)


figure_1, figure_2, figure_3 = (partial(_figure, figure) for figure in (1, 2, 3))


def difference_grows(saved: Saved) -> Found:
    """Up to the first rate of which events do not deliver all, as `throughput` defines it."""
    parts, steps, last = [], [], []
    for figure in (1, 2, 3):
        lines = _lines(figure, saved)
        saturated = min((rate for rate, (events, _) in lines.items() if events < SATURATED * rate), default=max(lines))
        rates = sorted(rate for rate in lines if rate <= saturated)
        differences = [lines[rate][0] - lines[rate][1] for rate in rates]
        parts.append(f"{shown(differences[0])} to {shown(differences[-1])}")
        steps += [
            (later - one) / rate for one, later, rate in zip(differences, differences[1:], rates[1:], strict=False)
        ]
        last.append(lines[max(lines)][0] / max(lines))
    rules = (
        Criterion("growth from rate to rate, least, as a share of the rate", min(steps, default=0.0), NO_LESS - 1),
        Criterion("growth, greatest", max(steps, default=0.0), CLEARLY - 1),
        Criterion("events are saturated: delivered at the highest rate, share", max(last), most=SATURATED),
    )
    return Found(f"events - threads, a second: {', '.join(parts)}", rules)


def _table(name: str, saved: Saved) -> Found:
    return beside(
        (number(row, f"{interval} ms: ours"), number(row, f"{interval} ms: paper"))
        for row in saved.rows(name)
        for interval in INTERVALS_MS
    )


table_1 = partial(_table, "group-delivery")
table_2 = partial(_table, "group-stability")
table_3 = partial(_table, "group-messages")


def _pairs(name: str, saved: Saved) -> list[tuple[float, float]]:
    """Ours with events and with threads, in each row and at each interval."""
    threads = {row["semantics"]: row for row in saved.rows(name, implementation=THREADS)}
    return [
        (number(row, f"{interval} ms: ours"), number(threads[row["semantics"]], f"{interval} ms: ours"))
        for row in saved.rows(name, implementation=EVENTS)
        for interval in INTERVALS_MS
    ]


def _earlier(name: str, saved: Saved) -> Found:
    pairs = _pairs(name, saved)
    earlier = sum(events < threads for events, threads in pairs)
    ratio = median(threads / events for events, threads in pairs)
    text = f"{earlier} of {len(pairs)}; threads / events {shown(ratio)} (median)"
    return Found(text, (Criterion("earlier, %", 100 * earlier / len(pairs), 100),))


delivery_is_earlier = partial(_earlier, "group-delivery")
stability_is_earlier = partial(_earlier, "group-stability")


def _waits(name: str, saved: Saved, **where: object) -> dict[tuple[str, str, int], Row]:
    """The rows by implementation, semantics and interval."""
    return {(row["implementation"], row["semantics"], row["interval ms"]): row for row in saved.rows(name, **where)}


def semantics_alike(saved: Saved) -> Found:
    """How far the semantics are apart, and how far the ordered ones are without the waits that `trace` found."""
    ratios = []
    for driver in (EVENTS, THREADS):
        rows = saved.rows("group-delivery", implementation=driver)
        for interval in INTERVALS_MS:
            times = [number(row, f"{interval} ms: ours") for row in rows]
            ratios.append(max(times) / min(times))
    rest: dict[tuple[str, int], list[float]] = {}
    for (driver, semantics, interval), row in _waits("group-delivery-waits", saved, **{ACKNOWLEDGES: AT_ONCE}).items():
        if semantics in ORDERED:
            ours = number(row, "ms until held") + number(row, "for the decision")
            rest.setdefault((driver, interval), []).append(ours)
    apart = [max(times) / min(times) for times in rest.values()]
    text = f"slowest / fastest: {span(ratios)}; without their special waits, those with an order: {span(apart)}"
    rules = (Criterion("slowest / fastest semantics, most", max(ratios), most=SEMANTICS_ALIKE),)
    return Found(text, rules)


def stability_beside_delivery(saved: Saved) -> Found:
    """How often the delivery time fits into the stability time, and why: how many decisions come in between."""
    ratios, decisions = {}, {}
    for when in (AT_ONCE, LATER):
        stable, delivered = (
            _waits(name, saved, **{"semantics": WEAK_TOTAL.name, ACKNOWLEDGES: when})
            for name in ("group-stability-waits", "group-delivery-waits")
        )
        ratios[when] = median(
            number(row, "stability ms") / number(delivered[case], "delivery ms") for case, row in stable.items()
        )
        decisions[when] = median(number(row, UNTIL_LAST) for row in stable.values())
    text = "; ".join(
        f"{shown(ratios[when])} times, {shown(decisions[when])} decisions after the ordinal, if the decider "
        f"acknowledges {when}"
        for when in (AT_ONCE, LATER)
    )
    rules = (
        Criterion("stability / delivery, median", ratios[AT_ONCE], 2.1 * (1 - CLOSE), 2.8 * (1 + CLOSE)),
        Criterion(f"{UNTIL_LAST}, median", decisions[AT_ONCE], most=2),
    )
    return Found(text, rules)


def more_messages(saved: Saved) -> Found:
    ratios = [events / threads for events, threads in _pairs("group-messages", saved)]
    names = ("least, events / threads", "most")
    rules = [
        Criterion(name, ratio, *SLIGHTLY_MORE) for name, ratio in zip(names, (min(ratios), max(ratios)), strict=True)
    ]
    return Found(f"{span(ratios)} times", tuple(rules))


def switches(saved: Saved) -> Found:
    events, threads = (
        median(number(row, "context switches an event") for row in saved.rows("group-latency", implementation=driver))
        for driver in (EVENTS, THREADS)
    )
    rules = (
        Criterion("switches an event", threads, 1),
        Criterion("more than with events by", threads - events, CLEARLY - 1),
    )
    return Found(f"{shown(threads)} switches an event, with events {shown(events)}", rules)


def selects(saved: Saved) -> Found:
    """An event costs a `select` or none: the more datagrams wait, the more of them share one."""
    calls = median(number(row, "select calls an event") for row in saved.rows("group-latency", implementation=EVENTS))
    rows = saved.rows("group-throughput", implementation=EVENTS)
    rate = max(number(row, "arrivals a second") for row in rows)
    busy = median(number(row, "select calls an event") for row in rows if row["arrivals a second"] == rate)
    text = f"{shown(calls)} calls an event, {shown(busy)} with {shown(rate)} updates a second"
    rules = (
        Criterion("select calls an event", calls, most=CLEARLY),
        Criterion("at the highest rate", busy, most=1),
    )
    return Found(text, rules)


def _micro(column: str, saved: Saved) -> dict[str, float]:
    """The cost in Python, and in C if there is a compiler."""
    rows = {row[""]: row for row in saved.rows("group-micro-costs")}
    return {name: number(rows[name], column) for name in ("Python", "C, pthreads") if name in rows}


def _cost(column: str, paper: float, saved: Saved) -> Found:
    costs = _micro(column, saved)
    text = ", ".join(f"{shown(cost)} us in {name}" for name, cost in costs.items())
    return Found(text, tuple(close(f"us in {name}", cost, paper) for name, cost in costs.items()))


switch = partial(_cost, "thread switch us", PAPER.switch)
lock = partial(_cost, "lock and unlock us", PAPER.lock)


def select(saved: Saved) -> Found:
    costs = _micro("select us", saved)
    text = ", ".join(f"{shown(cost)} us in {name}" for name, cost in costs.items())
    return Found(text, (Criterion("most us", max(costs.values()), most=PAPER.select),))


def select_is_cheaper(saved: Saved) -> Found:
    ratios = {
        name: cost / _micro("select us", saved)[name] for name, cost in _micro("switch, lock, unlock us", saved).items()
    }
    text = ", ".join(f"{shown(ratio)} times a select in {name}" for name, ratio in ratios.items())
    return Found(text, (Criterion("least, the three / select", min(ratios.values()), FAR_LESS),))
