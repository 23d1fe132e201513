"""Defences of a server with workers, each switched off, and the test that notices it."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

HUB = "pushup/broadcast/hub"
FOUND_IN = "the second attack"
NO_PROCESSES = "the simulation has no supervisor, no ports and no hanging parent"

BUGS = (
    Bug(
        "port-is-not-held",
        "a second server takes the port of the first while the first one's workers do not listen",
        FOUND_IN,
        (
            Edit(
                "pushup/workers/parent.py",
                "        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)\n",
                "",
            ),
        ),
        test="tests/workers/test_parent.py",
        why=NO_PROCESSES,
    ),
    Bug(
        "a-pause-is-silence",
        "after a pause of all processes, each takes the others for silent",
        FOUND_IN,
        (Edit("pushup/transport/framed_link.py", "min(now - self._looked_at, self._most)", "now - self._looked_at"),),
        test="tests/workers/test_supervisor.py",
        why=NO_PROCESSES,
    ),
    Bug(
        "beats-alone-break-the-silence",
        "a parent whose heartbeats are queued behind many entries counts as hanging",
        "",
        (Edit(f"{HUB}/worker_broadcast.py", "            self._silence.end()\n", ""),),
        test="tests/broadcast/hub/test_hub_broadcast.py",
        why=NO_PROCESSES,
    ),
    Bug(
        "publishers-wait-for-a-hanging-parent",
        "pending publications are not answered when the parent is found to hang",
        FOUND_IN,
        (
            Edit(
                f"{HUB}/worker_broadcast.py",
                "            self._refuse(Refusal.UNREACHABLE(reason), reason)\n",
                "            self._trouble = Refusal.UNREACHABLE(reason)\n",
            ),
        ),
        test="tests/broadcast/hub/test_hub_broadcast.py",
        why=NO_PROCESSES,
    ),
    Bug(
        "restoring-counts",
        "stable waits for a worker that is restoring the state",
        FOUND_IN,
        (
            Edit(
                f"{HUB}/hub.py",
                "waiting = {each for each in self._workers if each.member is not None}",
                "waiting = {*self._workers}",
            ),
        ),
        test="tests/broadcast/hub/test_handing_over.py",
        why="it is late, but not wrong",
    ),
    Bug(
        "serves-before-it-counts",
        "a worker serves clients before the parent waits for it",
        "",
        (
            Edit(
                f"{HUB}/hub.py",
                "for worker in self._workers if worker.member is not None}",
                "for worker in self._workers}",
            ),
            Edit(f"{HUB}/hub.py", "tuple(serving.values())", "tuple(filter(None, serving.values()))"),
        ),
        test="tests/broadcast/hub/test_handing_over.py",
        why="in the simulation, the first report takes no time",
    ),
)
