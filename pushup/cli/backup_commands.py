"""`pushup backup`, `verify` and `restore`: a copy of what a server keeps, as a journal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pushup.cli.client_commands import client_options, errors_shown
from pushup.client.driver import BlockingDriver, run
from pushup.client.exchange import Exchange
from pushup.client.http1 import Request
from pushup.client.values import Stopped

if TYPE_CHECKING:
    from pushup.broadcast.journal_copy import Contents

SILENCE_SECONDS = 60.0
"""The server may say nothing for so long."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@client_options
def backup(file: Path, url: str, key: str | None) -> None:
    """Write everything that the running server keeps to a new FILE: a journal, for `pushup restore`.

    It contains whatever was acknowledged before. The key needs the right `backup`. FILE appears when it is complete.
    """
    from pushup.broadcast.journal_copy import write_copy

    driver = BlockingDriver()
    _on_end(driver.stop)
    with errors_shown(), _shown():
        try:
            write_copy(file, _parts(url, key, driver))
        except Stopped:
            raise click.Abort from None
    click.echo(f"{file} is complete, {file.stat().st_size} bytes")


def _parts(url: str, key: str | None, driver: BlockingDriver) -> Iterator[bytes]:
    """The server's answer, in parts. It has begun, so no file is touched if a server refuses. Raises: ClientError."""
    exchange = Exchange(url, key, None, driver)
    (node,) = exchange.nodes
    connection = run(exchange.open(node, Request("GET", "/v1/backup"), driver.now() + SILENCE_SECONDS))

    def parts() -> Iterator[bytes]:
        with exchange.client_errors(node, closing=connection):
            while part := run(connection.part(driver.now() + SILENCE_SECONDS)):
                yield part
                if driver.is_stopped:
                    raise Stopped
        connection.close()

    return parts()


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def verify(file: Path) -> None:
    """Read all of FILE, a backup or the journal of a stopped server, and say what is in it.

    Exits with status 1 if it is damaged, and says which record is. If FILE-wal is there, because the server was killed,
    or a journal cannot be written, copies are read, in TMPDIR.
    """
    from pushup.broadcast.journal_copy import verify

    _on_end(partial(sys.exit, 1))
    with _shown():
        click.echo(_described(file, verify(file)))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def restore(file: Path, target: Path) -> None:
    """Verify FILE and put a copy of it at TARGET, where a server that is not running will look for its journal.

    Run it as the server's user. Leave the mark, TARGET.mark, where it is: it shows the server what is missing.
    """
    from pushup.broadcast.journal_copy import restore

    _on_end(partial(sys.exit, 1))
    with _shown():
        click.echo(_described(target, restore(file, target)))


def _on_end(stop: Callable[[], object]) -> None:
    """Have a signal that would end this process, and leave an unfinished copy, call this instead."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: stop())


@contextmanager
def _shown() -> Iterator[None]:
    """Exit with what is wrong."""
    from pushup.broadcast.formats import NotUnderstood
    from pushup.broadcast.journal_file import JournalError

    try:
        yield
    except (JournalError, NotUnderstood, OSError) as error:
        raise click.ClickException(str(error)) from None


def _described(file: Path, found: Contents) -> str:
    times = [datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") for seconds in found.times]
    lines = (
        f"{file} is good",
        f"  messages     {found.messages}{', from {} to {}'.format(*times) if times else ''}",
        f"  channels     {found.channels}",
        f"  last cursor  {found.cursor}, epoch {found.cursor.epoch}",
        f"  digest       {'matches: nothing was changed' if found.has_digest else 'none: a server has used it'}",
    )
    return "\n".join(lines)
