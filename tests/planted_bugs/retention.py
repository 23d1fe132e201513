"""Bugs in how long messages are kept: by class of channels, by publisher, and if they are ephemeral."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit
from tests.simulation.plan import WITH_POLICIES

CACHE, CHANNEL, SHELVES = "pushup/core/message_cache.py", "pushup/core/channel.py", "pushup/core/shelves.py"
COMMANDS, RULES, STATE = "pushup/core/commands.py", "pushup/core/machine_rules.py", "pushup/core/state.py"
CACHE_TESTS = "tests/core/test_message_cache.py"

FIELDS = "as snapshot-without-a-field"
NEAR = "channels with different retention, a new feature"

SOON = "a gap reveals an early expiry only on a channel without old messages"
ALIKE = "all replicas do the same, and every gap is true"

BUGS = (
    # Which class.
    Bug(
        "class-expires-by-the-global-value",
        "messages of every class expire after the retention for all channels",
        NEAR,
        (
            Edit(
                CACHE,
                "            horizon = time - kept.retention.seconds\n",
                "            horizon = time - self._rules.limits.retention_seconds\n",
            ),
        ),
        test=f"{CACHE_TESTS}::test_each_class_expires_at_its_own_time",
        why=SOON,
    ),
    Bug(
        "shortest-prefix-wins",
        "of several matching policies, the one with the shortest prefix applies",
        NEAR,
        (Edit(RULES, "len(policy.prefix), reverse=True)", "len(policy.prefix))"),),
        test="tests/core/test_core_model.py",
        why=SOON,
    ),
    Bug(
        "first-channel-decides",
        "a message on several channels is kept for the retention of the first",
        NEAR,
        (Edit(CACHE, "if other.seconds > retention.seconds:", "if False:"),),
        test="tests/core/test_core_model.py",
        why=SOON,
    ),
    Bug(
        "channel-keeps-its-policy",
        "a channel that is open when policies change keeps the earlier ones",
        "caches that are not invalidated",
        (Edit("pushup/core/channels.py", "if found is None or not found.is_current:", "if found is None:"),),
        needs=("new_settings",),
        limits=WITH_POLICIES,
    ),
    Bug(
        "class-keeps-its-policy",
        "messages that exist when policies change expire by the earlier policies",
        "caches that are not invalidated",
        (Edit(STATE, "                self.cache.use_limits()\n", ""),),
        test="tests/core/test_core_model.py",
        why="a node must start while messages of a changed class exist; not found in 100 seeds",
    ),
    # What a restored state has.
    Bug(
        "class-not-restored",
        "messages that are restored from a checkpoint are in the class of channels without a policy",
        FIELDS,
        (
            Edit(
                CACHE,
                "        name = row.retention_class\n",
                '        name = row.retention_class if row.retention_class == EPHEMERAL else ""\n',
            ),
        ),
        limits=WITH_POLICIES,
    ),
    Bug(
        "owner-not-restored",
        "messages that are restored from a checkpoint have no owner",
        FIELDS,
        (Edit(CACHE, "row.restore(self._shelf(name, row.owner,", 'row.restore(self._shelf(name, "",'),),
    ),
    Bug(
        "restored-bytes-count-twice",
        "after a restore, the bytes of a class count twice",
        NEAR,
        (
            Edit(
                CACHE,
                "            channel.keep(message)\n        self._put(message)\n",
                "            channel.keep(message)\n        self._put(message)\n"
                "        message.shelf.retention_class.bytes += message.size\n",
            ),
        ),
    ),
    Bug(
        "table-not-handed-over",
        "a worker that receives its parent's state lacks the table that was added last",
        "a second list of tables",
        (
            Edit(
                "pushup/core/state_transfer.py",
                "        names = self._state.names()\n",
                '        names = {table: some for table, some in self._state.names().items() if table != "keys"}\n',
            ),
        ),
        family="w",
    ),
    # Who published it.
    Bug(
        "owner-without-its-key",
        "all publishers have the same owner",
        "a field that the edge does not set",
        (
            Edit(
                "pushup/net/api/publishing.py",
                "self._limits, grant.key_name, traceparent",
                'self._limits, "", traceparent',
            ),
        ),
    ),
    # What goes when something must.
    Bug(
        "hole-in-a-channel",
        "when a publisher's oldest message is evicted, its channel keeps earlier messages of other publishers",
        "eviction by publisher, on channels with several publishers",
        (
            Edit(
                CACHE,
                "        if shelf.retention_class.is_ephemeral:\n            return",
                "        if True:\n            return",
            ),
        ),
    ),
    Bug(
        "fullest-without-its-share",
        "when the cache is full, it evicts from the class with the most bytes, whatever its share",
        NEAR,
        (Edit(SHELVES, "return self.bytes / self.retention.share, self.name", "return self.bytes, self.name"),),
        test=f"{CACHE_TESTS}::test_when_the_cache_is_full_shares_decide_which_class_evicts",
        why=ALIKE,
    ),
    Bug(
        "class-bytes-without-limit",
        "a class may take as much as all classes together",
        NEAR,
        (Edit(CACHE, "if kept.bytes + size > kept.retention.bytes:", "if kept.bytes + size > 1e18:"),),
        test=f"{CACHE_TESTS}::test_each_class_has_its_own_number_and_bytes",
        why=ALIKE,
    ),
    # Ephemeral messages.
    Bug(
        "ephemeral-leaves-a-gap",
        "a dropped ephemeral message counts as missing",
        NEAR,
        (
            Edit(
                CHANNEL,
                "            self.ephemeral_count -= 1\n        elif reason",
                "            self.ephemeral_count -= 1\n        if reason",
            ),
        ),
    ),
    Bug(
        "ephemeral-drives-out-others",
        "ephemeral messages count against their channel's retention_messages",
        NEAR,
        (
            Edit(
                CACHE,
                "            count = len(channel.messages or ()) - channel.ephemeral_count\n            enough",
                "            count = len(channel.messages or ())\n            enough",
            ),
        ),
        test=f"{CACHE_TESTS}::test_ephemeral_messages_drive_out_no_others",
        why=ALIKE,
    ),
    Bug(
        "ephemeral-takes-bytes-of-others",
        "ephemeral messages count against retention_bytes",
        NEAR,
        (
            Edit(
                CACHE,
                "        if not shelf.retention_class.is_ephemeral:\n            self.bytes += size\n",
                "        self.bytes += size\n",
            ),
        ),
    ),
    Bug(
        "ephemeral-survives-a-closing",
        "a channel that was closed and reopened keeps an earlier ephemeral message, which it has dropped",
        NEAR,
        (
            Edit(
                CHANNEL,
                "return sequence > self.dropped_sequence and sequence >= self.closed_sequence",
                "return sequence > self.dropped_sequence",
            ),
        ),
    ),
    Bug(
        "ephemeral-leaves-its-key",
        "a publication that contains only ephemeral messages stores its key, which displaces others",
        NEAR,
        (
            Edit(
                STATE,
                "if key is not None and not command.is_ephemeral:",
                "if key is not None:",
            ),
        ),
        test="tests/net/api/test_application.py::test_a_key_is_for_messages_that_are_ephemeral_or_not",
        why="a publisher wants no repetition, so the checker does not complain",
    ),
    Bug(
        "ephemeral-not-compared",
        "the comparison of a reused key ignores whether the messages were ephemeral",
        "a field that is added to a message, but not to the comparison",
        (
            Edit(
                COMMANDS,
                "            if draft.attributes is not None:\n                digest",
                "            if draft.attributes is not None and not draft.is_ephemeral:\n                digest",
            ),
        ),
        test="tests/net/api/test_application.py::test_a_key_is_for_messages_that_are_ephemeral_or_not",
        why="the simulated publishers use each key for only one publication",
    ),
)
