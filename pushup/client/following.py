"""Following channels: by streams, or by polls where streams do not come through; again after each failure."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Literal

from pushup.client.attempts import Attempts
from pushup.client.exchange import Exchange
from pushup.client.http1 import HttpConnection
from pushup.client.values import (
    ClientError,
    Closed,
    Gap,
    Item,
    Message,
    NoResponse,
    Stopped,
    answer_of,
    unexpected,
    value_of,
)

Transport = Literal["stream", "poll"]

OnTrouble = Callable[[ClientError, float], None]
"""Gets what failed, and after how many seconds the next try begins."""

FIRST_SECONDS = 3.0
"""A stream sends something at once. If nothing comes for this long, something holds it back (as in pushup.js)."""

SILENCE_SECONDS = 45.0
"""A stream that is silent for this long is dead: by default a heartbeat comes every 15 s."""

SHORT_SECONDS = 5.0
"""Three streams in a row that end sooner than this are cut by something on the way."""

POLLS_SECONDS = 1800.0
"""For how long polls are used instead of streams that do not come through."""

HOLD_SECONDS = 25.0
"""For how long a server may hold a poll."""

RETURN_SECONDS = 0.5
"""After a stream has ended in order, the client returns within this time, at random."""


class Follower:
    """Follows channels from a cursor."""

    def __init__(
        self,
        exchange: Exchange,
        channels: list[str],
        cursor: str,
        *,
        transport: Transport,
        timeout: float,
        pauses: tuple[float, float],
        on_trouble: OnTrouble | None,
    ) -> None:
        """`timeout`: for how long a node may not respond. Raises: ValueError for another transport."""
        if transport not in ("stream", "poll"):
            raise ValueError(f"transport must be 'stream' or 'poll', not {transport!r}")
        self._exchange = exchange
        self._driver = exchange.driver
        self._channels = channels
        self._cursor = cursor
        self._timeout = timeout
        self._pauses = pauses
        self._on_trouble = on_trouble
        self._pending: deque[Item] = deque()
        self._polls_until = float("inf") if transport == "poll" else float("-inf")
        self._short_streams = 0
        self._stream: HttpConnection | None = None
        self._opened_at = 0.0
        self._attempts = self._no_failures()
        self._node = self._attempts.next()

    async def next(self, silence: float = math.inf) -> Item | None:
        """The next one; None after `stop`.

        Raises: ClientError if the server refuses; TimeoutError if nothing has come for so many seconds, in which no
        node failed, and one that is asked anew has nothing either: a stream that is dead may look alive.
        """
        until = self._driver.now() + silence
        try:
            while not self._pending:
                is_silent = self._driver.now() >= until
                try:
                    await (self._ask_anew() if is_silent else self._receive(until))
                except Stopped:
                    raise
                except ClientError as error:
                    if is_silent or self._driver.now() < until:
                        await self._after(error)
                        until = self._driver.now() + silence
        except Stopped:
            return None
        return self._pending.popleft()

    async def _ask_anew(self) -> None:
        self.close()
        await self._poll(0.0, self._timeout)
        if not self._pending:
            raise TimeoutError

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _no_failures(self) -> Attempts:
        return Attempts(self._exchange.nodes, self._driver, self._pauses)

    async def _receive(self, until: float) -> None:
        """Wait for something. Raises: ClientError, also at `until`."""
        seconds = until - self._driver.now()
        if self._stream is not None:
            await self._read(self._stream, min(SILENCE_SECONDS, seconds))
        elif self._driver.now() < self._polls_until:
            hold = min(HOLD_SECONDS, seconds)
            await self._poll(hold, hold + self._timeout)
        else:
            await self._open()

    async def _poll(self, hold: float, seconds: float) -> None:
        began = self._driver.now()
        given = await self._exchange.poll(self._node, self._channels, self._cursor, hold, seconds)
        answer = answer_of(given, self._cursor)
        self._pending += answer.items
        self._cursor = answer.cursor
        self._attempts = self._no_failures()
        if not answer.items and self._driver.now() < began + min(hold, 1.0):
            await self._driver.sleep(self._driver.random(RETURN_SECONDS))  # such as a server that is stopping

    async def _open(self) -> None:
        """Open a stream. If nothing comes, ask for a poll: a node that answers that holds back streams only."""
        began = self._opened_at = self._driver.now()
        first = min(FIRST_SECONDS, self._timeout / 2)
        fields = {"cursor": self._cursor} if self._cursor else {}
        try:
            self._stream = await self._exchange.subscribe(
                self._node, "/v1/events", self._channels, began + first, accept="application/x-ndjson", **fields
            )
            await self._read(self._stream, began + first - self._driver.now())
        except NoResponse:
            await self._poll(0.0, began + self._timeout - self._driver.now())
            self._polls_until = self._driver.now() + POLLS_SECONDS
        except ClientError as error:
            if error.status not in (404, 405, 406) or error.type == "urn:pushup:unknown-channel":
                raise
            self._polls_until = began + POLLS_SECONDS  # a server, or a proxy, that has no streams

    async def _read(self, stream: HttpConnection, seconds: float) -> None:
        """Read a line of the stream, which must come within so many seconds. Raises: ClientError."""
        try:
            with self._exchange.closing(self._node, None):
                line = await stream.line(self._driver.now() + seconds)
            pause = self._take(line) if line else self._ended()
        except BaseException:
            self.close()
            raise
        if pause is not None:
            self.close()
            await self._driver.sleep(pause)

    def _take(self, line: bytes) -> float | None:
        """Take an event. If it ends the stream, returns after how many seconds to open another. Raises: ClientError."""
        assert self._stream is not None
        try:
            event = json.loads(line)
            kind, data, cursor = event.get("event"), event.get("data"), event.get("id", self._cursor)
            if kind == "gap":
                self._pending.append(value_of(Gap, data, cursor=cursor))
            elif kind == "closed":
                self._pending.append(value_of(Closed, data, cursor=cursor))
            elif kind == "ticket":
                self._exchange.keep_ticket(self._channels, data["ticket"])
            elif kind == "expiry":
                self._exchange.credentials.accepted(data["expires_in"])
            elif kind == "error":
                return self._pause_after(ClientError(f"{data['status']} {data['detail']}", data["status"], data))
            elif kind is None and data is not None:
                self._pending.append(value_of(Message, data, cursor=cursor))
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            raise unexpected("event") from None
        self._cursor = cursor
        self._attempts = self._no_failures()
        return None

    def _pause_after(self, error: ClientError) -> float:
        """Raises: the error, if a new ticket or token does not help."""
        assert self._stream is not None
        pause = self._exchange.credentials.retry_pause(error, self._stream.sent)
        if error.type == "urn:pushup:ticket-expired":
            self._exchange.forget_ticket(self._channels)  # without it the application is asked
            pause = self._driver.random(RETURN_SECONDS)
        if pause is None:
            raise error
        return pause

    def _ended(self) -> float:
        now = self._driver.now()
        self._short_streams = self._short_streams + 1 if now < self._opened_at + SHORT_SECONDS else 0
        if self._short_streams == 3:
            self._short_streams, self._polls_until = 0, now + POLLS_SECONDS
        return self._driver.random(RETURN_SECONDS)

    async def _after(self, error: ClientError) -> None:
        """Wait before the next try. Raises: the error, if that does not help."""
        if not error.may_pass:
            raise error
        self._attempts.failed(self._node, error)
        self._node = self._attempts.next()
        pause = self._attempts.pause() or 0.0
        if self._on_trouble is not None:
            self._on_trouble(error, pause)
        await self._driver.sleep(pause)


async def items(follower: Follower) -> AsyncGenerator[Item, None]:
    """What it follows, until `stop`."""
    try:
        while (item := await follower.next()) is not None:
            yield item
    finally:
        follower.close()
