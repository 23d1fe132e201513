"""A user's program, typed strictly. `make lint` checks it with mypy --strict, `make check-types` with pyright."""

from __future__ import annotations

from typing import Any, assert_never, assert_type

from pushup.client import (
    Ack,
    Answer,
    AnswerCutOff,
    AnswerFailed,
    AnswerState,
    AsyncClient,
    Channel,
    Client,
    ClientError,
    Closed,
    Duplicate,
    Gap,
    Item,
    Member,
    Members,
    Message,
    NewMessage,
    Producer,
    Published,
)
from pushup.outbox import Relay
from pushup.outbox.database import connector

ACK: Ack = "replicated"
MESSAGES: list[NewMessage] = [{"channels": ["a"], "data": 1, "event": "x"}, {"channels": ["b"], "data": None}]
WITH_READERS: NewMessage = {"channels": ["a"], "data": 1, "unread_after": 60, "for": ["ann"]}
PRODUCER: Producer = {"name": "p", "epoch": 1, "sequence": 0}


def work(item: Item) -> str:
    """Every item is one of three."""
    match item:
        case Message(data=data, event=event, ephemeral=ephemeral):
            assert_type(event, str | None)
            assert_type(ephemeral, bool)
            return f"{data} {item.id} {item.time:.0f} {item.channels[0]} {item.cursor}"
        case Gap(channel=channel, reason=reason, until=until):
            return f"{channel} {reason} {until} {item.cursor}"
        case Closed(channel=channel):
            return channel
        case _:
            assert_never(item)


def blocking() -> None:
    """Each method of the blocking client."""
    with Client(["http://a", "http://b"], token=lambda: "token", timeout=2, patience=10) as client:
        assert_type(client.cursor(), str)
        assert_type(client.publish("a", {"any": ["JSON"]}, event="x", ack="stable"), Published)
        client.publish("a", 1, unread_after=60, unread_for=["ann"])
        client.publish_many([WITH_READERS])
        assert_type(client.publish_many(MESSAGES, producer=PRODUCER, ack=ACK)[0].ack, str | None)
        answer = client.poll(["a", "b"], "now", timeout=1, limit=5)
        assert_type(answer, Answer)
        assert_type(answer.messages, list[Message])
        assert_type(client.create("a", 5), Channel)
        assert_type(client.renew(7, ttl=5), Channel)
        assert_type(client.channel("a"), Channel)
        assert_type(client.channels()[0].subscribers, int | None)
        members = client.presence("a")
        assert_type(members, Members)
        assert_type(members.members, dict[str, Member] | None)
        client.close_channel("a")
        assert_type(client.call("GET", "/v1/nodes", headers={"X": "y"}, timeout=1, patience=0), dict[str, Any])
        for item in client.follow("a", answer.cursor, on_trouble=lambda error, pause: None):
            assert_type(item, Item)
            assert_type(members.update(item), bool)
            work(item)
        with client.answer("a", resume=True, coalesce=0.1, patience=5) as answering:
            answering.write("text")
            answering.send({"any": "JSON"})
            assert_type(answering.stopped, bool)
            assert_type(answering.text, str)
            answering.fail("it has failed")
        for part in client.follow_answer("a", silence=5):
            print(part)
        assert_type(client.read_answer("a"), AnswerState)
        assert_type(client.stop_answer("a"), Published)
        client.stop()


def relaying() -> None:
    """The outbox, as a thread of the application."""
    relay = Relay(connector("sqlite:///application.db"), Client("http://a", key="key"))
    relay.run()
    relay.poke()
    relay.stop()
    assert_type(relay.is_stopped, bool)


async def asynchronous() -> None:
    """And of the one for asyncio, whose token may be fetched by an async function."""

    async def token() -> str:
        return "token"

    async with AsyncClient("unix:/run/pushup.sock", token=token) as client:
        try:
            assert_type(await client.publish(["a"], 1, ephemeral=True, idempotency_key="k"), Published)
            await client.publish("a", 1, unread_after=0.5, unread_for=("ann", "bob"))
            assert_type(await client.publish_many(MESSAGES, producer=PRODUCER, ack=ACK), list[Published])
        except Duplicate:
            pass
        except ClientError as error:
            assert_type(error.type, str)
            assert_type(error.may_pass, bool)
        assert_type(await client.cursor(timeout=1), str)
        assert_type((await client.poll("a", timeout=1)).items, list[Item])
        async for item in client.follow("a", transport="poll"):
            work(item)
        assert_type(await client.create(), Channel)
        assert_type(await client.renew("a"), Channel)
        assert_type(await client.channel(7), Channel)
        assert_type(await client.channels(), list[Channel])
        assert_type((await client.presence("a")).count, int)
        await client.close_channel("a")
        assert_type(await client.call("POST", "/v1/channels", {"name": "a"}), dict[str, Any])
        async with client.answer("a") as answering:
            await answering.write("text")
            await answering.send(["any JSON"])
            assert_type(answering.parts, list[Any])
        try:
            async for part in client.follow_answer("a"):
                print(part)
        except (AnswerFailed, AnswerCutOff) as error:
            print(error)
        assert_type((await client.read_answer("a")).end, str | None)
        assert_type(await client.stop_answer("a"), Published)
        client.stop()
