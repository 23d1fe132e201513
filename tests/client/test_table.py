"""`follow` keeps the table of pushup.js, in docs/internals/browser-client.md: each state with each event.

Cells have causes: what a node does, or the program. The test watches the follower's connections and its clock. Without
real time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any

import pytest

from pushup.client import AsyncClient, ClientError, attempts, following
from pushup.client.driver import run
from tests.client.simulated_driver import (
    CLOSES,
    DRIPS,
    HANGS,
    MUTE,
    NOT_HTTP,
    RESET,
    Reply,
    Sent,
    SimulatedDriver,
    answer,
    ended,
    event,
    polled,
    stream,
)

ROOT = Path(__file__).parents[2]

NO_PAGE = "a program is neither hidden nor frozen, and no browser tells it of the network"
NOBODY = "nobody is asked: a refusal is raised, and what follows is what follows when the application denies"
OTHER_STATES = {"asleep": NO_PAGE, "asking": NOBODY}
OTHER_EVENTS = dict.fromkeys(["sleep", "wake", "nudge", "offline"], NO_PAGE) | dict.fromkeys(["allow", "deny"], NOBODY)

CLOSED = ("idle", "waiting", "stopped")
NEVER = {
    **dict.fromkeys(
        product(CLOSED, ["begin", "end", "mute", "fail", "refuse"]),
        "nothing is open that could begin or end, as `test_cell` checks whenever it comes into such a state",
    ),
    **dict.fromkeys(product(["idle", "opening", "live", "stopped"], ["due"]), "there is no pause"),
    ("waiting", "want"): "the channels stay the same, and without a request no token ends",
}


def section(heading: str) -> str:
    text = (ROOT / "docs/internals/browser-client.md").read_text()
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(head: str) -> Iterator[list[str]]:
    """The cells of each row of the table with this head."""
    for line in section("The connection").split(f"\n{head}\n")[1].split("\n")[1:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


STATES = [name for row in rows("| state | meaning | shown as |") for name in names(row[0])]
EVENTS = [name for row in rows("| event | meaning |") for name in names(row[0])]
TABLE = {
    (state, event): (state if row[2] == "same" else names(row[2])[0], row[3].split(", ") if row[3] else [])
    for row in rows("| state | event | next | actions | why |")
    for state in names(row[0])
    for event in names(row[1])
}

LINE = {"id": "e-1"}
TICKET = stream({"event": "ticket", "data": {"ticket": "t"}}, event(1), 5.0)
TOKEN_ENDED = answer(401, {"type": "urn:pushup:token-expired"})
FAILURES = [CLOSES, RESET, NOT_HTTP, *[answer(status) for status in (408, 429, 500, 502, 503, 504, 520)]]
REFUSALS = [answer(status) for status in (307, 400, 403, 410, 413)]
"""And 401, if the token was not accepted before."""


def cut(*events: dict[str, object] | float, error: bool = False) -> Reply:
    """A stream that breaks after these events: it is reset, or closed without its end."""
    whole = stream(*events, LINE, closes=False)
    after = whole.pieces[-1][0]
    return Reply([*whole.pieces[:-1], (after, ConnectionResetError("reset") if error else b"")], closes=True)


CAUSES: dict[tuple[str, str, str], list[list[Reply]]] = {
    # By a stream. The last reply of each list is the cause; before a live one ends, it has begun.
    ("stream", "idle", "want"): [[]],
    ("stream", "idle", "done"): [[]],
    ("stream", "opening", "want"): [[stream(ended("token-expired"))]],
    ("stream", "opening", "done"): [[HANGS], [MUTE]],
    ("stream", "opening", "begin"): [[stream(event(1))], [stream(LINE, 1.0, event(1))]],
    ("stream", "opening", "end"): [[stream(ended("revoked"))], [TICKET, stream(ended("ticket-expired"))]],
    ("stream", "opening", "mute"): [
        *[[reply] for reply in (HANGS, MUTE, DRIPS, *[answer(status) for status in (404, 405, 406, 501)])],
        [RESET, CLOSES, RESET],
        [stream(event(1)), answer(503), cut(), RESET],
    ],
    ("stream", "opening", "fail"): [
        *[[reply] for reply in (*FAILURES, stream(), cut(), cut(error=True), stream(ended("overloaded", 503)))],
        [RESET, RESET, TICKET, RESET],
    ],
    ("stream", "opening", "refuse"): [
        *[[reply] for reply in (*REFUSALS, answer(401), answer(404, {"type": "urn:pushup:unknown-channel"}))],
        [stream(ended("forbidden", 403))],
        [stream(ended("ticket-expired"))],  # although none was given
    ],
    ("stream", "live", "want"): [[stream(event(1), ended("token-expired"))]],
    ("stream", "live", "done"): [[stream(event(1), closes=False)]],
    ("stream", "live", "begin"): [[stream(event(1), LINE, event(2))], [stream(event(1), 14.0, LINE, 14.0, event(2))]],
    ("stream", "live", "end"): [
        *[[reply] for reply in (stream(event(1), 5.0), cut(event(1), 5.0), cut(event(1), 5.0, error=True))],
        [stream(event(1), ended("revoked"))],
        [TICKET, stream(event(2), ended("ticket-expired"))],
    ],
    ("stream", "live", "mute"): [
        [stream(event(1), closes=False)],
        [stream(event(1), 4.9, LINE, closes=False)],
        [RESET, stream(event(1), 4.9), cut(event(1), 1.0, error=True)],
    ],
    ("stream", "live", "fail"): [
        *[[reply] for reply in (stream(event(1), 4.9), cut(event(1), 4.9), cut(event(1), 4.9, error=True))],
        [stream(event(1), 5.0, LINE, closes=False)],
        [stream(event(1), 9.0, ended("overloaded", 503))],
    ],
    ("stream", "live", "refuse"): [[stream(event(1), ended("forbidden", 403))]],
    ("stream", "waiting", "due"): [[answer(503)], [stream(event(1), 5.0)]],
    ("stream", "waiting", "done"): [[answer(503)], [stream(event(1), 5.0)]],
    ("stream", "stopped", "want"): [[answer(403)]],
    ("stream", "stopped", "done"): [[answer(403)]],
    # By polls. Streams only are mute; a 401 that a token or ticket explains is answered within the request.
    ("poll", "opening", "want"): [[polled("e-1", 1), answer(503), TOKEN_ENDED]],
    ("poll", "opening", "done"): [[HANGS]],
    ("poll", "opening", "begin"): [[polled("e-1", 1)]],
    ("poll", "opening", "fail"): [
        *[[reply] for reply in (*FAILURES, answer(501), HANGS, DRIPS, polled("e-0", 1), polled("e-0", more=True))],
        [polled("e-1", 1, more=True), RESET],
    ],
    ("poll", "opening", "refuse"): [[reply] for reply in (*REFUSALS, answer(401), answer(404))],
    ("poll", "live", "done"): [[polled("e-1", 1), HANGS]],
    ("poll", "live", "begin"): [[polled("e-1", 1), polled("e-2", 2)]],
    ("poll", "live", "end"): [[polled("e-1", 1), Reply([(5.0, ConnectionResetError("reset"))])]],
    ("poll", "live", "fail"): [
        *[[polled("e-1", 1), reply] for reply in (*FAILURES, HANGS, polled("e-1", 2), polled("e-1", more=True))],
        [polled("e-1"), *[polled("e-1")] * 3],
        [polled("e-1"), *[polled("e-1")] * 2, polled("e-2", 2), *[polled("e-2")] * 3],
        [polled("e-1"), *[polled("e-1")] * 2, answer(503), polled("e-1"), *[polled("e-1")] * 3],
    ],
    ("poll", "live", "refuse"): [[polled("e-1", 1), reply] for reply in REFUSALS],
}
CASES = [(*cell, replies) for cell, causes in CAUSES.items() for replies in causes]


def test_each_cell_is_there() -> None:
    """Each state with each event has a cause, or a reason not to be."""
    assert set(TABLE) == set(product(STATES, EVENTS))
    others = [(state, event) for state, event in TABLE if state in OTHER_STATES or event in OTHER_EVENTS]
    driven = {(state, event) for _, state, event in CAUSES}
    assert sorted([*others, *NEVER, *driven]) == sorted(TABLE)
    assert all(TABLE[cell] == (cell[0], []) for cell in NEVER)


def expected(state: str, event: str) -> tuple[str, list[str]]:
    """The next state, and the actions that can be seen."""
    after, actions = TABLE[state, event]
    if after == "asking":
        after, denied = TABLE[after, "deny"]
        actions = [*actions, *denied]
    if actions == ["wait"]:
        actions = ["close", "wait"]  # what has ended is closed, too
    return after, [action for action in actions if action != "ask" and not (action == "close" and state in CLOSED)]


class Noting(SimulatedDriver):
    """Notes what the client does: it sends a request, closes a connection, or pauses."""

    def __init__(self, note: Callable[[str], None], replies: list[Reply]) -> None:
        def noted(reply: Reply) -> Reply:
            def decide(sent: Sent) -> Reply:
                note(sent.target)
                return reply

            return Reply(decide=decide)

        super().__init__(a=chain(map(noted, replies), repeat(noted(HANGS))))
        self._note = note

        class Open(set[int]):
            def discard(self, number: object) -> None:
                if number in self:
                    note("close")
                super().discard(number)

        self.open = Open()

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self._note("wait")
        await super().sleep(seconds)


def closing(reply: Reply) -> Reply:
    """The same response; but then the server closes the connection, and so must the client."""
    head = b"Reason\r\n"
    pieces = [
        (after, piece if isinstance(piece, OSError) else piece.replace(head, head + b"Connection: close\r\n"))
        for after, piece in reply.pieces
    ]
    return Reply(pieces, reply.closes)


def what_happens(
    transport: following.Transport, state: str, event: str, replies: list[Reply], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[str]]:
    """Bring a follower into the state, and watch it until the event is over: the next state, and the actions."""
    actions: list[str] = []
    found: list[tuple[str, list[str]]] = []
    begun = False

    def note(what: str) -> None:
        if what == "/v1/poll" and transport == "stream":
            actions.append("poll")
        actions.append("open" if what.startswith("/") else what)

    def look() -> None:
        nonlocal begun
        assert follower.state not in CLOSED or not driver.open
        if begun and not found and {"open", "wait"} & set(actions):
            found.append((follower.state, [*actions]))
            driver.stop()
        if not begun and follower.state == state and len(driver.sent) == len(replies):
            begun = True
            actions.clear()
            if event == "done":
                driver.stop()

    failed = attempts.Attempts.failed

    def count(*given: Any) -> None:
        actions.append("count")
        failed(*given)

    monkeypatch.setattr(attempts.Attempts, "failed", count)
    driver = Noting(note, replies if event == "begin" else [closing(reply) for reply in replies])
    driver.on_wait = look
    client = AsyncClient("unix:a", token=lambda: "token", driver=driver)
    follower = client.follower(["a"], "e-0", transport, None)
    try:
        if state == "stopped":
            with pytest.raises(ClientError):
                run(follower.next())
        if state in ("idle", "stopped"):
            assert follower.state == state
            begun = True
            actions.clear()
            if event == "done":
                follower.close()
                return follower.state, actions
        while run(follower.next()) is not None and not begun:
            pass
    except ClientError:
        actions.append("tell")
    look()
    assert begun
    return found[0] if found else (follower.state, actions)


@pytest.mark.parametrize(
    ("transport", "state", "event", "replies"), CASES, ids=[f"{'-'.join(case[:3])}-{n}" for n, case in enumerate(CASES)]
)
def test_cell(
    transport: following.Transport, state: str, event: str, replies: list[Reply], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert what_happens(transport, state, event, replies, monkeypatch) == expected(state, event)


@pytest.mark.parametrize("failures", range(8))
def test_pauses(failures: int) -> None:
    """At the longest, as the table says; with `Retry-After` before that. They double from the second failure on."""
    driver = SimulatedDriver(a=[answer(503)] * failures + [answer(503, Retry_After="40"), TICKET, stream(event(1))])
    follower = AsyncClient("unix:a", driver=driver).follower(["a"], "", "stream", None)
    for _ in range(2):
        run(follower.next())
    pauses = [min(30.0, 0.3 * 2**number) for number in range(failures + 1)]
    assert driver.slept == pytest.approx([*pauses[:-1], 40.0 + pauses[-1], 0.3])


def test_times() -> None:
    """They are those of pushup.js."""
    source = (ROOT / "pushup/browser/pushup.js").read_text()
    constants = re.findall(r"^const ([A-Z_]+) = ([\d_* \[\],]+);", source, re.MULTILINE)
    times = {name: eval(value) for name, value in constants}
    assert [times[name] / 1000 for name in ("FIRST_BYTE", "SILENCE", "LASTING", "POLL_FOR", "HOLD")] == [
        following.FIRST_SECONDS,
        following.SILENCE_SECONDS,
        following.LASTING_SECONDS,
        following.POLLS_SECONDS,
        following.HOLD_SECONDS,
    ]
    assert [time / 1000 for time in times["BACKOFF"]] == list(attempts.RETRY_SECONDS)


def test_a_token_that_was_revoked_ends_the_failures() -> None:
    """As a connection that lasted does."""
    driver = SimulatedDriver(a=[answer(503), answer(503), stream(event(1), ended("revoked")), answer(503), TICKET])
    follower = AsyncClient("unix:a", token=lambda: "token", driver=driver).follower(["a"], "", "stream", None)
    for _ in range(2):
        run(follower.next())
    assert driver.slept == pytest.approx([0.3, 0.6, 2.3, 0.3])
