"""The readings of Hsu & Wu."""

from __future__ import annotations

from functools import partial
from statistics import linear_regression

from loadtest.hsu.slow_backend import POOL, PROCESS
from loadtest.reports.readings.found import Found, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Saved, number

PAPERS_MESSAGES = 28_573
PAPERS_FAN_OUT = 142_570 / PAPERS_MESSAGES
PAPERS_THRESHOLD_SECONDS = 2.0
STALLED_SECONDS = 0.5
"""A response time from which on others have waited for the blocked client."""

ALIKE = 1.2
LIMIT_MB = (0.9, 1.3)
"""What the paper's 1 MB may be, with the kernel's buffers."""

PLAYERS = 1000
"""In one of the paper's game servers."""


def _limited_service(helper: str, saved: Saved) -> Found:
    (row,) = saved.rows("slow-backend-polls", helper=helper)
    most = int(number(row, "most concurrent calls"))
    return Found(f"at most {most} calls at a time", most <= 20)


limited_service = partial(_limited_service, POOL)


def nobody_else_waits(saved: Saved) -> Found:
    ratio, polls = _delay(POOL, saved)
    text = f"while {polls} wait, others' median delay is {shown(ratio)} times the idle one"
    return Found(text, ratio <= ALIKE)


def helper_process(saved: Saved) -> Found:
    within = _limited_service(PROCESS, saved)
    ratio, _ = _delay(PROCESS, saved)
    text = f"{within.ours}; others' median delay {shown(ratio)} times the idle one"
    return Found(text, within.agrees is True and ratio <= ALIKE)


def _delay(helper: str, saved: Saved) -> tuple[float, str]:
    """Others' median delay while polls wait, as a multiple of the idle one, and how many wait."""
    (idle,), (busy,) = (saved.rows("slow-backend-delays", helper=helper, backend=state) for state in ("idle", "busy"))
    (row,) = saved.rows("slow-backend-polls", helper=helper)
    return number(busy, "p50 ms") / number(idle, "p50 ms"), shown(int(number(row, "polls")))


def many_players(saved: Saved) -> Found:
    whole = [
        row["connections"]
        for row in saved.rows("threads-or-events", server="events")
        if number(row, "received %") >= 100
    ]
    most = max(whole, default=0)
    return Found(f"{most:,} connections, 100 % received", most >= PLAYERS)


def size_of_the_log(saved: Saved) -> Found:
    rows = saved.rows("blocked-client")
    (sent,) = {number(row, "messages in") for row in rows}
    ratios = [number(row, "output buffer responses") / sent for row in rows]
    text = f"{shown(int(sent))} in, {span(ratios)} times as many out (the paper: {shown(PAPERS_FAN_OUT)})"
    whole = abs(sent - PAPERS_MESSAGES) < 0.1 * PAPERS_MESSAGES
    return Found(text, whole and all(abs(ratio - PAPERS_FAN_OUT) < 0.1 * PAPERS_FAN_OUT for ratio in ratios))


def figure_14(saved: Saved) -> Found:
    rows = saved.rows("blocked-client-timeline", server="plain writes")
    peak = max(rows, key=lambda row: number(row, "longest response s"))
    at, seconds = number(peak, "since the block s"), number(peak, "longest response s")
    text = f"the longest, {shown(seconds)} s, is of a message sent {shown(at)} s after the block; then they fall to 0"
    last = number(rows[-1], "longest response s")
    return Found(text, seconds > 1 > STALLED_SECONDS > last)


def _plain(saved: Saved) -> list[tuple[float, float]]:
    return [(number(row, "T s"), number(row, "plain writes s")) for row in saved.rows("blocked-client")]


def figure_15_plain(saved: Saved) -> Found:
    stalled = [(blocked, seconds) for blocked, seconds in _plain(saved) if seconds > STALLED_SECONDS]
    if len(stalled) < 2:
        raise NotMeasured
    slope = linear_regression(*zip(*stalled, strict=True)).slope
    return Found(f"{shown(slope)} s for each second of T beyond the threshold", 0.7 < slope < 1.3)


def figure_15_buffered(saved: Saved) -> Found:
    seconds = [number(row, "output buffer s") for row in saved.rows("blocked-client")]
    return Found(f"{span(seconds)} s", max(seconds) < STALLED_SECONDS)


def threshold(saved: Saved) -> Found:
    plain = _plain(saved)
    below = max((blocked for blocked, seconds in plain if seconds <= STALLED_SECONDS), default=0.0)
    above = min((blocked for blocked, seconds in plain if seconds > STALLED_SECONDS), default=None)
    if above is None:
        raise NotMeasured
    text = f"between {shown(below)} and {shown(above)} s"
    return Found(text, below <= PAPERS_THRESHOLD_SECONDS < above or below == PAPERS_THRESHOLD_SECONDS)


def bytes_until_full(saved: Saved) -> Found:
    rows = saved.rows("blocked-client-threshold")
    sizes = [number(row, "KB until then") for row in rows]
    after = [number(row, "the others wait after s") for row in rows]
    rates = [number(row, "KB a second to C1") for row in rows]
    text = f"{span(sizes)} KB, with {span(rates)} KB a second after {span(after)} s"
    return Found(text, max(sizes) < 2 * min(sizes))


def at_the_limit(saved: Saved) -> Found:
    rows = saved.rows("growing-output")
    never = [row for row in rows if row["C1 reads again"] == "never"]
    before = [row for row in rows if row["C1 reads again"] != "never"]
    (closed,) = (number(row, "connection closed after MB") for row in never)
    longest = max(number(row, "others' longest ms") for row in rows)
    whole = all(row["that C1 has"] == row["messages"] for row in rows)
    text = f"closed after {shown(closed)} MB; others waited {shown(longest)} ms at most; " + (
        "nothing was lost" if whole else "messages were lost"
    )
    low, high = LIMIT_MB
    stayed = all(row["connection closed after MB"] == "-" for row in before)
    return Found(text, low < closed < high and stayed and whole)
