"""Who was told to be there, by observers who know only the protocol, and whether that is true."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, NamedTuple

from tests.server.caller import Caller
from tests.server.redis_cluster import place

CHANNEL = "room:1"

LEAVE_SECONDS = 5.0
"""How long after the grace a member has left at the latest."""

GONE_SECONDS = 8.0
"""How long after its end a node is known to be gone at the latest. The grace of its members begins then."""


class Stop(NamedTuple):
    """A user is gone since `at`. `least`, `most`: the grace, as far as it is known."""

    at: float
    least: float
    most: float


class Fault(NamedTuple):
    """Something did not answer from `began` to `ended`; if `node_ends`, the process of a node was gone by `ended`."""

    name: str
    began: float
    ended: float
    node_ends: bool = False


class Seen:
    """What one observer was told, from an empty list on."""

    def __init__(self) -> None:
        self.members: frozenset[str] = frozenset()
        self.after: dict[str, frozenset[str]] = {}
        """The members after each message, by its id."""
        self.leaves: list[tuple[str, float]] = []
        self.wrong: list[str] = []
        self.lists = 0
        """How many lists were compared with the messages."""

    def take(self, message: dict[str, Any]) -> None:
        data = message["data"]
        joins = [member["subject"] for member in data.get("joins", ())]
        leaves = data.get("leaves", [])
        self.wrong += [f"{who} joins again" for who in joins if who in self.members]
        self.wrong += [f"{who} leaves, and was not there" for who in leaves if who not in self.members]
        self.members = (self.members | set(joins)) - set(leaves)
        if data["count"] != len(self.members):
            self.wrong.append(f"{message['id']}: {data['count']} instead of {len(self.members)} members")
        self.leaves += [(who, message["time"]) for who in leaves]
        self.after[message["id"]] = self.members

    def compare(self, subjects: Iterable[str], cursor: str) -> None:
        """A list as of this cursor; all messages up to there were taken."""
        self.lists += 1
        until = place(cursor)
        there = next((self.after[name] for name in reversed(self.after) if place(name) <= until), frozenset())
        if differ := there ^ set(subjects):
            self.wrong.append(f"the list at {cursor} differs: {sorted(differ)[:10]}")


class Observer:
    """Reads the channel at one server, in a thread; when that is away, it waits."""

    def __init__(self, address: str) -> None:
        self.seen = Seen()
        self._address = address
        self._cursor = ""
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends = True
        self._thread.join()

    def _run(self) -> None:
        while not self._ends:
            with suppress(OSError, HTTPException), Caller(self._address) as caller:
                while not self._ends:
                    self._read(caller)
            time.sleep(0.1)

    def _read(self, caller: Caller) -> None:
        """A list, and the messages up to it and for a second after it. Raises: OSError if there is no answer."""
        listed = _value(caller, f"/v1/presence?channel={CHANNEL}")
        self._cursor = self._cursor or listed["cursor"]
        while place(self._cursor) < place(listed["cursor"]):
            self._poll(caller, 0)
        self.seen.compare([member["subject"] for member in listed["members"]], listed["cursor"])
        self._poll(caller, 1)

    def _poll(self, caller: Caller, seconds: int) -> None:
        answer = _value(caller, f"/v1/poll?channel={CHANNEL}&cursor={self._cursor}&timeout={seconds}")
        self.seen.wrong += [f"a gap: {gap}" for gap in answer["gaps"]]
        for message in answer["messages"]:
            self.seen.take(message)
        self._cursor = answer["cursor"]


def _value(caller: Caller, path: str) -> Any:
    reply = caller.call("GET", path)
    if reply.status != 200:
        raise OSError(reply.text)
    return reply.value


@dataclass
class Result:
    """What users did, what was done to the servers, and what the observers saw."""

    grace: float
    members: set[str] = field(default_factory=set)
    """All who have come."""
    stops: dict[str, Stop] = field(default_factory=dict)
    aways: list[tuple[str, float, float]] = field(default_factory=list)
    """Who held no request, and from when until when."""
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """What clients had in the end that was wrong."""

    @property
    def there(self) -> set[str]:
        """Who is there in the end."""
        return self.members - self.stops.keys()

    def wrong(self) -> list[str]:
        """Each false leave, each late one, and each difference between observers, messages and lists."""
        found = [text for seen in self.seen for text in seen.wrong]
        first = self.seen[0]
        found += ["the observers were told different things" for seen in self.seen[1:] if seen.after != first.after]
        for who, at in first.leaves:
            stop = self.stops.get(who)
            if stop is None or at < stop.at + self._least(stop):
                if not self._was_away(who, at):
                    found.append(f"false: {who} left at {at}; {stop}")
            elif at > (until := self.deadline(stop)):
                found.append(f"late: {who} left {at - until:.1f} s after the latest moment; {stop}")
        found += [f"stays: {who}" for who in sorted(first.members - self.there)]
        return found + [f"missing: {who}" for who in sorted(self.there - first.members)] + self.others

    def deadline(self, stop: Stop) -> float:
        """When who has stopped has left at the latest."""
        until = stop.at + stop.most + LEAVE_SECONDS
        for fault in sorted(self.faults, key=lambda fault: fault.began):
            if fault.began < until and fault.ended > stop.at - GONE_SECONDS - LEAVE_SECONDS:
                if fault.node_ends:
                    until = max(until, fault.ended + GONE_SECONDS + self.grace + LEAVE_SECONDS)
                else:
                    until += fault.ended - fault.began
        return until

    def leave_times(self) -> tuple[list[float], list[float]]:
        """How long after the grace users left: where no fault was near, and the others."""
        calm: list[float] = []
        others: list[float] = []
        for who, at in self.seen[0].leaves:
            stop = self.stops.get(who)
            if stop is not None and stop.least == stop.most:
                near = [fault for fault in self.faults if fault.began < at and fault.ended > stop.at - 2 * GONE_SECONDS]
                (others if near else calm).append(at - stop.at - stop.most)
        return calm, others

    def _least(self, stop: Stop) -> float:
        """A node that has ended may have known alone that the user was there later than half of the grace before."""
        ended = any(fault.node_ends and fault.ended > stop.at - GONE_SECONDS for fault in self.faults)
        return min(stop.least, self.grace / 2) if ended else stop.least

    def _was_away(self, who: str, at: float) -> bool:
        """Whether it held no request for the grace, for reasons of its own."""
        aways = [(began, ended) for name, began, ended in self.aways if name == who and ended - began > self.grace]
        return any(began + self.grace <= at <= ended + LEAVE_SECONDS for began, ended in aways)
