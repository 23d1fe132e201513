"""Faults of nodes, links, clocks, disks and HAProxy. What happens to the data of Redis is in `redis_faults`.

A fault begins and ends within its function: when that returns, everything runs, is connected and has space again. From
then on it counts how long it takes until the nodes are live.
"""

from __future__ import annotations

import math
import random
import resource
import signal
import time

import psutil

from loadtest.beyond.append_only import last_increment
from loadtest.beyond.cluster_kills.links import DIRECTIONS
from loadtest.beyond.cluster_kills.scene import Scene

HOUR = 3600


def spread(rng: random.Random, shortest: float, longest: float) -> float:
    """A random time; short ones are as frequent as long ones, in proportion."""
    return math.exp(rng.uniform(math.log(shortest), math.log(longest)))


def kill_node(scene: Scene) -> list[str]:
    """kill -9 of a node, and start."""
    with scene.a_node() as name:
        scene.begins(name)
        scene.cluster.kill_part(name)
        time.sleep(0.5 * scene.rng.random())
        scene.cluster.parts[name].begin()
    return scene.nodes


def stop_node(scene: Scene, longest: float) -> list[str]:
    """SIGSTOP of a node, and SIGCONT up to `longest` seconds later."""
    with scene.a_node() as name:
        seconds = spread(scene.rng, 1.0, longest)
        scene.begins(name, seconds)
        scene.cluster.freeze_part(name)
        time.sleep(seconds)
        scene.cluster.thaw_part(name)
        return [name]


def cut(scene: Scene, direction: str, longest: float) -> list[str]:
    """A link between a node and Redis carries nothing in one direction, or both, for up to `longest` seconds."""
    assert direction in DIRECTIONS
    assert scene.links is not None
    with scene.a_node() as name:
        number = scene.nodes.index(name)
        seconds = spread(scene.rng, min(1.0, longest), longest)
        scene.begins(name, seconds)
        scene.links.cut(number, direction)
        time.sleep(seconds)
        scene.links.mend(number)
        return [name]


def reload_haproxy(scene: Scene) -> list[str]:
    """HAProxy reads its configuration again."""
    scene.begins("haproxy")
    scene.cluster.reload_haproxy()
    return scene.nodes


def set_node_clock(scene: Scene) -> list[str]:
    """The clock of a node jumps: an hour ahead, an hour behind, or right again."""
    with scene.a_node() as name:
        _set_clock(scene, name)
        return [name]


def set_redis_clock(scene: Scene) -> list[str]:
    """The clock of Redis jumps."""
    _set_clock(scene, "redis")
    return scene.nodes


def _set_clock(scene: Scene, name: str) -> None:
    clocks = scene.clocks
    assert clocks is not None
    scene.begins(name)
    clocks.set(name, scene.rng.choice([hour for hour in (-HOUR, 0, HOUR) if hour != clocks.offsets[name]]))
    time.sleep(0.5)


def fill_redis_disk(scene: Scene) -> list[str]:
    """The file that Redis writes to may not grow: with `appendfsync always` it ends. Then there is space again."""
    redis = scene.redis
    assert redis is not None
    scene.begins("redis")
    size = last_increment(redis.data).stat().st_size
    redis.process.rlimit(psutil.RLIMIT_FSIZE, (size + scene.rng.randrange(3000), resource.RLIM_INFINITY))
    deadline = time.monotonic() + 15.0
    while redis.part.runs:
        if time.monotonic() > deadline:
            raise RuntimeError("Redis goes on, though its file may not grow")
        time.sleep(0.01)
    time.sleep(scene.rng.random())
    redis.kill()
    redis.start()
    return scene.nodes


def fill_journal_disk(scene: Scene) -> list[str]:
    """The files of the journal may not grow, for up to three seconds."""
    pid = scene.cluster.pids[scene.nodes[0]]
    assert pid is not None
    process = psutil.Process(pid)
    seconds = spread(scene.rng, 0.3, 3.0)
    scene.begins(scene.nodes[0], seconds)
    sizes = [path.stat().st_size for path in scene.cluster.folder.glob("journal*")]
    process.rlimit(psutil.RLIMIT_FSIZE, (max(sizes) + scene.rng.randrange(3000), resource.RLIM_INFINITY))
    time.sleep(seconds)
    process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return scene.nodes


def kill_journal(scene: Scene) -> list[str]:
    """kill -9 of a node with a journal, and start."""
    return kill_node(scene)


def stop_redis(scene: Scene, longest: float) -> list[str]:
    """SIGSTOP of Redis, and SIGCONT up to `longest` seconds later."""
    assert scene.redis is not None
    seconds = spread(scene.rng, 1.0, longest)
    scene.begins("redis", seconds)
    scene.redis.part.signal(signal.SIGSTOP)
    time.sleep(seconds)
    scene.redis.part.signal(signal.SIGCONT)
    return scene.nodes
