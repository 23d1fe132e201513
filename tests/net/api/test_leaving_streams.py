"""A stream may be left, and joined, at each of its ids: none of them claims more than it stands for."""

from __future__ import annotations

from random import Random

import pytest

from pushup.core.commands import Close, Command, Continue, Entry
from pushup.core.limits import Limits
from tests.core.builders import publish
from tests.net.event_reader import Event
from tests.net.in_memory_node import InMemoryNode, events_of

NAMES = ("a", "b", "c", "d")


def place(cursor: str) -> int:
    return int(cursor.rpartition("-")[2])


def stream(node: InMemoryNode, names: list[str], cursor: str) -> list[Event]:
    """All that a stream sends until it has nothing more to send."""
    query = "&".join(f"channel={name}" for name in names)
    exchange = node.begin("GET", f"/v1/events?{query}&cursor={cursor}")
    node.run()
    node.leave(exchange)
    return events_of(exchange)


def gaps_in(events: list[Event]) -> dict[str, str]:
    """Where the gap of each channel ends."""
    return {event.data["channel"]: event.data["until"] for event in events if event.event == "gap"}


def closings_in(events: list[Event]) -> set[str]:
    return {event.data["channel"] for event in events if event.event == "closed"}


def messages_in(events: list[Event]) -> list[tuple[str, list[str]]]:
    return [(event.id, event.data["channels"]) for event in events if event.data and not event.event]


def apply(node: InMemoryNode, command: Command) -> None:
    """The next entry, whatever the order is called now."""
    state = node.node.state
    node.node.apply(Entry(state.cursor.epoch, state.cursor.sequence + 1, state.time, command))


def command(random: Random, number: int) -> Command:
    """Publish, mostly; or close a channel, or let the order go on under another name."""
    kind = random.random()
    if kind < 0.8:
        return publish(*random.sample(NAMES, random.choice((1, 1, 2, 3))))
    return Close(random.choice(NAMES)) if kind < 0.95 else Continue(f"e{number}")


@pytest.mark.parametrize("seed", range(40))
def test_a_stream_may_be_left_and_joined_at_each_id(seed: int) -> None:
    """Whoever goes on from an id gets all messages behind it, what was closed, and each gap that ends behind it.

    So does whoever reads on in the stream that another client has opened, as tabs of a browser do.
    """
    random = Random(seed)
    node = InMemoryNode(limits=Limits(retention_messages=random.choice((1, 2, 4))))
    for number in range(random.randrange(5, 40)):
        apply(node, command(random, number))
    last, past = node.node.state.cursor, node.node.state.past_epochs
    for start in range(1, last.sequence):
        names = random.sample(NAMES, random.choice((1, 2, 3)))
        epoch = "other" if random.random() < 0.1 else past.at(start, last.epoch)
        events = stream(node, names, f"{epoch}-{start}")
        gaps, ids = gaps_in(events), [event.id for event in events if event.id]
        assert set(gaps.values()) <= set(ids)
        assert [place(id_) for id_ in ids] == sorted(place(id_) for id_ in ids)
        assert all(place(gaps.get(name, "-0")) < place(id_) for id_, named in messages_in(events) for name in named)
        for n, event in enumerate(events, 1):
            if event.id:
                before, after = events[:n], events[n:]
                again = stream(node, names, event.id)
                assert messages_in(again) == messages_in(after)
                assert closings_in(again) | closings_in(before) >= closings_in(events)
                still = {name: until for name, until in gaps.items() if place(until) > place(event.id)}
                assert gaps_in(again) == still
                assert set(gaps_in(before)) == set(gaps)
    node.check()


def test_a_gap_ends_at_an_id_of_its_own() -> None:
    """A message that one of its channels has dropped does not name that, and so does not end its gap."""
    node = InMemoryNode(limits=Limits(retention_messages=1))
    for names in (("b", "c"), ("c",), ("c",)):
        node.publish(*names)
    events = stream(node, ["b", "c"], "e-0")
    assert events[0] == Event("gap", "", {"channel": "c", "reason": "evicted", "until": "e-2"})
    told = [(event.id, event.data and event.data["channels"]) for event in events[1:]]
    assert told == [("e-1", ["b"]), ("e-2", None), ("e-3", ["c"]), ("e-3", None)]


def test_a_closing_is_told_before_the_messages_behind_it() -> None:
    """Otherwise a client that leaves the stream at one of them never learns of it."""
    node = InMemoryNode()
    for name in ("a", "b"):
        node.publish(name)
    node.call("DELETE", "/v1/channels/a")
    node.publish("b")
    events = stream(node, ["a", "b"], "e-1")
    assert [(event.event, event.id) for event in events] == [("closed", ""), ("", "e-2"), ("", "e-4"), ("", "e-4")]
