"""Following channels: by streams, or by polls where streams do not come through; again after each failure.

States, events and actions are those of the table in docs/internals/browser-client.md, which pushup.js follows, too.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, NoReturn

from pushup.client.attempts import Attempts
from pushup.client.exchange import Exchange
from pushup.client.http1 import HttpConnection
from pushup.client.values import ClientError, Item, NoResponse, NotSent, Stopped, answer_of, item_of, unexpected

Transport = Literal["stream", "poll"]
State = Literal["idle", "opening", "live", "waiting", "stopped"]

OnTrouble = Callable[[ClientError, float], None]
"""Gets what failed, and after how many seconds the next try begins."""

FIRST_SECONDS = 3.0  # a stream sends something at once; if nothing comes for so long, something holds it back
SILENCE_SECONDS = 30.0  # a stream that is silent for so long is dead: by default a heartbeat comes every 15 s
LASTING_SECONDS = 5.0  # a connection that broke after so long was a good one
SHORT_STREAMS = 3  # so many in a row that broke earlier are cut by something on the way
POLLS_SECONDS = 1800.0  # for so long, polls are used instead of streams that do not come through
HOLD_SECONDS = 25.0  # a server may hold a poll for so long
USELESS_POLLS = 3  # so many in a row that are answered at once, with nothing, would become an endless loop
SAY_SECONDS = 1.0  # at least between two polls that only say what the program has
NO_STREAMS = (404, 405, 406, 501)  # so answers a server, or a proxy, that has none


class Loop(ClientError):
    """The server answers, but nothing moves."""


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
        self.state: State = "idle"
        self._exchange = exchange
        self._driver = exchange.driver
        self._channels = channels
        self._cursor = cursor
        self._timeout = timeout
        self._first = min(FIRST_SECONDS, timeout / 2)  # the rest is for a poll, in case only streams have trouble
        self._pauses = pauses
        self._on_trouble = on_trouble
        self._pending: deque[Item] = deque()
        self._quiet_since = 0.0
        self._polls_until = math.inf if transport == "poll" else -math.inf
        self._is_trial = False  # polling, to see whether only streams have trouble
        self._short_streams = 0  # in a row
        self._attempts = self._no_failures()
        self._node = self._attempts.next()
        self._useless_polls = 0  # in a row
        self._pause = 0.0
        # Of the connection:
        self._began = math.inf
        self._streams = False
        self._stream: HttpConnection | None = None
        self._has_ticket = False  # one was sent, or came
        self._say_at = math.inf  # the server asks what the program has, and is told then
        self._said_at = -math.inf

    async def next(self, silence: float = math.inf) -> Item | None:
        """The next one; None after `stop`.

        Raises: ClientError if the server refuses; TimeoutError if nothing has come for so many seconds, in which no
        node failed, and one that is asked anew has nothing either: a stream that is dead may look alive.
        """
        self._quiet_since = self._driver.now()
        try:
            if self._driver.is_stopped:
                raise Stopped  # what has come already may be hours of work
            while not self._pending:
                await self._advance(self._quiet_since + silence)
        except Stopped:
            self.close()
            return None
        return self._pending.popleft()

    async def _advance(self, until: float) -> None:
        """Wait for an event, or for something to come. Raises: ClientError if the server refuses; TimeoutError."""
        is_silent = self._driver.now() >= until
        try:
            if self.state == "waiting":
                await self._driver.sleep(self._pause)
                self._want()
            elif is_silent:
                self._want()
                await self._poll(0.0, self._timeout)
                if not self._pending:
                    raise TimeoutError
            elif self.state == "opening":
                await self._open()
            elif self.state == "live":
                await self._receive(until)
            else:
                self._want()
        except Stopped:
            raise
        except ClientError as error:
            # An error at `until` only says that nothing has come so far; then the next turn asks the node anew.
            if is_silent or self._driver.now() < until:
                self._failed(error)

    async def _open(self) -> None:
        self._close()  # what a task that was cancelled had begun to open
        if self._is_trial or self._driver.now() < self._polls_until:
            await self._poll(0.0, self._timeout - (self._first if self._is_trial else 0.0))
            return
        self._streams = True
        until = self._driver.now() + self._first
        self._has_ticket = self._exchange.has_ticket(self._channels)
        self._stream = await self._exchange.subscribe(
            self._node, "/v1/events", self._channels, until,
            accept="application/x-ndjson", cursor=self._cursor or None,
        )  # fmt: skip
        await self._read(self._stream, until)

    async def _receive(self, until: float) -> None:
        now = self._driver.now()
        if self._stream is not None:
            if now >= self._say_at:
                await self._say(now)
            try:
                await self._read(self._stream, min(until, now + SILENCE_SECONDS, self._say_at))
            except NoResponse:
                if self._driver.now() < self._say_at:
                    raise
        elif now < self._polls_until:
            hold = min(HOLD_SECONDS, until - now)
            await self._poll(hold, hold + self._timeout)
        else:
            self._want()  # it is time to try a stream again

    async def _say(self, now: float) -> None:
        """Tell the server what the program has: everything up to the cursor. If that fails, the server asks again."""
        self._say_at, self._said_at = math.inf, now
        try:
            await self._exchange.poll(self._node, self._channels, self._cursor, 0.0, self._first, limit=1)
        except Stopped:
            raise
        except ClientError:
            pass

    async def _poll(self, hold: float, seconds: float) -> None:
        asked = self._driver.now()
        given = await self._exchange.poll(self._node, self._channels, self._cursor, hold, seconds)
        answer = answer_of(given, self._cursor)
        if answer.cursor == self._cursor and (answer.items or answer.more):
            raise Loop(f"the server at {self._node.url} sends the same answer again")
        self._pending += answer.items
        self._cursor = answer.cursor
        is_useless = not answer.items and self._driver.now() < asked + min(hold, 1.0)
        self._useless_polls = self._useless_polls + 1 if is_useless else 0
        if self._useless_polls == USELESS_POLLS:
            raise Loop(f"the server at {self._node.url} does not hold polls")
        if not answer.more:
            self._begin()

    async def _read(self, stream: HttpConnection, until: float) -> None:
        """Read a line of the stream. Raises: ClientError, also at its end."""
        with self._exchange.client_errors(self._node):
            line = await stream.line(until)
        if not line:
            raise ClientError(f"the server at {self._node.url} ended the stream")
        try:
            self._take(json.loads(line), stream.sent)
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            raise unexpected("event") from None
        self._begin()

    def _take(self, event: Any, sent: str | None) -> None:
        kind, data, cursor = event.get("event"), event.get("data"), event.get("id", self._cursor)
        if kind == "error":
            raise ClientError(f"{data['status']} {data['detail']}", data["status"], data)
        if kind == "ticket":
            self._has_ticket = True
            self._exchange.keep_ticket(self._channels, data["ticket"])
        elif kind == "expiry":
            self._exchange.credentials.accepted(sent, data["expires_in"])
        elif kind == "unread":
            self._say_at = min(self._say_at, self._said_at + SAY_SECONDS)
        elif (item := item_of(kind, data, cursor)) is not None:
            self._pending.append(item)
        if kind is None:
            self._cursor = cursor

    def _failed(self, error: ClientError) -> None:
        """Send the event that an error is. Raises: the error, if the server refuses."""
        now, stream, status = self._driver.now(), self._stream, error.status
        if self._streams and status == 0 and not isinstance(error, NotSent):
            self._short_streams = 0 if self._lasted(now) else self._short_streams + 1
        if error.type == "urn:pushup:ticket-expired" and self._has_ticket:
            self._exchange.forget_ticket(self._channels)
            self._end()  # without it the application is asked
        elif stream and (pause := self._exchange.credentials.retry_pause(error, stream.sent)) is not None:
            self._end(pause) if pause else self._want()
        elif self._streams and status in NO_STREAMS and error.type != "urn:pushup:unknown-channel":
            self._mute()
        elif not error.may_pass:
            self._refuse(error)
        elif isinstance(error, NoResponse) and self._streams and not self._lasted(now - SILENCE_SECONDS):
            self._mute()
        elif status == 0 and self._lasted(now) and not isinstance(error, NoResponse | Loop):
            self._end()
        elif self._short_streams == SHORT_STREAMS:
            self._mute()
        else:
            self._fail(error)

    # The events of the table, with their actions. A refusal is raised: there is nobody else to ask.

    def _want(self) -> None:
        self._close()
        self.state = "opening"

    def close(self) -> None:
        """Close the connection; `next` opens another."""
        self._close()
        self.state = "idle"

    def _begin(self) -> None:
        if self._is_trial:
            self._is_trial, self._polls_until = False, self._driver.now() + POLLS_SECONDS
        self._began = min(self._began, self._driver.now())
        self.state = "live"

    def _end(self, pause: float = 0.0) -> None:
        self._close()
        self._attempts = self._no_failures()
        self._pause = pause + self._driver.random(self._pauses[0])
        self.state = "waiting"

    def _mute(self) -> None:
        self._close()
        self._is_trial, self._short_streams = True, 0
        self.state = "opening"

    def _fail(self, error: ClientError) -> None:
        self._close()
        self._count(error)
        self._is_trial = False
        self._pause = self._attempts.pause() or 0.0
        self._quiet_since = self._driver.now() + self._pause
        self.state = "waiting"
        if self._on_trouble is not None:
            self._on_trouble(error, self._pause)

    def _refuse(self, error: ClientError) -> NoReturn:
        self._close()
        self._count(error)
        self.state = "stopped"
        raise error

    def _close(self) -> None:
        if self._lasted(self._driver.now()):
            self._attempts = self._no_failures()
        if self._stream is not None:
            self._stream.close()
        self._began, self._streams, self._stream, self._say_at = math.inf, False, None, math.inf
        self._has_ticket = False

    def _count(self, error: ClientError) -> None:
        self._attempts.failed(self._node, error)
        self._node = self._attempts.next()

    def _lasted(self, now: float) -> bool:
        return now >= self._began + LASTING_SECONDS

    def _no_failures(self) -> Attempts:
        return Attempts(self._exchange.nodes, self._driver, self._pauses)


async def items(follower: Follower) -> AsyncGenerator[Item, None]:
    """What it follows, until `stop`."""
    try:
        while (item := await follower.next()) is not None:
            yield item
    finally:
        follower.close()
