"""The readings of Hsu & Wu."""

from __future__ import annotations

from statistics import linear_regression, mean

from loadtest.hsu.slow_backend import LONGEST, POLLS, POOL, PROCESS, THREADS
from loadtest.reports.readings.found import Criterion, Found, close, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Saved, number

PAPERS_MESSAGES = 28_573
PAPERS_FAN_OUT = 142_570 / PAPERS_MESSAGES
PAPERS_THRESHOLD_SECONDS = 2.0
PAPERS_BUFFER_KB = 32
STALLED_SECONDS = 0.5
"""A response time from which on others have waited for the blocked client."""

A_MOMENT_SECONDS = 0.1
"""A response time that a player does not notice."""

ALIKE = 1.2
LIMIT_MB = (0.9, 1.3)
"""What the paper's 1 MB may be, with the kernel's buffers."""

PLAYERS = 1000
"""In one of the paper's game servers."""


def _calls(helper: str, saved: Saved) -> Criterion:
    (row,) = saved.rows("slow-backend-polls", helper=helper)
    return Criterion("most calls at a time", number(row, "most concurrent calls"), most=THREADS)


def _served(helper: str, saved: Saved) -> Criterion:
    (row,) = saved.rows("slow-backend-polls", helper=helper)
    return Criterion("polls that the service answered, %", 100 * number(row, "200") / number(row, "polls"), 99)


def _others(helper: str, saved: Saved) -> tuple[Criterion, Criterion]:
    """How long clients that do not need the service wait, while it is busy: the paper's metric is the 100 longest."""
    (idle,), (busy,) = (saved.rows("slow-backend-delays", helper=helper, backend=state) for state in ("idle", "busy"))
    ratios = [number(busy, what) / number(idle, what) if what in busy else None for what in ("p99 ms", LONGEST)]
    names = (f"others' {what}, busy / idle" for what in ("p99", "100 longest"))
    p99, longest = (Criterion(name, ratio, most=ALIKE) for name, ratio in zip(names, ratios, strict=True))
    return p99, longest


def _delays(helper: str, saved: Saved) -> str:
    idle, busy = (
        number(saved.rows("slow-backend-delays", helper=helper, backend=state)[0], "p99 ms")
        for state in ("idle", "busy")
    )
    return f"others' p99 delay {shown(idle)} ms idle, {shown(busy)} ms busy"


def limited_service(saved: Saved) -> Found:
    calls, served = _calls(POOL, saved), _served(POOL, saved)
    without = Criterion("others' 100 longest delays without a limit, s", None, STALLED_SECONDS)
    text = f"at most {calls.value:.0f} calls at a time; {shown(float(served.value or 0))} % of the polls were answered"
    return Found(text, (calls, served, without))


def nobody_else_waits(saved: Saved) -> Found:
    (row,) = saved.rows("slow-backend-polls", helper=POOL)
    polls = number(row, "polls")
    text = f"{polls:,.0f} wait; {_delays(POOL, saved)}"
    waiting = Criterion("polls that wait", polls, POLLS / 2)
    return Found(text, (waiting, *_others(POOL, saved), _served(POOL, saved)))


def helper_process(saved: Saved) -> Found:
    calls = _calls(PROCESS, saved)
    text = f"at most {calls.value:.0f} calls at a time; {_delays(PROCESS, saved)}"
    return Found(text, (calls, *_others(PROCESS, saved), _served(PROCESS, saved)))


def service_requests(saved: Saved) -> Found:
    """The server asks the helper process with the service requestor."""
    return Found(_delays(PROCESS, saved), _others(PROCESS, saved))


def many_players(saved: Saved) -> Found:
    whole = [
        row["connections"]
        for row in saved.rows("threads-or-events", server="events")
        if number(row, "received %") >= 100
    ]
    most = max(whole, default=0)
    connections = Criterion("connections that receive everything", most, PLAYERS)
    game = Criterion(f"the game's traffic with {PLAYERS:,} players, 100 longest, s", None, most=A_MOMENT_SECONDS)
    return Found(f"{most:,} connections, 100 % received", (connections, game))


def size_of_the_log(saved: Saved) -> Found:
    rows = saved.rows("blocked-client")
    (sent,) = {number(row, "messages in") for row in rows}
    ratios = [number(row, "output buffer responses") / sent for row in rows]
    text = f"{shown(int(sent))} in, {span(ratios)} times as many out (the paper: {shown(PAPERS_FAN_OUT)})"
    worst = max(ratios, key=lambda ratio: abs(ratio - PAPERS_FAN_OUT))
    rules = [
        Criterion(f"{what}, ours / paper", ours / paper, 0.9, 1.1)
        for what, ours, paper in (("messages in", sent, PAPERS_MESSAGES), ("out for each", worst, PAPERS_FAN_OUT))
    ]
    return Found(text, tuple(rules))


def figure_14(saved: Saved) -> Found:
    rows = saved.rows("blocked-client-timeline", server="plain writes")
    peak = max(rows, key=lambda row: number(row, "longest response s"))
    at, seconds = number(peak, "since the block s"), number(peak, "longest response s")
    text = f"the longest, {shown(seconds)} s, is of a message sent {shown(at)} s after the block; then they fall to 0"
    last = number(rows[-1], "longest response s")
    rules = (
        Criterion("longest response, s", seconds, 1),
        Criterion("4 s after the block ends, s", last, most=STALLED_SECONDS),
    )
    return Found(text, rules)


def _plain(saved: Saved) -> list[tuple[float, float]]:
    return [(number(row, "T s"), number(row, "plain writes s")) for row in saved.rows("blocked-client")]


def figure_15_plain(saved: Saved) -> Found:
    stalled = [(blocked, seconds) for blocked, seconds in _plain(saved) if seconds > STALLED_SECONDS]
    if len(stalled) < 2:
        raise NotMeasured
    slope = linear_regression(*zip(*stalled, strict=True)).slope
    text = f"{shown(slope)} s for each second of T beyond the threshold"
    return Found(text, (Criterion("slope beyond the threshold", slope, 0.75, 1.25),))


def figure_15_buffered(saved: Saved) -> Found:
    seconds = [number(row, "output buffer s") for row in saved.rows("blocked-client")]
    return Found(f"{span(seconds)} s", (Criterion("greatest, s", max(seconds), most=A_MOMENT_SECONDS),))


def threshold(saved: Saved) -> Found:
    plain = _plain(saved)
    below = max((blocked for blocked, seconds in plain if seconds <= STALLED_SECONDS), default=0.0)
    above = min((blocked for blocked, seconds in plain if seconds > STALLED_SECONDS), default=None)
    if above is None:
        raise NotMeasured
    rules = (
        Criterion(f"longest T without a wait of {STALLED_SECONDS} s, s", below, PAPERS_THRESHOLD_SECONDS),
        Criterion("shortest T with one, s", above, most=PAPERS_THRESHOLD_SECONDS + 1),
    )
    return Found(f"between {shown(below)} and {shown(above)} s", rules)


def bytes_until_full(saved: Saved) -> Found:
    rows = saved.rows("blocked-client-threshold")
    sizes = [number(row, "KB until then") for row in rows]
    after = [number(row, "the others wait after s") for row in rows]
    rates = [number(row, "KB a second to C1") for row in rows]
    text = f"{span(sizes)} KB, with {span(rates)} KB a second after {span(after)} s"
    alike = Criterion("most / least", max(sizes) / min(sizes), most=1.5)
    return Found(text, (alike, close("mean KB", mean(sizes), PAPERS_BUFFER_KB)))


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
    early = sum(row["connection closed after MB"] != "-" for row in before)
    rules = (
        Criterion("closed after, MB", closed, *LIMIT_MB),
        Criterion("connections closed before", early, most=0),
        Criterion("runs that lost messages", sum(row["that C1 has"] != row["messages"] for row in rows), most=0),
    )
    return Found(text, rules)
