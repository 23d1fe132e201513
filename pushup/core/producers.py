"""Producers: publishers who count their own messages, such as an outbox, so that each is published exactly once.

The last publication of each producer is kept, for however long it takes until the next one. So a producer that comes
back after any time learns whether its last publication took place (as in Kafka's idempotent producers).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from pushup.core.bounded_table import BoundedTable
from pushup.core.change_log import Name
from pushup.core.commands import Duplicate, Outcome, Producer, Publish, Published
from pushup.core.cursor import PastEpochs
from pushup.core.errors import ProducerConflict, ProducerFenced

PRODUCERS_LIMIT = 10_000
"""Producers that are known. Beyond it, those that have published nothing for the longest time are forgotten."""


class LastPublication(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The last publication of a producer: the number of its first message, what became of it, and a digest of it.

    `epoch`: the latest of the producer. `owner`: the name of its publish key; with another key it is another producer.
    """

    owner: str
    name: str
    epoch: int
    first: int
    published: Published
    fingerprint: str

    @property
    def next(self) -> int:
        """The number of the next message."""
        return self.first + self.published.count

    @property
    def sequence(self) -> int:
        return self.published.sequence

    @property
    def time(self) -> float:
        return self.published.time

    @property
    def row_name(self) -> str:
        return _name(self.owner, self.name)


class Producers(BoundedTable[LastPublication]):
    """All producers, by when they have last published."""

    name = "producers"
    row_type = LastPublication

    @property
    def limit(self) -> int:
        return PRODUCERS_LIMIT

    @property
    def seconds(self) -> float:
        return math.inf

    def rows(self) -> Mapping[Name, LastPublication]:
        """As they are now: a publication of a producer replaces its row, which must not be missing. O(their number)."""
        return dict(self._rows)

    def rank(self, row: LastPublication) -> tuple[int, ...]:
        return row.epoch, row.next

    def known(self, command: Publish, producer: Producer, epoch: str, past: PastEpochs) -> Outcome | None:
        """What has become of this publication, or why it cannot be published; None: it is the next one.

        `epoch` is that of the order, and `past` its former names. If an order is lost, what follows the last
        publication may be lost as well: then a producer may go on with any later number.
        """
        row = self._rows.get(_name(command.owner, producer.name))
        if row is None:
            return None
        if producer.epoch < row.epoch:
            text = f"epoch {row.epoch} of this producer has published, so epoch {producer.epoch} no longer may"
            return ProducerFenced(text, field="producer.epoch", more={"epoch": row.epoch})
        end = producer.sequence + command.width
        is_lost = row.published.epoch != epoch and past.good_up_to(row.published.epoch) < 0
        known: Outcome | None = None
        if end <= row.first:
            known = Duplicate()
        elif (producer.sequence, end) == (row.first, row.next) and command.fingerprint == row.fingerprint:
            known = row.published
        elif producer.sequence < row.next:
            return self._conflict(row, f"{producer.sequence} was used for other messages")
        elif producer.sequence > row.next and not is_lost:
            return self._conflict(row, f"{producer.sequence} leaves out some")
        if known is not None and producer.epoch > row.epoch:
            self._set(replace(row, epoch=producer.epoch))  # in its place, that of the publication
        return known

    def is_after_loss(self, command: Publish, producer: Producer) -> bool:
        """Whether the number before the next publication's is not known."""
        row = self._rows.get(_name(command.owner, producer.name))
        return producer.sequence != (0 if row is None else row.next)

    def add(self, command: Publish, producer: Producer, published: Published) -> None:
        """Keep the next publication."""
        name, epoch, sequence = producer.name, producer.epoch, producer.sequence
        self.put(LastPublication(command.owner, name, epoch, sequence, published, command.fingerprint))

    def _conflict(self, row: LastPublication, problem: str) -> ProducerConflict:
        text = f"the next number of this producer is {row.next}, and {problem}; nothing was published"
        return ProducerConflict(text, field="producer.sequence", more={"next": row.next})


def _name(owner: str, name: str) -> str:
    return f"{owner} {name}"  # the name of a key contains no space
