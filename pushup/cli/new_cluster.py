"""Gives a copied log in Redis the name of a cluster of its own."""

from __future__ import annotations

import time
from functools import partial
from random import random

import click

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.log import open_log
from pushup.cli.ask_redis import ask_redis
from pushup.core.cursor import next_epoch
from pushup.settings.settings import Settings


def rename(settings: Settings) -> str:
    """Rename it; returns what to tell the operator. Raises: ClickException."""
    return ask_redis(settings, partial(_rename, prefix=settings.redis.redis_prefix))


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
