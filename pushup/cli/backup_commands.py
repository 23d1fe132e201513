"""`pushup backup`, `verify` and `restore`: a copy of what a server keeps, as a journal."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fcntl import LOCK_NB, LOCK_SH, lockf
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
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

SQLITE_LOCKS = 0x40000000
"""Where in the file SQLite's locks are, of 512 bytes (https://www.sqlite.org/fileformat.html)."""


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
    copies of both are read, in TMPDIR.
    """
    from pushup.broadcast.journal_copy import verify

    with _shown(), _unchanged(file) as source:
        click.echo(_described(file, verify(source)))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def restore(file: Path, target: Path) -> None:
    """Verify FILE and put a copy of it at TARGET, where a server that is not running will look for its journal.

    Run it as the server's user. Leave the mark, TARGET.mark, where it is: it shows the server what is missing.
    """
    from pushup.broadcast.journal_copy import restore

    with _shown(), _unchanged(file) as source:
        click.echo(_described(target, restore(source, target)))


def _on_end(stop: Callable[[], object]) -> None:
    """Have a signal that would end this process, and leave an unfinished copy, call this instead."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: stop())


@contextmanager
def _unchanged(file: Path) -> Iterator[Path]:
    """What to open in place of a file with a `-wal`, which SQLite would write into it, even that of another journal."""
    _on_end(partial(sys.exit, 1))
    source = file.resolve()  # SQLite follows a link, too
    wal = Path(f"{source}-wal")
    if not (source.is_file() and wal.exists()):
        yield file
        return
    with TemporaryDirectory() as folder:
        with source.open("rb") as opened:
            try:
                lockf(opened, LOCK_SH | LOCK_NB, 512, SQLITE_LOCKS)
            except BlockingIOError:
                raise click.ClickException(f"{file} is in use by another server; stop that server") from None
            for each in (wal, source):  # in this order: closing the file ends the lock
                shutil.copy(each, folder)
        try:
            with _shown():
                yield Path(folder, source.name)
        except click.ClickException as error:
            raise click.ClickException(error.message.replace(folder, str(source.parent))) from None


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
