"""The broadcast of one process. Messages are lost when it ends."""

from __future__ import annotations

from collections.abc import Callable

from pushup.broadcast import Broadcast, Follower, OneNode, OnOutcome
from pushup.core.commands import Command, Entry
from pushup.core.errors import PushUpError
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState


class MemoryBroadcast(OneNode):
    """Orders and applies each command at once."""

    def __init__(self, *, epoch: str, limits: Limits, steady_time: Callable[[], float]) -> None:
        super().__init__(steady_time)
        self._epoch = epoch
        self._limits = limits

    def start(self, follower: Follower) -> None:
        self._follower = follower
        follower.start_from(ReplicatedState(self._limits, epoch=self._epoch))

    async def stop(self) -> None:
        pass

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        last = self._follower.state.cursor
        on_outcome(self._follower.apply(Entry(last.epoch, last.sequence + 1, self.now(), command)))

    @property
    def waiting_bytes(self) -> int:
        return 0

    def why_not_ready(self) -> PushUpError | None:
        return None


_check: type[Broadcast] = MemoryBroadcast
