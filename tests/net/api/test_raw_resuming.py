"""Raw streams against a model that is a list: from each id, whatever stream it came from, every selection goes on with
exactly the next message."""

from __future__ import annotations

import json
import re
from random import Random
from typing import NamedTuple

import pytest

from pushup.core.limits import Limits
from pushup.net.api.schemas import PollLimits
from tests.net.event_reader import Event, read_chunks, read_raw
from tests.net.in_memory_node import InMemoryNode, RecordingExchange

NAMES = ("a", "b", "c", "d")

EVENTS = ("", "", "chat", "datastar-patch-elements")

TEXTS = ("", "x", "<li>é</li>", "a\n b\r\nc\rd\n", "id: e-1\n\ndata: y", " ")


class Message(NamedTuple):
    channels: tuple[str, ...]
    event: str
    text: str


class Model:
    """All messages in their order; each channel keeps the last `kept` of its own."""

    def __init__(self, kept: int) -> None:
        self.messages: list[Message] = []
        self._kept = kept

    def event(self, number: int) -> Event:
        """What a page sees of this message."""
        message = self.messages[number - 1]
        return Event(message.event, f"e-{number}", re.sub("\r\n?", "\n", message.text))

    def after(self, number: int, names: tuple[str, ...]) -> tuple[list[Event], dict[str, str]]:
        """The messages behind a number that are still kept on one of the channels; and where the gap of each ends."""
        kept, gaps = set(), {}
        for name in names:
            own = [n for n, message in enumerate(self.messages, 1) if name in message.channels]
            kept.update(own[-self._kept :])
            dropped = [n for n in own[: -self._kept] if n > number]
            if dropped:
                gaps[name] = f"e-{dropped[-1]}"
        return [self.event(n) for n in sorted(kept) if n > number], gaps


class Reader(NamedTuple):
    """An open stream, and the messages that it must have got."""

    exchange: RecordingExchange
    names: tuple[str, ...]
    expected: list[Event]
    gaps: dict[str, str]

    def check(self) -> list[Event]:
        events = read_raw(read_chunks(self.exchange.written)[0])
        assert [event for event in events if event.event not in ("gap", "cursor")] == self.expected
        told = [json.loads(event.data) for event in events if event.event == "gap"]
        assert {gap["channel"]: gap["until"] for gap in told} == self.gaps
        assert {gap["until"] for gap in told} <= {event.id for event in events}
        return events


@pytest.mark.parametrize("seed", range(15))
def test_each_id_resumes_at_exactly_the_next_message(seed: int) -> None:
    """Also while messages are published and dropped. `cursor` counts only where there is no `Last-Event-ID`."""
    random = Random(seed)
    kept = random.choice((1, 3, 100))
    node = InMemoryNode(
        limits=Limits(retention_messages=kept), poll_limits=PollLimits(poll_limit=random.choice((1, 2, 100)))
    )
    model, ids = Model(kept), ["e-0"]
    readers: list[Reader] = []

    def open_stream(id_: str) -> Reader:
        names = tuple(random.sample(NAMES, random.choice((1, 2, 3))))
        query = "&".join((*(f"channel={name}" for name in names), "format=raw"))
        if random.random() < 0.5:
            exchange = node.begin("GET", f"/v1/events?{query}&cursor={random.choice(ids)}", Last_Event_ID=id_)
        else:
            exchange = node.begin("GET", f"/v1/events?{query}&cursor={id_}", Last_Event_ID="")
        node.run()
        return Reader(exchange, names, *model.after(int(id_.removeprefix("e-")), names))

    for _ in range(60):
        if random.random() < 0.6:
            names = random.sample(NAMES, random.choice((1, 1, 2, 3)))
            message = Message(tuple(names), random.choice(EVENTS), random.choice(TEXTS))
            body = {"channels": names, "event": message.event, "data": message.text}
            assert node.call("POST", "/v1/messages", body).status == 201
            node.run()
            model.messages.append(message)
            for reader in readers:
                if set(names) & set(reader.names):
                    reader.expected.append(model.event(len(model.messages)))
        elif random.random() < 0.6 or not readers:
            readers.append(open_stream(random.choice(ids)))
        else:
            ids += [event.id for event in readers.pop(random.randrange(len(readers))).check() if event.id]
    for reader in readers:
        ids += [event.id for event in reader.check() if event.id]
    for id_ in {*ids, *(f"e-{number}" for number in range(len(model.messages) + 1))}:
        open_stream(id_).check()
