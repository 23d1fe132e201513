"""The append-only file of a stopped Redis: what is put in the place of it when Redis comes back with less than it had.

Redis 7 keeps it in a folder: a manifest, a base (RDB) and increments, which are the commands that changed something.
The effects of a script are one transaction, from MULTI to EXEC.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = "appendonlydir"


class Piece(NamedTuple):
    """A transaction, or a command outside of any: where it is in the file, and its commands."""

    begin: int
    end: int
    commands: list[list[bytes]]

    @property
    def is_save(self) -> bool:
        """Whether it brings a checkpoint up to date."""
        return any(words[0].upper() == b"HSET" and b"saved" in words[2::2] for words in self.commands)

    @property
    def adds_entry(self) -> bool:
        """Whether it appends to the log, or begins an epoch."""
        return any(b"sequence" in words[2::2] for words in self.commands if words[0].upper() == b"HSET")


def last_increment(folder: Path) -> Path:
    """The file that Redis with this data directory writes to."""
    manifest = (folder / FOLDER / "appendonly.aof.manifest").read_text()
    name = [line.split()[1] for line in manifest.splitlines() if line.endswith("type i")][-1]
    return folder / FOLDER / name


def pieces(data: bytes) -> list[Piece]:
    """What an increment consists of; a command or transaction that is not complete is left out."""
    found: list[Piece] = []
    open_: Piece | None = None
    for begin, end, words in _commands(data):
        name = words[0].upper()
        if name == b"MULTI":
            open_ = Piece(begin, end, [])
        elif name == b"EXEC" and open_ is not None:
            found.append(open_._replace(end=end))
            open_ = None
        elif open_ is not None:
            open_.commands.append(words)
        else:
            found.append(Piece(begin, end, [words]))
    return found


def without_last_save(data: bytes) -> bytes | None:
    """The same with every entry, but without the last save; None if an entry came after it, or there is none."""
    for piece in reversed(pieces(data)):
        if piece.adds_entry:
            return None
        if piece.is_save:
            return data[: piece.begin] + data[piece.end :]
    return None


def saved_sequence(data: bytes) -> int:
    """The sequence of the last checkpoint in it. Raises: StopIteration if there is none."""
    commands = (words for piece in reversed(pieces(data)) if piece.is_save for words in piece.commands)
    return next(int(words[words.index(b"saved") + 1]) for words in commands if b"saved" in words[2::2])


def without_last_pieces(data: bytes, share: float) -> bytes:
    """The first part of it, up to a command: `share`, from 0 to 1, of what there is."""
    found = pieces(data)
    keep = int(share * len(found))
    return data[: found[keep - 1].end] if keep else b""


def _commands(data: bytes) -> Iterator[tuple[int, int, list[bytes]]]:
    """Where each command begins and ends, and its words."""
    place = 0
    while place < len(data):
        begin = place
        try:
            count, place = _number(data, place, b"*")
            words = []
            for _ in range(count):
                size, place = _number(data, place, b"$")
                words.append(data[place : place + size])
                place += size + 2
        except ValueError:
            return
        if place > len(data):
            return
        yield begin, place, words


def _number(data: bytes, place: int, mark: bytes) -> tuple[int, int]:
    """The number in the line at this place, and where the next line begins. Raises: ValueError."""
    end = data.index(b"\r\n", place)
    if data[place : place + 1] != mark:
        raise ValueError(f"there is no {mark!r} at {place}")
    return int(data[place + 1 : end]), end + 2
