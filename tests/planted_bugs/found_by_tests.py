"""Defences that the simulation cannot see, each switched off, and the test that notices it."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

REDIS = "pushup/broadcast/redis"
REDIS_TESTS = "tests/broadcast/redis"

SMALL = "the simulated states are small"
ONE = "there are two defences, and the simulation notices only if both are missing"

BUGS = (
    # Work in slices.
    Bug(
        "no-pause-while-following",
        "a node applies a whole backlog in one turn of its reactor",
        "PushUp 0.1: long turns",
        (Edit("pushup/broadcast/work_budget.py", "if self._spent and self._spent + units > TURN_UNITS:", "if False:"),),
        test=f"{REDIS_TESTS}/test_checkpoint_loader.py",
        why=SMALL,
    ),
    Bug(
        "fan-out-in-one-turn",
        "all woken polls are answered in one turn",
        "Nchan #367: polls get stuck with many channels",
        (
            Edit(
                "pushup/node/node.py",
                "self._answer(self.polls.deliver(SLICE))",
                "self._answer(self.polls.deliver(10**6))",
            ),
        ),
        test="tests/test_node.py",
        why=SMALL,
    ),
    Bug(
        "fan-out-ends-after-a-slice",
        "only the first 256 of the woken polls are answered",
        "Nchan #367",
        (
            Edit(
                "pushup/node/node.py",
                "        self._answer(self.polls.deliver(SLICE))\n        self._deliver_soon()\n",
                "        self._answer(self.polls.deliver(SLICE))\n",
            ),
        ),
        test="tests/test_node.py",
        why=SMALL,
    ),
    Bug(
        "closing-counts-nothing",
        "one entry closes any number of channels, whatever their size",
        "PushUp 0.1: long turns",
        (Edit("pushup/core/state.py", "count += len(channel.messages or ())", "count += 0"),),
        test="tests/core/test_state.py",
        why=SMALL,
    ),
    Bug(
        "groups-without-end",
        "the journal commits all waiting entries as one group",
        "PushUp 0.1: long turns",
        (
            Edit(
                "pushup/broadcast/journal_groups.py",
                "while waiting and sequence < end and size < GROUP_BYTES:",
                "while waiting:",
            ),
        ),
        test="tests/broadcast/test_journal.py",
        why=SMALL,
    ),
    # Limits.
    Bug(
        "output-without-limit",
        "a client that does not read takes unlimited memory",
        "slow readers",
        (Edit("pushup/net/output_buffer.py", "return self.size <= self._limit", "return True"),),
        test="tests/net/test_output_buffer.py",
        why="the simulated answers are smaller than any limit",
    ),
    Bug(
        "outputs-without-limit",
        "clients that do not read take unlimited memory together",
        "PushUp before 0.2: 1,000 streams of different channels took 924 MB",
        (Edit("pushup/net/output_buffer.py", "            buffer.slow.lost()\n", "            break\n"),),
        test="tests/net/test_output_budget.py",
        why="the simulated answers are smaller than any limit",
    ),
    Bug(
        "room-without-limit",
        "any number of publications may wait for a log that hangs",
        "docs/lab/faults.md, a single node",
        (Edit("pushup/broadcast/admission.py", "if self.bytes and self.bytes + size > self._limit:", "if False:"),),
        test="tests/broadcast/test_admission.py",
        why="as output-without-limit",
    ),
    # Clocks.
    Bug(
        "timers-on-the-wall-clock",
        "the reactor's timers follow the machine's clock when it is set",
        "PushUp 0.1: clocks; Twisted #2424",
        (Edit("pushup/clock.py", "reactor.seconds = time.monotonic", "reactor.seconds = time.time"),),
        test="tests/test_clock.py",
        why="the simulated reactor has its own clock",
    ),
    Bug(
        "expires-by-the-nodes-clock",
        "a node asks for expiry when something is due by its own clock",
        "PushUp 0.1: clocks; decision 14",
        (
            Edit(
                f"{REDIS}/redis_broadcast.py",
                "self._heartbeat.redis_time())",
                "self._wall())",
            ),
        ),
        test=f"{REDIS_TESTS}/test_redis_clocks.py",
        why="entries expire by their own time, so the only cost is an entry a second",
    ),
    # The disk.
    Bug(
        "commit-not-synced",
        "a commit of the journal returns before the data is on disk",
        "fsyncgate",
        (Edit("pushup/broadcast/journal_file.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"),),
        test="tests/broadcast/test_journal_file.py",
        why="the simulated disk is SQLite in memory",
    ),
    Bug(
        "keys-not-compared",
        "a key that was used for other messages returns their outcome",
        "docs/lab/faults.md, a single node",
        (Edit("pushup/core/state.py", "if before.fingerprint == command.fingerprint:", "if True:"),),
        test="tests/core/test_state.py",
        why="the simulated publishers do not make this mistake",
    ),
    # Redis.
    Bug(
        "reading-stuck-unnoticed",
        "a node that sends to Redis but gets no entries from it does nothing",
        "Centrifugo #1189: healthy but silent after a failover",
        (
            Edit(
                f"{REDIS}/heartbeat.py",
                "        elif now - max(self._since",
                "        elif False and now - max(self._since",
            ),
        ),
        test=f"{REDIS_TESTS}/test_redis_broadcast.py",
        why="a simulated fault concerns both connections of a node",
    ),
    Bug(
        "ready-while-silent",
        "a node that hears nothing from Redis reports that it is ready",
        "Centrifugo #1189",
        (
            Edit(
                f"{REDIS}/redis_broadcast.py",
                "if self._lease.is_current else",
                "if True else",
            ),
        ),
        test=f"{REDIS_TESTS}/test_redis_broadcast.py",
        why="its clients wait, and get everything in the end",
    ),
    Bug(
        "newer-log-followed",
        "a node follows a log of a version that it does not know",
        "PushUp 0.1: an entry that cannot be read",
        (Edit(f"{REDIS}/recovery.py", "    if tail.version > LATEST_VERSION:\n", "    if False:\n"),),
        test=f"{REDIS_TESTS}/test_recovery.py",
        why="all simulated nodes have the same release",
    ),
    Bug(
        "saves-do-not-wait",
        "a checkpoint is saved while another node reads it in pieces",
        "PushUp 0.1: long turns",
        (Edit(f"{REDIS}/save.lua", "if redis.call('ZCOUNT', KEYS[4], now, now + 60) > 0 then", "if false then"),),
        test=f"{REDIS_TESTS}/test_log.py",
        why=ONE,
    ),
    Bug(
        "replaced-while-it-is-read",
        "a node that reads a checkpoint in pieces does not check that all pieces belong to the same one",
        "PushUp 0.1: long turns",
        (
            Edit(
                f"{REDIS}/checkpoint_loader.py",
                "        if (await self._head())[9] != fields[9]:\n            return None\n",
                "",
            ),
        ),
        test=f"{REDIS_TESTS}/test_checkpoint_loader.py",
        why=ONE,
    ),
    # Cursors that are ahead, and runs of Redis.
    Bug(
        "held-across-a-new-name",
        "a poll that is held ahead of its node stays held when the order continues under another name",
        "PushUp 0.1: a log that was rolled back",
        (
            Edit(
                "pushup/core/held_polls.py",
                "            self._migration.end_good(touched.continued_after)\n"
                "            index.lose(index.ahead(), touched.continued_after)\n",
                "            pass\n",
            ),
        ),
        test="tests/core/test_versions.py",
        why="an order that is proven complete has lost nothing that a client has seen",
    ),
    Bug(
        "lost-cursor-reads-again",
        "a client beyond the end of a former epoch gets earlier messages again",
        "found by the simulation before a release (seeds 53, 274, 557)",
        (
            Edit(
                "pushup/core/reading.py",
                "        after = past.good_up_to(cursor.epoch)\n",
                "        after = 0\n",
            ),
        ),
        test="tests/core/test_versions.py",
        why="the checker allows repetitions after a rollback that cannot be detected",
    ),
    Bug(
        "ahead-answered-at-once",
        "a poll whose cursor is ahead of its node gets an empty answer, and never a gap for what the order has lost",
        "PushUp 0.1: a log that was rolled back: a cursor ahead of the queue",
        (
            Edit(
                "pushup/core/held_polls.py",
                "        if is_ahead and deadline < now + AHEAD_SECONDS:\n            deadline = now + AHEAD_SECONDS\n",
                "",
            ),
        ),
        test="tests/core/test_subscriptions.py",
        why="as end-never-asked",
    ),
    Bug(
        "end-never-asked",
        "a node does not find out whether a cursor ahead of it is beyond the end of the order",
        "PushUp 0.1: a log that was rolled back: a cursor ahead of the queue",
        (
            Edit(
                "pushup/node/node.py",
                "                self._order_end.find()\n        else:\n",
                "                pass\n        else:\n",
            ),
        ),
        test="tests/test_node.py",
        why="no epoch spans two runs, so no cursor is beyond the end of its epoch; this is a second defence",
    ),
    Bug(
        "begins-over-an-unknown-entry",
        "a new epoch drops the key of an entry that arrived while it began",
        "found by the simulation (seed 500009)",
        (
            Edit(
                f"{REDIS}/begin.lua",
                "\n  or ARGV[11] ~= '' and state[2] ~= ARGV[11] then",
                " then",
            ),
        ),
        test="tests/broadcast/redis/test_log.py",
        why="an entry arrives within these few round trips in one of 265 seeds",
    ),
    Bug(
        "append-in-another-run",
        "a node that has not noticed a restart of Redis still appends",
        "decision 15: an append is refused in another run",
        (
            Edit(
                f"{REDIS}/append.lua",
                " or not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. ARGV[5], 1, true) then",
                " then",
            ),
        ),
        test="tests/broadcast/redis/test_log.py",
        why="in the simulation, the server that takes over is another process, and connections to the old one break",
    ),
    Bug(
        "head-without-its-end",
        "a request is answered before its whole head has arrived, if its first lines are those of a known head",
        "PushUp before 0.2: a cursor in the second segment was ignored",
        (
            Edit(
                "pushup/net/known_heads.py",
                "        head_end = data.rfind(_END) + len(_END)  # from the end, because most requests have no body\n"
                "        if not 0 <= line_end < head_end:\n"
                "            return None\n"
                "        key = data[line_end:head_end]\n",
                "        head, end, _ = data.partition(_END)\n"
                "        head_end = len(head + end)\n"
                "        if line_end < 0:\n"
                "            return None\n"
                "        key = data[line_end : len(head)] + _END\n",
            ),
        ),
        test="tests/net/test_cut_anywhere.py",
        why="simulated clients send each request in one piece",
    ),
    Bug(
        "answered-poll-stays-with-its-subject",
        "an answered poll is still listed under its user, and is answered again when the user's polls are ended",
        "a second index that is not kept up to date",
        (
            Edit(
                "pushup/net/api/polling.py",
                "    def answer(self, answer: Answer) -> None:\n        self._release()\n",
                "    def answer(self, answer: Answer) -> None:\n",
            ),
        ),
        test="tests/net/api/test_held_on_grants.py",
        why="simulated clients need no authorization",
    ),
    Bug(
        "issued-when-it-was-answered",
        "a decision made before a logout, but received after it, counts as made after it",
        "tokens that get their time when they are sealed",
        (
            Edit(
                "pushup/backends/authorization.py",
                "            decision = await self._authorizer(channels, headers)\n",
                "            decision = await self._authorizer(channels, headers)\n            issued_at = int(self._wall())\n",
            ),
        ),
        test="tests/backends/test_authorization.py",
        why="simulated clients need no authorization",
    ),
    Bug(
        "url-ticket-for-every-page",
        "a URL ticket that another site has got hold of is valid there",
        "signed URLs that are not bound to a page",
        (
            Edit(
                "pushup/backends/tickets.py",
                'text = "\\n".join((label, head, *sorted(set(channels))))',
                'text = "\\n".join((label.partition("\\n")[0], head, *sorted(set(channels))))',
            ),
        ),
        test="tests/net/api/test_url_tickets.py",
        why="simulated clients use no URL tickets",
    ),
    Bug(
        "url-ticket-without-a-name",
        "a token is revoked by its name, and a URL ticket that stands for it goes on",
        "credentials that are exchanged for others, and forget what they were",
        (Edit("pushup/backends/tickets.py", "            token_id=token_id,\n", ""),),
        test="tests/net/api/test_url_tickets.py",
        why="simulated clients use no URL tickets",
    ),
    Bug(
        "request-kept-by-its-parser",
        "the parser that connections share keeps its last request, URL ticket included",
        "found by the test before a release",
        (
            Edit(
                "pushup/net/http1.py",
                "        self.requests = []\n        return requests\n",
                "        return requests\n",
            ),
        ),
        test="tests/net/api/test_url_tickets.py",
        why="simulated clients use no URL tickets",
    ),
)
