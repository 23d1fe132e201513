"""The calls of the interface, as coroutines: `AsyncClient`. `Client` runs the same ones with a blocking driver."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote

from pushup.client.answer_writer import ANSWER_SECONDS, COALESCE_SECONDS, AsyncAnswerWriter
from pushup.client.answers import SILENCE_SECONDS, AnswerState, parts, read
from pushup.client.attempts import RETRY_SECONDS, Attempts
from pushup.client.credentials import Token
from pushup.client.driver import Driver
from pushup.client.exchange import Exchange
from pushup.client.following import HOLD_SECONDS, Follower, OnTrouble, Transport, items
from pushup.client.http1 import Request
from pushup.client.presence import Members
from pushup.client.values import (
    Answer,
    Channel,
    ClientError,
    Duplicate,
    Item,
    NewMessage,
    NotSent,
    Producer,
    Published,
    answer_of,
    given_of,
    names_of,
    path_of,
    unexpected,
    value_of,
)

TIMEOUT_SECONDS = 5.0

ACK_SECONDS = 5.0
"""For how long a server may wait for an acknowledgement, by default."""

Ack = Literal["accepted", "replicated", "stable"]


class AsyncClient:
    """A client for asyncio of the server at `url`, such as http://127.0.0.1:8080 or unix:/run/pushup.sock, or of
    several nodes: if one fails, the next is tried.

    The tasks of one event loop may use it at once, and can be cancelled; after its end, those of another may.
    `async with AsyncClient(...) as client` closes its connections at the end.

    A call takes at most `timeout` seconds, or its `patience` if that is given: all tries and pauses together, and each
    try at most `timeout`. The time for which it asks the server to wait comes on top. It is tried again if that can do
    no harm, while no node can be reached, or the answer is 408, 429 or 5xx; a publication with the same key each time.
    With `patience=0`, each node is tried once. `retry_seconds`: the longest pause before the first retry, and the
    longest of all. Pauses are random, and not shorter than `Retry-After`.

    It sends a publish key (`key`) or a signed token: `token` is one, or a function, plain or async, that returns a new
    one. A plain one is called in a thread, and may block. It is called before the first request, before a token ends,
    and when one is refused that was accepted, or is not new.

    Raises, as does each method: ClientError if the server cannot be reached or refuses, or a URL is not valid;
    ValueError for any other argument that cannot be; TypeError for data that is not JSON.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        token: Token | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: float | None = None,
        retry_seconds: tuple[float, float] = RETRY_SECONDS,
        driver: Driver | None = None,
    ) -> None:
        """`driver`: what waits, and connects. Tests may give one of their own."""
        if driver is None:
            from pushup.client.asyncio_driver import AsyncioDriver  # blocking programs need no asyncio

            driver = AsyncioDriver()
        self._driver = driver
        self._exchange = Exchange(url, key, token, driver)
        self._timeout = timeout
        self._patience = patience
        self._retry_seconds = retry_seconds

    def close(self) -> None:
        """Close the connections that are idle; the next call opens a new one."""
        self._exchange.close()

    def stop(self) -> None:
        """End `follow` within a second, from any thread or a signal handler; every other call fails, now and later."""
        self._driver.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def publish(
        self, channels: str | Sequence[str], data: Any, *, event: str | None = None,
        ephemeral: bool = False, unread_after: float | None = None, unread_for: Sequence[str] | None = None,
        idempotency_key: str | None = None, producer: Producer | None = None,
        ack: Ack | None = None, ack_timeout: float = ACK_SECONDS, patience: float | None = None,
    ) -> Published:  # fmt: skip
        """Publish one message. Every try has the same idempotency key, so it is published once.

        `event` is a name that subscribers receive with it. An `ephemeral` message is kept for 5 s and then dropped
        without a gap; servers remember no keys of such messages, so a retry may publish one again. With `ack`, the
        server waits for that acknowledgement for up to `ack_timeout` seconds. A `producer` is sent instead of a key.
        If users of `unread_for` have not seen the message `unread_after` seconds later, the server tells the
        application who (docs/guide/unread.md).
        Raises: Duplicate if the producer published the message earlier, before its last publication.
        """
        more = given_of(event=event, ephemeral=ephemeral or None, unread_after=unread_after)
        more |= {} if unread_for is None else {"for": names_of(unread_for)}
        message = {"channels": names_of(channels), "data": data, **more}
        given = await self._publish(message, idempotency_key, producer, ack, ack_timeout, patience)
        return value_of(Published, given)

    async def publish_many(
        self, messages: Sequence[NewMessage], *,
        idempotency_key: str | None = None, producer: Producer | None = None,
        ack: Ack | None = None, ack_timeout: float = ACK_SECONDS, patience: float | None = None,
    ) -> list[Published]:  # fmt: skip
        """Publish several messages, next to each other in the order, or none; as `publish` does."""
        given = await self._publish({"messages": list(messages)}, idempotency_key, producer, ack, ack_timeout, patience)
        ids = given.get("ids")
        if not isinstance(ids, list):
            raise unexpected("ids")
        return [value_of(Published, given, id=each) for each in ids]

    async def _publish(
        self, body: dict[str, Any], key: str | None, producer: Producer | None,
        ack: Ack | None, ack_timeout: float, patience: float | None,
    ) -> dict[str, Any]:  # fmt: skip
        headers = () if producer and key is None else (("Idempotency-Key", key or uuid.uuid4().hex),)
        body |= given_of(producer=producer, ack=ack, ack_timeout=None if ack is None else ack_timeout)
        request = Request("POST", "/v1/messages", body, headers)
        given = await self._call(request, patience=patience, wait=0.0 if ack is None else ack_timeout)
        if given.get("duplicate"):
            raise Duplicate
        return given

    async def cursor(self, timeout: float | None = None) -> str:
        """The present: who begins there gets whatever is published from now on."""
        cursor = (await self.call("GET", "/v1/cursor", timeout=timeout)).get("cursor")
        if not isinstance(cursor, str):
            raise unexpected("cursor")
        return cursor

    async def poll(
        self, channels: str | Sequence[str], cursor: str = "", timeout: float = HOLD_SECONDS, limit: int | None = None
    ) -> Answer:
        """Poll once: the server holds the poll for up to `timeout` s, and the call takes the client's timeout longer.

        It is tried once at each node. A ticket in the answer is sent with the next poll of the same channels.
        """
        names = names_of(channels)
        until = self._driver.now() + timeout + self._timeout
        attempts = self._attempts()
        while True:
            node, left = attempts.next(), until - self._driver.now()
            hold = max(0.0, left - self._timeout)
            seconds = hold + (left - hold) / attempts.untried  # the rest is shared, so that each is tried
            try:
                return answer_of(await self._exchange.poll(node, names, cursor, hold, seconds, limit), cursor)
            except ClientError as error:
                attempts.failed(node, error)
                if not (error.may_pass and attempts.untried):
                    raise

    def follow(
        self,
        channels: str | Sequence[str],
        cursor: str = "",
        *,
        transport: Transport = "stream",
        on_trouble: OnTrouble | None = None,
    ) -> AsyncGenerator[Item, None]:
        """Yield messages, gaps and closings from `cursor` on, until `stop`.

        It receives a stream, or polls if streams do not come through, or with `transport="poll"`. Whoever stores the
        `cursor` of each item after its work, and begins there again, gets each at least once. (Begin at `cursor()` to
        get what is published from now on; at `""` for all that is kept.)

        While no node can be reached or is available, it tries again with growing, random pauses, and calls `on_trouble`
        with the error and the pause. Raises: ClientError when the server refuses.
        """
        return items(self.follower(channels, cursor, transport, on_trouble))

    def follower(
        self, channels: str | Sequence[str], cursor: str = "",
        transport: Transport = "stream", on_trouble: OnTrouble | None = None,
    ) -> Follower:  # fmt: skip
        """What `follow` iterates over."""
        return Follower(
            self._exchange, names_of(channels), cursor,
            transport=transport, timeout=self._timeout, pauses=self._retry_seconds, on_trouble=on_trouble,
        )  # fmt: skip

    def answer(
        self, channel: str, *,
        resume: bool = False, coalesce: float = COALESCE_SECONDS, patience: float = ANSWER_SECONDS,
    ) -> AsyncAnswerWriter:  # fmt: skip
        """Write an answer that comes into being over time; with `resume`, continue one."""
        stops = self.follower(f"{channel}:stop")
        return AsyncAnswerWriter(
            channel, self._driver, self.publish, self._call, stops,
            resume=resume, coalesce=coalesce, patience=patience,
        )  # fmt: skip

    def follow_answer(self, channel: str, silence: float = SILENCE_SECONDS) -> AsyncGenerator[Any, None]:
        """Yield the parts of an answer from its beginning, as they are written; end when it is done or stopped.

        Raises: AnswerFailed if the writer could not finish; AnswerCutOff if it was silent for so many seconds in which
        a node could be reached, or if parts are missing.
        """
        return parts(channel, self.follower(channel), silence)

    async def stop_answer(self, channel: str) -> Published:
        """Ask the writer of an answer to stop."""
        return await self.publish(f"{channel}:stop", "stop")

    async def read_answer(self, channel: str) -> AnswerState:
        """An answer, as far as it is written; each page of it is a call. Raises: AnswerCutOff if pieces are missing."""
        return (await read(self._call, channel)).whole(channel)

    async def presence(self, channel: str) -> Members:
        """Who follows a channel now."""
        return Members(await self.call("GET", f"/v1/presence?channel={quote(channel, safe='')}"))

    async def create(self, name: str | None = None, ttl: float | None = None) -> Channel:
        """Create a channel. This call and the next two are repeated only if nothing has been sent."""
        return value_of(Channel, await self.call("POST", "/v1/channels", given_of(name=name, ttl=ttl)))

    async def renew(self, channel: str | int, ttl: float | None = None) -> Channel:
        """Restart a channel's lifetime."""
        return value_of(Channel, await self.call("POST", f"{path_of(channel)}/renew", given_of(ttl=ttl)))

    async def close_channel(self, channel: str | int) -> None:
        """Close a channel, and drop its messages."""
        await self.call("DELETE", path_of(channel))

    async def channel(self, channel: str | int) -> Channel:
        """One channel, by its name or id."""
        return value_of(Channel, await self.call("GET", path_of(channel)))

    async def channels(self) -> list[Channel]:
        """All open channels, by id; each page of 1000 is a call."""
        found: list[Channel] = []
        more = True
        while more:
            page = await self.call("GET", f"/v1/channels?after={found[-1].id if found else 0}")
            if not isinstance(page.get("channels"), list):
                raise unexpected("channels")
            found += [value_of(Channel, each) for each in page["channels"]]
            more = bool(page.get("more") and page["channels"])
        return found

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *,
        timeout: float | None = None, patience: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Make any call of the HTTP interface. It is repeated if it is a GET or has an idempotency key.

        `timeout`: that of this call, all of its tries together, unless it or the client has a `patience`.
        """
        may_repeat = method in ("GET", "HEAD") or "idempotency-key" in map(str.lower, headers or {})
        request = Request(method, path, body, tuple((headers or {}).items()), may_repeat)
        return await self._call(request, timeout=timeout, patience=patience)

    async def _call(
        self, request: Request, *, timeout: float | None = None, patience: float | None = None, wait: float = 0.0
    ) -> dict[str, Any]:
        """`wait`: for how long it asks the server to wait."""
        each_try = self._timeout if timeout is None else timeout
        if patience is None:
            patience = each_try if self._patience is None else self._patience
            patience = patience if timeout is None else min(patience, timeout)
        until = self._driver.now() + (patience or each_try) + wait
        attempts = self._attempts()
        while True:
            node = attempts.next()
            # Nodes that have not failed share the time that is left, so that each is tried.
            seconds = min(each_try + wait, (until - self._driver.now()) / max(1, attempts.untried))
            try:
                return await self._exchange.ask(node, request, seconds)
            except ClientError as error:
                attempts.failed(node, error)
                pause = attempts.pause(until - self._driver.now())
                may_repeat = error.may_pass and (request.may_repeat or isinstance(error, NotSent))
                if not may_repeat or pause is None or not (patience or attempts.untried):
                    raise
            await self._driver.sleep(pause)

    def _attempts(self) -> Attempts:
        return Attempts(self._exchange.nodes, self._driver, self._retry_seconds)
