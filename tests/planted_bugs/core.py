"""Bugs in the replicated state and the held polls."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

STATE, READING = "pushup/core/state.py", "pushup/core/reading.py"
HELD, CHANNEL, CHANNELS = "pushup/core/held_polls.py", "pushup/core/channel.py", "pushup/core/channels.py"
INDEX, MIGRATION = "pushup/core/poll_index.py", "pushup/core/poll_migration.py"

BUGS = (
    Bug(
        "eviction-mark-dropped",
        "an evicted message is not recorded as dropped, so the gap is never reported",
        "Nchan's and most servers' message buffers",
        (
            Edit(
                CHANNEL,
                "message.sequence)\n        else:\n            self.dropped_sequence",
                'message.sequence)\n        elif reason != "evicted":\n            self.dropped_sequence',
            ),
        ),
    ),
    Bug(
        "gap-without-a-loss",
        "a client gets a gap when a message that it has received is dropped",
        "off by one",
        (Edit(READING, "if end > after:", "if end >= after > 0:"),),
    ),
    Bug(
        "dropped-message-names-its-channel",
        "a message lists a channel that has dropped it, as if that channel's gap ended before it",
        "PushUp 0.1: a gap that is reported too early",
        (Edit(READING, "        if message.holders < len(message.channels):", "        if False:"),),
        test="tests/core/test_core_model.py",
        why="a chain of cursors loses nothing; only a client that joins a stream in the middle does",
    ),
    Bug(
        "gap-ends-too-early",
        "a gap ends one message before the last missing one",
        "off by one",
        (Edit(READING, '{last.epoch}-{end}"', '{last.epoch}-{max(0, end - 1)}"'),),
        test="tests/core/test_core_model.py",
        why="a chain of cursors loses nothing; only a client that begins at the end of the gap gets it again",
    ),
    Bug(
        "caught-up-too-early",
        "a page that is cut at its limit has the cursor of the whole state",
        "Mercure #704: a client that seems caught up, without the messages",
        (
            Edit(
                READING,
                "    sequence = max(after, last.sequence) if upto is None else upto\n",
                "    sequence = max(after, last.sequence)\n",
            ),
        ),
    ),
    Bug(
        "cursor-not-advanced",
        "an answer without messages repeats the client's cursor",
        "MCP Python SDK #2499, cursor lost after an empty answer",
        (
            Edit(
                READING,
                "    sequence = max(after, last.sequence) if upto is None else upto\n",
                "    sequence = (max(after, last.sequence) if messages else after) if upto is None else upto\n",
            ),
        ),
    ),
    Bug(
        "comparison-without-epoch",
        "a cursor of another epoch counts as one of the present epoch, if its sequence is higher",
        "numbers that begin again after a restart",
        (Edit(HELD, "cursor.epoch == last.epoch and cursor.sequence >= latest", "cursor.sequence >= latest"),),
    ),
    Bug(
        "past-cursor-beyond-its-position",
        "a cursor of a former epoch name is valid even beyond the point where the next name began",
        "PushUp 0.1: a log that was rolled back: a cursor ahead of the queue",
        (
            Edit(
                "pushup/core/cursor.py",
                "cursor.sequence > self.good_up_to(cursor.epoch):",
                "self.good_up_to(cursor.epoch) < 0:",
            ),
        ),
    ),
    Bug(
        "held-across-a-new-epoch",
        "a held poll is moved to the state of a new epoch without a gap for the loss",
        "a held poll bound to the previous state",
        (
            Edit(
                INDEX,
                "        if subscription.seen > good:\n            subscription.seen = EPOCH_ENDED\n",
                "        if subscription.seen > good:\n            subscription.seen = 0\n",
            ),
        ),
    ),
    Bug(
        "old-state-after-a-swap",
        "when a node loads its state again, held polls stay bound to the previous one",
        "PushUp 0.1: long turns: restoring into a second state",
        (
            Edit(
                "pushup/node/node.py",
                "        self.polls.use(state)\n",
                "        if not self.polls.count:\n            self.polls.use(state)\n",
            ),
        ),
    ),
    Bug(
        "swap-wakes-nobody",
        "after a swap of the state, polls are not woken for the messages that they missed during it",
        "as old-state-after-a-swap",
        (Edit(MIGRATION, "                self._index.wake(waiters.name)\n", "                pass\n"),),
    ),
    Bug(
        "stale-answer",
        "polls get a cached shared answer although there is a new entry",
        "caches that are not invalidated",
        (
            Edit(
                HELD,
                '        """Wake the polls on the channels that an entry has touched; called after each entry. '
                'O(channels touched)."""\n        self._answers.clear()\n',
                "",
            ),
        ),
    ),
    Bug(
        "missed-while-forgotten",
        "a held poll gets no gap for messages that its channel had dropped before it was forgotten",
        "decision 12",
        (
            Edit(
                HELD,
                "index.move_name(waiters, channel.latest_sequence, is_awaited)",
                "index.set_awaited(waiters, is_awaited)",
            ),
        ),
        test="tests/core/test_core_model.py",
        why="a channel must be forgotten while a client waits for it, in a cluster where that loses something; not found in 200 seeds",
    ),
    Bug(
        "floor-not-raised",
        "forgetting a channel leaves no trace, so old cursors get no gap",
        "decision 12",
        (Edit(CHANNELS, "        self.floor = max(self.floor, channel.latest_sequence)\n", ""),),
    ),
    Bug(
        "expiry-in-insertion-order",
        "channels that are due in the same second expire in the order in which a node learned of them",
        "PushUp 0.1: replicas differed",
        (
            Edit(CHANNELS, 'attrgetter("due", "id")', 'attrgetter("due")'),
            Edit(CHANNELS, 'attrgetter("due", "closed_sequence", "name")', 'attrgetter("due")'),
        ),
    ),
    Bug(
        "snapshot-without-a-field",
        "a channel that is restored from a checkpoint has lost the reason why it dropped messages",
        "a field that is added to the state, but not to its file",
        (
            Edit(
                "pushup/core/rows.py",
                "channel.dropped_sequence, channel.reason = self.dropped_sequence, self.reason",
                "channel.dropped_sequence = self.dropped_sequence",
            ),
        ),
    ),
    Bug(
        "floor-not-in-snapshot",
        "a state that is restored from a checkpoint knows of no forgotten channels",
        "as snapshot-without-a-field",
        (
            Edit(
                "pushup/core/state_transfer.py",
                "state.channels.last_id, state.channels.floor = head.last_id, head.floor",
                "state.channels.last_id = head.last_id",
            ),
        ),
    ),
    Bug(
        "change-of-the-entry-before",
        "a changed channel is recorded under the previous entry, which the last save already included",
        "save before apply",
        (
            Edit(
                STATE,
                "        self.change_log.sequence = sequence\n",
                "        self.change_log.sequence = sequence - 1\n",
            ),
        ),
    ),
    Bug(
        "key-forgotten-at-a-restart",
        "idempotency keys are not restored from the checkpoint",
        "keys in memory only",
        (Edit("pushup/core/state_transfer.py", "                table.restore(row)\n", ""),),
    ),
    Bug(
        "key-not-remembered",
        "a retried publication with a key is published again",
        "an edge that ignores keys",
        (
            Edit(
                STATE,
                "            self.keys.put(Remembered.of(key, outcome, command.fingerprint))\n",
                "            pass\n",
            ),
        ),
    ),
    Bug(
        "answered-poll-not-freed",
        "an answered poll stays in the trees of its channels, and takes memory",
        "Nchan #379: subscribers that have left are still counted",
        (Edit(INDEX, "                tree.discard(deadline, subscription)\n", ""),),
    ),
    Bug(
        "half-a-batch-is-a-place",
        "after a publication of several messages, the state counts one place",
        "batch split: a cursor within a publication",
        (Edit(STATE, "        sequence += command.width\n", "        sequence += 1\n"),),
    ),
    Bug(
        "attributes-forgotten-by-a-snapshot",
        "a message that is restored from a checkpoint has lost its event",
        "as snapshot-without-a-field",
        (Edit("pushup/core/rows.py", "m.data, m.attributes, *more", "m.data, None, *more"),),
    ),
)
