"""What this node remembers of the way of messages besides their state: whom it answered, and how far all nodes were."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

from msgspec.structs import replace

from pushup.broadcast import Member
from pushup.core.commands import Published
from pushup.core.cursor import Cursor, parse_cursor, sequence_in
from pushup.core.errors import BadRequest
from pushup.core.state import ReplicatedState
from pushup.core.tracing import Applied, Trace, trace

ANSWERED = 16_384
"""Places for publications that were answered here, 256 KB. Half as many entries back, it is certain which were not."""

LOOKS = 2000
"""How many cursors of each node it remembers, 48 KB. While there are publications, one each second."""

GONE_SECONDS = 3600.0
"""A node that has not reported for so long is forgotten."""

GONE_BEFORE_SECONDS = 10.0
"""A node whose last report was so long before a message is not mentioned for it."""


class Tracer:
    """Answers `GET /v1/messages/{id}`. `look` is called every second while there are entries."""

    def __init__(
        self,
        *,
        state: Callable[[], ReplicatedState],
        members: Callable[[], list[Member]],
        now: Callable[[], float],
        name: str,
    ) -> None:
        """`state`: the present one; `now`: on the clock of the messages' times; `name`: of this node."""
        self._state = state
        self._members = members
        self._now = now
        self._name = name
        self._forget_answers(0)
        self._tracks: dict[str, _Track] = {}  # by the node's id

    def _forget_answers(self, sequence: int) -> None:
        """What was answered up to this sequence is not known."""
        # The first and last sequence of each publication, in the place `first % ANSWERED`.
        self._first, self._last = array("q", [0]) * ANSWERED, array("q", [0]) * ANSWERED
        self._answers_after = sequence

    def answered(self, published: Published) -> None:
        """A publisher was answered here: maybe again, for one that it has repeated."""
        first = published.sequence
        place = first % ANSWERED
        if first > self._first[place]:
            self._first[place], self._last[place] = first, first + published.count - 1

    def moved(self, old: ReplicatedState, new: ReplicatedState) -> None:
        """This node continues from another state."""
        new.cache.drops = old.cache.drops
        is_same = new.past_epochs.translate(old.cursor, new.cursor.epoch).epoch == new.cursor.epoch
        new.cache.drops.skip(new.cursor.sequence, new.time, forget=not is_same)
        if not is_same:
            self._forget_answers(new.cursor.sequence)
            self._tracks.clear()

    def look(self) -> None:
        """Note how far each node is, as it has last reported."""
        state, now = self._state(), self._now()
        for member in self._members():
            try:
                reported = parse_cursor(member.cursor)
            except BadRequest:
                continue  # it has no state yet
            if not isinstance(reported, Cursor):
                continue
            cursor = state.past_epochs.translate(reported, state.cursor.epoch)
            if cursor.epoch == state.cursor.epoch:
                track = self._tracks.get(member.id)
                if track is None:
                    track = self._tracks[member.id] = _Track(member.name)
                track.note(cursor.sequence, now)
        for gone in [name for name, track in self._tracks.items() if track.seen_at < now - GONE_SECONDS]:
            del self._tracks[gone]

    def trace(self, message: Cursor, reader: Cursor | None) -> Trace | None:
        """As that of `core.tracing`, with what only this node knows."""
        found = trace(self._state(), message, reader)
        if found is None or found.fate == "lost":
            return found
        self.look()
        sequence, living = sequence_in(found.id), {member.id for member in self._members()}
        epoch = self._state().cursor.epoch
        since = (found.time or 0.0) - GONE_BEFORE_SECONDS
        tracks = [(id_, track) for id_, track in self._tracks.items() if id_ in living or track.seen_at >= since]
        nodes = tuple([track.applied(id_, sequence, epoch, is_alive=id_ in living) for id_, track in tracks])
        was_answered = any(f <= sequence <= last for f, last in zip(self._first, self._last, strict=True))
        acknowledged = was_answered or self._may_have_answered(sequence)
        return replace(found, node=self._name, acknowledged=acknowledged, nodes=nodes)

    def _may_have_answered(self, sequence: int) -> bool | None:
        """Whether the publisher of a message that is not in the table was answered here."""
        oldest = max(self._answers_after, self._state().cursor.sequence - ANSWERED // 2)
        return False if sequence > oldest else None


class _Track:
    """The cursors of one node, each with the first and the last time at which it was seen; without repetitions."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sequences, self._first, self._last = array("d"), array("d"), array("d")

    @property
    def seen_at(self) -> float:
        return self._last[-1]

    def note(self, sequence: int, now: float) -> None:
        if self._sequences and sequence <= self._sequences[-1]:
            self._last[-1] = now
            return
        for values, value in ((self._sequences, sequence), (self._first, now), (self._last, now)):
            values.append(value)
            if len(values) > LOOKS:
                del values[0]

    def applied(self, id_: str, sequence: int, epoch: str, *, is_alive: bool) -> Applied:
        at = bisect_left(self._sequences, sequence)
        has_applied = at < len(self._sequences)
        cursor = f"{epoch}-{int(self._sequences[-1])}"
        by, not_at = self._first[at] if has_applied else None, self._last[at - 1] if at else None
        return Applied(id_, self._name, cursor, self.seen_at, is_alive, has_applied, not_at, by)
