"""Bugs in the journal of a single node."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

JOURNAL, START, FILE = (f"pushup/broadcast/{name}.py" for name in ("journal", "journal_start", "journal_file"))
HIGH_WATER = "pushup/broadcast/progress_mark.py"

_BUGS = (
    Bug(
        "ack-before-fsync",
        "a publication is acknowledged and delivered before it is on disk",
        "fsyncgate; queues with acknowledgement before the sync",
        (
            Edit(
                JOURNAL,
                "            self._run(self._helpers.call(self._file.append, entries), written)\n",
                "            self._written(entries, 0.0, 1)\n"
                "            self._run(self._helpers.call(self._file.append, entries), lambda size: None)\n",
            ),
        ),
        needs=("kill", "kill_writing", "stop_all", "put_back", "put_back_with_mark", "disk"),
    ),
    Bug(
        "save-beside-appends",
        "entries applied while a save runs are missing from the next save, and are deleted",
        "save before apply",
        (
            Edit(
                JOURNAL,
                "            self._run(self._helpers.call(self._file.save, self._follower.changes()), self._saved)\n"
                "        elif self._waiting:\n",
                "            call = self._helpers.call(self._file.save, self._follower.changes())\n"
                "            self._saved_at = self._clock.seconds()\n"
                "            call.addCallbacks(self._saved, self._failed)\n"
                "        if self._waiting:\n",
            ),
        ),
    ),
    Bug(
        "applied-twice-after-a-failure",
        "entries that were applied before a disk failure are applied again after it",
        "an entry applied twice after a reconnect",
        (
            Edit(FILE, "if entry.sequence > after]", "if entry.sequence >= after]"),
            Edit(
                "pushup/core/state.py",
                "or entry.sequence != sequence + 1 or entry.time < self.time:",
                "or entry.sequence > sequence + 1 or entry.time < self.time:",
            ),
        ),
        needs=("disk",),
    ),
    Bug(
        "written-but-not-applied",
        "an entry that was written although the call failed is missing from the state",
        "treating every error as a failed write",
        (
            Edit(
                JOURNAL,
                "        for entry in entries:\n            self._follower.apply(entry)\n"
                "        self._progress_mark.note(self._follower.cursor)\n        self._trouble = None\n",
                "        self._trouble = None\n",
            ),
        ),
        needs=("disk",),
        test="tests/broadcast/test_journal.py",
        why="median above 200 seeds (177 once)",
    ),
    Bug(
        "journal-put-back-unnoticed",
        "the mark is not compared with the end of the journal",
        "PushUp 0.1: a log that was rolled back: a restored journal",
        (Edit(START, "elif mark is not None and lacks(mark, end, state.past_epochs):", "elif False:"),),
        needs=("put_back", "put_back_with_mark", "stop_all"),
    ),
    Bug(
        "mark-never-written",
        "the mark is written only when the server starts and stops",
        "PushUp 0.1: a log that was rolled back",
        (
            Edit(
                HIGH_WATER,
                "        self._noted = cursor\n        if self._timer.time",
                "        if self._timer.time",
            ),
        ),
    ),
    Bug(
        "journal-keeps-its-name",
        "a journal keeps its epoch name after a restart, so ids are issued again after a rollback",
        "PushUp 0.1: a log that was rolled back: sequences issued twice",
        (
            Edit(
                START,
                "    commands: tuple[Command, ...] = (Continue(name),)\n",
                "    commands: tuple[Command, ...] = ()\n",
            ),
        ),
    ),
    Bug(
        "former-names-not-saved",
        "the former names of the order are missing from the checkpoint",
        "as snapshot-without-a-field",
        (Edit("pushup/core/state_rows.py", "            self.past_epochs.all,\n", "            (),\n"),),
    ),
    Bug(
        "entries-deleted-too-far",
        "a save also deletes the entries of the next group",
        "off by one",
        (
            Edit(
                FILE, '"DELETE FROM entries WHERE sequence <= ?", (changes.head.sequence,)', '"DELETE FROM entries", ()'
            ),
        ),
        test="tests/broadcast/test_journal_file.py",
        why="a save and an append never run at the same time, so there are no entries after a save",
    ),
    Bug(
        "sequence-used-again-after-a-failure",
        "after a disk failure, publishers get the answer that nothing was published, although it may have been, and the "
        "sequences are reused",
        "fsyncgate",
        (
            Edit(
                JOURNAL,
                "            self._retry = self._clock.callLater(RETRY_SECONDS, self._recover)\n",
                "            self._trouble = None\n",
            ),
        ),
        needs=("disk",),
    ),
)

BUGS = tuple(bug._replace(kind="journal") for bug in _BUGS)
