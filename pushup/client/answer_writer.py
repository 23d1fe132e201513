"""Writes answers that come into being over time (`answers`): in the background, so that a model is not held up."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from pushup.client.answers import AnswerError, AnswerStopped, Call, read
from pushup.client.driver import Driver, run
from pushup.client.following import Follower
from pushup.client.values import ClientError, Message, Published, Stopped

BEAT_SECONDS = 4.0
"""How often a writer that has nothing to send says that it lives. Servers keep a beat for 5 s; readers wait for 15."""

COALESCE_SECONDS = 0.05
"""What is written within this time is one piece."""

ANSWER_SECONDS = 60.0
"""For how long a piece is tried again."""

LEAVE_SECONDS = 5.0
"""When an exception leaves the block, such as a cancellation: how long it may take to publish the end."""

PIECE_SIZE = 4096
"""Characters of text, and bytes of values as JSON, in one piece: 24 KiB at most as JSON. A longer value is one
piece."""

VALUE_LIMIT = 48 * 1024
"""Bytes of a value as JSON: by default, servers take 64 KiB."""

WAITING_LIMIT = 1 << 20
"""So many characters may wait to be published; then writers wait."""

ERROR_TEXT = "The answer could not be completed."
RESTARTED_TEXT = "The answer was interrupted."


class AsyncAnswerWriter:
    """Writes an answer: `async with client.answer(channel) as answer`.

    What is written within `coalesce` seconds is published together, in the background, and tried again for `patience`
    seconds. Leaving the block publishes the end. `text` and `parts` are what had been published before, with `resume`.

    Raises: AnswerError if the channel has another answer; ClientError once nothing can be published.
    """

    def __init__(
        self,
        channel: str,
        driver: Driver,
        publish: Callable[..., Awaitable[Published]],
        call: Call,
        stops: Follower,
        *,
        resume: bool,
        coalesce: float,
        patience: float,
    ) -> None:
        self._channel, self._driver, self._publish, self._call = channel, driver, publish, call
        self._stops, self._resume, self._coalesce, self._patience = stops, resume, coalesce, patience
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Any, int]] = deque()  # parts with their sizes
        self._size = 0
        self._decoder = getincrementaldecoder("utf-16-le")("replace")  # keeps half a character until the rest comes
        self._end: dict[str, str] | None = None
        self._failure: Exception | None = AnswerError("write in the block of `with client.answer(...) as answer`")
        self._next = 0
        self._wake: Future[None] = Future()
        self._room: Future[None] = Future()
        self.stopped = False
        self.text = ""
        self.parts: list[Any] = []

    async def __aenter__(self) -> Self:
        await self._beat()  # so that the node which takes it has everything that was published before
        before = await read(self._call, self._channel, self._patience)
        if before.end is not None:
            raise AnswerError(f"the answer on {self._channel} has ended ({before.end}); use another channel")
        self.text, self.parts, self._next = before.text, before.parts, before.pieces
        if before.pieces and not (self._resume and before.missing is None):
            await self._send([], {"end": "error", "error": RESTARTED_TEXT})
            before.whole(self._channel)
            raise AnswerError(f"the answer on {self._channel} was begun before; resume=True continues it")
        self._failure = None
        self._sending = self._driver.background(self._send_all())
        try:
            self._watching = self._driver.background(self._watch())
        except BaseException:  # such as when no more threads can be started
            self._sending.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool:
        is_whole = error is None or isinstance(error, AnswerStopped)
        whole = {"end": "stopped" if self.stopped else "done"}
        self._finish(whole if is_whole else {"end": "error", "error": ERROR_TEXT})
        seconds = self._patience if error is None else min(self._patience, LEAVE_SECONDS)
        try:
            await self._driver.wait(self._sending, self._driver.now() + seconds)
        except TimeoutError:
            self._fail(AnswerError(f"the end of the answer on {self._channel} was not published within {seconds:g} s"))
        except Stopped as stopped:
            self._fail(stopped)
        finally:
            self._sending.cancel()
            self._watching.cancel()
        if self._failure is not None and is_whole:
            raise self._failure
        return isinstance(error, AnswerStopped)

    async def write(self, text: str) -> None:
        """Append text. Raises: AnswerStopped if somebody asked to stop."""
        if not isinstance(text, str):
            raise TypeError(f"write takes text, not {type(text).__name__}; send takes any JSON value")
        with self._lock:
            text = self._decoder.decode(text.encode("utf-16-le", "surrogatepass"))
        for begin in range(0, len(text), PIECE_SIZE):
            part = text[begin : begin + PIECE_SIZE]
            await self._append(part, len(part))

    async def send(self, value: Any) -> None:
        """Append any JSON value; a string is text. Raises: as `write`; ValueError or TypeError if it is not JSON."""
        if isinstance(value, str):
            await self.write(value)
            return
        copy = json.loads(json.dumps(value, allow_nan=False))  # the caller may change the value
        size = len(json.dumps(copy, ensure_ascii=False).encode())  # half a character is no JSON for servers
        if size > VALUE_LIMIT:
            raise ValueError(f"a value can have at most {VALUE_LIMIT} bytes as JSON, and this one has {size}")
        await self._append(copy, size)

    async def _append(self, part: Any, size: int) -> None:
        await self._driver.sleep(0.0)  # others get a turn, even if the model blocks the event loop
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                if self._end is not None:
                    raise AnswerError("the answer has ended")
                if self.stopped:
                    raise AnswerStopped("somebody asked to stop")
                if self._size < WAITING_LIMIT:
                    self._waiting.append((part, size))
                    self._size += size
                    self._signal(self._wake)
                    return
                room = self._room = Future() if self._room.done() else self._room  # of all writers
            with suppress(TimeoutError):
                await self._driver.wait(room, self._driver.now() + self._patience)

    def fail(self, text: str = ERROR_TEXT) -> None:
        """End the answer with an error, and this text for users."""
        if not isinstance(text, str):
            raise TypeError(f"fail takes a text for users, not {type(text).__name__}")
        self._finish({"end": "error", "error": text})

    def _finish(self, end: dict[str, str]) -> None:
        with self._lock:
            self._end = self._end or end
            self._signal(self._wake)

    @staticmethod
    def _signal(future: Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    async def _send_all(self) -> None:
        try:
            if self._next:
                await self._beat()  # readers have not counted the first one
            sent_at = self._driver.now() - self._coalesce
            while True:
                with self._lock:
                    wake = self._wake = Future()
                    if self._waiting or self._end:
                        self._signal(wake)
                try:
                    await self._driver.wait(wake, self._driver.now() + BEAT_SECONDS)
                except TimeoutError:
                    await self._beat()
                    continue
                if self._size < PIECE_SIZE:
                    await self._driver.sleep(max(0.0, sent_at + self._coalesce - self._driver.now()))
                sent_at = self._driver.now()
                parts, end = self._take()
                await self._send(parts, end)
                if end:
                    return
        except Exception as error:  # the writer raises it
            self._fail(error)
            if isinstance(error, ClientError) and not error.may_pass:  # the server will never take this piece
                with suppress(ClientError, AnswerError):
                    await self._send([], {"end": "error", "error": ERROR_TEXT})

    def _take(self) -> tuple[list[Any], dict[str, str]]:
        parts: list[Any] = []
        with self._lock:
            size = 0
            while self._waiting and (not parts or size + self._waiting[0][1] <= PIECE_SIZE):
                part, more = self._waiting.popleft()
                size += more
                if parts and isinstance(part, str) and isinstance(parts[-1], str):
                    parts[-1] += part
                else:
                    parts.append(part)
            self._size -= size
            self._signal(self._room)
            return parts, ({} if self._waiting else self._end or {})

    async def _send(self, parts: list[Any], end: dict[str, str]) -> None:
        key = f"{self._channel}#{self._next}"
        if not re.fullmatch("[!-~]{1,255}", key):  # what a header field can have
            key = hashlib.sha256(key.encode()).hexdigest()
        data = {"piece": self._next, "parts": parts, **end}
        if not self._next:
            data["writer"] = uuid.uuid4().hex  # or an equal piece of an earlier one, with its key, would count as this
        try:
            await self._publish(self._channel, data, event="answer", idempotency_key=key, patience=self._patience)
        except ClientError as error:
            if error.status == 422:
                raise await self._refused() from error
            raise
        self._next += 1

    async def _refused(self) -> AnswerError:
        """Why the next piece is there already."""
        pieces = (await read(self._call, self._channel, self._patience)).pieces
        if pieces > self._next:
            return AnswerError(f"another producer writes the answer on {self._channel}")
        data = {"piece": pieces, "parts": [], "end": "error", "error": RESTARTED_TEXT}
        await self._publish(self._channel, data, event="answer", patience=self._patience)
        return AnswerError(f"the answer on {self._channel} was begun before and has expired; use another channel")

    async def _beat(self) -> None:
        with suppress(ClientError):
            await self._publish(self._channel, {"beat": self._next}, event="answer", ephemeral=True, patience=0)

    async def _watch(self) -> None:
        try:
            while (item := await self._stops.next()) is not None:
                if isinstance(item, Message):
                    with self._lock:
                        self.stopped = True
                        self._signal(self._room)
                    return
        except ClientError as error:
            self._fail(error)
        finally:
            self._stops.close()

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._signal(self._room)


class AnswerWriter:
    """The same, blocking: `with client.answer(channel) as answer`. Several threads may write."""

    def __init__(self, writer: AsyncAnswerWriter) -> None:
        self._writer = writer
        self.fail = writer.fail

    def __enter__(self) -> Self:
        run(self._writer.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        return run(self._writer.__aexit__(kind, error, at))

    def write(self, text: str) -> None:
        run(self._writer.write(text))

    def send(self, value: Any) -> None:
        run(self._writer.send(value))

    @property
    def stopped(self) -> bool:
        return self._writer.stopped

    @property
    def text(self) -> str:
        return self._writer.text

    @property
    def parts(self) -> list[Any]:
        return self._writer.parts
