"""Bugs in who counts as a reader, and in how the application is called."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

WEBHOOKS, CALLER = "pushup/core/webhooks.py", "pushup/node/webhook_caller.py"
TABLES, STREAMING = "pushup/core/bounded_table.py", "pushup/net/api/streaming.py"

TABLE = "tests/core/test_webhooks.py"

BUGS = (
    Bug(
        "read-on-another-channel",
        "who has read one channel has read all others",
        "a place that is kept for each user, and not for each channel",
        (
            Edit(
                WEBHOOKS,
                "        for channel in channels:\n            for id_, number",
                "        for channel in [c for s, c in self._by_reader if s == subject]:\n            for id_, number",
            ),
        ),
        family="n",
    ),
    Bug(
        "cursor-at-the-message-is-before-it",
        "who has a message, and nothing after it, has not read it",
        "off by one",
        (Edit(WEBHOOKS, "                if number > sequence:\n", "                if number >= sequence:\n"),),
        family="n",
    ),
    Bug(
        "sent-is-read",
        "who was sent a message by a stream has read it",
        "receipts that the server writes itself",
        (
            Edit(
                STREAMING,
                "        asks = subject and are_awaited(",
                "        if subject:\n"
                "            here: Any = parse_cursor(answer.cursor)\n"
                "            self._streaming.node.readers.note(subject, self._selection.channels, here)\n"
                "        asks = subject and are_awaited(",
            ),
        ),
        family="n",
    ),
    Bug(
        "stream-never-asked",
        "who reads by a stream is never asked, and so has read nothing",
        "a heartbeat that proves only that the connection is open",
        (Edit(STREAMING, "        return self._encoding.unread() if asks else b\"\"\n", "        return b\"\"\n"),),
        family="n",
    ),
    Bug(
        "read-when-it-is-late",
        "reading counts until the application is called, though the order has decided that nobody read it in time",
        "a check that each node makes when it calls",
        (
            Edit(
                WEBHOOKS,
                "        return self.attempts == 0 and not self.is_ready\n",
                "        return self.attempts == 0\n",
            ),
            Edit(WEBHOOKS, "        elif row.waits:\n", "        if row.waits:\n"),
        ),
        family="n",
    ),
    Bug(
        "full-table-drops-the-oldest",
        "if too many messages wait for readers, nobody is told about the oldest one",
        "a bounded queue that drops",
        (
            Edit(
                WEBHOOKS,
                "        if self._size + new > self.limit:\n            return",
                "        while self._size + new > self.limit and self._rows:\n"
                "            self.remove(str(next(iter(self._rows))))\n"
                "        if new > self.limit:\n            return",
            ),
        ),
        family="n",
    ),
    Bug(
        "claim-never-ends",
        "if a node dies that is about to call the application, nobody else calls it",
        "a job that is marked as running, and by whom nobody looks",
        (Edit(WEBHOOKS, "is_ready=False, next=now + seconds))", "is_ready=False, next=now + 86400.0))"),),
        family="n",
    ),
    Bug(
        "claimed-by-all",
        "all nodes that claim a call at the same time call",
        "a lock that is taken without looking at the reply",
        (
            Edit(
                "pushup/core/state.py",
                "                return Claimed(self.webhooks.claim(ids, entry.time))\n",
                "                self.webhooks.claim(ids, entry.time)\n                return Claimed(ids)\n",
            ),
        ),
        family="n",
    ),
    Bug(
        "removed-before-the-call",
        "what the application is to be told is forgotten when a node begins to call",
        "a queue that takes a job out when it hands it over",
        (
            Edit(
                CALLER,
                "                self._busy += 1\n",
                "                self._busy += 1\n                self._told.append(id_)\n                self._remove()\n",
            ),
        ),
        family="n",
    ),
    Bug(
        "failure-is-the-end",
        "a call that fails is not repeated",
        "a webhook without retries",
        (Edit(CALLER, '        if outcome != "failed":\n', "        if outcome:\n"),),
        family="n",
    ),
    Bug(
        "pauses-that-do-not-grow",
        "an application that fails is called again every 15 s",
        "retries without backoff",
        (Edit(WEBHOOKS, "CLAIM_SECONDS * 2.0**row.attempts,", "CLAIM_SECONDS,"),),
        family="n",
    ),
    Bug(
        "attempts-not-counted",
        "an application that fails is called forever",
        "a counter in the process that calls",
        (Edit(WEBHOOKS, "replace(row, attempts=row.attempts + 1, is_ready", "replace(row, attempts=1, is_ready"),),
        test=TABLE,
        why="the application of the simulation does not fail for so long",
    ),
    Bug(
        "readers-forgotten-at-a-restart",
        "a node that starts from a checkpoint does not know for whom messages wait, and notes no reader",
        "an index that is not part of what is stored",
        (
            Edit(
                TABLES,
                "        self._rows[row.row_name] = row\n        self._note(row)\n",
                "        self._rows[row.row_name] = row\n        self._note(row)\n"
                "        getattr(self, '_by_reader', {}).clear()\n",
            ),
            Edit(WEBHOOKS, "            ids = self._by_reader[reader]\n            del ids[row.id]\n",
                 "            ids = self._by_reader.get(reader, {})\n            ids.pop(row.id, None)\n"),
            Edit(WEBHOOKS, "                del self._by_reader[reader]\n", "                self._by_reader.pop(reader, None)\n"),
        ),
        family="n",
    ),
    Bug(
        "claims-not-saved",
        "a row that changes is not in the next checkpoint",
        "as snapshot-without-a-field",
        (Edit(TABLES, "        self._note(row)\n        self._changes.note(name)\n", "        self._note(row)\n"),),
        family="n",
    ),
    Bug(
        "the-first-state-begins-the-epoch",
        "a new epoch that begins with two states calls again about what was claimed, and names who had read",
        "a merge that does not compare",
        (Edit(WEBHOOKS, "        return row.attempts, row.is_ready, -len(row.subjects)\n", "        return ()\n"),),
        test=TABLE,
        why="after a loss, nobody can know what was claimed and read",
    ),
)  # fmt: skip
