"""Asks the Redis of a server something, from a command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from twisted.internet.defer import Deferred

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.broadcast.redis.redis_settings import parse_address
from pushup.settings.settings import Settings

T = TypeVar("T")


def ask_redis(settings: Settings, ask: Callable[[Connector], Awaitable[T]]) -> T:
    """What `ask` returns. It can be called once in a process. Raises: ClickException, also for what Redis answers.

    A signal ends the process at once. Twisted's handlers are not installed: they would stay, and ignore later signals.
    """
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    timeout = settings.redis.redis_timeout_seconds
    connector = Connector(parse_address(settings.server.broadcast), reactor=reactor, timeout=timeout, name="command")
    results: list[T | Exception] = []

    async def run() -> None:
        try:
            results.append(await ask(connector))
        except Exception as error:
            results.append(error)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()))
    reactor.run(installSignalHandlers=False)
    (result,) = results
    if isinstance(result, click.ClickException):
        raise result
    if isinstance(result, Exception):
        known = isinstance(result, (CannotConnect, ErrorReply, Lost))
        raise click.ClickException(f"Redis: {result}" if known else f"Redis: {type(result).__name__}: {result}")
    return result
