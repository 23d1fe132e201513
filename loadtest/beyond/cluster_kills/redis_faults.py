"""Faults after which Redis has less than it had, or at least is another process.

In half of those that lose entries all nodes are killed as well, so that nobody knows of them but their marks.
"""

from __future__ import annotations

import shutil
import time

from loadtest.beyond.append_only import last_increment, without_last_pieces, without_last_save
from loadtest.beyond.cluster_kills.redis import SNAPSHOTS, Redis
from loadtest.beyond.cluster_kills.scene import Scene
from loadtest.history import events
from loadtest.kit.values import order_of

QUIET_SECONDS = 10.0
"""How long to wait until everything is saved."""


def kill(scene: Scene) -> list[str]:
    """kill -9 of Redis, and start."""
    redis = _redis(scene)
    scene.begins("redis")
    redis.kill()
    time.sleep(0.5 * scene.rng.random())
    redis.start()
    return scene.nodes


def fail_over(scene: Scene) -> list[str]:
    """The replica takes over, without the last writes; what was the primary becomes a replica of it."""
    redis, spare = _redis(scene), scene.spare
    assert spare is not None
    assert scene.links is not None
    scene.begins("redis")
    spare.ask("REPLICAOF", "NO", "ONE")
    time.sleep(0.2 + scene.rng.random())
    redis.kill()
    scene.links.lead_to(spare.port)
    scene.redis, scene.spare = spare, redis
    redis.clear()
    redis.start()
    redis.replicate(spare)
    return scene.nodes


def put_back_snapshot(scene: Scene) -> list[str]:
    """Redis keeps nothing but snapshots, and starts again from the last one."""
    redis = _redis(scene)
    scene.begins("redis")
    redis.flags = SNAPSHOTS
    redis.ask("CONFIG", "SET", "appendonly", "no")
    redis.ask("SAVE")
    copy = redis.data / "older.rdb"
    shutil.copy(redis.data / "dump.rdb", copy)
    time.sleep(0.2 + 1.5 * scene.rng.random())
    nodes = _kill_all(scene) if scene.rng.random() < 0.5 else []
    redis.kill()
    shutil.copy(copy, redis.data / "dump.rdb")
    redis.start()
    _start(scene, nodes)
    return scene.nodes


def put_back_file(scene: Scene) -> list[str]:
    """An older append-only file is put in place, though Redis syncs each write."""
    redis = _redis(scene)
    scene.begins("redis")
    nodes = _kill_all(scene) if scene.rng.random() < 0.5 else []
    redis.kill()
    file = last_increment(redis.data)
    file.write_bytes(without_last_pieces(file.read_bytes(), scene.rng.uniform(0.7, 0.99)))
    redis.start()
    if nodes:
        note_unknowable(scene)
    _start(scene, nodes)
    return scene.nodes


def lose_save(scene: Scene) -> list[str]:
    """Redis comes back with every entry, but without the last save of the checkpoint. Then a node starts again."""
    redis = _redis(scene)
    scene.begins("redis")
    older = None
    while older is None:
        scene.load.pause()
        deadline = time.monotonic() + QUIET_SECONDS
        while (state := redis.state())[1] > state[2] and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.6)  # every node has seen that it is saved
        redis.kill()
        file = last_increment(redis.data)
        older = without_last_save(file.read_bytes())
        if older is not None:
            file.write_bytes(older)
        redis.start()
        scene.load.resume()
    scene.live_again(scene.nodes)
    time.sleep(1.2)  # the nodes save again
    with scene.a_node() as name:
        scene.cluster.kill_part(name)
        scene.cluster.parts[name].begin()
    return scene.nodes


def note_unknowable(scene: Scene) -> None:
    """Write down that nothing is left that has more than the log, if no mark has."""
    epoch, end, _ = _redis(scene).state()
    here = order_of(epoch), end
    if not any((order_of(name), sequence) > here for name, sequence in scene.marks()):
        scene.record.write(events.PutBack, end=f"{epoch}-{end}")


def _redis(scene: Scene) -> Redis:
    assert scene.redis is not None
    return scene.redis


def _kill_all(scene: Scene) -> list[str]:
    for name in scene.nodes:
        scene.cluster.kill_part(name)
    return scene.nodes


def _start(scene: Scene, nodes: list[str]) -> None:
    for name in nodes:
        scene.cluster.parts[name].begin()
