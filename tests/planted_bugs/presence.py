"""Bugs in who follows a channel."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

MEMBERS, COMMANDS = "pushup/core/members.py", "pushup/core/presence.py"
NODE, FOLLOWER, LEAVING = "pushup/node/presence.py", "pushup/node/follower.py", "pushup/node/leaving.py"

TABLE = "tests/core/test_members.py"

BUGS = (
    Bug(
        "answered-and-yet-gone",
        "a node that says that a member follows there is not heard, and the member leaves",
        "a timer that nobody cancels",
        (Edit(MEMBERS, "holder=node, leaves_at=0.0, data=", "holder=node, data="),),
        family="m",
    ),
    Bug(
        "leaves-before-the-time",
        "an entry makes a member leave about whom nobody asks any more",
        "a decision that is not taken again where it is carried out",
        (Edit(MEMBERS, "row is not None and 0 < row.leaves_at <= time:", "row is not None:"),),
        test=TABLE,
        why="nodes append it for those whose time has come, and an answer hardly ever comes between",
    ),
    Bug(
        "closed-page-answers",
        "a page has closed, and its node still says that the user is there",
        "a grace that also counts for who says goodbye",
        (
            Edit(
                NODE,
                "            if is_closed:\n",
                "            if is_closed and follower.count:\n",
            ),
            Edit(NODE, "            follower.is_closing, follower.until = True, 0.0\n", "            pass\n"),
        ),
        family="m",
    ),
    Bug(
        "holder-stays",
        "the node that answers for a member does not become its holder, and nobody asks when it is gone there",
        "an owner that is set once",
        (Edit(MEMBERS, "row = replace(before, holder=node, leaves_at", "row = replace(before, leaves_at"),),
        family="m",
    ),
    Bug(
        "grace-by-the-wall-clock",
        "the grace is measured by a clock that can be set",
        "as timeouts that jump with the clock",
        (
            Edit(NODE, "follower.until = now + (0.0 if follower.is_closing", "follower.until = time() + (0.0 if follower.is_closing"),
            Edit(NODE, "from functools import partial\n", "from functools import partial\nfrom time import time\n"),
        ),
        family="m",
    ),
    Bug(
        "asks-once-about-a-node",
        "of a node that is gone with many members, only the first ones leave",
        "a limit for each step, and no further step",
        (
            Edit(
                NODE,
                "                self._submit(Gone(name, grace))\n",
                "                self._submit(Gone(name, grace))\n                self._gone[name] = inf\n",
            ),
            Edit(NODE, "from functools import partial\n", "from functools import partial\nfrom math import inf\n"),
        ),
        kind="redis",
        needs=("kill", "stop_all"),
        family="m",
    ),
    Bug(
        "message-without-a-place",
        "the messages of one entry on several channels have one sequence",
        "a batch that counts as one",
        (
            Edit(
                COMMANDS,
                "        can_be_told = _can_be_told(state, channel)\n",
                "        can_be_told, sequence = _can_be_told(state, channel), entry.sequence\n",
            ),
        ),
        family="m",
    ),
    Bug(
        "drain-says-goodbye",
        "a server that drains has its members leave, though they go on at another one",
        "a logout at the end of a connection",
        (
            Edit(
                "pushup/node/node.py",
                "        return self.draining.begin(seconds)\n",
                "        from pushup.core.attendance import Leave\n"
                "        mine = tuple(self.state.members.held_by(self._broadcast.node_id))\n"
                "        self._broadcast.append(Leave(mine), lambda outcome: None)\n"
                "        return self.draining.begin(seconds)\n",
            ),
            Edit(MEMBERS, "row is not None and 0 < row.leaves_at <= time:", "row is not None:"),
        ),
        needs=("drain",),
        family="m",
    ),
    Bug(
        "no-data-erase",
        "a token without public data erases those that another one has given",
        "null that is a value in one place, and no value in another",
        (Edit(MEMBERS, "given.data not in (NULL, before.data)", "given.data != before.data"),),
        family="m",
    ),
    Bug(
        "last-tab-of-two",
        "a user with two tabs leaves when one of them closes",
        "a set where a count is needed",
        (
            Edit(NODE, "            if not follower.count:\n                follower.until", "            if follower:\n                follower.until"),
            Edit(FOLLOWER, "if not follower.is_here(now):", "if follower.until <= now:"),
            Edit(NODE, "            follower = self._followers[key]\n            follower.count",
                 "            follower = self._followers.setdefault(key, Follower())\n            follower.count"),
        ),
        family="m",
    ),
    Bug(
        "gone-and-claimed-again",
        "after a change of state, a node says that everybody it has ever seen is there",
        "the simulation (m32), before presence was released",
        (Edit(NODE, "            if follower.is_here(now):\n", "            if follower:\n"),
         Edit(FOLLOWER, "yield key, self.pop(key)", "yield key, follower")),
        family="m",
    ),
    Bug(
        "silence-is-an-answer",
        "a member leaves at the end of the grace, even if its node had no chance to answer",
        "PushUp, before its first presence was released: Redis stood still, and who followed was reported gone",
        (Edit(LEAVING, "                if place <= answered or row.leaves_at <= time - PATIENCE_SECONDS:\n", "                if place:\n"),
         Edit(LEAVING, "            self._refused_at = now\n", "            pass\n")),
        kind="redis",
        needs=("stand_still",),
        family="m",
    ),
    Bug(
        "answered-before-the-answer",
        "a node reports a question as answered when it has read it, before its answer is in the order",
        "an acknowledgement of receipt that is taken for one of the work",
        (Edit(NODE, "                return place - 1\n", "                pass\n"),),
        test="tests/net/api/test_presence.py",
        why="the answer follows within 50 ms; Redis has to stand still just then",
    ),
)  # fmt: skip
