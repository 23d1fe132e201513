"""The readings of Hsu & Wu."""

from __future__ import annotations

from statistics import linear_regression, mean

from loadtest.hsu.slow_backend import BLOCKING, LONGEST, POOL, PROCESS, THREADS
from loadtest.reports.readings.found import Criterion, Found, close, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Row, Saved, number

PAPERS_MESSAGES = 28_573
PAPERS_FAN_OUT = 142_570 / PAPERS_MESSAGES
PAPERS_THRESHOLD_SECONDS = 2.0
PAPERS_BUFFER_KB = 32
STALLED_SECONDS = 0.5
"""A response time from which on others have waited for the blocked client."""

A_MOMENT_SECONDS = 0.1
"""A response time that a player does not notice."""

THOUSANDS = 1000
LIMIT_MB = (0.9, 1.3)
"""What the paper's 1 MB may be, with the kernel's buffers."""

PLAYERS = 1000
"""In one of the paper's game servers."""


def _slow(saved: Saved, table: str, helper: str) -> list[Row]:
    """The rows of a helper in which polls need the backend, the shortest calls first."""
    rows = saved.rows(table, helper=helper)
    if "call s" not in rows[0]:  # results from before every poll was served
        raise NotMeasured
    return sorted((row for row in rows if row["call s"]), key=lambda row: number(row, "call s"))


def _calls(helper: str, saved: Saved) -> Criterion:
    most = max(number(row, "most concurrent calls") for row in _slow(saved, "slow-backend-polls", helper))
    return Criterion("most calls at a time", most, most=THREADS)


def _served(helper: str, saved: Saved) -> Criterion:
    rows = _slow(saved, "slow-backend-polls", helper)
    least = min(100 * number(row, "200") / number(row, "polls") for row in rows)
    return Criterion("polls that the service answered, %", least, 100)


def _longest(helper: str, saved: Saved) -> list[float]:
    """The paper's metric for clients that do not need the service, in seconds, by the time of a call."""
    return [number(row, LONGEST) / 1e3 for row in _slow(saved, "slow-backend-delays", helper)]


def _stay_low(helper: str, saved: Saved) -> Criterion:
    """The bound is that of Figure 15."""
    return Criterion("other clients' 100 longest waits, s", max(_longest(helper, saved)), most=A_MOMENT_SECONDS)


def _delays(helper: str, saved: Saved) -> str:
    return f"other clients' 100 longest waits {span(_longest(helper, saved))} s"


def blocking_calls(saved: Saved) -> Found:
    seconds, calls = _longest(BLOCKING, saved), _slow(saved, "slow-backend-delays", BLOCKING)
    rules = [Criterion("other clients' 100 longest waits, s", max(seconds), STALLED_SECONDS)]
    if len(calls) > 1:
        times = [number(row, "call s") for row in calls]
        slope = linear_regression(*zip(*zip(times, seconds, strict=True), strict=True)).slope
        rules.append(Criterion("their growth with each ms of a call, s", slope / 1e3, STALLED_SECONDS))
    text = f"{_delays(BLOCKING, saved)} with calls of {span(number(row, 'call s') for row in calls)} s"
    return Found(text, tuple(rules))


def real_services(saved: Saved) -> Found:
    """DNS, a database and LDAP. A handler that blocks is judged where they are farthest away."""
    rows = saved.rows("service-requests")
    farthest = max(number(row, "round trip ms") for row in rows)
    far = [row for row in rows if number(row, "round trip ms") == farthest]
    longest = f"others' {LONGEST}"
    blocked = [number(row, longest) / 1e3 for row in far if row["helper"] == BLOCKING]
    helped = [number(row, longest) / 1e3 for row in rows if row["helper"] != BLOCKING]
    right = min(100 * number(row, "answered rightly") / number(row, "polls") for row in rows)
    text = (
        f"{', '.join({row['service']: None for row in rows})}, a round trip of {shown(farthest)} ms away: "
        f"other clients' 100 longest waits {span(blocked)} s with a handler that blocks, else {span(helped)} s"
    )
    rules = (
        Criterion("other clients' 100 longest waits with a handler that blocks, s", min(blocked), STALLED_SECONDS),
        Criterion("with threads or a helper process, s", max(helped), most=A_MOMENT_SECONDS),
        Criterion("polls answered as the service says, %", right, 100),
        Criterion("most calls at a time", max(number(row, "most concurrent calls") for row in rows), most=THREADS),
    )
    return Found(text, rules)


def limited_service(saved: Saved) -> Found:
    calls, served = _calls(POOL, saved), _served(POOL, saved)
    text = f"at most {calls.value:.0f} calls at a time; {shown(float(served.value or 0))} % of the polls were answered"
    return Found(text, (calls, served))


def nobody_else_waits(saved: Saved) -> Found:
    polls = min(number(row, "polls") for row in _slow(saved, "slow-backend-polls", POOL))
    waiting = Criterion("polls that wait", polls, THOUSANDS)
    text = f"{polls:,.0f} polls wait; {_delays(POOL, saved)}"
    return Found(text, (waiting, _stay_low(POOL, saved), _served(POOL, saved)))


def helper_process(saved: Saved) -> Found:
    calls = _calls(PROCESS, saved)
    text = f"at most {calls.value:.0f} calls at a time; {_delays(PROCESS, saved)}"
    return Found(text, (calls, _stay_low(PROCESS, saved), _served(PROCESS, saved)))


def service_requests(saved: Saved) -> Found:
    """The server asks the helper process with the service requestor."""
    text = f"{_delays(PROCESS, saved)}; {span(_longest(BLOCKING, saved))} s with a handler that blocks"
    blocked = Criterion("with a handler that blocks, s", max(_longest(BLOCKING, saved)), STALLED_SECONDS)
    return Found(text, (_stay_low(PROCESS, saved), blocked))


def many_players(saved: Saved) -> Found:
    whole = [
        row["connections"]
        for row in saved.rows("threads-or-events", server="events")
        if number(row, "received %") >= 100
    ]
    most = max(whole, default=0)
    connections = Criterion("connections that receive everything", most, PLAYERS)
    try:
        rows = saved.rows("recorded-game", server="output buffer")
    except NotMeasured:
        worst = received = None
        text = f"{most:,} connections, 100 % received"
    else:
        worst, received = (
            max(number(row, "100 longest s") for row in rows),
            min(number(row, "received %") for row in rows),
        )
        everything = f"{rows[0]['players']:,} players get {shown(received)} % of their messages"
        text = f"{everything}, 100 longest waits {shown(worst)} s"
    game = f"a recorded game with {PLAYERS:,} players"
    rules = (
        Criterion(f"{game}, received %", received, 100),
        Criterion(f"{game}, 100 longest waits, s", worst, most=A_MOMENT_SECONDS),
    )
    return Found(text, (connections, *rules))


def replayed_game(saved: Saved) -> Found:
    """C1's link is blocked as long as it was in the longest replay."""
    rows = saved.rows("recorded-game")
    blocked = max(number(row, "T s") for row in rows)
    by = {row["server"]: number(row, "100 longest s") for row in rows if number(row, "T s") == blocked}
    buffered, plain = by["output buffer"], by["plain writes"]
    waits = f"100 longest waits {shown(buffered)} s with the output buffer, {shown(plain)} s without"
    rules = (
        Criterion("with the output buffer, s", buffered, most=A_MOMENT_SECONDS),
        Criterion("without, s", plain, STALLED_SECONDS),
    )
    return Found(f"{waits}; T = {shown(blocked)} s", rules)


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
