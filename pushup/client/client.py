"""The blocking client: the calls of `AsyncClient`, with a driver that blocks."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from inspect import get_annotations, signature
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pushup.client.answer_writer import ANSWER_SECONDS, COALESCE_SECONDS, AnswerWriter
from pushup.client.answers import SILENCE_SECONDS
from pushup.client.attempts import RETRY_SECONDS
from pushup.client.calls import TIMEOUT_SECONDS, AsyncClient
from pushup.client.driver import BlockingDriver, Driver, run
from pushup.client.following import OnTrouble, Transport
from pushup.client.values import Item

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The same method, blocking."""

    @wraps(method)
    def call(self: Client, /, *given: P.args, **named: P.kwargs) -> T:
        return run(method(self._calls, *given, **named))

    call.__signature__ = signature(method, eval_str=True)  # type: ignore[attr-defined]
    call.__annotations__ = get_annotations(method, eval_str=True)  # the names in the text are those of its module
    del call.__wrapped__  # whoever looks there, such as FastAPI, would wait for a coroutine
    return call


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

    publish = _blocking(AsyncClient.publish)
    publish_many = _blocking(AsyncClient.publish_many)
    cursor = _blocking(AsyncClient.cursor)
    poll = _blocking(AsyncClient.poll)
    presence = _blocking(AsyncClient.presence)
    create = _blocking(AsyncClient.create)
    renew = _blocking(AsyncClient.renew)
    close_channel = _blocking(AsyncClient.close_channel)
    channel = _blocking(AsyncClient.channel)
    channels = _blocking(AsyncClient.channels)
    call = _blocking(AsyncClient.call)
    stop_answer = _blocking(AsyncClient.stop_answer)
    read_answer = _blocking(AsyncClient.read_answer)

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


def _each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """What it yields, with a blocking driver."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)  # or an event loop that runs in this thread would close `items` when it ends
    try:
        item = items.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    try:
        while True:
            try:
                yield run(item)
            except StopAsyncIteration:
                return
            item = items.__anext__()
    finally:
        run(items.aclose())
