"""Bugs in the design of several logs, each as a change of the model's text: the checker must find every one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.orders import model
from tests.orders.checker import BrokenPromise
from tests.orders.world import run


class Bug(NamedTuple):
    seed: int
    """One that notices it; after a change of the model, `python -m tests.orders --bugs --seeds 400` finds others."""
    name: str
    old: str
    new: str


BUGS = (
    Bug(
        23,
        "right at a split, a log still has the place of its parent",
        "if sequence < past.upto:",
        "if sequence <= past.upto:",
    ),
    Bug(
        2,
        "each log cuts a page for itself, also before the split",
        "taken = sorted({message for part in parts for message in part.messages})[:limit]",
        "taken = sorted({message for part in parts for message in sorted(part.messages)[:limit]})",
    ),
    Bug(
        9,
        "a log that cannot be reached is left out, also before the split",
        "if prefix != leaf:\n                    raise\n                kept[leaf] = vector[leaf]",
        "if prefix not in vector:\n                    raise\n                kept[leaf] = vector[prefix]",
    ),
    Bug(
        2,
        "times of a child may be before those of its parent",
        "State(prefix, epoch, self.sequence, self.time, past)",
        "State(prefix, epoch, self.sequence, 0, past)",
    ),
    Bug(
        2,
        "a child begins without the messages of its parent",
        "if bits_of(name).startswith(prefix)\n",
        "if bits_of(name).startswith(prefix) and epoch == self.epoch\n",
    ),
    Bug(
        31,
        "a child does not know what its parent has dropped",
        "Channel(channel.messages, channel.dropped, ",
        "Channel(channel.messages, channel.dropped if epoch == self.epoch else 0, ",
    ),
    Bug(
        2,
        "a child does not know the keys of its parent",
        "part.keys = dict(self.keys)",
        "part.keys = dict(self.keys) if epoch == self.epoch else {}",
    ),
    Bug(
        4,
        "a publication is refused, although it was published before the split",
        "for state in map(self.follow, leaves):",
        "for state in map(self.follow, leaves[:0]):",
    ),
    Bug(
        0,
        "a publication on channels of several logs goes to one of them",
        "if len(leaves) > 1:",
        "if not leaves:",
    ),
    Bug(
        0,
        "a log takes entries after it was sealed",
        "or log.is_sealed or",
        "or",
    ),
    Bug(
        22,
        "nothing tells whether a missing child has been open",
        'return "committed" if log.is_committed else "sealed"',
        "places = (self._directory or self.refresh()).splitting.get(parent, {})\n"
        "        return 'committed' if all(self.servers[n].log(p) for p, n in places.items()) else 'sealed'",
    ),
    Bug(
        1,
        "children are used before the record that decides about them",
        'in ("committed", "lost"):\n            return next(',
        'in ("sealed", "committed", "lost"):\n            return next(',
    ),
    Bug(
        3,
        "a lost log begins again under the same name",
        "State(prefix, self._new_name(), time",
        'State(prefix, f"r{prefix}", time',
    ),
    Bug(
        3,
        "a node begins a log again that was split, as it does not ask the other servers",
        "directory = self.refresh(from_all=True)\n        if prefix in directory.splitting:\n            raise",
        "directory = self._directory or self.refresh()\n        if prefix is None:\n            raise",
    ),
    Bug(
        152,
        "a node that does not know a cursor says that messages are lost, without looking at the log",
        "if known is None or known > state.sequence:",
        "if known is not None and known > state.sequence:",
    ),
    Bug(
        6,
        "a node goes on from a log that has lost entries",
        "or state.epoch != log.epoch or state.sequence",
        "or state.sequence",
    ),
)


def planted(bug: Bug) -> ModuleType:
    """The model with this bug."""
    text = Path(model.__file__).read_text()
    assert text.count(bug.old) == 1, f"{bug.name}: {text.count(bug.old)} places"
    module = ModuleType("planted_model")
    exec(compile(text.replace(bug.old, bug.new), f"model, where {bug.name}", "exec"), module.__dict__)
    return module


def noticed(bug: Bug, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first of the seeds whose run breaks a promise, and which."""
    module = planted(bug)
    for seed in seeds:
        try:
            run(seed, module)
        except BrokenPromise as error:
            return seed, str(error)
    return None
