"""The replicated state as a value: another node starts from one, and equal states have equal snapshots.

Journals and Redis keep these values as JSON, so the field names are a file format.
"""

from __future__ import annotations

from msgspec import Struct

from pushup.core.epoch_history import PastEpoch
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.rows import ChannelRow, MessageRow
from pushup.core.tables import CHANNELS, MESSAGES, Stored, Tables


class Head(Struct, frozen=True, forbid_unknown_fields=True):
    """What a state has once: the last entry applied, with its time, and what its entries are carried out by."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    version: int
    past_epochs: tuple[PastEpoch, ...]
    limits: Limits


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """What has changed in the replicated state since some entry: what turns a snapshot of then into one of now."""

    head: Head
    rows: tuple[Stored, ...]


class Snapshot(Struct, frozen=True):
    """The whole replicated state."""

    head: Head
    tables: Tables

    @property
    def channels(self) -> tuple[ChannelRow, ...]:
        """O(all), for tests."""
        return tuple(self.tables[CHANNELS].in_order())

    @property
    def messages(self) -> tuple[MessageRow, ...]:
        """O(all), for tests."""
        return tuple(self.tables[MESSAGES].in_order())


def empty_head(epoch: str, limits: Limits) -> Head:
    """That of a state of the latest version, to which the first entry of the epoch comes next."""
    return Head(epoch, 0, 0.0, 0, 0, LATEST_VERSION, (), limits)
