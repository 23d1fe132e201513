"""The data of an in-memory Redis, and the commands that PushUp and its scripts use on it, as in Redis 7."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from tests.broadcast.redis.lua_scripts import ReplyError

NEED_MEMORY = frozenset(b"HSET HINCRBY XADD ZADD SET SETNX".split())
"""What Redis refuses when it is full."""

CHANGE_ALWAYS = NEED_MEMORY - {b"SETNX"} | {b"RENAME", b"FLUSHALL"}
CHANGE_IF_ANY = frozenset(b"SETNX HDEL DEL UNLINK ZREM ZREMRANGEBYSCORE XTRIM EXPIRE PERSIST".split())
"""Their reply is 0 if they change nothing."""

WRITES = CHANGE_ALWAYS | CHANGE_IF_ANY


@dataclass
class Stream:
    """Rows by the first part of their ids; the second part is always 0."""

    rows: list[tuple[int, list[bytes]]] = field(default_factory=list)
    last: int = 0

    def add(self, id: bytes, fields: list[bytes]) -> bytes:  # noqa: A002
        number = int(id.removesuffix(b"-0"))
        if number <= self.last:
            raise ReplyError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        self.rows.append((number, fields))
        self.last = number
        return b"%d-0" % number

    def trim(self, first: bytes) -> int:
        """Remove what comes before `first`; returns how many."""
        begin = bisect_left(self.rows, _place(first), key=itemgetter(0))
        del self.rows[:begin]
        return begin


class SortedSet(dict[bytes, float]):
    """Scores by member."""

    def between(self, first: tuple[float, bool], last: tuple[float, bool]) -> list[bytes]:
        """The members with these scores, in their order. A bound is a score, and whether it is excluded."""
        (low, low_open), (high, high_open) = first, last
        found = [
            (score, member)
            for member, score in self.items()
            if (low < score if low_open else low <= score) and (score < high if high_open else score <= high)
        ]
        return [member for _, member in sorted(found)]


class Data(dict[bytes, Any]):
    """Keys and their values: bytes, or a dict (a hash), `SortedSet` or `Stream`; and when keys expire."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.expires: dict[bytes, float] = dict(given[0].expires) if given and isinstance(given[0], Data) else {}


class Commands:
    """The method for HSET is `_hset`, and so on. Arguments are bytes; a reply is bytes, an int, None or a list."""

    def __init__(self) -> None:
        self._data = Data()

    @property
    def data(self) -> Data:
        return self._data

    @data.setter
    def data(self, data: dict[bytes, Any]) -> None:
        self._data = data if isinstance(data, Data) else Data(data)

    def now(self) -> float:
        """Seconds since the epoch."""
        raise NotImplementedError

    def carry_out(self, words: list[bytes]) -> Any:
        """Raises: ReplyError."""
        if self._data.expires:
            self._expire_keys()
        name = words[0].upper()
        command: Callable[..., Any] | None = getattr(self, "_" + name.decode().lower(), None)
        if command is None:
            raise ReplyError(f"ERR unknown command '{name.decode()}'")
        return command(*words[1:])

    def _expire_keys(self) -> None:
        for key in [key for key, at in self._data.expires.items() if at <= self.now() or key not in self._data]:
            self._remove(key)

    def _remove(self, key: bytes) -> int:
        self._data.expires.pop(key, None)
        return int(self._data.pop(key, None) is not None)

    def _find(self, key: bytes, kind: type[Any]) -> Any:
        """The value of a key, which must be of this kind; an empty one if there is no such key."""
        value = self._data.get(key)
        if value is None:
            return kind()
        if type(value) is not kind:
            raise ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def _make(self, key: bytes, kind: type[Any]) -> Any:
        """As `_find`, and the empty one is stored."""
        value = self._find(key, kind)
        if key not in self._data:
            self._data.expires.pop(key, None)
            self._data[key] = value
        return value

    def _take(self, key: bytes, kind: type[Any], names: tuple[bytes, ...]) -> int:
        """Remove these names; an empty hash or sorted set does not exist."""
        value = self._find(key, kind)
        count = sum(value.pop(name, None) is not None for name in names)
        if not value and count:
            self._remove(key)
        return count

    # Keys.

    def _time(self) -> list[bytes]:
        seconds, microseconds = divmod(round(self.now() * 1e6), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]

    def _del(self, *keys: bytes) -> int:
        return sum(map(self._remove, keys))

    _unlink = _del

    def _exists(self, *keys: bytes) -> int:
        return sum(key in self._data for key in keys)

    def _flushall(self) -> bytes:
        self._data.clear()
        self._data.expires.clear()
        return b"OK"

    def _rename(self, key: bytes, to: bytes) -> bytes:
        if key not in self._data:
            raise ReplyError("ERR no such key")
        at = self._data.expires.pop(key, None)
        value = self._data.pop(key)
        self._remove(to)
        self._data[to] = value
        if at is not None:
            self._data.expires[to] = at
        return b"OK"

    def _expire(self, key: bytes, seconds: bytes) -> int:
        if key not in self._data:
            return 0
        self._data.expires[key] = self.now() + int(seconds)
        return 1

    def _ttl(self, key: bytes) -> int:
        if key not in self._data:
            return -2
        return round(self._data.expires[key] - self.now()) if key in self._data.expires else -1

    def _type(self, key: bytes) -> bytes:
        kinds = {bytes: b"string", dict: b"hash", SortedSet: b"zset", Stream: b"stream"}
        return kinds[type(self._data[key])] if key in self._data else b"none"

    def _persist(self, key: bytes) -> int:
        return int(self._data.expires.pop(key, None) is not None)

    def _get(self, key: bytes) -> bytes | None:
        found: bytes = self._find(key, bytes)
        return found if key in self._data else None

    def _set(self, key: bytes, value: bytes) -> bytes:
        self._remove(key)
        self._data[key] = value
        return b"OK"

    def _setnx(self, key: bytes, value: bytes) -> int:
        return 0 if key in self._data else int(bool(self._set(key, value)))

    # Hashes.

    def _hmget(self, key: bytes, *names: bytes) -> list[bytes | None]:
        return [*map(self._find(key, dict).get, names)]

    def _hget(self, key: bytes, name: bytes) -> bytes | None:
        return self._hmget(key, name)[0]

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        if not pairs or len(pairs) % 2:
            raise ReplyError("ERR wrong number of arguments for 'hset' command")
        value = self._make(key, dict)
        before = len(value)
        value.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(value) - before

    def _hincrby(self, key: bytes, name: bytes, by: bytes) -> int:
        value = self._find(key, dict)
        try:
            number = int(value.get(name, b"0")) + int(by)
        except ValueError:
            raise ReplyError("ERR hash value is not an integer") from None
        self._make(key, dict)[name] = b"%d" % number
        return number

    def _hdel(self, key: bytes, *names: bytes) -> int:
        return self._take(key, dict, names)

    def _hlen(self, key: bytes) -> int:
        return len(self._find(key, dict))

    def _hkeys(self, key: bytes) -> list[bytes]:
        return [*self._find(key, dict)]

    def _hgetall(self, key: bytes) -> list[bytes]:
        return [word for pair in self._find(key, dict).items() for word in pair]

    def _hscan(self, key: bytes, place: bytes, option: bytes, most: bytes) -> list[Any]:
        """At most this many, in an order that means nothing."""
        assert option == b"COUNT"
        by_name = self._find(key, dict)
        names = sorted(by_name, key=_hash)
        begin, end = int(place), int(place) + int(most)
        flat = [word for name in names[begin:end] for word in (name, by_name[name])]
        return [b"%d" % end if end < len(names) else b"0", flat]

    # Sorted sets.

    def _zadd(self, key: bytes, *pairs: bytes) -> int:
        try:
            scores = [*map(float, pairs[::2])]
        except ValueError:
            raise ReplyError("ERR value is not a valid float") from None
        value = self._make(key, SortedSet)
        before = len(value)
        value.update(zip(pairs[1::2], scores, strict=True))
        return len(value) - before

    def _zrem(self, key: bytes, *members: bytes) -> int:
        return self._take(key, SortedSet, members)

    def _zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = self._find(key, SortedSet).get(member)
        return None if score is None else b"%.17g" % score

    def _zrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        assert (first, last) == (b"0", b"-1")
        return self._zrangebyscore(key, b"-inf", b"+inf")

    def _zrangebyscore(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        bounds = _bound(first), _bound(last)
        found: list[bytes] = self._find(key, SortedSet).between(*bounds)
        return found

    def _zcount(self, key: bytes, first: bytes, last: bytes) -> int:
        return len(self._zrangebyscore(key, first, last))

    def _zremrangebyscore(self, key: bytes, first: bytes, last: bytes) -> int:
        return self._take(key, SortedSet, tuple(self._zrangebyscore(key, first, last)))

    # Streams.

    def _xadd(self, key: bytes, place: bytes, *fields: bytes) -> bytes:
        if place == b"0-0":
            raise ReplyError("ERR The ID specified in XADD must be greater than 0-0")
        stream = self._find(key, Stream)
        added: bytes = stream.add(b"%d" % (self.now() * 1000) if place == b"*" else place, [*fields])
        if key not in self._data:
            self._make(key, Stream)
            self._data[key] = stream
        return added

    def _xlen(self, key: bytes) -> int:
        return len(self._find(key, Stream).rows)

    def _xtrim(self, key: bytes, option: bytes, first: bytes) -> int:
        assert option == b"MINID"
        removed: int = self._find(key, Stream).trim(first)
        return removed

    def _rows(self, key: bytes, first: float = 0, last: float = math.inf) -> list[list[Any]]:
        rows = self._find(key, Stream).rows
        begin, end = bisect_left(rows, first, key=itemgetter(0)), bisect_right(rows, last, key=itemgetter(0))
        return [[b"%d-0" % number, fields] for number, fields in rows[begin:end]]

    def _xrange(self, key: bytes, first: bytes, last: bytes, *most: bytes) -> list[list[Any]]:
        assert last == b"+"
        assert most[:1] in ((), (b"COUNT",))
        return self._rows(key, _place(first))[: int(most[1]) if most else None]

    def _xrevrange(self, key: bytes, last: bytes, first: bytes, *most: bytes) -> list[list[Any]]:
        assert first == b"-"
        assert most[0] == b"COUNT"
        end = math.inf if last == b"+" else _place(last)
        return self._rows(key, 0, end)[::-1][: int(most[1])]

    def _xread(self, *words: bytes) -> list[Any] | None:
        assert words[:5:2] == (b"COUNT", b"BLOCK", b"STREAMS")
        _, most, _, _, _, key, after = words
        rows = self._rows(key, _place(after) + 1)[: int(most)]
        return [[key, rows]] if rows else None


def _hash(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=8).digest()


def _place(text: bytes) -> int:
    """The first sequence that a range bound includes, for ids that end with -0."""
    if text == b"-":
        return 0
    number = int(text.lstrip(b"(").removesuffix(b"-0"))
    return number + 1 if text.startswith(b"(") else number


def _bound(text: bytes) -> tuple[float, bool]:
    """A score, and whether it is excluded."""
    try:
        return float(text.removeprefix(b"(")), text.startswith(b"(")
    except ValueError:
        raise ReplyError("ERR min or max is not a float") from None
