"""The few checks that look into the servers: what no client can see, but what they were promised."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from loadtest.history.clients import Follower, Publication
from loadtest.history.events import Begun, BrokenPromise, PutBack
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.broadcast.redis.scripts import SCRIPTS
from pushup.core.cursor import order_of
from pushup.core.snapshot import Snapshot
from pushup.core.state import ReplicatedState
from tests.next_version import NEXT_VERSION
from tests.simulation import redis_server
from tests.simulation.redis_server import RedisServer

if TYPE_CHECKING:
    from tests.simulation.clients import Subscriber
    from tests.simulation.server import Server
    from tests.simulation.simulation import Simulation


FOLLOWING_SECONDS = 4.0
"""A server that has followed the log for less may have lost its lease, and not have it again."""


def is_live(simulation: Simulation) -> bool:
    """Whether every server is ready, and none is behind another."""
    return all_are_ready(simulation) and len({str(server.node.cursor) for server in simulation.servers}) == 1


def all_are_ready(simulation: Simulation) -> bool:
    return all(server.is_running and server.node.why_not_ready() is None for server in simulation.servers)


def check_live(simulation: Simulation) -> None:
    """Every server is ready, some time after the last fault."""
    for server in simulation.servers:
        if not server.is_running:
            raise BrokenPromise(f"live again: {server.name} does not run")
        reason = server.node.why_not_ready()
        if reason is not None:
            raise BrokenPromise(f"live again: {server.name} is not ready: {reason.operator_detail or reason.detail}")


def check_ready(server: Server) -> None:
    """A server is ready soon after its start, while there is no fault."""
    reason = server.node.why_not_ready() if server.is_up else None
    if reason is not None:
        raise BrokenPromise(
            f"ready: {server.name} is not, some time after its start: {reason.operator_detail or reason.detail}"
        )


def check_invariants(simulation: Simulation) -> None:
    """Every running server's state and held polls are consistent in themselves."""
    for server in simulation.servers:
        if server.is_running:
            try:
                server.node.state.check()
                server.node.polls.check()
            except AssertionError as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                raise BrokenPromise(f"invariants hold: at {server.name} not {place.line}") from None


def check_owners(simulation: Simulation) -> None:
    """Every message is kept as one of whoever published it."""
    for server in simulation.servers:
        cache = server.node.state.cache if server.is_running else None
        rows = [cache.row(name) for name in cache.names()] if cache is not None else []
        for row in rows:
            assert row is not None
            if row.attributes is not None and row.attributes.event == "presence":
                continue
            name = json.loads(bytes(row.data)).rpartition("/")[0]
            if not name.startswith(f"{row.owner}.") and name in simulation.checker.publications:
                raise BrokenPromise(f"publishers are told apart: {server.name} has {name} as one of {row.owner!r}")


def check_marks(simulation: Simulation) -> None:
    """The mark on a server's disk is at most a second behind; it is looked at every two seconds."""
    if (
        simulation.kind == "memory"
        or simulation.parent is not None
        or {step.kind for step in simulation.plan.steps} & {"disk", "pause"}
    ):
        return
    place = simulation.checker.order.place
    for server in simulation.servers:
        cursor = str(server.node.cursor)
        start, then = server.seen_at
        server.seen_at = server.starts, cursor
        if server.is_running and start == server.starts and not then.endswith("-0"):
            mark = json.loads(server.disk.mark or b'{"epoch":"","sequence":0}')
            marked = f"{mark['epoch']}-{mark['sequence']}"
            if marked not in (then, cursor) and place(marked) < place(then):
                raise BrokenPromise(f"marks are up to date: that of {server.name} is {marked}, and it was at {then}")


def are_at_one_place(simulation: Simulation) -> bool:
    """No entry is on its way to any server."""
    return len({str(server.node.cursor) for server in simulation.servers}) == 1


def check_equal(simulation: Simulation) -> None:
    """All replicas are equal, in every field and in every order that decides something."""
    servers = simulation.servers
    check_invariants(simulation)
    _check_same([(server.name, server.node.state) for server in servers])


def _check_same(replicas: list[tuple[str, ReplicatedState]]) -> None:
    (first, state), *others = replicas
    if not others:
        return  # a snapshot takes long
    expected = state.snapshot()
    for name, other in others:
        snapshot = other.snapshot()
        if snapshot != expected:
            raise BrokenPromise(f"replicas are equal: {name} and {first} differ{_difference(expected, snapshot)}")


def _difference(one: Snapshot, other: Snapshot) -> str:
    if one.head != other.head:
        return f" in the head: {one.head} and {other.head}"
    for mine, its in zip(one.tables.all(), other.tables.all(), strict=True):
        if mine != its:
            here, there = list(mine), list(its)
            return f": {[x for x in here if x not in there][:3]} and {[x for x in there if x not in here][:3]}"
    return ""


def check_equal_now(simulation: Simulation) -> None:
    """Replicas that have applied the same entries are equal, at any time."""
    parent = simulation.parent
    at_place: dict[object, list[tuple[str, ReplicatedState]]] = {}
    if parent is not None and parent.is_running:
        at_place[str(parent.hub.cursor)] = [("the parent", parent.hub.state)]
    for server in simulation.servers:
        if not server.is_running:
            continue
        if isinstance(server.broadcast, RedisBroadcast):
            place: object = server.broadcast.tag
        else:
            place = at_place and server.node.cursor.epoch and str(server.node.cursor)
        if place:
            at_place.setdefault(place, []).append((server.name, server.node.state))
    for replicas in at_place.values():
        _check_same(replicas)


def check_held(simulation: Simulation) -> None:
    """No poll is held for which there is something, at any time."""
    for server in simulation.servers:
        if not server.is_running or server.node.polls.has_deliveries:
            continue
        for subscription, answer in server.node.polls.unanswered():
            names = ", ".join(waiters.name for waiters in subscription.waiters)
            raise BrokenPromise(f"held polls are answered: {server.name} holds one on {names}, and has {answer}")


REFUSED_SECONDS = 3.0
"""A node that can reach Redis is not ready after this, if it is too old for the log."""


def check_upgrade(simulation: Simulation) -> None:
    """The version was changed: every living node knows it."""
    for server in simulation.servers:
        if server.version is not None and server.version < NEXT_VERSION and _counts_as_living(server):
            raise BrokenPromise(f"one version: {server.name} is alive and does not know the version {NEXT_VERSION}")


def check_versions(simulation: Simulation) -> None:
    """A node that is too old for the log is not ready."""
    if simulation.redis is None:
        return
    version = int(simulation.redis.data.get(b"{pushup}:5:state", {}).get(b"version", 0))
    for server in simulation.servers:
        is_too_old = server.runs_version is not None and server.runs_version < version
        links = simulation.network.both(server.name, redis_server.HOST)
        if not is_too_old or not server.is_up or any(link.cut or link.clogged for link in links):
            server.too_old_since = None
            continue
        if server.too_old_since is None:
            server.too_old_since = simulation.world.now
            simulation.world.reach("a node was too old for the log")
        is_late = simulation.world.now > server.too_old_since + REFUSED_SECONDS
        if is_late and server.node.why_not_ready() is None:
            raise BrokenPromise(f"one version: {server.name} is ready, but too old for the log")


def all_have_read(simulation: Simulation) -> bool:
    """Whether every subscriber has reached the end, and no server is behind another."""
    last = [p for p in simulation.checker.publications.values() if is_last(p)]
    read = all(not unread(simulation, s) for s in simulation.subscribers.values())
    return is_live(simulation) and all(p.ids for p in last) and read


def is_last(publication: Publication) -> bool:
    """Whether it was published after all faults."""
    return publication.key is not None and publication.key.startswith("last on")


def unread(simulation: Simulation, subscriber: Subscriber) -> list[Publication]:
    """The last publications that a subscriber has not got to: all of them if its cursor is of an epoch that is over.

    Its place says nothing then: after a machine was put back, epochs that are over may have later names.
    """
    cursor, place_of = subscriber.cursor, simulation.checker.order.place
    is_over = cursor.rpartition("-")[0] not in {s.node.cursor.epoch for s in simulation.servers if s.is_running}
    return [
        p
        for p in simulation.checker.publications.values()
        if is_last(p) and p.channels[0][0] in subscriber.channels and p.ids
        and (is_over or place_of(cursor) < place_of(p.ids[0]))
    ]  # fmt: skip


def check_read_to_end(simulation: Simulation, subscriber: Subscriber) -> None:
    """A subscriber that polls has reached the end."""
    for publication in unread(simulation, subscriber):
        raise BrokenPromise(
            f"live again: {subscriber.name} at {subscriber.cursor} has not got to {publication.data[0]} "
            f"({publication.ids[0]}, on {publication.channels[0][0]}) "
            f"{simulation.record.now - publication.acknowledged_at:.0f} s after it was published"
        )


def check_confirmation(simulation: Simulation) -> Callable[[Publication, str], None]:
    """`stable`: every living node has applied it. `replicated`: the replica has it. Neither is told too early."""

    def check(publication: Publication, ack: str) -> None:
        place_of = simulation.checker.order.place
        place = place_of(publication.ids[-1])
        if ack == "stable" and (simulation.kind == "redis" or simulation.parent is not None):
            for server in simulation.servers:
                if _says_all_is_known(server) and place_of(str(server.node.cursor)) < place:
                    raise BrokenPromise(
                        f"stable: {publication.name} ({publication.ids[-1]}), "
                        f"but {server.name} is at {server.node.cursor}"
                    )
            simulation.world.reach("a publication was stable")
            simulation.probes.stable(publication)
        if ack == "replicated":
            redis = simulation.redis
            assert redis is not None
            if not redis.promoted and not _was_replicated(redis, publication, simulation.world.began):
                raise BrokenPromise(
                    f"replicated: {publication.name} ({publication.ids[-1]}), but the replica does not have it"
                )
            simulation.world.reach("a publication was replicated")

    return check


def note_report(simulation: Simulation, node: str) -> None:
    """A report of this node has reached Redis."""
    for server in simulation.servers:
        if node == f"{server.name}.{server.starts}":
            if server.reported_at < simulation.world.now - LEASE_SECONDS and math.isfinite(server.reported_at):
                simulation.world.reach("a lease ended while its node was alive")
            server.reported_at = simulation.world.now


def _says_all_is_known(server: Server) -> bool:
    """Whether it would tell a client now that there is nothing else; if it is paused, when it goes on."""
    process = server.process
    if process is None or not process.alive or not server.node.cursor.epoch:
        return False
    return server.broadcast.is_current and (server.parent is None or _counts_as_living(server))


def _counts_as_living(server: Server) -> bool:
    """Whether it runs, follows the log and has its lease, for a while now. One that is paused or cut off may not."""
    process = server.process
    if process is None or not process.alive or process.paused or server.draining:
        return False
    if server.parent is not None:
        is_attached = server.parent.is_running and server.parent.starts == server.attached_to
        return is_attached and bool(server.node.cursor.epoch) and server.node.why_not_ready() is None
    return server.is_following and server.world.now - server.following_since > FOLLOWING_SECONDS


def _was_replicated(redis: RedisServer, publication: Publication, began: float) -> bool:
    """Whether the replica has the last entry of this publication; or had it, and lost it with a restart of Redis.

    That may happen while the answer is on its way to the publisher.
    """
    epoch, _, sequence = publication.ids[-1].rpartition("-")
    log = redis.at(redis.replicated).get(b"{pushup}:5:state", {})
    if log.get(b"epoch") != epoch.encode() or int(log[b"sequence"]) >= int(sequence):
        return True
    for at, writes in redis.replicas_before:
        log = redis.made_by(writes).get(b"{pushup}:5:state", {}) if at >= began + publication.began_at else {}
        if log.get(b"epoch") == epoch.encode() and int(log[b"sequence"]) >= int(sequence):
            return True
    return False


def may_forget(simulation: Simulation) -> Callable[[Follower, str], bool]:
    """Whether a gap may be reported for a channel because one of this name may have been forgotten.

    A poll without a cursor may have been held anywhere, so it counts as one at 0. An answer may have been on its way
    since before its server left the epoch.
    """

    def forgets(follower: Follower, channel: str) -> bool:
        before = follower.cursor
        epoch, _, sequence = before.rpartition("-") if "-" in before else ("", "", "0")
        floors = [server.node.state.channels.floor for server in simulation.servers if server.is_running]
        floors += [at for server in simulation.servers for left, at in server.floors.items() if epoch in ("", left)]
        return any(floor > int(sequence) for floor in floors)

    return forgets


def note_unknowable(simulation: Simulation, end: str, cluster: str = "") -> None:
    """Note that a log was put back, if neither a running server nor any mark knows of more than it has.

    `end`: where the log ends now. It looks complete to everybody. `cluster`: that of the log, if it has one. Servers
    and marks of another cluster do not count: such a server refuses to follow.
    """
    checker = simulation.checker
    place = checker.order.place(end)
    known: list[str] = []
    for server in simulation.servers:
        mark = json.loads(server.disk.mark or b"{}")
        own = mark.get("cluster")
        if own and cluster and own != cluster:
            continue
        if mark:
            known.append(f"{mark['epoch']}-{mark['sequence']}")
        if server.is_running and server.node.cursor.epoch:
            known.append(str(server.node.cursor))
    if any(checker.order.place(cursor) > place for cursor in known):
        return
    simulation.record.take(PutBack(at=simulation.record.now, end=end))
    if checker.acknowledged_after(end):
        simulation.world.reach("acknowledged entries were lost, and nobody can know")


def note_epoch(simulation: Simulation) -> None:
    """Note the epoch of the log, if it is new and its name is earlier than that of another.

    That must be one of which the server that began it did not know.
    """
    redis, epochs, order = simulation.redis, simulation.epochs, simulation.checker.order
    assert redis is not None
    state = redis.data.get(b"{pushup}:5:state")
    if state is None or b"epoch" not in state or (new := state[b"epoch"].decode()) in epochs:
        return  # Not all of what the epoch begins with arrived, or another node has begun it; or Redis has lost the log
        # and `mark.lua` wrote to it before its node knew.
    latest = max(epochs, key=lambda name: order.epoch(f"{name}-0"), default="")
    epochs.append(new)
    if state[b"tag"] == state[b"epoch"]:
        check_kept_keys(simulation)
    if latest and order.epoch(f"{new}-0") < order.epoch(f"{latest}-0"):
        server = next(server for server in simulation.servers if server.name == redis.asked_by)
        known = [json.loads(server.disk.mark)["epoch"]] if server.disk.mark is not None else []
        for name in (server.node.cursor.epoch, *known):
            if order_of(name) >= order_of(new):
                raise BrokenPromise(f"epochs are ordered: {server.name} began {new}, and knew of {name}")
        simulation.record.take(Begun(at=simulation.record.now, epoch=new, after=latest))


def check_kept_keys(simulation: Simulation) -> None:
    """An epoch that has just begun has the idempotency keys and the producers of the server that began it.

    After some tries it begins whatever has come since (`BEGIN_TRIES`); then, those of the entries up to its beginning.
    """
    redis = simulation.redis
    assert redis is not None
    kept = redis.data.get(b"{pushup}:5:rows", {})
    server = next(server for server in simulation.servers if server.name == redis.asked_by)
    end = math.inf if redis.asked[-1] else int(redis.data[b"{pushup}:5:state"][b"sequence"])
    for table in (server.node.state.keys, server.node.state.producers):
        rows = {f"{table.name}/{name}": table.row(name) for name in table.names()}
        missing = [name for name, row in rows.items() if row and row.sequence <= end and name.encode() not in kept]
        if missing:
            raise BrokenPromise(f"{table.name} are kept: {server.name} began an epoch without {missing}")


def before_last_save(redis: RedisServer) -> int | None:
    """How many writes to keep so that the last save is missing, but no entry; None if there is no such number."""
    append, begin, save = (script.sha.encode() for script in SCRIPTS[:3])
    for number in range(len(redis.writes) - 1, -1, -1):
        words = redis.writes[number][1]
        if words[0] == b"EVALSHA" and words[1] in (append, begin):
            return None
        if words[0] == b"EVALSHA" and words[1] == save:
            return number
    return None


def check_nobody_waits(simulation: Simulation) -> None:
    """All clients have left, and nothing is kept for them."""
    for server in simulation.servers:
        if server.node.polls.count or server.edge.connection_count:
            raise BrokenPromise(
                f"nothing is left over: {server.name} holds {server.node.polls.count} polls on "
                f"{server.edge.connection_count} connections of clients that have left"
            )


def waiting_webhooks(simulation: Simulation) -> list[object]:
    """What the application has yet to be told, as a server knows it."""
    return [name for server in simulation.servers if server.is_running for name in server.node.state.webhooks.names()]


def check_webhooks(simulation: Simulation) -> None:
    """All faults have ended, and the application answers: it was told about everything."""
    if names := waiting_webhooks(simulation):
        raise BrokenPromise(f"called: nobody has told the application about {names}, though all faults have ended")


def check_nothing_left(simulation: Simulation) -> None:
    """Every server has stopped, and left no timer, connection or waiting bytes behind."""
    parent = simulation.parent
    if parent is not None and (parent.is_running or parent.left_over):
        raise BrokenPromise(f"nothing is left over: {parent.left_over} timers at the parent, or it did not stop")
    for server in simulation.servers:
        if server.is_running:
            raise BrokenPromise(f"nothing is left over: {server.name} did not stop")
        if server.node.polls.count:
            raise BrokenPromise(f"nothing is left over: {server.name} still holds {server.node.polls.count} polls")
        if server.broadcast.waiting_bytes:
            raise BrokenPromise(f"nothing is left over: {server.broadcast.waiting_bytes} bytes wait at {server.name}")
        if server.edge.connection_count:
            raise BrokenPromise(f"nothing is left over: {server.edge.connection_count} connections at {server.name}")
        if server.left_over:
            raise BrokenPromise(f"nothing is left over: {server.left_over} timers at {server.name}")
