"""The readings of Roussev & Wu."""

from __future__ import annotations

from functools import partial
from statistics import median

from loadtest.reports.readings.found import CLOSE, Found, beside, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Row, Saved, number, some
from loadtest.roussev.designs import BUFFERED, DESIGNS, PRE_THREADED, TABLE_1

DELAYS_MS = (250, 500)
REQUESTS = 2800
NO_PENALTY = 1.05
PAPERS_CAPACITY = 101
CLOSE_TO_BEST = 1.05
ERRORS = 3
"""Standard errors by which a mean may exceed a bound by chance."""

OF_THE_PAPER = [name for name in DESIGNS if name != "event_driven"]


def _took(saved: Saved, delay: int) -> dict[str, float]:
    """Milliseconds for 2,800 requests, by design; of fewer requests, in proportion."""
    rows = saved.rows("designs-table-1", **{"delay ms": delay})
    return {row["design"]: number(row, "took ms") * REQUESTS / number(row, "requests") for row in rows}


def _row(design: str, saved: Saved) -> Found:
    parts, pairs = [], []
    for row in saved.rows("designs-table-1", design=design):
        ours = number(row, "took ms") * REQUESTS / number(row, "requests")
        parts.append(f"{ours:,.0f}" + ("" if row["requests"] == REQUESTS else f" (from {row['requests']} requests)"))
        paper = row["paper, 2,800 requests ms"]
        if isinstance(paper, int | float):
            pairs.append((ours, float(paper)))
    return Found(f"{' / '.join(parts)} ms", all(abs(ours - paper) <= CLOSE * paper for ours, paper in pairs))


row_iterative = partial(_row, "iterative")
row_thread_per_client = partial(_row, "thread_per_client")
row_accept_lock = partial(_row, "accept_lock")
row_shared_buffer = partial(_row, "shared_buffer")
row_concurrent_queue = partial(_row, "concurrent_queue")
row_hash_table = partial(_row, "hash_table")
row_pipes = partial(_row, "pipes")


def speed_up(saved: Saved) -> Found:
    took = _took(saved, DELAYS_MS[0])
    ratio = took["iterative"] / took["thread_per_client"]
    one, many = (TABLE_1[name].took[0] for name in ("iterative", "thread_per_client"))
    assert one
    assert many
    paper = one / many
    return Found(f"{shown(ratio)} times", abs(ratio - paper) <= CLOSE * paper)


def pipes_are_best(saved: Saved) -> Found:
    places = []
    for delay in DELAYS_MS:
        took = _took(saved, delay)
        order = sorted((name for name in took if name in OF_THE_PAPER), key=lambda name: took[name])
        places.append(order.index("pipes") + 1)
    return Found(f"place {' and '.join(map(str, places))} of {len(OF_THE_PAPER)}", places == [1, 1])


def a_new_thread_is_cheaper(saved: Saved) -> Found:
    rows = {row["design"]: row for row in saved.rows("designs-table-1", **{"delay ms": DELAYS_MS[0]})}
    new, *pools = (number(rows[name], "server us a request") for name in ("thread_per_client", *PRE_THREADED))
    text = f"{shown(new)} us of processor time a request, pools {shown(median(pools))} us (median)"
    return Found(text, new <= median(pools))


def the_table_is_slow(saved: Saved) -> Found:
    ratios = [
        number(row, "took ms") / number(row, "at least ms")
        for row in saved.rows("designs-table-1", design="hash_table")
    ]
    others = [
        number(row, "took ms") / number(row, "at least ms") for row in saved.rows("designs-table-1", design="pipes")
    ]
    text = f"{span(ratios)} times the least possible time, pipes {span(others)}"
    return Found(text, all(ratio > other for ratio, other in zip(ratios, others, strict=True)))


def _by_threads(saved: Saved) -> dict[int, Row]:
    return {row["threads"]: row for row in saved.rows("designs-table-2", design="concurrent_queue")}


def _threads_took(saved: Saved, threads: int) -> float:
    rows = _by_threads(saved)
    if threads not in rows:
        raise NotMeasured
    return number(rows[threads], "took ms")


def table_2(saved: Saved) -> Found:
    rows = [row for row in _by_threads(saved).values() if isinstance(row["paper, 2,800 requests ms"], int | float)]
    factor = [REQUESTS / number(row, "requests") for row in rows]
    found = beside(
        (number(row, "took ms") * times, number(row, "paper, 2,800 requests ms"))
        for row, times in zip(rows, factor, strict=True)
    )
    everything = _by_threads(saved)
    best = min(everything, key=lambda threads: number(everything[threads], "took ms"))
    return Found(f"{found.ours}; best with {best} threads", found.agrees is True and best == 70)


def _better(few: int, many: int, saved: Saved) -> Found:
    ratio = _threads_took(saved, few) / _threads_took(saved, many)
    return Found(f"{many} threads are {shown(ratio)} times as fast as {few}", ratio > 1)


more_than_fifteen = partial(_better, 10, 70)
about_a_hundred = partial(_better, 30, 100)


def no_penalty_at_200(saved: Saved) -> Found:
    ratio = _threads_took(saved, 200) / _threads_took(saved, 150)
    return Found(f"200 threads take {shown(ratio)} times as long as 150", ratio <= NO_PENALTY)


def seven_hundred(saved: Saved) -> Found:
    row = max(saved.rows("designs-most-clients", design="pipes"), key=lambda one: number(one, "clients"))
    lost = row["refused"] + row["unanswered"]
    text = f"{lost} of {row['requests']:,} failed; p99 of a response {shown(number(row, 'p99 ms'))} ms"
    return Found(text, lost == 0)


def up_to_700(saved: Saved) -> Found:
    rows = [row for row in saved.rows("designs-most-clients") if row["design"] in OF_THE_PAPER]
    few, many = (choose(number(row, "clients") for row in rows) for choose in (min, max))
    if few == many:
        raise NotMeasured
    lost = sum(row["refused"] + row["unanswered"] for row in rows)
    ratios = [number(row, "ratio") for row in rows if row["design"] != "hash_table"]
    text = f"{few:,.0f} to {many:,.0f} clients: {lost} requests failed; {span(ratios)} times the least possible time"
    return Found(f"{text} (without the hash table)", lost == 0)


def capacity(saved: Saved) -> Found:
    parts = []
    agrees = True
    for name in BUFFERED:
        took = {row["capacity"]: number(row, "took ms") for row in saved.rows("designs-capacities", design=name)}
        least = min(places for places in took if took[places] < CLOSE_TO_BEST * min(took.values()))
        parts.append(f"{name.replace('_', ' ')}: as good as any from {least} places on")
        agrees = agrees and took[PAPERS_CAPACITY] < CLOSE_TO_BEST * min(took.values())
    return Found("; ".join(parts), agrees)


def _theorem(name: str, saved: Saved) -> Found:
    rows = saved.rows("designs-theorems", theorem=name)
    within = sum(number(row, "measured") <= number(row, "at most") + ERRORS * number(row, "std. error") for row in rows)
    near = min(rows, key=lambda row: abs(number(row, "load") - 0.95))
    text = f"{within} of {len(rows)} loads; {shown(number(near, 'measured'))} at {shown(number(near, 'load'))}"
    return Found(text, within == len(rows))


theorem_1, theorem_2, theorem_3 = (partial(_theorem, name) for name in "123")


def theorem_3_in_service(saved: Saved) -> Found:
    (row,) = saved.rows("designs-probes-in-service", how="from the first on")
    measured, bound = number(row, "measured"), number(row, "at most")
    return Found(f"{shown(measured)} probes; at most {shown(bound)}", measured <= bound)


def collisions(saved: Saved) -> Found:
    rows = some([row for row in saved.rows("designs-probes-in-service") if row["theorem"] in ("1", "2")])
    parts = [
        f"{row['operation']} {shown(number(row, 'measured') - 1)} at a load of {shown(number(row, 'load'))}"
        for row in rows
    ]
    return Found(f"taken or empty slots probed: {', '.join(parts)}")
