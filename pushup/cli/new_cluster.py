"""Gives a copied log in Redis the name of a cluster of its own."""

from __future__ import annotations

import time
from random import random
from typing import Any

import click
from twisted.internet.defer import Deferred

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.log import open_log
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.broadcast.redis.redis_settings import parse_address
from pushup.core.cursor import next_epoch
from pushup.settings.settings import Settings


def rename(settings: Settings) -> str:
    """Rename it; returns what to tell the operator. Raises: ClickException."""
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    timeout = settings.redis.redis_timeout_seconds
    connector = Connector(
        parse_address(settings.server.broadcast), reactor=reactor, timeout=timeout, name="new-cluster"
    )
    results: list[str | Exception] = []

    async def run() -> None:
        result: str | Exception
        try:
            result = await _rename(connector, settings.redis.redis_prefix)
        except Exception as error:
            result = error
        if reactor.running:  # or it was interrupted
            results.append(result)
            reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()))
    reactor.run()
    if not results:
        raise click.Abort
    (result,) = results
    if isinstance(result, click.ClickException):
        raise result
    if isinstance(result, Exception):
        known = isinstance(result, (CannotConnect, ErrorReply, Lost))
        raise click.ClickException(f"Redis: {result}" if known else f"Redis: {type(result).__name__}: {result}")
    return result


async def _rename(connector: Connector, prefix: str) -> str:
    log = await open_log(connector, prefix)
    if trouble := await log.trouble():
        raise click.ClickException(trouble)
    name = next_epoch("", time.time(), random, "")
    former = await log.new_cluster(name)
    log.connection.abort("done")
    if former is None:
        raise click.ClickException("a node is alive; stop all nodes of this log, and try again after 3 s")
    if not former:
        raise click.ClickException(f"there is no message log with redis_prefix {prefix}")
    return f"The message log of cluster {former} is that of cluster {name} now. Remove the marks of its nodes."
