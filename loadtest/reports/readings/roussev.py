"""The readings of Roussev & Wu."""

from __future__ import annotations

from functools import partial
from statistics import median

from loadtest.reports.readings.found import Criterion, Found, beside, close, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Row, Saved, number, some
from loadtest.roussev.designs import BUFFERED, DESIGNS, PRE_THREADED, TABLE_1

DELAYS_MS = (250, 500)
REQUESTS = 2800
NO_PENALTY = 1.05
CLEARLY = 1.05
SATISFACTORY = 1.5
FIFTEEN = 15
"""Threads that textbooks recommended."""

WITH_AS_MANY = 50
"""Threads: the paper's number for three of its designs."""

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
    parts, rules = [], []
    for row in saved.rows("designs-table-1", design=design):
        ours = number(row, "took ms") * REQUESTS / number(row, "requests")
        parts.append(f"{ours:,.0f}" + ("" if row["requests"] == REQUESTS else f" (from {row['requests']} requests)"))
        paper = row["paper, 2,800 requests ms"]
        if isinstance(paper, int | float):
            rules.append(close(f"{row['delay ms']:.0f} ms", ours, float(paper)))
    return Found(f"{' / '.join(parts)} ms", tuple(rules))


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
    return Found(f"{shown(ratio)} times", (close("speed-up", ratio, paper),))


def pipes_are_best(saved: Saved) -> Found:
    places = []
    for delay in DELAYS_MS:
        took = _took(saved, delay)
        order = sorted((name for name in took if name in OF_THE_PAPER), key=lambda name: took[name])
        places.append(order.index("pipes") + 1)
    rules = [
        Criterion(f"place among the paper's designs, {delay} ms", place, most=1)
        for delay, place in zip(DELAYS_MS, places, strict=True)
    ]
    rows = [row for row in saved.table("designs-table-2")["rows"] if row["threads"] == WITH_AS_MANY]
    ratios = {row["design"]: number(row, "ratio") for row in rows}
    pipes = ratios.pop("pipes", None)
    better = min(ratios.values()) / pipes if pipes and ratios else None
    rules.append(Criterion(f"time with {WITH_AS_MANY} threads, the best other / pipes", better, CLEARLY))
    return Found(f"place {' and '.join(map(str, places))} of {len(OF_THE_PAPER)}", tuple(rules))


def a_new_thread_is_cheaper(saved: Saved) -> Found:
    rows = {row["design"]: row for row in saved.rows("designs-table-1", **{"delay ms": DELAYS_MS[0]})}
    new, *pools = (number(rows[name], "server us a request") for name in ("thread_per_client", *PRE_THREADED))
    text = f"{shown(new)} us of processor time a request, pools {shown(median(pools))} us (median)"
    return Found(text, (Criterion("us of processor time, a new thread - pools", new - median(pools), most=0),))


def the_table_is_slow(saved: Saved) -> Found:
    ratios = [
        number(row, "took ms") / number(row, "at least ms")
        for row in saved.rows("designs-table-1", design="hash_table")
    ]
    others = [
        number(row, "took ms") / number(row, "at least ms") for row in saved.rows("designs-table-1", design="pipes")
    ]
    text = f"{span(ratios)} times the least possible time, pipes {span(others)}"
    least = min(ratio / other for ratio, other in zip(ratios, others, strict=True))
    return Found(text, (Criterion("least, hash table / pipes, by the least possible time", least, CLEARLY),))


def _by_threads(saved: Saved, design: str = "concurrent_queue") -> dict[int, Row]:
    return {row["threads"]: row for row in saved.rows("designs-table-2", design=design)}


def table_2(saved: Saved) -> Found:
    rows = [row for row in _by_threads(saved).values() if isinstance(row["paper, 2,800 requests ms"], int | float)]
    factor = [REQUESTS / number(row, "requests") for row in rows]
    found = beside(
        (number(row, "took ms") * times, number(row, "paper, 2,800 requests ms"))
        for row, times in zip(rows, factor, strict=True)
    )
    everything = _by_threads(saved)
    best = min(everything, key=lambda threads: number(everything[threads], "took ms"))
    return Found(f"{found.ours}; best with {best} threads", (*found.criteria, Criterion("best number", best, 70, 70)))


def _than_fifteen(design: str, many: int, saved: Saved) -> Found:
    rows = _by_threads(saved, design)
    if not {FIFTEEN, many} <= rows.keys():
        raise NotMeasured
    took, few = (number(rows[threads], "took ms") for threads in (many, FIFTEEN))
    text = f"{many} threads take {shown(took)} ms, {FIFTEEN} take {shown(few)}"
    return Found(text, (Criterion(f"time with {FIFTEEN} threads / with {many}", few / took, CLEARLY),))


more_than_fifteen = partial(_than_fifteen, "accept_lock", 80)
about_a_hundred = partial(_than_fifteen, "concurrent_queue", 100)


def best_numbers(saved: Saved) -> Found:
    """The least number of threads that is as good as any, for each design."""
    rows = {name: _by_threads(saved, name) for name in PRE_THREADED}
    if not all(FIFTEEN in by for by in rows.values()):
        raise NotMeasured
    best = {}
    for name, by in rows.items():
        took = {threads: number(row, "took ms") for threads, row in by.items()}
        best[name] = min(threads for threads in took if took[threads] <= CLOSE_TO_BEST * min(took.values()))
    text = ", ".join(f"{name.replace('_', ' ')} {threads}" for name, threads in best.items())
    rules = [close(f"best number, {name.replace('_', ' ')}", best[name], TABLE_1[name].threads) for name in best]
    return Found(text, tuple(rules))


def no_penalty_at_200(saved: Saved) -> Found:
    rows = _by_threads(saved, "accept_lock")
    if not {150, 200} <= rows.keys():
        raise NotMeasured
    ratio = number(rows[200], "took ms") / number(rows[150], "took ms")
    text = f"200 threads take {shown(ratio)} times as long as 150"
    return Found(text, (Criterion("time with 200 threads / 150", ratio, most=NO_PENALTY),))


def seven_hundred(saved: Saved) -> Found:
    row = max(saved.rows("designs-most-clients", design="pipes"), key=lambda one: number(one, "clients"))
    lost = row["refused"] + row["unanswered"]
    text = f"{lost} of {row['requests']:,} failed; p99 of a response {shown(number(row, 'p99 ms'))} ms"
    took = Criterion("time / the least possible", number(row, "ratio"), most=SATISFACTORY)
    return Found(text, (Criterion("requests that failed", lost, most=0), took))


def up_to_700(saved: Saved) -> Found:
    rows = [row for row in saved.rows("designs-most-clients") if row["design"] in OF_THE_PAPER]
    few, many = (choose(number(row, "clients") for row in rows) for choose in (min, max))
    if few == many:
        raise NotMeasured
    lost = sum(row["refused"] + row["unanswered"] for row in rows)
    ratios = [number(row, "ratio") for row in rows if row["design"] != "hash_table"]
    text = f"{few:,.0f} to {many:,.0f} clients: {lost} requests failed; {span(ratios)} times the least possible time"
    return Found(f"{text} (without the hash table)", (Criterion("requests that failed", lost, most=0),))


def capacity(saved: Saved) -> Found:
    parts, rules = [], []
    for name in BUFFERED:
        took = {row["capacity"]: number(row, "took ms") for row in saved.rows("designs-capacities", design=name)}
        least = min(places for places in took if took[places] < CLOSE_TO_BEST * min(took.values()))
        parts.append(f"{name.replace('_', ' ')}: as good as any from {least} places on")
        share = took[PAPERS_CAPACITY] / min(took.values())
        rules.append(
            Criterion(f"{name.replace('_', ' ')}: {PAPERS_CAPACITY} places / the best", share, most=CLOSE_TO_BEST)
        )
    return Found("; ".join(parts), tuple(rules))


def _theorem(name: str, saved: Saved) -> Found:
    rows = saved.rows("designs-theorems", theorem=name)
    within = sum(number(row, "measured") <= number(row, "at most") + ERRORS * number(row, "std. error") for row in rows)
    near = min(rows, key=lambda row: abs(number(row, "load") - 0.95))
    text = f"{within} of {len(rows)} loads; {shown(number(near, 'measured'))} at {shown(number(near, 'load'))}"
    return Found(
        text, (Criterion(f"loads within the bound and {ERRORS} standard errors, %", 100 * within / len(rows), 100),)
    )


theorem_1, theorem_2, theorem_3 = (partial(_theorem, name) for name in "123")


def theorem_3_in_service(saved: Saved) -> Found:
    (row,) = saved.rows("designs-probes-in-service", how="from the first on")
    measured, bound = number(row, "measured"), number(row, "at most")
    text = f"{shown(measured)} probes; at most {shown(bound)}"
    return Found(text, (Criterion("measured / bound", measured / bound, most=1),))


def collisions(saved: Saved) -> Found:
    rows = some([row for row in saved.rows("designs-probes-in-service") if row["theorem"] in ("1", "2")])
    parts = [
        f"{row['operation']} {shown(number(row, 'measured') - 1)} at a load of {shown(number(row, 'load'))}"
        for row in rows
    ]
    return Found(f"taken or empty slots probed: {', '.join(parts)}")
