"""The blocking client: the calls of `AsyncClient`, with a driver that blocks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

from pushup.client.answer_writer import ANSWER_SECONDS, COALESCE_SECONDS, AnswerWriter
from pushup.client.answers import SILENCE_SECONDS, AnswerState
from pushup.client.attempts import RETRY_SECONDS
from pushup.client.calls import ACK_SECONDS, TIMEOUT_SECONDS, Ack, AsyncClient
from pushup.client.driver import BlockingDriver, Driver, run
from pushup.client.following import HOLD_SECONDS, OnTrouble, Transport
from pushup.client.presence import Members
from pushup.client.values import Answer, Channel, Item, NewMessage, Producer, Published

T = TypeVar("T")


class Client:
    """A blocking client. Its arguments and methods are those of `AsyncClient`, where they are described.

    Several threads may use it at once. `with Client(...) as client` closes its connections at the end.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        token: str | Callable[[], str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: float | None = None,
        retry_seconds: tuple[float, float] = RETRY_SECONDS,
        driver: Driver | None = None,
    ) -> None:
        self._calls = AsyncClient(
            url, key,
            token=token, timeout=timeout, patience=patience, retry_seconds=retry_seconds,
            driver=driver or BlockingDriver(),
        )  # fmt: skip

    def close(self) -> None:
        self._calls.close()

    def stop(self) -> None:
        self._calls.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(
        self,
        channels: str | Sequence[str],
        data: Any,
        *,
        event: str | None = None,
        ephemeral: bool = False,
        unread_after: float | None = None,
        unread_for: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        producer: Producer | None = None,
        ack: Ack | None = None,
        ack_timeout: float = ACK_SECONDS,
        patience: float | None = None,
    ) -> Published:
        return run(
            self._calls.publish(
                channels, data, event=event, ephemeral=ephemeral, unread_after=unread_after, unread_for=unread_for,
                idempotency_key=idempotency_key, producer=producer, ack=ack, ack_timeout=ack_timeout, patience=patience,
            )
        )  # fmt: skip

    def publish_many(
        self,
        messages: Sequence[NewMessage],
        *,
        idempotency_key: str | None = None,
        producer: Producer | None = None,
        ack: Ack | None = None,
        ack_timeout: float = ACK_SECONDS,
        patience: float | None = None,
    ) -> list[Published]:
        return run(
            self._calls.publish_many(
                messages, idempotency_key=idempotency_key, producer=producer,
                ack=ack, ack_timeout=ack_timeout, patience=patience,
            )
        )  # fmt: skip

    def cursor(self, timeout: float | None = None) -> str:
        return run(self._calls.cursor(timeout))

    def poll(
        self, channels: str | Sequence[str], cursor: str = "", timeout: float = HOLD_SECONDS, limit: int | None = None
    ) -> Answer:
        return run(self._calls.poll(channels, cursor, timeout, limit))

    def follow(
        self,
        channels: str | Sequence[str],
        cursor: str = "",
        *,
        transport: Transport = "stream",
        on_trouble: OnTrouble | None = None,
    ) -> Iterator[Item]:
        return _each(self._calls.follow(channels, cursor, transport=transport, on_trouble=on_trouble))

    def answer(
        self,
        channel: str,
        *,
        resume: bool = False,
        coalesce: float = COALESCE_SECONDS,
        patience: float = ANSWER_SECONDS,
    ) -> AnswerWriter:
        return AnswerWriter(self._calls.answer(channel, resume=resume, coalesce=coalesce, patience=patience))

    def follow_answer(self, channel: str, silence: float = SILENCE_SECONDS) -> Iterator[Any]:
        return _each(self._calls.follow_answer(channel, silence))

    def stop_answer(self, channel: str) -> Published:
        return run(self._calls.stop_answer(channel))

    def read_answer(self, channel: str) -> AnswerState:
        return run(self._calls.read_answer(channel))

    def presence(self, channel: str) -> Members:
        return run(self._calls.presence(channel))

    def create(self, name: str | None = None, ttl: float | None = None) -> Channel:
        return run(self._calls.create(name, ttl))

    def renew(self, channel: str | int, ttl: float | None = None) -> Channel:
        return run(self._calls.renew(channel, ttl))

    def close_channel(self, channel: str | int) -> None:
        run(self._calls.close_channel(channel))

    def channel(self, channel: str | int) -> Channel:
        return run(self._calls.channel(channel))

    def channels(self) -> list[Channel]:
        return run(self._calls.channels())

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
        patience: float | None = None,
    ) -> dict[str, Any]:
        return run(self._calls.call(method, path, body, headers, timeout=timeout, patience=patience))


def _each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """What it yields, with a blocking driver."""
    try:
        while True:
            try:
                yield run(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        run(items.aclose())
