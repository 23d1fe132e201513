"""Both clients with the same methods, so that one test can use either."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from pushup.client import AsyncClient, Client

MakeClient = Callable[..., Client]


class _Blocking:
    """An AsyncClient whose coroutines run in an event loop until they end. It has the methods of Client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> None:
        self._loop = loop
        self._client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return lambda *given, **named: self._result(attribute(*given, **named))

    def _result(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._loop.run_until_complete(value)
        return self._each(value) if isinstance(value, AsyncIterator) else value

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():
                self._loop.run_until_complete(cast(Any, items).aclose())


@contextmanager
def making(kind: str) -> Iterator[MakeClient]:
    """Makes clients of this kind, which are closed at the end."""
    loop = asyncio.new_event_loop()
    made: list[Client | AsyncClient] = []

    def make(*given: Any, **named: Any) -> Client:
        client: Client | AsyncClient = Client(*given, **named) if kind == "blocking" else AsyncClient(*given, **named)
        made.append(client)
        return client if isinstance(client, Client) else cast(Client, _Blocking(loop, client))

    try:
        yield make
    finally:
        for each in made:
            each.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(asyncio.sleep(0))  # asyncio closes sockets in the next turn
        loop.close()


KINDS = ("blocking", "asyncio")
