"""The relay's SQL: the rows of the outbox, and the one row of its producer, in PostgreSQL or SQLite.

Each method is one transaction, and raises the error of the database's driver if that fails. Time is that of the
database. What stays true, however the methods of several relays mix: the rows with numbers are contiguous, and end just
before `next_sequence`; only the relay with the latest epoch gives numbers or takes them back.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pushup.client.values import names_of

BATCH_ROWS = 100
"""The server's `batch_limit`, by default."""

BATCH_BYTES = 256 * 1024
"""Of data and channels; a quarter of the server's `body_limit_bytes`, for the JSON around them takes room."""

SILENT_SECONDS = 3
"""PostgreSQL ends a transaction whose relay is silent for so long: its machine may be gone, and it holds a lock."""

Connection = Any
"""A connection of the DB-API (PEP 249): of psycopg, psycopg2 or sqlite3."""


class Fenced(Exception):
    """Another relay has taken over."""


@dataclass(frozen=True, slots=True)
class Row:
    """A message of the outbox; `channels`, `data` and `unread_for` are JSON. `sequence`: its number among all of the
    producer."""

    id: int
    channels: str
    data: str
    event: str | None
    sequence: int
    unread_after: float | None
    unread_for: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows with numbers, without a hole, and whose they are. Until they are gone, no others get numbers."""

    producer: str
    rows: list[Row]


class Rows:
    """The outbox behind a connection, which is used for nothing else; the lease is that of `holder`.

    Its epoch alone does not say whose it is: in a database that was restored, another relay may take it once more.
    """

    def __init__(self, connection: Connection, holder: str) -> None:
        self._connection = connection
        self._holder = holder
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
            self._mark, self._begin = "?", "BEGIN IMMEDIATE"
            self._now = "((julianday('now') - 2440587.5) * 86400.0)"
        else:
            connection.autocommit = True
            self._mark = "%s"
            self._begin = (
                "BEGIN ISOLATION LEVEL READ COMMITTED;"
                f" SET LOCAL idle_in_transaction_session_timeout = '{SILENT_SECONDS}s'"
            )
            self._now = "extract(epoch from clock_timestamp())"

    def close(self) -> None:
        self._connection.close()

    def take(self, seconds: float) -> int | None:
        """Take the lease if it has ended, which raises the epoch. Returns the epoch; None if another has the lease.

        One that lasts for longer than any is of a clock that has been set back since, and has ended as well.
        """
        self._run(
            "INSERT INTO pushup_outbox_producer (id, name, epoch, next_sequence, holder, lease_until)"
            " VALUES (1, ?, 0, 0, '', 0) ON CONFLICT (id) DO NOTHING",
            _new_name(),
        )
        taken = self._run(
            "UPDATE pushup_outbox_producer SET epoch = epoch + 1, holder = ?, lease_until = NOW + ?"
            " WHERE id = 1 AND (lease_until <= NOW OR lease_until > NOW + ?) RETURNING epoch",
            self._holder, seconds, seconds,
        )  # fmt: skip
        return int(taken[0][0]) if taken else None

    def look(self, epoch: int) -> tuple[float, bool]:
        """The seconds until the lease ends, and whether rows wait. Takes no lock.

        Raises: Fenced, also if the producer's row is gone, such as in a database that was made anew.
        """
        found = self._run(
            "SELECT lease_until - NOW, EXISTS (SELECT 1 FROM pushup_outbox WHERE error IS NULL)"
            " FROM pushup_outbox_producer WHERE id = 1 AND epoch = ? AND holder = ?",
            epoch,
            self._holder,
        )
        if not found:
            raise Fenced
        return float(found[0][0]), bool(found[0][1])

    def renew(self, epoch: int, seconds: float) -> None:
        """Renew the lease; end it with 0 seconds. Raises: Fenced."""
        self._lock(epoch, "lease_until = NOW + ?", seconds)

    def batch(self, epoch: int, seconds: float, most: int = BATCH_ROWS) -> Batch:
        """Renew the lease. Return the rows with numbers; if there are none, give some to at most so many, by their ids.

        Rows of transactions that commit later get later numbers, whatever their ids are. Raises: Fenced.
        """
        with self._transaction():
            producer, first = self._lock(epoch, "lease_until = NOW + ?", seconds)
            columns = "SELECT id, channels, data, event, sequence, unread_after, unread_for FROM pushup_outbox"
            rows = [Row(*row) for row in self._run(f"{columns} WHERE sequence IS NOT NULL ORDER BY sequence")]
            if not rows:
                waiting = self._run(f"{columns} WHERE sequence IS NULL AND error IS NULL ORDER BY id LIMIT ?", most)
                rows = [replace(Row(*row), sequence=number) for number, row in enumerate(_cut(waiting), first)]
                for row in rows:
                    self._run("UPDATE pushup_outbox SET sequence = ? WHERE id = ?", row.sequence, row.id)
                self._lock(epoch, "next_sequence = ?", first + len(rows))
            return Batch(producer, rows)

    def delete(self, batch: Batch) -> None:
        """Delete the rows of a batch that was acknowledged.

        It needs no epoch: these were published, whoever has the lease now. Not their ids alone: SQLite gives those of
        deleted rows to others. Nor their numbers: under a new name, others have them.
        """
        marks = ", ".join("?" * len(batch.rows))
        self._run(
            f"DELETE FROM pushup_outbox WHERE sequence BETWEEN ? AND ? AND id IN ({marks})",  # noqa: S608
            batch.rows[0].sequence, batch.rows[-1].sequence, *(row.id for row in batch.rows),
        )  # fmt: skip

    def take_back(self, epoch: int, batch: Batch, refused: tuple[Row, str] | None = None) -> None:
        """Take the numbers of a batch back, none of which was published.

        `refused`: a row that will never be published, and why. The next publication has the first of these numbers, and
        after it the server accepts no attempt that is still on its way. Raises: Fenced.
        """
        with self._transaction():
            self._lock(epoch, "next_sequence = ?", batch.rows[0].sequence)
            self._run("UPDATE pushup_outbox SET sequence = NULL WHERE sequence IS NOT NULL")
            if refused is not None:
                self._run("UPDATE pushup_outbox SET error = ? WHERE id = ?", refused[1], refused[0].id)

    def rename(self, epoch: int) -> str:
        """Go on as a new producer, which begins with 0: the server knows the old one's numbers for other messages.

        Returns the new name. Raises: Fenced.
        """
        name = _new_name()
        with self._transaction():
            self._lock(epoch, "name = ?, next_sequence = 0", name)
            self._run("UPDATE pushup_outbox SET sequence = NULL WHERE sequence IS NOT NULL")
        return name

    def _lock(self, epoch: int, changes: str, *values: Any) -> tuple[str, int]:
        """Change the producer's row if we still have this epoch, which locks it until the transaction ends."""
        found = self._run(
            f"UPDATE pushup_outbox_producer SET {changes}"  # noqa: S608
            " WHERE id = 1 AND epoch = ? AND holder = ? RETURNING name, next_sequence",
            *values, epoch, self._holder,
        )  # fmt: skip
        if not found:
            raise Fenced
        return found[0][0], int(found[0][1])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run(self._begin)
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the database may have ended it, or the connection
                self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.replace("NOW", self._now).replace("?", self._mark), values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


def columns_of(
    channels: str | Sequence[str],
    data: Any,
    event: str | None,
    unread_after: float | None,
    unread_for: Sequence[str] | None,
) -> dict[str, Any]:
    """The columns of a new row. Raises: TypeError, ValueError if the data has no JSON, or `unread_for` is empty."""
    if unread_for is not None and not unread_for:
        raise ValueError("unread_for is empty; leave it out if nobody is to see the message")
    return {
        "channels": json.dumps(names_of(channels)),
        "data": json.dumps(data, allow_nan=False),
        "event": event,
        "unread_after": unread_after,
        "unread_for": None if unread_for is None else json.dumps(names_of(unread_for)),
    }


def _cut(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The first rows, until they have BATCH_BYTES; at least one."""
    size = 0
    for index, row in enumerate(rows):
        size += len(row[1]) + len(row[2])
        if size > BATCH_BYTES and index:
            return rows[:index]
    return rows


def _new_name() -> str:
    return f"outbox:{secrets.token_hex(8)}"
