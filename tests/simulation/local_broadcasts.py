"""The broadcasts of one machine, above simulated disks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pushup.broadcast import Broadcast
from pushup.broadcast.epochs import next_epoch
from pushup.broadcast.journal import Journal
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.memory import MemoryBroadcast
from pushup.broadcast.progress_mark import ProgressMark
from pushup.settings.settings import Settings
from tests.simulation.disk import Disk, SimulatedHelpers, SimulatedMark
from tests.simulation.world import Process


def make_local_broadcast(
    kind: str,
    process: Process,
    disk: Disk,
    settings: Settings,
    steady_time: Callable[[], float],
    random: Callable[[], float],
) -> Broadcast:
    """`kind`: memory or journal."""
    if kind == "memory":
        # By the true time, because the checker orders epochs by name, and this one knows of none before it.
        epoch = next_epoch("", process.world.now, random, "")
        return MemoryBroadcast(epoch=epoch, limits=settings.queue, steady_time=steady_time)

    def name_epoch(after: str, cluster: str) -> str:
        return next_epoch(after, process.clock.wall(), random, cluster)

    open_file = disk.open(process)
    return Journal(
        partial(open_journal, Path("journal.db"), settings.queue, name_epoch, open_file=open_file),
        high_water=ProgressMark(SimulatedMark(disk), SimulatedHelpers(process, disk), process.reactor),
        waiting_limits=settings.waiting,
        helpers=SimulatedHelpers(process, disk),
        clock=process.reactor,
        steady_time=steady_time,
    )
