"""Bugs in following the log in Redis, and in its scripts."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit
from tests.simulation.plan import STRANGERS

AT = "pushup/broadcast/redis"
RESTARTS = (
    "stop_all",
    "redis_old",
    "redis_power",
    "redis_failover",
    "redis_restart",
    "drain_and_failover",
    "redis_without_save",
)
"""Steps after which Redis is in another run."""

LOSSES = (*RESTARTS, "redis_flush", "redis_evict", "poison")
"""Steps after which another epoch may begin, or Redis may have forgotten nodes."""

_BUGS = (
    # The log, and who may write to it.
    Bug(
        "append-to-another-epoch",
        "an entry is appended even if the log is in another epoch",
        "fencing tokens that are never checked",
        (Edit(f"{AT}/append.lua", "if state[1] ~= ARGV[1] or not", "if not"),),
        test="tests/broadcast/redis/test_log.py::test_a_refused_publication_has_no_sequence",
        why="rare; found within 200 seeds from none of 3 starting points",
    ),
    Bug(
        "switch-after-any-entry",
        "two nodes that decide at the same time both rename the epoch",
        "decision 15: one atomic script",
        (Edit(f"{AT}/switch.lua", "if state[3] ~= ARGV[1] then", "if false then"),),
        test="tests/broadcast/redis/test_log.py::test_only_one_entry_follows_another",
        why="rare; not found in 200 seeds",
    ),
    Bug(
        "begin-over-any-epoch",
        "a node begins an epoch although another node has just begun one",
        "decision 15",
        (Edit(f"{AT}/begin.lua", "(state[1] or '') ~= ARGV[1] or ", ""),),
        test="tests/broadcast/redis/test_log.py",
        why="two nodes must decide in the same milliseconds; not found in 200 seeds",
    ),
    Bug(
        "time-goes-back",
        "an entry gets the time of Redis even if the clock of Redis was set back",
        "PushUp 0.1: clocks",
        (
            Edit(
                f"{AT}/append.lua",
                "math.max(now[1] + now[2] / 1000000, tonumber(state[3]))",
                "now[1] + now[2] / 1000000",
            ),
        ),
        needs=("redis_jump",),
    ),
    Bug(
        "publisher-retried-without-a-key",
        "a node repeats a publication whose outcome it does not know",
        "clients of brokers that retry by default",
        (
            Edit(
                f"{AT}/session.py",
                "                self._pending_publishers.tell(tag, Refusal.UNKNOWN_OUTCOME(str(reply)))\n"
                "            case ErrorReply():",
                "                _, on_outcome, _ = self._pending_publishers._waiting[tag]\n"
                "                self._pending_publishers._waiting[tag] = (0.0, lambda outcome: None, 0)\n"
                "                self._pending_publishers.tell(tag, Refusal.UNKNOWN_OUTCOME(str(reply)))\n"
                "                self._clock.callLater(1.0, lambda: self.append(self._last_command, on_outcome))\n"
                "            case ErrorReply():",
            ),
            Edit(
                f"{AT}/session.py",
                "        if self._pending_publishers.add(tag, command, on_outcome):\n",
                "        self._last_command = command\n"
                "        if self._pending_publishers.add(tag, command, on_outcome):\n",
            ),
        ),
        needs=(*RESTARTS, "cut", "cut_all", "clog", "redis_pause", "late"),
    ),
    # Whose log it is.
    Bug(
        "follows-another-cluster",
        "a node follows any log at its address, and begins an epoch there",
        "docs/internals/reliability.md, which cluster a log belongs to",
        (
            Edit(
                f"{AT}/recovery.py",
                "    if now.cluster and tail.cluster and now.cluster != tail.cluster:",
                "    if False:",
            ),
        ),
        family=STRANGERS,
    ),
    Bug(
        "epoch-founds-a-cluster",
        "a new epoch does not keep the name of its cluster",
        "docs/internals/reliability.md, which cluster a log belongs to",
        (Edit(f"{AT}/log.py", "cluster or head.epoch)", "head.epoch)"),),
        test="tests/broadcast/redis/test_clusters.py",
        why="not measured",
    ),
    Bug(
        "keys-of-an-incomplete-state",
        "an epoch has the keys of entries that were applied to a state of which a part is missing",
        "simulation, seed 21599: a refused publication, and a 201 for its retry",
        (Edit(f"{AT}/catch_up.py", " and not loaded.complete:", " and False:"),),
        test="tests/broadcast/redis/test_restarts.py::test_a_refused_publication_does_not_succeed_later",
        why="rare; found once in 2,200 seeds",
    ),
    Bug(
        "epoch-without-keys",
        "an epoch that begins has no idempotency keys, so a publisher that tries again publishes again",
        "one key, published twice after Redis and a node died",
        (
            Edit(
                "pushup/core/state_transfer.py",
                "in state.bounded.values():\n            in_all",
                "in ():\n            in_all",
            ),
        ),
        needs=LOSSES,
    ),
    Bug(
        "epoch-with-the-keys-of-the-log-only",
        "an epoch that begins has the idempotency keys that are in Redis, and not those that Redis has lost",
        "one key, published twice after Redis lost its last second",
        (Edit(f"{AT}/catch_up.py", "(state,) if state is own else (own, state)", "(state,)"),),
        needs=LOSSES,
    ),
    Bug(
        "durable-although-there-was-a-replica",
        "a replica that is started as a primary passes for the server that syncs each write",
        "primary and node lost together",
        (Edit(f"{AT}/durability.py", "log.syncs_each_write and not self.is_disproved", "log.syncs_each_write"),),
        family=STRANGERS,
        needs=("lost_together",),
    ),
    # Following.
    Bug(
        "chain-not-checked",
        "an entry is applied without a check that it follows the last one",
        "logs whose entries are identified only by number",
        (Edit(f"{AT}/replica.py", "        if logged.after != after:\n", "        if False:\n"),),
        test="tests/broadcast/redis/test_redis_broadcast.py::test_a_loss_starts_one_new_epoch_for_all_nodes",
        why="rare; not found in 200 seeds",
    ),
    Bug(
        "applied-twice-after-a-reconnect",
        "a node that reconnects reads from one entry too early, and applies its last entry again",
        "an entry applied twice after a reconnect",
        (
            Edit(
                f"{AT}/session.py",
                "                entries = await reading.read(last.epoch, last.sequence)\n",
                "                entries = await reading.read(last.epoch, last.sequence - back)\n                back = 0\n",
            ),
            Edit(
                f"{AT}/session.py", "        pace = Pace(self._clock)\n", "        pace, back = Pace(self._clock), 1\n"
            ),
            Edit(f"{AT}/replica.py", "        if logged.after != after:\n", "        if False:\n"),
            Edit(
                "pushup/core/state.py",
                "or entry.sequence != sequence + 1 or entry.time < self.time:",
                "or entry.sequence > sequence + 1 or entry.time < self.time:",
            ),
        ),
    ),
    Bug(
        "end-not-compared",
        "a report does not check whether the log still contains the node's last entry",
        "docs/internals/reliability.md, how losses are detected",
        (
            Edit(
                f"{AT}/heartbeat.py",
                "        elif not tail.includes(last) or (tail.sequence == last.sequence and tail.tag != tag):\n",
                "        elif False:\n",
            ),
        ),
        test="tests/broadcast/redis/test_redis_broadcast.py::test_a_fork_of_the_same_length_is_noticed_in_reports",
        why="rare; not measured",
    ),
    Bug(
        "run-not-compared",
        "a report does not check whether Redis is in another run",
        "decision 15",
        (Edit(f"{AT}/heartbeat.py", "        if commands.run != tail.run:\n", "        if False:\n"),),
        test="tests/broadcast/redis/test_damage.py::test_a_damaged_field",
        why="rare; not measured",
    ),
    Bug(
        "end-without-epoch",
        "only sequences decide whether the log has reached an entry",
        "numbers that begin again after a restart",
        (
            Edit(
                f"{AT}/records.py",
                "return cursor.epoch == self.epoch and cursor.sequence <= self.sequence",
                "return cursor.sequence <= self.sequence",
            ),
        ),
        test="tests/broadcast/redis/test_acknowledgements.py::test_replicas_of_a_log_without_the_entry_do_not_count",
        why="rare; not measured",
    ),
    Bug(
        "shown-before-it-is-complete",
        "a node that loads its state again shows held polls the checkpoint before it has applied the later entries",
        "found by the simulation before a release (seed 1082)",
        (
            Edit(
                f"{AT}/replica.py",
                "        state.note_changes()\n        tag = loaded",
                "        state.note_changes()\n        self.follower.start_from(state)\n        tag = loaded",
            ),
        ),
    ),
    # What a restart can know.
    Bug(
        "log-of-a-restart-trusted",
        "after a restart of Redis, its log counts as complete",
        "PushUp 0.1: a log that was rolled back; Redis under appendfsync everysec",
        (
            Edit(
                f"{AT}/recovery.py",
                "    if now.is_durable and (now.has_state or now.others_vouch is not None):\n",
                "    if True:\n",
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_redis_broadcast.py::test_after_a_complete_restart_the_durability_of_redis_decides",
        why="a node that knows more, or a mark, also shows the loss; not found in 200 seeds",
    ),
    Bug(
        "promoted-replica-trusted",
        "a promoted replica counts as a server that syncs each write",
        "Redis Sentinel loses acknowledged writes (Jepsen, 2013)",
        (Edit(f"{AT}/records.py", 'if info.get("second_repl_offset", "-1") != "-1" else ""', 'if False else ""'),),
        test="tests/broadcast/redis/test_log.py::test_what_survives_a_restart",
        why="rare; not measured",
    ),
    Bug(
        "behind-and-vouches",
        "a node follows the log although the log lacks entries that the node has applied",
        "PushUp 0.1: a log that was rolled back",
        (
            Edit(
                f"{AT}/recovery.py",
                "    if (now.last_entry is LastEntry.MISSING and is_older) or "
                "(now.seen is not None and contents.lacks(now.seen)):\n",
                "    if False:\n",
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_recovery.py::test_the_situation_decides",
        why="rare; found within 200 seeds from 1 of 3 starting points",
    ),
    Bug(
        "vouchers-of-the-listed-only",
        "a node that Redis has forgotten, but that another node has seen, need not vouch",
        "decision 15",
        (
            Edit(
                f"{AT}/records.py",
                "self.members.union(*self.by_node.values()) <= self.by_node.keys()",
                "self.members <= self.by_node.keys()",
            ),
        ),
        test="tests/broadcast/redis/test_log.py::test_who_vouches",
        why="rare; not measured",
    ),
    Bug(
        "one-voucher-is-enough",
        "one node that vouches for the log is enough",
        "quorums of one",
        (
            Edit(
                f"{AT}/records.py",
                "bool(self.by_node) and self.members.union(*self.by_node.values()) <= self.by_node.keys()",
                "bool(self.by_node)",
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_restarts.py::test_a_node_that_dies_with_redis_does_not_vouch",
        why="a node that knows more, or a mark, also shows the loss; not found in 200 seeds",
    ),
    Bug(
        "same-name-after-a-restart",
        "a complete log keeps its name in another run of Redis",
        "PushUp 0.1: a log that was rolled back",
        (
            Edit(
                f"{AT}/catch_up.py",
                "        epoch = self._next(tail.epoch, tail.cluster)\n",
                '        return await log.connection.ask("HSET", log._state, "run", log.run)\n',
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_restarts.py::test_every_node_vouches",
        why="without a loss the name does not matter, and a loss begins an epoch; not found in 200 seeds",
    ),
    Bug(
        "no-mark",
        "after its own restart, a node does not know what it had applied",
        "PushUp 0.1: a log that was rolled back: Redis restored while all nodes were stopped",
        (
            Edit(
                f"{AT}/redis_broadcast.py",
                "None if self._progress_mark is None else self._progress_mark.read()",
                "None",
            ),
        ),
        test="tests/broadcast/redis/test_restarts.py::test_what_a_mark_tells_a_new_node",
        why="rare; not measured",
    ),
    Bug(
        "names-unknown-to-a-loader",
        "a node that loads the log does not learn the names that the epoch got after the checkpoint",
        "as snapshot-without-a-field",
        (
            Edit(
                f"{AT}/checkpoint_loader.py",
                "            self.past = (*self.past, PastEpoch(self.epoch, logged.last - 1))\n",
                "",
            ),
        ),
        test="tests/broadcast/redis/test_restarts.py::test_what_a_mark_tells_a_new_node",
        why="rare; not measured",
    ),
    # The checkpoint.
    Bug(
        "last-save-lost",
        "a node saves the changes that it remembers, although Redis has lost the previous save",
        "PushUp 0.1: a lost checkpoint",
        (
            Edit(
                f"{AT}/leader.py",
                "            if report.saved < self._replica.follower.changes_known_after:\n",
                "            if False:\n",
            ),
        ),
        needs=(*RESTARTS, "redis_evict"),
    ),
    Bug(
        "save-over-another-save",
        "a save does not check whether another node has saved since",
        "lost updates",
        (Edit(f"{AT}/save.lua", "if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then", "if state[1] ~= ARGV[1] then"),),
        test="tests/broadcast/redis/test_log.py::test_a_save_that_another_came_before_changes_nothing",
        why="two nodes must save over the same checkpoint; median above 200 seeds (151 once)",
    ),
    Bug(
        "save-into-another-epoch",
        "a save does not check whether another epoch has begun since",
        "fencing tokens that are never checked",
        (Edit(f"{AT}/save.lua", "if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then", "if state[2] ~= ARGV[2] then"),),
        needs=LOSSES,
        test="tests/broadcast/redis/test_log.py::test_a_save_of_an_epoch_that_is_over_changes_nothing",
        why="both epochs must be at the same save; not found in 200 seeds",
    ),
    Bug(
        "save-during-a-load",
        "saves do not wait for a node that reads the checkpoint in pieces, and the node does not notice",
        "PushUp 0.1: long turns: snapshots that are not atomic",
        (
            Edit(f"{AT}/save.lua", "if redis.call('ZCOUNT', KEYS[4], now, now + 60) > 0 then", "if false then"),
            Edit(f"{AT}/leader.py", "            if not report.is_loading:\n", "            if True:\n"),
            Edit(
                f"{AT}/checkpoint_loader.py",
                "        if (await self._head())[9] != fields[9]:\n            return None\n",
                "",
            ),
        ),
    ),
    Bug(
        "part-missing-unnoticed",
        "it is not checked whether a key of the checkpoint was evicted",
        "Redis with maxmemory-policy allkeys-lru",
        (
            Edit(f"{AT}/save.lua", "if tonumber(state[3]) ~= redis.call('HLEN', KEYS[3]) or", "if false or"),
            Edit(f"{AT}/checkpoint_loader.py", "            is_whole=complete and chain", "            is_whole=chain"),
        ),
        needs=("redis_evict",),
        test="tests/broadcast/redis/test_redis_broadcast.py::test_missing_data_is_noticed_when_saving",
        why="few plans evict a key; median above 200 seeds (32 once)",
    ),
    Bug(
        "limits-not-in-the-checkpoint",
        "a starting node uses the limits of its own settings, not those of the log",
        "PushUp 0.1: different settings: limits that take effect at one node first",
        (
            Edit(
                f"{AT}/leader.py",
                "        if await log.switch(self._replica.tag, ",
                "        if isinstance(command, Configure):\n"
                "            follower.state.rules.limits = command.limits\n"
                "        elif await log.switch(self._replica.tag, ",
            ),
        ),
        needs=("new_settings",),
    ),
    # Entries that cannot be read, and other settings.
    Bug(
        "unreadable-entry-stops-everybody",
        "nodes wait forever at an entry that none of them can read",
        "PushUp 0.1: an entry that cannot be read",
        (Edit(f"{AT}/leader.py", ">= STUCK_SECONDS:", "< 0:"),),
        needs=("poison", "poison_one"),
    ),
    Bug(
        "unknown-kind-is-an-error",
        "an entry that cannot be decoded is an unexpected error, repeated forever",
        "PushUp 0.1: an entry that cannot be read",
        (
            Edit(
                f"{AT}/records.py",
                '        return LogEntry(Unreadable(f"{epoch}-{last}", str(error)), last, values[b"tag"], values[b"after"])\n',
                "        raise ValueError(str(error)) from None\n",
            ),
        ),
        needs=("poison",),
        test="tests/broadcast/redis/test_agreement.py::test_an_entry_that_no_node_can_read_ends_the_epoch",
        why="rare; found within 200 seeds from none of 3 starting points",
    ),
    Bug(
        "never-tries-again",
        "a node that failed once at an entry never retries it",
        "found by the simulation before a release (seed 570)",
        (Edit(f"{AT}/replica.py", '        self._failed = b""\n        try:\n', "        try:\n"),),
        needs=("poison", "poison_one"),
        test="tests/broadcast/redis/test_agreement.py::test_a_node_that_could_not_apply_an_entry_tries_it_again",
        why="another node saves a checkpoint beyond the entry before the retry; not found in 200 seeds",
    ),
    Bug(
        "stuck-in-the-old-name",
        "nodes that are stuck at an entry do not give up the log once its epoch has another name",
        "found by the simulation before a release (seed 10014)",
        (
            Edit(
                f"{AT}/leader.py",
                "            await self._saver.begin_epoch(log, report.tail.epoch, reason)\n",
                "            await self._saver.begin_epoch(log, self._replica.cursor.epoch, reason)\n",
            ),
        ),
        needs=("poison", "poison_one"),
        test="tests/broadcast/redis/test_leader.py::test_an_epoch_that_has_another_name_by_now",
        why="the name must change while nodes are stuck; median above 200 seeds (5 once)",
    ),
    Bug(
        "other-settings-wait",
        "a node does not follow a log whose limits differ from its own",
        "PushUp 0.1: different settings",
        (
            Edit(
                f"{AT}/catch_up.py",
                "                    loaded = await log.load(self._node_id)\n",
                "                    loaded = await log.load(self._node_id)\n"
                "                    own = self._replica.follower.state.limits\n"
                "                    if loaded is not None and not self._replica.tag and loaded.snapshot.limits != own:\n"
                '                        raise CannotFollow("other nodes have other limits")\n',
            ),
        ),
        needs=("new_settings",),
    ),
    # Acknowledgements.
    Bug(
        "replicated-without-a-write",
        "WAIT runs on a connection that has written nothing, and succeeds immediately",
        "Redis' documentation of WAIT",
        (Edit(f"{AT}/mark.lua", "redis.call('HSET', KEYS[1], 'waits', 1)\n", "-- 'waits'\n"),),
    ),
    Bug(
        "replicated-in-another-run",
        "WAIT counts for an entry that the log did not contain when it began",
        "docs/lab/faults.md: a false `replicated` after a failover",
        (
            Edit(
                f"{AT}/acknowledgements.py",
                "                    if end.includes(waiting.cursor):\n",
                "                    if True:\n",
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_acknowledgements.py::test_replicas_of_a_log_without_the_entry_do_not_count",
        why="an entry must be lost while its publisher waits for replicas; not found in 200 seeds",
    ),
    Bug(
        "stable-without-everybody",
        "`stable` counts only the nodes that Redis knows, although Redis may have lost some",
        "docs/internals/reliability.md, acknowledgements",
        (Edit(f"{AT}/acknowledgements.py", " and self._clock.seconds() >= self._members_known_at:", ":"),),
        needs=LOSSES,
        test="tests/broadcast/redis/test_acknowledgements.py::test_nothing_is_stable_while_a_node_may_be_missing_from_the_list",
        why="Redis must forget a node that is behind, while a publisher waits; not found in 200 seeds",
    ),
    Bug(
        "incomplete-list-forgotten",
        "right after Redis was emptied, a node takes the nodes that Redis knows for all",
        "seed 12074 (docs/internals/simulation.md)",
        (
            Edit(
                f"{AT}/heartbeat.py",
                "if now < self._incomplete_at + LEASE_SECONDS:",
                "if False:",
            ),
        ),
        needs=LOSSES,
        test="tests/broadcast/redis/test_redis_broadcast.py::test_nothing_is_stable_while_redis_has_forgotten_the_nodes",
        why="Redis must forget a node that is behind, while a publisher waits; not found in 200 seeds",
    ),
    Bug(
        "loaded-log-not-marked",
        "a node that has only loaded the log writes no mark",
        "seed 10020 (docs/internals/simulation.md)",
        (
            Edit(
                f"{AT}/redis_broadcast.py",
                "            self._progress_mark.cluster = self._replica.cluster\n        self._note_mark()\n",
                "            self._progress_mark.cluster = self._replica.cluster\n",
            ),
        ),
    ),
    Bug(
        "first-to-start-decides",
        "after everything crashed, the node that starts first continues although another has a newer mark",
        "real faults: older-file (docs/lab/cluster-faults.md)",
        (
            Edit(
                f"{AT}/recovery.py",
                "now.is_durable and (now.has_state or now.others_vouch is not None)",
                "now.is_durable",
            ),
        ),
        needs=RESTARTS,
        test="tests/broadcast/redis/test_restarts.py::test_a_node_whose_mark_is_older_waits_for_the_others",
        why="all must crash when one mark is older than another; not found in 200 seeds",
    ),
    Bug(
        "stable-by-the-fastest",
        "`stable` is reported when the first node has applied the entry",
        "min and max",
        (
            Edit(
                "pushup/broadcast/redis/acknowledgements.py",
                "min(int(sequence) for _, _, sequence in places)",
                "max(int(sequence) for _, _, sequence in places)",
            ),
        ),
    ),
    Bug(
        "stable-across-epochs",
        "`stable` compares sequences of different epochs",
        "docs/lab/faults.md: stable told too early after a new epoch",
        (
            Edit(
                f"{AT}/acknowledgements.py",
                "if waiting.cursor.epoch == epoch and waiting.cursor.sequence <= sequence:",
                "if waiting.cursor.sequence <= sequence:",
            ),
        ),
        needs=LOSSES,
        test="tests/broadcast/redis/test_acknowledgements.py::test_a_change_of_epoch_confirms_nothing",
        why="an epoch must begin while a publisher waits, and reach the same sequence; not found in 200 seeds",
    ),
    Bug(
        "lease-of-a-cut-off-node-ends-at-once",
        "a node that has not reported for a moment does not count for `stable`, although it is alive",
        "`stable` counted by a node whose lease has ended",
        (
            Edit(
                f"{AT}/report.lua",
                "local ends = string.format('%.6f', time + ARGV[3])",
                "local ends = string.format('%.6f', time + 0.1)",
            ),
        ),
    ),
)

BUGS = tuple(bug._replace(kind="redis") for bug in _BUGS)
