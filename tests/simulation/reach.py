"""The dangerous states that a long run must have been in, each counted when it is seen.

One that is never reached is not tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pushup.broadcast.formats import FORMAT
from pushup.broadcast.redis.scripts import SCRIPTS
from tests.simulation import inside
from tests.simulation.plan import ERASURES, LEASES, PRESENCE, PRODUCERS, STRANGERS, UNREAD, USERS, WORKERS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

STATES: dict[str, tuple[str, ...]] = {
    "": (
        "a node started from a checkpoint while something in it was due to expire",
        "a node continued with another state while it held polls",
        "a poll's cursor was ahead of its node",
        "a poll's cursor was of an epoch that its node does not have",
        "a publication was replicated",
        "a publication was stable",
        "a save came after another node's save",
        "a save came after the epoch had ended",
        "a save had to wait for a node that loads",
        "a stream ended in order",
        "an event of a stream",
        "an append came after the epoch had ended",
        "two nodes tried to begin an epoch",
        "Redis came back while a node was draining",
        "Redis came back while a node was paused",
        "Redis came back while no node was alive",
        "Redis came back without entries that a node had applied",
        "Redis came back with every entry, but without the last save",
        "the journal was put back to an earlier time",
        "a process was killed while it wrote to its disk",
        "a clock jumped while polls were held",
        "a key was tried again after its publication had succeeded",
        "an entry had more to expire than it may",
        "all nodes were cut off from Redis at once",
        "two faults at once",
        "one node could not apply an entry that others could",
        "acknowledged entries were lost, and nobody can know",
        "the version of the state machine was changed",
        "a node was too old for the log",
    ),
    WORKERS: (
        "a node started from a checkpoint while something in it was due to expire",
        "a poll's cursor was ahead of its node",
        "a poll's cursor was of an epoch that its node does not have",
        "a publication was stable",
        "a stream ended in order",
        "an event of a stream",
        "a key was tried again after its publication had succeeded",
        "an entry had more to expire than it may",
        "two faults at once",
        "a worker died before it had the state",
        "a worker that loads could not take the next piece",
        "a worker was too far behind",
        "the parent died while it handed the state over",
        "the state changed while it was handed over",
    ),
    LEASES: (
        "a publication was stable",
        "a node said what is the present after a publication was stable",
        "a node refused to say what is the present",
        "a lease ended while its node was alive",
        "a node had yet to report when it was asked for the present",
        "a stream ended in order",
        "two faults at once",
    ),
    USERS: (
        "a poll or a stream ended because of a revocation",
        "a node continued with another state while it held polls",
        "a stream ended in order",
        "two faults at once",
    ),
    ERASURES: (
        "a message was deleted",
        "a stream ended in order",
        "two faults at once",
    ),
    PRODUCERS: (
        "a producer's publication was repeated",
        "a producer repeated what came before its last publication",
        "a producer's number was not the next one",
        "a producer was told that numbers before are not known",
        "an earlier epoch of a producer was fenced",
        "a stream ended in order",
        "two faults at once",
    ),
    PRESENCE: (
        "a member has left",
        "a member was named, while all was calm",
        "a list of members was compared with the messages",
        "the order stood still after a question",
        "a node continued with another state while it held polls",
        "a stream ended in order",
        "two faults at once",
    ),
    UNREAD: (
        "the application was called",
        "the application was called again about what it knew",
        "a claim has ended, and the application was called again",
        "somebody has read a message that waits",
        "somebody has read a message in time, while all was calm",
        "a stream was asked what its client has seen",
        "a stream ended in order",
        "two faults at once",
    ),
    STRANGERS: (
        "a node refused to follow the log of another cluster",
        "a node had the mark of another cluster, and refused to follow",
        "a node of the other cluster refused to follow this log",
        "a replica without entries that a node had applied was restarted as the primary",
        "Redis came back while no node was alive",
        "a publication was stable",
        "a publication was replicated",
        "a key was tried again after its publication had succeeded",
        "two faults at once",
    ),
}
"""By what the seeds begin with: a long run of them must have reached every one of these."""

_APPEND, _BEGIN, _SAVE, _REPORT, _SWITCH = (SCRIPTS[number].sha.encode() for number in (0, 1, 2, 4, 5))

STATE = b"{pushup}:%d:state" % FORMAT
"""The key of the state of the log. With the name of an earlier format, the states below would never be reached."""


def watch(simulation: Simulation) -> None:
    """Count from now on."""
    if simulation.redis is not None:
        simulation.redis.on_write = lambda words, reply: _wrote(simulation, words, reply)


def _wrote(simulation: Simulation, words: list[bytes], reply: Any) -> None:
    if words[0] != b"EVALSHA":
        return
    reach = simulation.world.reach
    if words[1] == _SWITCH and reply and b"version" in words:
        reach("the version of the state machine was changed")
        inside.check_upgrade(simulation)
    if words[1] == _REPORT:
        inside.note_report(simulation, words[3 + int(words[2])].decode())
        if reply[11] and reply[8] != reply[1]:
            reach("a save had to wait for a node that loads")
    if words[1] in (_BEGIN, _SWITCH):
        inside.note_epoch(simulation)
    if reply != 0:
        return
    assert simulation.redis is not None
    state = simulation.redis.data.get(STATE, {})
    if words[1] == _APPEND:
        reach("an append came after the epoch had ended")
    elif words[1] == _BEGIN:
        reach("two nodes tried to begin an epoch")
    elif words[1] == _SAVE:
        epoch, saved = words[3 + int(words[2]) :][:2]
        if epoch != state.get(b"epoch"):
            reach("a save came after the epoch had ended")
        elif saved != state.get(b"saved"):
            reach("a save came after another node's save")
        else:
            reach("a save had to wait for a node that loads")


def redis_came_back(simulation: Simulation) -> None:
    """Called when Redis runs again, before any node has connected."""
    reach, servers, redis = simulation.world.reach, simulation.servers, simulation.redis
    assert redis is not None
    state = redis.data.get(STATE, {})
    if redis.appendfsync == "always" and not redis.promoted and b"epoch" in state:
        inside.note_unknowable(simulation, redis.end, state.get(b"cluster", b"").decode())
    if any(s.draining and s.is_running for s in servers):
        reach("Redis came back while a node was draining")
    if any(s.process is not None and s.process.paused for s in servers):
        reach("Redis came back while a node was paused")
    if not any(s.is_running for s in servers):
        reach("Redis came back while no node was alive")
    for server in servers:
        cursor = server.node.cursor
        same_epoch = cursor.epoch.encode() == state.get(b"epoch")
        if server.is_running and same_epoch and cursor.sequence > int(state.get(b"sequence", 0)):
            reach("Redis came back without entries that a node had applied")


def replica_takes_over(simulation: Simulation) -> None:
    """Called when all that is left of Redis is what the replica has."""
    redis = simulation.redis
    assert redis is not None
    state = redis.at(redis.replicated).get(STATE, {})
    known = [server.node.cursor for server in simulation.servers if server.is_running]
    if any(
        cursor.epoch.encode() == state.get(b"epoch") and cursor.sequence > int(state[b"sequence"]) for cursor in known
    ):
        simulation.world.reach("a replica without entries that a node had applied was restarted as the primary")
