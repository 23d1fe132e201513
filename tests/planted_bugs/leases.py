"""Bugs in what a node says of itself: whether it knows every stable message, and whether it takes publications."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit
from tests.planted_bugs.redis import AT, LOSSES

LEASES = "tests/broadcast/redis/test_leases.py"
DAMAGE = "tests/broadcast/redis/test_damage.py"
REFUSALS = "tests/broadcast/redis/test_refusals.py"

_BUGS = (
    Bug(
        "current-whatever-its-lease",
        "a node that was cut off or stopped, or has just joined, says that there is nothing else",
        "an attack: false `stable`",
        (
            Edit(
                f"{AT}/redis_broadcast.py",
                "        return self._lease.is_current\n",
                "        return True\n",
            ),
        ),
        test=LEASES,
        why="not measured",
    ),
    Bug(
        "lease-counts-from-the-reply",
        "a node takes its lease to begin when the reply to its report comes",
        "leases by the holder's clock: the request's time is the bound",
        (Edit(f"{AT}/heartbeat.py", "self._lease.renewed(asked_at,", "self._lease.renewed(self._uptime(),"),),
        test=f"{LEASES}::test_a_reply_that_took_long_says_little",
        why="a reply must take longer than the margin; not measured",
    ),
    Bug(
        "current-with-the-first-report",
        "a node whose lease begins anew is current before it has applied what the log contained then",
        "an attack: a node that joins at a round trip of 1 s",
        (
            Edit(
                f"{AT}/lease.py",
                "            self.lapse()\n        if self._end",
                "            pass\n        if self._end",
            ),
        ),
        test=f"{LEASES}::test_a_node_that_was_cut_off_is_current_when_it_has_caught_up",
        why="not measured",
    ),
    Bug(
        "current-after-reconnecting",
        "a node that has loaded the log again is current although it has not reported since",
        "an attack: a node that joins",
        (Edit(f"{AT}/heartbeat.py", "        self._lease.lapse()  # with whatever state recovery has left\n", ""),),
        test=f"{LEASES}::test_a_node_that_has_reconnected_reports_before_it_is_current",
        why="its lease lasts, so Redis counts it; a second line of defence",
    ),
    Bug(
        "current-after-leaving",
        "a node that has given its lease up still says that there is nothing else",
        "reading the code",
        (Edit(f"{AT}/heartbeat.py", "        self._lease.lapse()\n", ""),),
        test=f"{LEASES}::test_a_node_that_leaves_is_not_current",
        why="the connections of a node that leaves have ended by then; not measured",
    ),
    Bug(
        "held-only-if-it-has-a-timeout",
        "a poll with a cursor and `timeout=0` is answered from the past",
        "an attack: after SIGCONT",
        (
            Edit(
                "pushup/node/node.py",
                "(deadline <= now or not isinstance(cursor, Cursor))",
                "not isinstance(cursor, Cursor)",
            ),
        ),
        test="tests/net/api/test_outdated.py",
        why="subscribers of the simulation ask with a timeout",
    ),
    Bug(
        "complete-with-expired-lease",
        "the list of nodes counts as complete although this node's own lease had ended",
        "survived all tests of 0009a58",
        (Edit(f"{AT}/report.lua", " and known > time and 1 or 0", " and 1 or 0"),),
        test="tests/broadcast/redis/test_scripts.py::test_a_list_of_nodes_that_may_be_incomplete_says_so",
        why="the first report after a jump of the clock of Redis must be that of the node that confirms",
    ),
    Bug(
        "complete-whoever-wrote-the-lease",
        "a report whose reply was lost hides from the next that Redis has lost all leases",
        "seed 81784",
        (Edit(f"{AT}/report.lua", "lease and tonumber(lease) == known", "lease"),),
        test="tests/broadcast/redis/test_scripts.py::test_a_list_of_nodes_that_may_be_incomplete_says_so",
        why="about one seed in 24,000",
    ),
    Bug(
        "small-jump-of-redis-clock",
        "the list of nodes counts as complete although the clock of Redis was set forward by less than a lease",
        "reading the code",
        (Edit(f"{AT}/heartbeat.py", "if was_set or not report.complete:", "if not report.complete:"),),
        test=f"{LEASES}::test_a_lease_that_a_small_jump_of_the_clock_of_redis_ends",
        why="a node must be cut off within the same second; not measured",
    ),
    Bug(
        "set-back-of-redis-clock",
        "a node whose report was not answered takes the next reply for the first after the clock of Redis was set back",
        "reading the code",
        (Edit(f"{AT}/report.lua", "tonumber(lease) == known", "tonumber(lease) <= known"),),
        test="tests/broadcast/redis/test_redis_clocks.py::test_redis_is_set_back_and_forgets_the_nodes",
        why="Redis must lose the list of nodes within the same second; not measured",
    ),
    Bug(
        "forward-and-back",
        "the list of nodes counts as complete although the clock of Redis was ahead for a moment, and leases have ended",
        "reading the code",
        (Edit(f"{AT}/report.lua", "local complete = not was_set_back and lease", "local complete = lease"),),
        test="tests/broadcast/redis/test_redis_clocks.py::"
        "test_redis_is_set_forward_and_back_while_others_do_not_report",
        why="the clock must jump twice within a second, while one node is cut off; not measured",
    ),
    Bug(
        "forward-and-back-for-one",
        "only the node that reports first notices that the clock of Redis was ahead for a moment",
        "reading the code",
        (
            Edit(
                f"{AT}/report.lua",
                "was_set_back and redis.call('ZRANGE', KEYS[2], 0, -1) or {}",
                "redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ends, '+inf')",
            ),
        ),
        test="tests/broadcast/redis/test_redis_clocks.py::"
        "test_redis_is_set_forward_and_back_while_others_do_not_report",
        why="the clock must jump twice within a second, while one node is cut off; not measured",
    ),
    Bug(
        "stable-while-stuck-after-a-failover",
        "a node that cannot read an entry does not wait for the others in a Redis that has taken over",
        "reading the code",
        (
            Edit(
                f"{AT}/session.py",
                "        self._confirmations.follows(reading.run)\n        if not self._replica.stuck_at:\n",
                "        if not self._replica.stuck_at:\n            self._confirmations.follows(reading.run)\n",
            ),
        ),
        test="tests/broadcast/redis/test_agreement.py::"
        "test_a_node_that_cannot_read_an_entry_waits_for_the_others_after_a_failover",
        why="Redis must lose the lease of a node that goes on by it; not measured",
    ),
    Bug(
        "not-renamed-for-hours",
        "a lease from before the clock of Redis was set back keeps its log from being renamed until that time",
        "reading the code",
        (Edit(f"{AT}/new_cluster.lua", "now, now + 4", "now, '+inf'"),),
        test="tests/broadcast/redis/test_lua.py::test_a_log_that_a_living_node_follows_keeps_its_cluster",
        why="it renames no log",
    ),
    Bug(
        "run-noticed-by-publishing",
        "when Redis takes another replication id, only nodes that publish notice, and the others do not vouch",
        "reading the code",
        (
            Edit(
                f"{AT}/report.lua",
                "if not string.find(info, 'master_replid:' .. ARGV[7], 1, true) then",
                "if false then",
            ),
        ),
        test="tests/broadcast/redis/test_restarts.py::test_redis_gets_another_replication_id_while_it_runs",
        why="its Redis has one replication id from its start to its end",
    ),
    Bug(
        "swept-before-the-failover",
        "what was erased stays in the log of a Redis that has taken over without the last save",
        "reading the code",
        (
            Edit(
                f"{AT}/leader.py",
                "return self._swept.sequence if self._swept.epoch == self._replica.cursor.epoch else 0",
                "return self._swept.sequence",
            ),
        ),
        test="tests/broadcast/redis/test_redis_broadcast.py::test_what_a_failover_has_brought_back_is_erased_again",
        why="it does not look at what Redis keeps of an erased message",
    ),
    Bug(
        "in-epoch-at-reply-time",
        "the reply to a report says where the log is when it comes, not when it was asked",
        "survived all tests of 0009a58",
        (Edit(f"{AT}/heartbeat.py", "self._in_epoch_at = asked_at", "self._in_epoch_at = now"),),
        needs=LOSSES,
        test="tests/broadcast/redis/test_redis_broadcast.py::test_a_report_says_nothing_of_what_came_after_it_was_sent",
        why="a client must come with a new epoch's cursor while a reply is under way; not found in 200 seeds",
    ),
    Bug(
        "ready-although-refused",
        "a node is ready while Redis refuses its publications, because it is full for instance",
        "an attack: a full Redis",
        (
            Edit(
                f"{AT}/session.py",
                "        self._outage_log.refused(reply.reason)\n",
                "        self._outage_log.refused(reply.reason)\n        self.trouble = None\n",
            ),
        ),
        test=REFUSALS,
        why="publishers of the simulation try each node",
    ),
    Bug(
        "refused-until-somebody-publishes",
        "a node that is not ready because Redis was full waits for a publication to find out that it is not any more",
        "circuit breakers without a probe",
        (Edit(f"{AT}/session.py", "if self.trouble is not None and commands is self._commands:", "if False:"),),
        test=REFUSALS,
        why="not measured",
    ),
    Bug(
        "works-again-without-a-proof",
        "a node that has reconnected says that publishing works, although nothing was written yet",
        "reading the log of a Redis whose disk was full",
        (
            Edit(
                f"{AT}/session.py",
                "        if place != self._followed or not self._outage_log.has_open_outage:\n",
                "        self.trouble = None\n        self._outage_log.over()\n        if place != self._followed:\n",
            ),
        ),
        test=REFUSALS,
        why="log lines are not a promise of the simulation",
    ),
    Bug(
        "read-on-at-a-stray-entry",
        "a node that cannot continue reading checks only its last entry, finds it, and reads again, in a loop",
        "an attack: XADD to the stream",
        (Edit(f"{AT}/catch_up.py", "(replica.stuck_at or replica.is_in_doubt)", "replica.stuck_at"),),
        test=DAMAGE,
        why="the simulation removes data, but does not damage it",
    ),
    Bug(
        "saved-somewhere-else",
        "a save continues from the checkpoint that the state names, not from the actual one",
        "an attack: HINCRBY of `saved`",
        (Edit(f"{AT}/save.lua", " or string.match(state[4] or '', '\"sequence\":(%d+)') ~= state[2] then", " then"),),
        test=f"{DAMAGE}::test_a_checkpoint_that_is_not_where_the_state_says",
        why="the simulation removes data, but does not damage it",
    ),
    Bug(
        "holes-in-a-chain",
        "a chain of entries counts as unbroken although sequences are missing",
        "an attack: HINCRBY of `sequence`",
        (Edit(f"{AT}/checkpoint_loader.py", "self._is_unbroken &= is_next and logged", "self._is_unbroken &= logged"),),
        test=DAMAGE,
        why="the simulation removes data, but does not damage it",
    ),
)

BUGS = tuple(bug._replace(kind="redis") for bug in _BUGS)
