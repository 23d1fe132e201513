"""Messages that wait for readers, and the calls about those that have not read them: a check of its own.

It knows what publishers, readers and the application did and were told, and all entries in their order. What an entry
means for a call is decided here anew, from the times of the entries, and not by the tables of the servers.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from loadtest.history.events import BrokenPromise
from pushup.core.channel import Unread
from pushup.core.commands import Claim, Claimed, Entry, Outcome, Publish, Read, Told
from tests.simulation.application import Application, Call
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.world import World

SLACK_SECONDS = 3.0
"""The first entry of a second makes due what is due; if that is much, one of the next seconds."""

FIRST_CLAIM_SECONDS, LONGEST_CLAIM_SECONDS = 15.0, 600.0

CALM_SECONDS = 25.0
"""After a fault, and whatever comes from it, all is as usual."""

PROMPT_SECONDS = 2.0
"""How long it takes until it is known that somebody has read something, where there is no fault."""


class Seen(NamedTuple):
    """A request of a subject that says what it has seen; `answered_at`: inf if it failed, or is under way."""

    at: float
    subject: str
    channels: tuple[str, ...]
    cursor: str


class Waiting(NamedTuple):
    """A message that waits for readers, as its entry says; by the time of the order."""

    id: str
    time: float
    channels: tuple[str, ...]
    data: str
    unread: Unread
    at: float
    """When its entry was first applied, by the true time."""

    @property
    def due(self) -> float:
        return self.time + self.unread.after


class UnreadMessages:
    """All of a run."""

    def __init__(self, world: World, network: Network, record: Record) -> None:
        self.world = world
        self._record = record
        self.application = Application(world, network, self.called)
        self.keeps_all = False
        """Whether no message expires, is evicted or deleted."""
        self.last_from = math.inf
        """What is published from then on is read at once by whoever reads it."""
        self.faults = [-math.inf]
        """When there were faults, by the true time."""
        self._asked: dict[str, Unread] = {}
        self._waiting: dict[str, Waiting] = {}
        self._reads: dict[tuple[str, str], float] = {}
        self._claims: dict[str, list[float]] = {}
        self._calls: dict[str, list[Call]] = {}
        self._ends: set[tuple[str, int]] = set()
        self._is_complete = True
        self._last_readers: list[tuple[str, tuple[str, ...], bool]] = []
        self._sent: list[Seen] = []
        self._answered: list[Seen] = []

    # What publishers and readers do.

    def published(self, data: str, unread: tuple[float, tuple[str, ...]]) -> None:
        """A message with this data is sent, and is to wait for readers."""
        self._asked[data] = Unread(*unread)

    def sends(self, subject: str, channels: tuple[str, ...], cursor: str) -> Seen:
        """A request is sent that says what this subject has seen."""
        seen = Seen(self.world.now, subject, channels, cursor)
        if "-" in cursor:
            self._sent.append(seen)
        return seen

    def answered(self, seen: Seen) -> None:
        """It was answered as it should be."""
        if "-" in seen.cursor:
            self._answered.append(seen)

    def read_to_end(self, subject: str, channels: tuple[str, ...], *, at_once: bool) -> None:
        """All faults have ended, and this subject has got all that was published on these channels since.

        `at_once`: not only after it had slept or paused.
        """
        self._last_readers.append((subject, channels, at_once))

    # What servers decide.

    def starts(self, epoch: str, sequence: int) -> None:
        """A server starts with a state as of this entry. Nobody may have applied what led to it, and told it here."""
        is_new = all(name != epoch for name, _ in self._ends)
        is_known = any((is_new or name == epoch) and end == sequence for name, end in self._ends)
        self._is_complete = self._is_complete and (is_known or not sequence)

    @property
    def _knows_all(self) -> bool:
        """Whether nothing was lost, and every entry was seen."""
        return self._is_complete and self._record.checker.lossless

    def applied(self, entry: Entry, outcome: Outcome) -> None:
        """A server has applied an entry."""
        end = entry.epoch, entry.sequence + entry.command.width - 1
        if end not in self._ends:
            self._ends.add(end)
            try:
                self._applied(entry, outcome)
            except BrokenPromise as error:
                self.world.end_with(error)

    def _applied(self, entry: Entry, outcome: Outcome) -> None:
        """Raises: BrokenPromise."""
        match entry.command:
            case Publish() as command if getattr(outcome, "sequence", None) == entry.sequence:
                for number, draft in enumerate(command.messages):
                    if draft.unread is not None:
                        id_, data = f"{entry.epoch}-{entry.sequence + number}", json.loads(bytes(draft.data))
                        of_message = (draft.channels, data, draft.unread, self.world.now)
                        self._waiting[id_] = Waiting(id_, entry.time, *of_message)
                        if self._asked.get(data) != draft.unread:
                            raise BrokenPromise(f"as it was published: {id_} waits for {draft.unread}")
            case Read(subject, ids):
                for id_ in ids:
                    self._reads.setdefault((subject, id_), entry.time)
                    self._check_read(subject, id_)
            case Claim() if isinstance(outcome, Claimed):
                for id_ in outcome.ids:
                    self._claimed(id_, entry.time)
            case Told(ids):
                for id_ in ids:
                    self._check_told(id_)

    def _check_read(self, subject: str, id_: str) -> None:
        """A subject counts as a reader only if it has said so."""
        self.world.reach("somebody has read a message that waits")
        message = self._waiting.get(id_)
        if message is None or not self._knows_all:
            return
        if not any(seen.subject == subject and self._covers(seen, message) for seen in self._sent):
            raise BrokenPromise(f"who has read: {subject} has not said that it has seen {id_}")

    def _covers(self, seen: Seen, message: Waiting) -> bool:
        place = self._record.checker.order.place
        return bool(set(seen.channels) & set(message.channels)) and place(seen.cursor) >= place(message.id)

    def _claimed(self, id_: str, time: float) -> None:
        claims = self._claims.setdefault(id_, [])
        claims.append(time)
        if len(claims) > 1 and self._knows_all:
            self.world.reach("a claim has ended, and the application was called again")
            least = min(FIRST_CLAIM_SECONDS * 2 ** (len(claims) - 2), LONGEST_CLAIM_SECONDS)
            if claims[-1] - claims[-2] < least - 1e-3:
                raise BrokenPromise(f"pauses grow: {id_} was claimed at {claims}")

    def _check_told(self, id_: str) -> None:
        """Nobody forgets a call before the application has agreed to it."""
        if self._knows_all and id_ not in self.application.agreed_to:
            raise BrokenPromise(f"called: the application has not agreed to the call about {id_}, and that is over")

    # What the application is told.

    def called(self, call: Call) -> None:
        """Raises: BrokenPromise."""
        before = self._calls.setdefault(call.id, [])
        before.append(call)
        message = self._waiting.get(call.id)
        if message is None:
            if self._is_complete:
                raise BrokenPromise(f"calls are about messages: {call}")
            return
        subjects = message.unread.subjects
        if not call.subjects or not set(call.subjects) <= set(subjects) or len(set(call.subjects)) < len(call.subjects):
            raise BrokenPromise(f"calls name those who were named: {call}, of {subjects}")
        if call.channels != message.channels or call.data not in (None, message.data):
            raise BrokenPromise(f"calls are about messages: {call}, and that is {message}")
        if not self._knows_all:
            return
        if call.data is None and self.keeps_all:
            raise BrokenPromise(f"calls have the data that is kept: {call}")
        if len(before) > len(self._claims.get(call.id, ())):
            raise BrokenPromise(f"called once: {call} is call {len(before)}, claimed at {self._claims.get(call.id)}")
        for subject in call.subjects:
            if self._reads.get((subject, call.id), math.inf) < message.due:
                raise BrokenPromise(f"never about who has read: {call}")
        if missing := self._must_name(message) - set(call.subjects):
            raise BrokenPromise(f"about all who have not read: {call}, without {sorted(missing)}")
        was_told = call.id in self.application.agreed_to and self.application.mood == ""
        if was_told and len(before) > 1 and self._is_calm(message.at, call.at):
            raise BrokenPromise(f"called once: {call}, as before: {before}")

    def _must_name(self, message: Waiting) -> set[str]:
        """Those of whom no reading came in time, as the entries say."""
        late = math.ceil(message.due) + SLACK_SECONDS
        return {s for s in message.unread.subjects if self._reads.get((s, message.id), math.inf) >= late}

    def _is_calm(self, begin: float, end: float) -> bool:
        return not any(begin - CALM_SECONDS < fault < end for fault in self.faults)

    # In the end.

    def check(self) -> None:
        """All faults have ended, and nothing waits any more. Raises: BrokenPromise."""
        if not self._knows_all:
            return
        for publication in self._record.checker.publications.values():
            for id_, data in zip(publication.ids, publication.data, strict=False):  # without ids if it failed
                if data in self._asked and id_ not in self._waiting:
                    raise BrokenPromise(f"as it was published: {id_} waits for nobody, instead of {self._asked[data]}")
        for message in self._waiting.values():
            if self._must_name(message) and message.id not in self._calls:
                raise BrokenPromise(f"called: nobody has told the application about {message}")
            named = {subject for call in self._calls.get(message.id, ()) for subject in call.subjects}
            readers = [reader for reader in self._last_readers if set(reader[1]) & set(message.channels)]
            may_have_read = {subject for subject, _, _ in readers}
            have_read = {subject for subject, _, at_once in readers if at_once}
            all_named = set(message.unread.subjects)
            if message.at > self.last_from and not all_named - may_have_read <= named <= all_named - have_read:
                raise BrokenPromise(f"called in the end: about {sorted(named)}; {have_read} had read {message}")
        for seen in self._answered:
            for message in self._waiting.values():
                due_at = message.at + message.unread.after
                is_in_time = message.at < seen.at < due_at - PROMPT_SECONDS and self._is_calm(seen.at, due_at)
                if not is_in_time or seen.subject not in message.unread.subjects or not self._covers(seen, message):
                    continue
                self.world.reach("somebody has read a message in time, while all was calm")
                if any(seen.subject in call.subjects for call in self._calls.get(message.id, ())):
                    raise BrokenPromise(f"never about who has read: {seen.subject} had seen {message} at {seen.at}")
