"""Ordering: which loose updates a decider gives ordinals, and in what order. Ours; the paper leaves it to [5].

Updates of one proposer keep their sequence while it stays in the group. A time-ordered update waits until it is
`settle` old, so that older ones of others have arrived if they were in time; then the oldest is next. One that is older
than the last of them is refused, as is one from the future: the clocks were set back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from loadtest.mishra.core.messages import BOOT_BITS, Entry, Fate, Order, Place, Update

Mark = tuple[float, int, int]
"""Stamp, proposer and sequence: time order."""


class Chosen(NamedTuple):
    """The next entries; each member's `following` after them; and the mark."""

    entries: list[Entry]
    following: dict[int, int]
    mark: Mark


def choose(
    loose: Iterable[Update], places: Iterable[Place], *, mark: Mark, settled: float, future: float, limit: int
) -> Chosen:
    """Choose at most `limit` entries.

    Of time-ordered updates, those stamped up to `settled` get their place; from `future` on they are refused.
    """
    following = {place.member: place.following for place in places}
    boots = {place.member: place.boot for place in places}
    queues: dict[tuple[int, bool], list[Update]] = {}
    for update in sorted(loose, key=lambda update: update.id):
        queues.setdefault((update.proposer, _present(update, boots, following)), []).append(update)
    for (member, present), queue in queues.items():
        if present:
            queue[:] = _unbroken(queue, following[member])
    chosen: list[Entry] = []
    while len(chosen) < limit:
        head = _next(queues.values(), settled, future)
        if head is None:
            break
        present = _present(head, boots, following)
        queues[head.proposer, present].pop(0)
        if present:
            following[head.proposer] = head.sequence + 1
        fate = Fate.DELIVERED
        if head.order is Order.TIME:
            fate = Fate.DELIVERED if _mark(head) > mark and head.stamp < future else Fate.LATE
            mark = _mark(head) if fate is Fate.DELIVERED else mark
        chosen.append(Entry(*head.id, head.order, head.atomicity, head.depends_on, fate))
    return Chosen(chosen, following, mark)


def _present(update: Update, boots: Mapping[int, int], following: Mapping[int, int]) -> bool:
    """Whether its proposer has been in the group since it proposed this; otherwise what came before may never come."""
    boot = boots.get(update.proposer)
    return boot == update.sequence >> BOOT_BITS and update.sequence >= following[update.proposer]


def _unbroken(queue: list[Update], first: int) -> list[Update]:
    """The updates from this sequence on, up to a gap: what is missing there will come."""
    count = 0
    while count < len(queue) and queue[count].sequence == first + count:
        count += 1
    return queue[:count]


def _next(queues: Iterable[list[Update]], settled: float, future: float) -> Update | None:
    """The first in a queue that need not wait; of time-ordered ones the oldest."""
    heads = [queue[0] for queue in queues if queue]
    for head in heads:
        if head.order is not Order.TIME or head.stamp >= future:
            return head
    return min((head for head in heads if head.stamp <= settled), key=_mark, default=None)


def _mark(update: Update) -> Mark:
    return update.stamp, update.proposer, update.sequence
