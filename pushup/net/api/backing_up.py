"""A copy of everything while the server runs: `GET /v1/backup`.

A line for each row of the state, `["channels/news", {...}]` (`core.snapshot`); a later one replaces it, or removes it
with `null`. The last line, `{"format": ..., "head": {...}}`, makes of these rows the state after one entry of the
order. Without it, or with an `error` in the place of the head, the copy is not complete.
`pushup.broadcast.journal_copy` makes a journal of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pushup.core.errors import BadRequest, Unavailable
from pushup.core.grant import Grant
from pushup.core.snapshot import Changes, Head, Stored, encode
from pushup.core.state_transfer import PIECE, pieces
from pushup.net.api.node_interface import Node
from pushup.net.application_interface import Exchange, Streamed
from pushup.net.requests_and_responses import Request

RETRY_AFTER_SECONDS = 10

CHANGES_LIMIT = 1_000_000
"""Entries that may come while the rows are read: which rows they change is kept in memory until then (some 100 MB)."""


PAUSE_SECONDS = 0.004
"""Between two pieces, each of which takes 1 ms: a thread that writes to the disk gets Python's global lock then."""


def send_backup(
    node: Node, request: Request, query: bytes, exchange: Exchange, grant: Grant, changes_limit: int = CHANGES_LIMIT
) -> None:
    """Answer the call."""
    if query:
        raise BadRequest("a backup has no parameters: it contains everything", field="query")
    if not node.cursor.epoch:
        raise Unavailable("this node has no state yet", retry_after=RETRY_AFTER_SECONDS)
    if node.outgoing is not None:
        raise Unavailable("another backup is under way; try again later", retry_after=RETRY_AFTER_SECONDS)
    backup = Backup(node, exchange, changes_limit, is_chunked=not request.is_1_0)
    backup.begin(shows_only=request.method == b"HEAD")


class Backup:
    """One that is being sent. The rows are read as the client takes them, one piece after the other.

    The first one comes when this worker knows all that others have acknowledged before.
    """

    def __init__(self, node: Node, exchange: Exchange, changes_limit: int, *, is_chunked: bool) -> None:
        self._node = node
        self._exchange = exchange
        self._changes_limit = changes_limit
        self._is_chunked = is_chunked
        self._outgoing = node.read_out()
        self._parts = self._read()
        self._is_open = True

    def begin(self, *, shows_only: bool) -> None:
        is_sent = self._exchange.stream(self, b"application/x-ndjson", b"", chunked=self._is_chunked)
        if shows_only:
            self.cancel()
            self._exchange.finish(b"")
        elif is_sent:
            self._node.find_end(lambda end: self._node.soon(self.drained))

    def drained(self) -> None:
        """Send the next part."""
        if not self._is_open:
            return
        part = next(self._parts, None)
        if part is None:
            self.cancel()
            self._exchange.finish(self._chunk(b""))
        elif self._exchange.write(self._chunk(part)):
            self._node.later(PAUSE_SECONDS, self.drained)

    def cancel(self) -> None:
        """Nothing more is read."""
        self._is_open = False
        if self._node.outgoing is self._outgoing:
            self._node.was_read()

    def _read(self) -> Iterator[bytes]:
        while self._node.outgoing is self._outgoing:
            if self._node.cursor.sequence - self._outgoing.since > self._changes_limit:
                yield self._last(error="the client reads too slowly for what is published meanwhile")
                return
            piece = self._outgoing.next()
            if isinstance(piece, Changes):
                self._node.was_read()
                for some in pieces(piece.rows, PIECE):
                    yield _lines(some)
                yield self._last(head=piece.head)
                return
            yield _lines(piece)
        yield self._last(error="the node has begun a new epoch; try again")

    def _last(self, **said: Head | str) -> bytes:
        return encode({"format": self._node.stored_format, **said}) + b"\n"

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data


def _lines(rows: Iterable[Stored]) -> bytes:
    return b"".join([encode(row) + b"\n" for row in rows])


_check: type[Streamed] = Backup
