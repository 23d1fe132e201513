"""The relay: publishes the rows of an outbox, batch by batch, and deletes each when it is acknowledged.

Several may run; the one with the lease works, the others wait for its end. If two believe that they have it, the epoch
decides: in the database before numbers are given, and at the server before messages are accepted.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable

from pushup.client import Client, ClientError, Duplicate, NewMessage
from pushup.outbox.rows import BATCH_ROWS, Batch, Connection, Fenced, Row, Rows

POLL_SECONDS = 0.2
"""How often it looks for rows that nobody announced."""

LEASE_SECONDS = 3.0
"""Another relay takes over so long after one has died; also while one waits for a PushUp that hangs. It may."""

RETRY_SECONDS = 1.0
"""The pause after a failure, in addition to those of the client."""

OTHER_NUMBERS = ("urn:pushup:producer-sequence", "urn:pushup:producer-fenced")
"""The server knows other numbers, or a later epoch, than the database that has just given ours."""

_log = logging.getLogger("pushup.outbox")


class Relay:
    """Publishes an outbox. `connect` opens a connection to the database; the client is used for nothing else."""

    def __init__(self, connect: Callable[[], Connection], client: Client) -> None:
        self._connect = connect
        self._client = client
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._rows: Rows | None = None
        self._epoch: int | None = None
        self._one_by_one = 0  # so many rows are published alone, to find one that is refused
        self._trouble = ""
        self._woken = threading.Event()
        self.is_stopped = False

    def poke(self) -> None:
        """Look for rows at once, such as after a commit; from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End `run` within a second, or when the database answers.

        From any thread, or a signal handler: so it takes no lock.
        """
        self.is_stopped = True
        self._client.stop()

    def run(self) -> None:
        """Publish until `stop`."""
        while not self.is_stopped:
            pause = self.step()
            self._woken.wait(0.0 if self.is_stopped else pause)
            self._woken.clear()
        self.close()

    def close(self) -> None:
        """End the lease, so that another relay takes over at once, and close all connections."""
        try:
            if self._rows is not None and self._epoch is not None:
                self._rows.renew(self._epoch, 0.0)
        except Exception as error:  # it ends by itself
            _log.info("the lease was not given back: %s", error)
        self._disconnect()
        self._client.close()

    def step(self) -> float:
        """Take the lease, or publish one batch. Returns for how many seconds there is nothing to do."""
        try:
            if self._rows is None:
                self._rows = Rows(self._connect(), self._holder)
            if self._epoch is None:
                self._epoch = self._rows.take(LEASE_SECONDS)
                if self._epoch is None:
                    return RETRY_SECONDS
                _log.info("this relay has the lease, with epoch %d", self._epoch)
            pause = self._work(self._rows, self._epoch)
        except Fenced:
            _log.info("another relay has taken over")
            self._epoch = None
            return RETRY_SECONDS
        except ClientError as error:
            return self._failed("PushUp", error)
        except Exception as error:  # whatever the driver of the database raises
            self._disconnect()
            return self._failed("the database", error)
        self._trouble = ""
        return pause

    def _work(self, rows: Rows, epoch: int) -> float:
        seconds_left, is_waiting = rows.look(epoch)
        if not is_waiting:
            if seconds_left < LEASE_SECONDS / 2:
                rows.renew(epoch, LEASE_SECONDS)
            return POLL_SECONDS
        batch = rows.batch(epoch, LEASE_SECONDS, 1 if self._one_by_one else BATCH_ROWS)
        if batch.rows:
            self._publish(rows, epoch, batch)
        return 0.0

    def _publish(self, rows: Rows, epoch: int, batch: Batch) -> None:
        """Raises: ClientError if it may succeed later."""
        first = batch.rows[0].sequence
        try:
            messages = [_message(row) for row in batch.rows]
            published = self._client.publish_many(
                messages, producer={"name": batch.producer, "epoch": epoch, "sequence": first}
            )
        except Duplicate as error:
            self._rename(rows, epoch, error)
        except ClientError as error:
            if error.type in OTHER_NUMBERS:
                self._rename(rows, epoch, error)
            elif _is_about_rows(error):
                self._refused(rows, epoch, batch, error)
            else:
                raise
        except (ValueError, RecursionError) as error:  # the second: JSON that nests too deeply for Python
            self._refused(rows, epoch, batch, error)
        else:
            if published[0].after_loss:
                _log.warning(
                    "PushUp does not know what %s has published before number %d: it has lost messages, or its"
                    " broadcast is memory:", batch.producer, first,
                )  # fmt: skip
            rows.delete(batch)
            self._one_by_one = max(0, self._one_by_one - len(batch.rows))

    def _rename(self, rows: Rows, epoch: int, error: ClientError) -> None:
        name = rows.rename(epoch)
        _log.error(
            "PushUp has other messages of this outbox than the database (%s). The database was restored or copied?"
            " Its rows are published by the new name %s; some may have been published before", error, name,
        )  # fmt: skip

    def _refused(self, rows: Rows, epoch: int, batch: Batch, error: Exception) -> None:
        """None of the batch was published. Find the row by publishing each alone; mark it, so that others go on."""
        if len(batch.rows) > 1:
            rows.take_back(epoch, batch)
            self._one_by_one = len(batch.rows)
        else:
            row = batch.rows[0]
            rows.take_back(epoch, batch, (row, str(error)))
            self._one_by_one = max(0, self._one_by_one - 1)
            _log.error(
                "row %d of pushup_outbox is refused, and not published: %s. To try again, set its error to NULL",
                row.id, error,
            )  # fmt: skip

    def _failed(self, what: str, error: Exception) -> float:
        """Log a failure once, until there is another or none."""
        if self.is_stopped:
            return 0.0
        trouble = f"{what}: {type(error).__name__}: {error}"
        if trouble != self._trouble:
            _log.warning("cannot publish the outbox now, and try again each second; %s", trouble)
        self._trouble = trouble
        return RETRY_SECONDS

    def _disconnect(self) -> None:
        """The epoch is kept: if nobody took the lease, the work goes on with it."""
        rows, self._rows = self._rows, None
        if rows is not None:
            try:
                rows.close()
            except Exception as error:
                _log.info("closing the connection failed: %s", error)


def _is_about_rows(error: ClientError) -> bool:
    """Whether the messages are at fault, and not the key, the producer or the address."""
    field = str(error.problem.get("field", ""))
    if error.status in (403, 404):
        return field == "channels"
    is_bad_request = error.type == "urn:pushup:bad-request"  # a 400 of another server says nothing about them
    return error.status == 413 or (is_bad_request and not field.startswith("producer"))


def _message(row: Row) -> NewMessage:
    """Raises: ValueError or RecursionError if the row has no JSON, because something else than this package wrote it,
    or it nests too deeply.
    """
    message: NewMessage = {"channels": json.loads(row.channels), "data": json.loads(row.data)}
    if row.event:
        message["event"] = row.event
    if row.unread_after is not None:
        message["unread_after"] = row.unread_after
    if row.unread_for is not None:
        message["for"] = json.loads(row.unread_for)
    return message
