"""A checkpoint as journal and Redis keep it: JSON that each save updates, read back in any order of rows."""

from __future__ import annotations

from random import Random

import msgspec

from pushup.core.snapshot import BOUNDED, Changes, Head, Snapshot, Tables, encode
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, restore, rows_of_new_epoch


class SavedCheckpoint:
    """The stored parts of one checkpoint."""

    def __init__(self) -> None:
        self.head = b""
        self.rows: dict[str, bytes] = {}

    def save(self, changes: Changes) -> None:
        """Bring it up to date."""
        self.head = encode(changes.head)
        for row in changes.rows:
            if row.is_removed:
                self.rows.pop(row.key, None)
            else:
                self.rows[row.key] = bytes(row.body)

    def as_redis_reads_it(self, random: Random) -> Snapshot:
        """HSCAN gives the rows in any order, some of them twice."""
        keys = list(self.rows)
        keys += random.sample(keys, len(keys) // 10)
        random.shuffle(keys)
        return self._read(keys)

    def as_sqlite_reads_it(self) -> Snapshot:
        return self._read(list(self.rows))

    def _read(self, keys: list[str]) -> Snapshot:
        tables = Tables()
        for key in keys:
            tables.add(key, self.rows[key])
        return Snapshot(msgspec.json.decode(self.head, type=Head), tables)


def new_epoch(name: str, *states: ReplicatedState) -> ReplicatedState:
    """The state with which an order begins after one of which this was known."""
    tables = Tables()
    tables.take(rows_of_new_epoch(*states))
    return restore(Snapshot(head_of_new_epoch(name, *states), tables))


def through_json(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, written and read."""
    tables = Tables()
    for name in ("channels", "messages", *[table.name for table in BOUNDED]):
        for row in snapshot.tables[name]:
            tables.add(f"{name}/{row.row_name}", encode(row))
    return Snapshot(msgspec.json.decode(encode(snapshot.head), type=Head), tables)
