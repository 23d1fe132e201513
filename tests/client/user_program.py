"""A user's program, typed strictly. `make lint` checks it with mypy --strict, `make check-types` with pyright."""

from __future__ import annotations

from typing import assert_never, assert_type

from pushup.client import Answer, AsyncClient, Channel, Client, ClientError, Closed, Gap, Item, Message, Published


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
        assert_type(client.publish_many([{"channels": ["a"], "data": 1, "event": "x"}])[0].ack, str | None)
        answer = client.poll(["a", "b"], "now", timeout=1, limit=5)
        assert_type(answer, Answer)
        assert_type(answer.messages, list[Message])
        assert_type(client.create("a", 5), Channel)
        assert_type(client.channels()[0].subscribers, int | None)
        for item in client.follow("a", answer.cursor, on_trouble=lambda error, pause: None):
            assert_type(item, Item)
            work(item)
        client.stop()


async def asynchronous() -> None:
    """And of the one for asyncio, whose token may be fetched by an async function."""

    async def token() -> str:
        return "token"

    async with AsyncClient("unix:/run/pushup.sock", token=token) as client:
        try:
            assert_type(await client.publish(["a"], 1), Published)
        except ClientError as error:
            assert_type(error.type, str)
            assert_type(error.may_pass, bool)
        async for item in client.follow("a", transport="poll"):
            work(item)
