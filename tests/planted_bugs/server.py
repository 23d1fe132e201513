"""Bugs in a node and in its HTTP interface, and in the load balancer before it."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

HELD = "pushup/core/held_polls.py"
NODE = "pushup/node/node.py"
CONNECTION = "pushup/net/connection.py"

BUGS = (
    Bug(
        "register-after-reading",
        "a poll is registered some milliseconds after the cache was read, and misses messages published in between",
        "lost wakeup; Nchan, and every server that reads and subscribes in two steps",
        (
            Edit(
                NODE,
                "        if isinstance(result, Subscription):\n            if result.deadline",
                "        if isinstance(result, Subscription):\n"
                "            for waiters in result.waiters:\n"
                "                if waiters.tree is not None:\n"
                "                    waiters.tree.discard(result.deadline, result)\n"
                "            late = lambda: result.holder is not None and self.polls._index._wait(result)\n"
                "            self._clock.callLater(0.005, late)\n"
                "            if result.deadline",
            ),
        ),
    ),
    Bug(
        "drain-answers-twice",
        "polls that a drain has answered are still registered for messages",
        "shutdown paths that forget to unsubscribe",
        (
            Edit(
                HELD,
                "(subscription := self._index.pop_last()) is not None:\n            answers.append(self._end(subscription))\n",
                "(subscription := self._index.pop_last()) is not None:\n"
                "            answers.append((subscription.holder, self._read(subscription)))\n"
                "            self._index.count -= 1\n",
            ),
        ),
    ),
    Bug(
        "drain-forgets-its-polls",
        "a stopping node closes its connections without answering held polls",
        "servers that only close their sockets",
        (
            Edit(
                "pushup/node/drain.py",
                "        if not held and not left:\n",
                "        if not left:\n",
            ),
        ),
        test="tests/test_node.py",
        why="its clients poll again immediately, with the same cursors, and lose nothing",
    ),
    Bug(
        "hot-loop-while-draining",
        "a draining node answers new polls immediately, so their clients return immediately",
        "Electric #4312; docs/operate/stopping.md",
        (
            Edit(
                "pushup/node/drain.py",
                "return max(0.0, min(timeout, HOLD_SECONDS * (1 - random / 2), left))",
                "return 0.0",
            ),
        ),
    ),
    Bug(
        "waiter-leaked",
        "the poll of a client that has disconnected stays held",
        "Nchan #379: subscribers that have left are still counted",
        (
            Edit(
                CONNECTION,
                "        if held is not None:\n            self._context.application.abandon(held)\n",
                "",
            ),
        ),
    ),
    Bug(
        "answer-cut-off",
        "the part of an answer that the kernel did not accept is sent from its beginning",
        "partial writes",
        (Edit(CONNECTION, "output.append(data, sent)", "output.append(data)"),),
        test="tests/net/test_connection_output.py",
        why="the simulated answers fit into the kernel's buffers",
    ),
    Bug(
        "timeout-forgets-messages",
        "the answer at a poll's deadline or at a drain is empty, and has the newest cursor",
        "a timeout that races with a message",
        (
            Edit(
                HELD,
                "        self._migration.move(subscription)\n        answer = self._read(subscription)\n"
                "        return self._index.release(subscription), answer\n",
                "        self._migration.move(subscription)\n"
                "        answer = Answer(str(self._state.cursor), (), more=False, gaps=(), closed=())\n"
                "        return self._index.release(subscription), answer\n",
            ),
        ),
    ),
    Bug(
        "epoch-not-awaited",
        "a node that is still in an earlier epoch answers a cursor of a later one",
        "found by the simulation before a release (seeds 2033, 2400)",
        (Edit(NODE, "and self._broadcast.awaits(cursor.epoch):", "and False:"),),
    ),
    Bug(
        "expiry-by-itself",
        "the node expires messages by the clock of its machine, not by that of the log",
        "PushUp 0.1: clocks; decision 14",
        (
            Edit(
                "pushup/clock.py",
                "        return self._time_at(self._uptime())\n",
                "        return self._wall()\n",
            ),
        ),
        needs=("jump",),
        test="tests/test_clock.py::test_it_is_the_wall_clock_while_that_is_not_set",
        why="rare; found within 200 seeds from 1 of 3 starting points",
    ),
    Bug(
        "balancer-repeats-a-post",
        "the load balancer retries a publication without a key at the next server if the first does not answer",
        "HAProxy with retry-on all-retryable-errors",
        (
            Edit(
                "tests/simulation/balancer.py",
                '            elif message.first_line.startswith("GET"):\n',
                "            elif True:\n",
            ),
        ),
        needs=(
            "kill",
            "drain",
            "pause",
            "stop_all",
            "clog",
            "cut",
            "put_back",
            "put_back_with_mark",
            "kill_writing",
            "upgrade",
            "new_settings",
            "drain_and_failover",
            "roll_back",
        ),
    ),
    Bug(
        "epoch-named-by-the-clock",
        "a new epoch is named by the wall clock alone, so its name is earlier than the last if the clock was set back",
        "PushUp 0.1: clocks; timestamps as versions",
        (
            Edit(
                "pushup/core/cursor.py",
                "max(int(now * 1000), later)",
                "int(now * 1000)",
            ),
        ),
    ),
)
