"""`follow` of both clients: streams, polls instead of them, tokens, tickets, stops; without real time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from pushup.client import AsyncClient, Client, ClientError, Item, Message
from pushup.client.driver import run
from tests.client.both_clients import KINDS, MakeClient, making
from tests.client.simulated_driver import (
    CLOSES,
    DRIPS,
    HANGS,
    HUGE,
    MUTE,
    NOT_HTTP,
    REFUSED,
    RESET,
    Reply,
    Sent,
    SimulatedDriver,
    answer,
    ended,
    event,
    message,
    polled,
    stream,
)

FAULTS = [REFUSED, CLOSES, RESET, NOT_HTTP, answer(503), answer(429), answer(500), answer(408), answer(502)]


def held(cursor: str) -> Reply:
    """A poll that is answered with nothing, after a while."""
    return Reply([(25.0, polled(cursor).pieces[0][1])])


def breaks(*events: dict[str, Any]) -> Reply:
    """A stream that is reset after these events."""
    return Reply([*stream(*events, closes=False).pieces, (0.0, ConnectionResetError("reset"))])


def data_of(items: Iterator[Item]) -> list[Any]:
    return [item.data for item in items if isinstance(item, Message)]


def calls(driver: SimulatedDriver) -> list[tuple[str, str]]:
    """What was asked, and from which cursor."""
    return [(sent.target.rpartition("/")[2], sent.body.get("cursor", "")) for sent in driver.sent]


def test_what_a_stream_says(make: MakeClient) -> None:
    """Messages, gaps and closings, each with the last cursor that the stream gave; nothing of other events."""
    gap = {"channel": "a", "reason": "evicted", "until": "e-2"}
    driver = SimulatedDriver(
        a=[
            stream(
                {"retry": 1000},
                {"id": "e-1"},
                {"event": "gap", "data": gap},
                event(3),
                {"event": "new", "id": "new", "data": {}},
                {"event": "closed", "data": {"channel": "a"}},
                {"id": "e-4"},
                14.0,
                {"id": "e-5"},
                event(6) | {"data": message(6) | {"event": "x", "ephemeral": True, "later": 1}},
            )
        ]
    )
    items = list(islice(make("unix:a", driver=driver).follow("a"), 4))
    assert [(type(item).__name__, item.cursor) for item in items] == [
        ("Gap", "e-1"), ("Message", "e-3"), ("Closed", "e-3"), ("Message", "e-6"),
    ]  # fmt: skip
    last = items[-1]
    assert isinstance(last, Message)
    assert (last.data, last.event, last.ephemeral) == (6, "x", True)
    assert driver.sent[0].headers["accept"] == "application/x-ndjson"


UNREAD = {"event": "unread", "data": {}}


def said(driver: SimulatedDriver) -> list[tuple[str, float]]:
    """The polls that only say what the program has: from which cursor, and when."""
    return [(sent.body["cursor"], sent.at - 1000.0) for sent in driver.sent if sent.body.get("limit") == 1]


def test_a_stream_asks_what_the_program_has(make: MakeClient) -> None:
    """It is told by a poll that does not wait, with the last cursor; once a second at most, while the stream goes on.

    An answer that is an error, or none, changes nothing.
    """
    first = stream(event(1), UNREAD, 0.2, event(2), UNREAD, 0.1, event(3), UNREAD, 2.0, event(4), UNREAD, event(5))
    driver = SimulatedDriver(a=[first, polled("e-1", 7), answer(503), HANGS])
    client = make("unix:a", driver=driver, token="t")
    assert data_of(islice(client.follow("a", "e-0", on_trouble=never), 5)) == [1, 2, 3, 4, 5]
    assert [(cursor, round(at, 3)) for cursor, at in said(driver)] == [("e-1", 0.0), ("e-3", 1.0), ("e-4", 2.3)]
    _, poll, *_ = driver.sent
    assert poll.body == {"channels": ["a"], "cursor": "e-1", "timeout": 0.0, "limit": 1}
    assert poll.headers["authorization"] == "Bearer t"


def test_what_the_program_works_on_is_not_said(make: MakeClient) -> None:
    """It has a message when it asks for the next one; after a stream is opened again, nothing is left to say."""
    again = stream(event(3), 2.0, event(4), closes=False)
    driver = SimulatedDriver(a=[stream(event(1), UNREAD, event(2), UNREAD), polled("e-1"), again])
    items = make("unix:a", driver=driver).follow("a", "e-0")
    assert data_of(islice(items, 1)) == [1]
    assert said(driver) == []
    assert data_of(islice(items, 3)) == [2, 3, 4]
    assert [cursor for cursor, _ in said(driver)] == ["e-1"]


def never(error: ClientError, pause: float) -> None:
    raise AssertionError(error)


def test_what_polls_say(make: MakeClient) -> None:
    """Gaps and closings come first. Only the last item of an answer has its cursor."""
    gap = {"channel": "a", "reason": "lost", "until": "e-2"}
    driver = SimulatedDriver(
        a=[polled("e-4", 3, 4, gaps=[gap], closed=["b"], more=True), polled("e-5"), polled("e-6", 6)]
    )
    items = list(islice(make("unix:a", driver=driver).follow(["a", "b"], "e-0", transport="poll"), 5))
    assert [(type(item).__name__, item.cursor) for item in items] == [
        ("Gap", "e-0"), ("Closed", "e-0"), ("Message", "e-0"), ("Message", "e-4"), ("Message", "e-6"),
    ]  # fmt: skip
    assert calls(driver) == [("poll", "e-0"), ("poll", "e-4"), ("poll", "e-5")]
    assert [sent.body["timeout"] for sent in driver.sent] == [0.0, 0.0, 25.0]  # held once nothing is left


@pytest.mark.parametrize("transport", ["stream", "poll"])
@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_troubles(make: MakeClient, transport: Any, fault: Reply) -> None:
    """Each is told, with the pause, which grows until a connection has lasted, and begins anew. The cursor stays.

    If a poll cannot be sent, the one before has ended: on a connection that is opened again, or as a good one ends.
    """
    works = [stream(event(1), 5.0, {"id": "e-1"})] if transport == "stream" else [polled("e-1", 1), held("e-1")]
    again = stream(event(2)) if transport == "stream" else polled("e-2", 2)
    faults = [fault, fault] if transport == "stream" else [fault, fault, fault]
    driver = SimulatedDriver(a=[fault, fault, *works, *faults, again])
    troubles: list[float] = []
    client = make("unix:a", driver=driver, retry_seconds=(1.0, 30.0))
    items = client.follow("a", "e-0", transport=transport, on_trouble=lambda error, pause: troubles.append(pause))
    assert data_of(islice(items, 2)) == [1, 2]
    begun_anew = [[1.0, 2.0]] if transport == "stream" else [[1.0, 2.0, 4.0], [1.0]]
    assert troubles[:2] == [1.0, 2.0]
    assert troubles[2:] in begun_anew
    assert {cursor for _, cursor in calls(driver)} == {"e-0", "e-1"}


@pytest.mark.parametrize("mute", [HANGS, MUTE, DRIPS])
def test_polls_where_streams_are_held_back(make: MakeClient, mute: Reply) -> None:
    """The node answers a poll, so something on the way holds the stream back. It is tried again after half an hour."""
    driver = SimulatedDriver(a=[mute, polled("e-1"), polled("e-2", 2), polled("e-3", 3), stream(event(4))])
    items = make("unix:a", driver=driver, timeout=5.0).follow("a", "e-0", on_trouble=never)
    assert data_of(islice(items, 1)) == [2]
    assert [(sent.at, sent.body.get("timeout")) for sent in driver.sent] == [
        (1000.0, None), (1002.5, 0.0), (1002.5, 25.0),
    ]  # fmt: skip
    assert data_of(islice(items, 1)) == [3]
    driver.time += 1800.0
    assert data_of(islice(items, 1)) == [4]
    assert calls(driver)[3:] == [("poll", "e-2"), ("events", "e-3")]
    assert driver.slept == []


def test_polls_where_streams_are_cut(make: MakeClient) -> None:
    """Three in a row that end, or break, after less than 5 s. A longer one is no reason; nor is one that is refused, or
    no connection."""
    cut, broken, longer = stream(event(1), 1.0), breaks(event(1)), stream(event(1), 9.0)
    script = [cut, cut, longer, REFUSED, REFUSED, REFUSED, cut, answer(503), broken, cut, polled("e-9", 9)]
    driver = SimulatedDriver(a=script)
    troubles: list[float] = []
    items = make("unix:a", driver=driver).follow("a", on_trouble=lambda error, pause: troubles.append(pause))
    assert data_of(islice(items, 7)) == [1] * 6 + [9]
    assert calls(driver)[-2:] == [("events", "e-1"), ("poll", "e-1")]
    assert troubles == pytest.approx([0.3, 0.6, 0.3, 0.6, 1.2, 2.4, 4.8, 9.6])


@pytest.mark.parametrize("end", [stream(event(1)), breaks(event(1)), stream(event(1), ended("overloaded", 503))])
def test_streams_that_break_early_make_pauses_grow(make: MakeClient, end: Reply) -> None:
    """Also if each has sent something, and polls do not come through either."""
    driver = SimulatedDriver(
        a=itertools.repeat(Reply(decide=lambda sent: end if sent.target == "/v1/events" else RESET))
    )
    troubles: list[float] = []
    items = make("unix:a", driver=driver).follow("a", on_trouble=lambda error, pause: troubles.append(pause))
    list(islice(items, 40))
    assert troubles[:4] == pytest.approx([0.3, 0.6, 1.2, 2.4])
    assert min(troubles[8:]) == 30.0


def test_a_node_that_hangs(make: MakeClient) -> None:
    """The next one is tried after the client's timeout. A poll may be held for 25 s before that."""
    driver = SimulatedDriver(a=[HANGS, HANGS], b=[stream(event(1))])
    assert data_of(islice(make(["unix:a", "unix:b"], driver=driver, timeout=5.0).follow("a"), 1)) == [1]
    assert [(sent.node, sent.at) for sent in driver.sent] == [("a", 1000.0), ("a", 1002.5), ("b", 1005.0)]
    driver = SimulatedDriver(a=[polled("e-0"), HANGS, polled("e-1", 1)], b=[HANGS])
    client = make(["unix:a", "unix:b"], driver=driver, timeout=5.0)
    assert data_of(islice(client.follow("a", transport="poll"), 1)) == [1]
    assert [(sent.node, sent.at) for sent in driver.sent] == [
        ("a", 1000.0), ("a", 1000.0), ("b", 1030.0), ("a", 1035.3),
    ]  # fmt: skip


def test_a_stream_that_is_silent_is_dead(make: MakeClient) -> None:
    """After 30 s. One with heartbeats is not."""
    driver = SimulatedDriver(
        a=[stream(event(1), 29.0, {"id": "e-2"}, 29.0, event(3), 31.0, event(4)), stream(event(5))]
    )
    troubles: list[str] = []
    items = make("unix:a", driver=driver).follow("a", on_trouble=lambda error, pause: troubles.append(str(error)))
    assert data_of(islice(items, 3)) == [1, 3, 5]
    assert troubles == ["no response in time from the server at unix:a"]
    assert calls(driver)[1] == ("events", "e-3")


@pytest.mark.parametrize(
    "useless", [polled("e-0"), polled("e-0", 1), polled("e-0", more=True), polled("e-0", closed=["a"])]
)
def test_a_server_that_answers_polls_in_a_loop(make: MakeClient, useless: Reply) -> None:
    """It does not hold them, or sends the same again: it fails, also when it had worked for a while. What it sends is
    not yielded again and again."""
    driver = SimulatedDriver(a=[polled("e-0"), held("e-0"), *[useless] * 40, polled("e-1", 1)])
    troubles: list[float] = []
    client = make("unix:a", driver=driver)
    items = client.follow("a", "e-0", transport="poll", on_trouble=lambda error, pause: troubles.append(pause))
    assert len(list(islice(items, 1))) == 1
    assert troubles[:3] == pytest.approx([0.3, 0.6, 1.2])
    assert len(troubles) >= 10
    assert driver.slept == troubles


@pytest.mark.parametrize("line", [b"{", b"[]", b"7", b'{"event": "gap"}', b'{"data": {}}', b"[" * 100_000])
def test_a_stream_that_makes_no_sense(make: MakeClient, line: bytes) -> None:
    """It is an error, and no crash."""
    driver = SimulatedDriver(a=[Reply([(0.0, b"HTTP/1.1 200 OK\r\n\r\n" + line + b"\n")])])
    with pytest.raises(ClientError, match="not one of PushUp"):
        next(make("unix:a", driver=driver).follow("a"))
    assert driver.open == set()


def test_a_line_without_end(make: MakeClient) -> None:
    """Is not read to its end."""
    with pytest.raises(ClientError, match="larger"):
        next(make("unix:a", driver=SimulatedDriver(a=[HUGE])).follow("a"))


def test_a_stream_whose_token_ends(make: MakeClient) -> None:
    """It is opened again with a new one: at once if the token had ended, and once after 2 s if it was revoked."""
    driver = SimulatedDriver(
        a=[
            stream({"event": "expiry", "data": {"expires_in": 60.0}}, event(1), ended("token-expired")),
            stream(event(2), ended("revoked")),
            stream(event(3), 5.0, {"id": "e-3"}),
            stream(ended("revoked")),
            answer(401, {"type": "urn:pushup:revoked"}),
        ]
    )
    numbers = iter(range(1, 9))
    items = make("unix:a", token=lambda: f"t{next(numbers)}", driver=driver).follow("a", on_trouble=never)
    assert data_of(islice(items, 3)) == [1, 2, 3]
    with pytest.raises(ClientError) as caught:
        next(items)
    assert caught.value.type == "urn:pushup:revoked"
    assert [sent.headers["authorization"] for sent in driver.sent] == [
        "Bearer t1", "Bearer t2", "Bearer t3", "Bearer t3", "Bearer t4",
    ]  # fmt: skip
    assert driver.slept == [2.3, 0.3, 2.3]


def test_a_stream_with_tickets(make: MakeClient) -> None:
    """The last one is sent, also with polls, and not after it has expired."""
    driver = SimulatedDriver(
        a=[
            stream({"event": "ticket", "data": {"ticket": "one"}}, event(1), 5.0, {"id": "e-1"}),
            stream(event(2), ended("ticket-expired")),
            stream({"event": "ticket", "data": {"ticket": "two"}}, event(3)),
            polled("e-3"),
        ]
    )
    client = make("unix:a", driver=driver)
    assert data_of(islice(client.follow(["a", "b"], on_trouble=never), 3)) == [1, 2, 3]
    client.poll(["b", "a"])
    assert [sent.headers.get("pushup-ticket") for sent in driver.sent] == [None, "one", None, "two"]


def test_two_streams_with_one_ticket(make: MakeClient) -> None:
    """Each is opened again when it ends, whichever comes first."""
    expired = ended("ticket-expired")
    ticket = {"event": "ticket", "data": {"ticket": "one"}}
    driver = SimulatedDriver(
        a=[stream(ticket, event(1), expired), stream(event(2), expired), stream(event(3)), stream(event(4))]
    )
    client = make("unix:a", driver=driver)
    one, two = client.follow("a", on_trouble=never), client.follow("a", on_trouble=never)
    assert data_of(item for each in (one, two, one, two) for item in islice(each, 1)) == [1, 2, 3, 4]
    assert [sent.headers.get("pushup-ticket") for sent in driver.sent] == [None, "one", None, None]


@pytest.mark.parametrize("transport", ["stream", "poll"])
@pytest.mark.parametrize(
    "reply", [HANGS, MUTE, REFUSED, answer(503), stream(event(1), closes=False), DRIPS], ids=range(6)
)
@pytest.mark.parametrize("waits", [0, 1, 2, 3])
def test_a_stop(make: MakeClient, transport: Any, reply: Reply, waits: int) -> None:
    """In the midst of any wait: the iterator ends without an error, and the connections are closed."""
    driver = SimulatedDriver(a=[reply] * 3)
    client = make("unix:a", driver=driver)
    count = iter(range(100))
    driver.on_wait = lambda: client.stop() if next(count) >= waits else None
    with suppress(ClientError):  # a stream is no answer to a poll
        list(client.follow("a", transport=transport))
    client.close()
    assert driver.open == set()


@pytest.mark.parametrize("transport", ["stream", "poll"])
def test_a_stop_while_the_program_works(make: MakeClient, transport: Any) -> None:
    """Nothing more is yielded, also of what has come already."""
    at_once = b"".join(piece for _, piece in stream(*map(event, range(9))).pieces if isinstance(piece, bytes))
    driver = SimulatedDriver(a=[Reply([(0.0, at_once)]) if transport == "stream" else polled("e-9", *range(9))])
    client = make("unix:a", driver=driver)
    items = client.follow("a", transport=transport)
    assert data_of(islice(items, 2)) == [0, 1]
    client.stop()
    assert list(items) == []
    assert driver.open == set() or transport == "poll"


def test_who_stops_iterating_closes_the_stream(make: MakeClient) -> None:
    """As when a `for` loop is left."""
    driver = SimulatedDriver(a=[stream(event(1), closes=False)])
    items = make("unix:a", driver=driver).follow("a")
    next(items)
    assert driver.open == {1}
    items.close()  # type: ignore[attr-defined]  # it is a generator
    assert driver.open == set()


class Cancelled(BaseException):
    """The task that waits is cancelled."""


def test_who_is_cancelled_while_a_stream_opens() -> None:
    """The next try closes what had been opened."""
    driver = SimulatedDriver(a=[MUTE, stream(event(1), closes=False)])
    waits = itertools.count(1)

    def cancel() -> None:
        if driver.sent and next(waits) == 2:  # the head has come, and no event
            raise Cancelled

    driver.on_wait = cancel
    follower = AsyncClient("unix:a", driver=driver).follower("a")
    with pytest.raises(Cancelled):
        run(follower.next())
    item = run(follower.next())
    assert isinstance(item, Message)
    assert (item.data, driver.open) == (1, {2})


def test_a_blocking_client_in_an_event_loop() -> None:
    """What it follows is not the loop's, which would close it at its own end."""
    driver = SimulatedDriver(a=[stream(event(1), event(2), closes=False)])
    items = Client("unix:a", driver=driver).follow("a")

    async def first() -> list[Any]:
        return data_of(islice(items, 1))

    assert asyncio.run(first()) == [1]
    assert data_of(islice(items, 1)) == [2]


@pytest.mark.parametrize("batch", range(8))
def test_random_faults(batch: int) -> None:
    """Whatever happens to connections: each message comes once and in order; and to a worker that dies again and again,
    and begins at the cursor that it stored after its last item, at least once."""
    for seed in range(20 * batch, 20 * batch + 20):
        assert trace_of_faults("blocking", seed) == trace_of_faults("asyncio", seed)


COUNT = 30
"""Of messages."""


def trace_of_faults(kind: str, seed: int) -> object:
    """What a follower asked, and what a worker got."""
    rng = random.Random(seed)
    transport: Any = rng.choice(["stream", "poll"])
    with making(kind) as make:
        driver = SimulatedDriver(seed, **{name: log_with_faults(rng) for name in "ab"})
        items = make(["unix:a", "unix:b"], driver=driver).follow("a", transport=transport)
        assert data_of(islice(items, COUNT)) == list(range(1, COUNT + 1))
        done: list[int] = []
        stored = ""
        while COUNT not in done:
            client = make(["unix:a", "unix:b"], driver=driver)
            for item in islice(client.follow("a", stored, transport=transport), rng.randint(1, 9)):
                assert isinstance(item, Message)
                done.append(item.data)
                stored = item.cursor
                if item.data == COUNT:
                    break
        assert sorted(set(done)) == list(range(1, COUNT + 1))
    return done, calls(driver)


def log_with_faults(rng: random.Random) -> Iterator[Reply]:
    """A node with a log of messages, of which many requests fail."""

    def decide(sent: Sent) -> Reply:
        after = int((sent.body.get("cursor") or "e-0").removeprefix("e-"))
        if sent.target == "/v1/events":
            events = [event(number) for number in range(after + 1, COUNT + 1)][: rng.randint(0, 9)]
            whole = stream({"retry": 1000}, *events, closes=rng.random() < 0.5)
            return Reply(whole.pieces[: rng.randint(1, 12)], closes=rng.random() < 0.8)
        last = min(COUNT, after + rng.randint(1, 5))
        return polled(f"e-{last}", *range(after + 1, last + 1), more=last < COUNT)

    while True:
        yield rng.choice([*FAULTS, HANGS, *[Reply(decide=decide)] * 10])


def test_kinds_are_both() -> None:
    """Or the tests here would compare a client with itself."""
    assert KINDS == ("blocking", "asyncio")
