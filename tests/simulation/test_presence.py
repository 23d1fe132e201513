"""Members in the simulation: stories that went wrong once, and what the check notices."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.history.events import BrokenPromise
from tests.simulation.network import Network
from tests.simulation.presence import PROMPT_SECONDS, Tabs, Watcher
from tests.simulation.presence_plan import GRACE_SECONDS, HIDDEN_SECONDS
from tests.simulation.record import Record
from tests.simulation.simulation import simulate
from tests.simulation.steps import CLUSTER, Plan, Step
from tests.simulation.world import Process, World

SETUP = {**CLUSTER, "appendfsync": "none", "users": True, "presence": True}


def tab(
    at: float, number: int, subject: str, *channels: str, streams: bool = False, node: int | None = None,
    poll_seconds: float = 1.0,
) -> Step:  # fmt: skip
    return Step(at, "tab", {
        "number": number, "subject": subject, "channels": channels, "streams": streams, "direct": True, "pause": 0.1,
        "is_named": True, "node": node, "poll_seconds": poll_seconds,
    })  # fmt: skip


STORIES: dict[str, tuple[dict[str, Any], tuple[Step, ...]]] = {
    "who has closed the page is not claimed in a new epoch": (
        {},
        (
            tab(2.0, 0, "ann", "room:1", "room:2"),
            Step(4.0, "close_tab", {"number": 0, "says": True}),
            Step(17.0, "redis_restart", {"seconds": 0.0}),
        ),
    ),
    "a server that starts again asks about all of its members": (
        {"kind": "journal", "nodes": 1},
        (
            tab(2.0, 1, "ann", "room:1", "room:2"),
            tab(3.0, 2, "bob", "room:1", "room:2"),
            tab(4.0, 3, "cy", "room:1", "room:2"),
            Step(6.0, "kill", {"node": 0, "seconds": 0.0}),
            Step(6.0, "close_tab", {"number": 2, "says": False}),
        ),
    ),
    "tabs at both nodes, one of which is replaced": (
        {},
        (
            tab(2.0, 0, "ann", "room:1"),
            tab(2.5, 1, "ann", "room:1", streams=True),
            tab(3.0, 2, "bob", "room:1"),
            Step(10.0, "drain", {"node": 0, "seconds": 0.0}),
            Step(15.0, "close_tab", {"number": 0, "says": True}),
            Step(20.0, "drain", {"node": 1, "seconds": 1.0}),
        ),
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: str, log: list[str]) -> None:
    setup, steps = STORIES[story]
    result = simulate(Plan(story, {**SETUP, **setup}, steps))
    assert not result.broken
    assert result.reached["a list of members was compared with the messages"] > 10


@pytest.mark.parametrize(("says", "seconds"), [(False, 3.0), (False, 10.0), (True, 10.0)])
def test_redis_stands_still_while_a_question_waits(says: bool, seconds: float, log: list[str]) -> None:
    """One node asks about a user who follows at the other, whose answer comes late: the user does not leave."""
    steps = (
        tab(2.0, 0, "ann", "room:1", node=0),
        tab(3.0, 1, "ann", "room:1", node=1, poll_seconds=9.0),
        Step(9.0, "stand_still", {"after": 0.0, "seconds": seconds}),
        Step(10.0, "close_tab", {"number": 0, "says": says}),
    )
    for number in range(3):
        result = simulate(Plan(f"still {number}", SETUP, steps))
        assert result.reached["the order stood still after a question"]
        assert not result.broken


class Run:
    """A check without servers."""

    def __init__(self) -> None:
        self.world = World("presence")
        self.tabs = Tabs(self.world, Network(self.world), Record(self.world), [])
        self.tab = _Tab("ann", ("room:1",))
        self.process = Process(self.world, "n0")
        self.world.run(self.world.now + 10.0)

    def wait(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def answer(self, *, is_hidden: bool = False) -> None:
        """A tab was answered, at once."""
        self.tabs.answered(self.tab, self.world.now, "", self.process, is_hidden=is_hidden)

    def name(self, *subjects: str) -> None:
        """A server names these."""
        self.tabs.check_members("room:1", dict.fromkeys(subjects), self.world.now, "n0")


class _Tab:
    def __init__(self, subject: str, channels: tuple[str, ...]) -> None:
        self.subject = subject
        self.channels = channels
        self.is_open = True
        self.is_hidden = False
        self.held_since: float | None = None


def test_who_leaves_although_a_tab_was_answered() -> None:
    run = Run()
    run.answer()
    run.wait(GRACE_SECONDS - 1.5)
    with pytest.raises(BrokenPromise, match="nobody leaves who follows"):
        run.tabs.left(("room:1", "ann"))
    run.tabs.left(("room:1", "bob"))
    run.wait(1.0)
    run.tabs.left(("room:1", "ann"))
    run.answer(is_hidden=True)
    run.wait(HIDDEN_SECONDS - 1.5)
    with pytest.raises(BrokenPromise, match="nobody leaves who follows"):
        run.tabs.left(("room:1", "ann"))
    run.tabs.note_fault()
    run.tabs.left(("room:1", "ann"))


def test_who_leaves_although_a_server_holds_a_poll() -> None:
    run = Run()
    tab: Any = run.tab
    run.tabs.open(0, tab)
    for said in (False, True):
        if said:
            run.tabs.closes(_Tab("ann", ("room:1",)))  # another page of this user
        tab.held_since = run.world.now
        run.wait(0.2)
        run.tabs.left(("room:1", "ann"))  # the entry was on its way
        run.wait(1.0)
        with pytest.raises(BrokenPromise, match="nobody leaves who follows"):
            run.tabs.left(("room:1", "ann"))
        run.tabs.left(("room:2", "ann"))
    run.tabs.note_fault(stands_still=True)
    with pytest.raises(BrokenPromise, match="nobody leaves who follows"):
        run.tabs.left(("room:1", "ann"))
    run.wait(0.1)
    tab.held_since = run.world.now  # the order cannot tell whether that was before the entry
    run.wait(3.0)
    run.tabs.left(("room:1", "ann"))
    run.tabs.note_fault()
    tab.held_since = 0.0
    run.tabs.left(("room:1", "ann"))  # its server may be gone


def test_who_is_named_although_nobody_follows() -> None:
    run = Run()
    run.answer()
    run.wait(GRACE_SECONDS)
    run.name("ann")
    run.wait(HIDDEN_SECONDS)
    with pytest.raises(BrokenPromise, match="nobody stays who is gone"):
        run.name("ann")
    run.answer()
    run.tabs.closes(run.tab)
    run.tabs.closed(run.tab)
    run.wait(PROMPT_SECONDS - 1.0)
    run.name("ann")
    run.wait(2.0)
    with pytest.raises(BrokenPromise, match="who closes the last page leaves"):
        run.name("ann")


JOIN = {"count": 1, "joins": [{"subject": "ann", "since": 1.0, "data": None}]}


@pytest.mark.parametrize(
    ("messages", "promise"),
    [
        ([JOIN, JOIN], "who joins was not there"),
        ([{"count": 0, "leaves": ["ann"]}], "who leaves was there"),
        ([{"count": 0, "updates": JOIN["joins"]}], "who changes is there"),
        ([JOIN, {"count": 1, "updates": JOIN["joins"]}], "no data are no update"),
        ([{**JOIN, "count": 2}], "messages have the number of members"),
    ],
)
def test_messages_that_cannot_be(messages: list[Any], promise: str) -> None:
    run = Run()
    watcher = Watcher(run.tabs, "watcher", "room:1", ["n0"])
    *before, last = [{"id": f"e-{number}", "data": data} for number, data in enumerate(messages, 1)]
    for message in before:
        watcher.take(1, message)
    with pytest.raises(BrokenPromise, match=promise):
        watcher.take(2, last)


def test_a_list_that_differs_from_the_messages() -> None:
    run = Run()
    watcher = Watcher(run.tabs, "watcher", "room:1", ["n0"])
    watcher.cursor = "e-0"
    watcher.begin_at("e-0", {})
    watcher.take(3, {"id": "e-3", "data": JOIN})
    watcher.cursor = "e-5"
    watcher.compare("e-2", {})
    watcher.compare("e-7", {})  # it has not read so far
    watcher.compare("e-4", {"ann": (1.0, None)})
    with pytest.raises(BrokenPromise, match="lists and messages agree"):
        watcher.compare("e-4", {})
