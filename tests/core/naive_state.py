"""A reference model of the replicated state, made of lists that are searched from end to end."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from pushup.core.answer import Answer, Gap
from pushup.core.attendance import Away, Gone, Here, Leave
from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Attributes
from pushup.core.commands import (
    ChannelState,
    Close,
    Closed,
    Configure,
    Continue,
    Create,
    Done,
    Draft,
    Duplicate,
    Entry,
    Erase,
    Erased,
    Expire,
    Outcome,
    Producer,
    Publish,
    Published,
    Renew,
)
from pushup.core.cursor import Cursor
from pushup.core.errors import (
    BadRequest,
    ChannelExists,
    KeyReused,
    Overloaded,
    ProducerConflict,
    ProducerFenced,
    UnknownChannel,
)
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.poll import Selection
from pushup.core.reading import RECEIVED_OVERHEAD_BYTES
from pushup.core.snapshot import Snapshot

EPHEMERAL = "*"

NONE = Attributes()


@dataclass
class NaiveMessage:
    epoch: str
    sequence: int
    time: float
    channels: tuple[str, ...]
    data: bytes
    event: str
    keepers: set[str]
    kind: str
    """Its retention class."""
    owner: str

    @property
    def size(self) -> int:
        return len(self.data) + MESSAGE_OVERHEAD_BYTES


@dataclass
class NaiveChannel:
    id: int
    ttl: float
    expires: float


@dataclass
class Drop:
    sequence: int
    time: float
    reason: str


@dataclass
class Closing:
    sequence: int
    due: int


@dataclass
class NaiveProducer:
    """The numbers of its last publication, and what became of it."""

    epoch: int
    numbers: range
    messages: tuple[Draft, ...]
    outcome: Published


@dataclass
class NaiveMember:
    channel: str
    subject: str
    data: bytes
    sequence: int
    since: float
    holder: str
    leaves_at: float = 0.0

    @property
    def view(self) -> dict[str, Any]:
        return {"subject": self.subject, "since": self.since, "data": json.loads(self.data)}


@dataclass
class NaiveState:
    """`kept`, `open`, `keys` and `producers` are the current state; `published`, `closed`, `drops` the whole history.

    `drops` says nothing of ephemeral messages. `producers`: by owner and name.
    """

    limits: Limits
    epoch: str
    past: dict[str, int] = field(default_factory=dict)
    last: int = 0
    time: float = 0.0
    last_id: int = 0
    floor: int = 0
    kept: list[NaiveMessage] = field(default_factory=list)
    open: dict[str, NaiveChannel] = field(default_factory=dict)
    keys: dict[str, tuple[Published, tuple[Draft, ...]]] = field(default_factory=dict)
    producers: dict[tuple[str, str], NaiveProducer] = field(default_factory=dict)
    closings: dict[str, Closing] = field(default_factory=dict)
    crowded: bool = False
    published: list[NaiveMessage] = field(default_factory=list)
    closed: list[tuple[str, int]] = field(default_factory=list)
    drops: dict[str, list[Drop]] = field(default_factory=dict)
    members: list[NaiveMember] = field(default_factory=list)
    asked: list[tuple[tuple[str, str], bool]] = field(default_factory=list)
    """Those that the last entry has asked about, and whether their pages had closed."""

    def apply(self, entry: Entry) -> Outcome:
        expires = math.floor(entry.time) > math.floor(self.time) or isinstance(entry.command, Expire)
        self.time, self.last = entry.time, self.last + entry.command.width
        self.crowded, self.asked = False, []
        if expires:
            self._expire(entry)
        match entry.command:
            case Publish() as command:
                return self._publish(entry, command)
            case Create(name=name, ttl=ttl):
                if name is not None and self.resolve(name) is not None:
                    return ChannelExists("")
                if len(self.open) >= self.limits.channels_limit:
                    return Overloaded("")
                return self._state(self._open(name, ttl))
            case Renew(channel=name, ttl=ttl):
                if (found := self.resolve(name)) is None:
                    return UnknownChannel("")
                channel = self.open[found]
                channel.ttl = channel.ttl if ttl is None else ttl
                channel.expires = entry.time + channel.ttl
                return self._state(found)
            case Close(channel=name):
                if (found := self.resolve(name)) is None:
                    return UnknownChannel("")
                self._close(found, entry.sequence)
                return Closed(found)
            case Erase() as command:
                return self._erase(command)
            case Here() as command:
                self._here(command, entry)
                return Done()
            case Leave() as command:
                self._leave(command, entry)
                return Done()
            case Away(node=node, members=keys, seconds=seconds, is_closed=is_closed):
                for key in keys:
                    for member in self.members:
                        is_held = member.holder == node and not member.leaves_at
                        if (member.channel, member.subject) == key and (is_closed or is_held):
                            self._ask(member, seconds, is_closed=is_closed)
                return Done()
            case Gone(node=node, seconds=seconds):
                mine = [member for member in self.members if member.holder == node and not member.leaves_at]
                for member in sorted(mine, key=lambda member: f"{member.channel}\n{member.subject}")[:1000]:
                    self._ask(member, seconds)
                return Done()
            case Continue(epoch=epoch):
                if epoch == self.epoch or epoch in self.past:
                    return BadRequest("")
                self.past[self.epoch] = entry.sequence - 1
                self.epoch = epoch
                return Done()
            case Configure(limits=limits):
                self.limits = limits
                return Done()
            case _:
                return Done()

    def resolve(self, name: str) -> str | None:
        """The name of the open channel with this name or id."""
        if name in self.open:
            return name
        return next((n for n, c in self.open.items() if name == str(c.id)), None)

    def position(self, cursor: Cursor) -> int | None:
        """The sequence that this cursor stands for; None if it is lost."""
        if cursor.epoch == self.epoch or cursor.sequence <= self.past.get(cursor.epoch, -1):
            return cursor.sequence
        return None

    def awaited(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """The names to subscribe to, without duplicates; None if one of them is unknown and cannot be awaited."""
        found = []
        for name in names:
            known = self.resolve(name)
            if known is None and name not in self.closings and (self.limits.strict_channels or name.isdigit()):
                return None
            found.append(known or name)
        return tuple(dict.fromkeys(found))

    def _expire(self, entry: Entry) -> None:
        classes = ("", EPHEMERAL, *[policy.prefix for policy in self.limits.channels])
        horizon = entry.time - max(map(self._seconds, classes))
        self.keys = {key: kept for key, kept in self.keys.items() if kept[0].time > horizon}
        for message in [m for m in self.kept if m.time <= entry.time - self._seconds(m.kind)]:
            self._drop(message, "expired", *message.keepers)
        for name in [n for n, c in self.open.items() if math.ceil(c.expires) <= entry.time]:
            self._close(name, entry.sequence)

    def _publish(self, entry: Entry, command: Publish) -> Outcome:
        if command.key in self.keys:
            outcome, messages = self.keys[command.key]
            return outcome if messages == command.messages else KeyReused("")
        if command.producer is not None and (answer := self._known(command, command.producer)) is not None:
            return answer
        names = dict.fromkeys(name for draft in command.messages for name in draft.channels)
        new = [name for name in names if self.resolve(name) is None]
        if any(self.limits.strict_channels or name.isdigit() for name in new):
            return UnknownChannel("")
        if new and len(self.open) + len(new) > self.limits.channels_limit:
            can_fit = len({self.resolve(name) or name for name in names}) <= self.limits.channels_limit
            return Overloaded("") if can_fit else BadRequest("")
        for sequence, draft in enumerate(command.messages, entry.sequence):
            attributes = draft.attributes or NONE
            of_it = draft.channels, bytes(draft.data), attributes.event, command.owner
            self._add(sequence, *of_it, is_ephemeral=attributes.ephemeral)
        outcome = Published(self.epoch, entry.sequence, len(command.messages), entry.time)
        if command.producer is not None:
            outcome = self._count(command, command.producer, outcome)
        if command.key is not None and not all((d.attributes or NONE).ephemeral for d in command.messages):
            self.keys[command.key] = outcome, command.messages
            for _ in range(min(2, len(self.keys) - self.limits.keys_limit)):
                del self.keys[next(iter(self.keys))]
        return outcome

    def _add(
        self, sequence: int, names: tuple[str, ...], data: bytes, event: str, owner: str, *, is_ephemeral: bool = False
    ) -> None:
        """Put a message on its channels, which are opened if they are not open."""
        channels = tuple(dict.fromkeys(self.resolve(n) or self._open(n, None) for n in names))
        for name in channels:
            self.open[name].expires = self.time + self.open[name].ttl
        kind = max((self.policy(name) for name in channels), key=lambda p: self._seconds(p.prefix)).prefix
        kind = EPHEMERAL if is_ephemeral else kind
        message = NaiveMessage(self.epoch, sequence, self.time, channels, data, event, set(channels), kind, owner)
        self.published.append(message)
        self.kept.append(message)
        self._evict(message)

    def _here(self, command: Here, entry: Entry) -> None:
        given = {(attendance.channel, attendance.subject): attendance for attendance in command.members}
        for sequence, channel in enumerate(dict.fromkeys(name for name, _ in given), entry.sequence):
            before = self.members_of(channel)
            can_join = self._can_be_told(channel)
            joins, updates = [], []
            for key in sorted(key for key in given if key[0] == channel):
                data = bytes(given[key].data)
                member = next((member for member in before if member.subject == key[1]), None)
                if member is None:
                    if can_join and len(self.members) < self.limits.members_limit:
                        joins.append(NaiveMember(*key, data, sequence, entry.time, command.node))
                        self.members.append(joins[-1])
                    continue
                member.holder, member.leaves_at = command.node, 0.0
                if data not in (b"null", member.data):
                    member.data = data
                    updates.append(member)
            if can_join:
                self._tell(channel, sequence, len(before), joins, updates, [])

    def _leave(self, command: Leave, entry: Entry) -> None:
        for sequence, channel in enumerate(dict.fromkeys(name for name, _ in command.members), entry.sequence):
            before = self.members_of(channel)
            leaves = []
            for key in dict.fromkeys(key for key in command.members if key[0] == channel):
                for member in before:
                    if member.subject == key[1] and member.leaves_at and member.leaves_at <= entry.time:
                        self.members.remove(member)
                        leaves.append(member.subject)
            if self._can_be_told(channel):
                self._tell(channel, sequence, len(before), [], [], leaves)

    def _can_be_told(self, channel: str) -> bool:
        cannot_open = self.limits.strict_channels or channel.isdigit() or len(self.open) >= self.limits.channels_limit
        return self.resolve(channel) is not None or not cannot_open

    def _ask(self, member: NaiveMember, seconds: float, *, is_closed: bool = False) -> None:
        then = self.time + seconds
        member.leaves_at = min(member.leaves_at, then) if member.leaves_at else then
        self.asked.append(((member.channel, member.subject), is_closed))

    def _tell(
        self, channel: str, sequence: int, before: int, joins: list[NaiveMember], updates: list[NaiveMember],
        leaves: list[str],
    ) -> None:  # fmt: skip
        """A message, unless there is nothing to tell: too many members, and about as many as before."""
        limit, now = self.limits.presence_limit, len(self.members_of(channel))
        data: dict[str, Any] = {"count": now}
        if now > limit:
            rounded = [(len(str(count)), str(count)[:2]) for count in (before, now)]
            if before > limit and rounded[0] == rounded[1]:
                return
        elif not (joins or updates or leaves):
            return
        else:
            lists = {"joins": [m.view for m in joins], "updates": [m.view for m in updates], "leaves": leaves}
            data |= {name: each for name, each in lists.items() if each}
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        self._add(sequence, (channel,), text.encode(), "presence", "")

    def members_of(self, channel: str) -> list[NaiveMember]:
        """In the order in which they joined; those who joined together by their subjects."""
        return [member for member in self.members if member.channel == channel]

    def _known(self, command: Publish, producer: Producer) -> Outcome | None:
        """What a publication gets that is not the next one of its producer (PROD-2 to 5)."""
        last = self.producers.get((command.owner, producer.name))
        if last is None:
            return None
        if producer.epoch < last.epoch:
            return ProducerFenced("", more={"epoch": last.epoch})
        numbers = range(producer.sequence, producer.sequence + len(command.messages))
        if numbers == last.numbers and command.messages == last.messages:
            last.epoch = producer.epoch
            return last.outcome
        if all(number < last.numbers.start for number in numbers):
            last.epoch = producer.epoch
            return Duplicate()
        may_leave_out = last.outcome.epoch not in (self.epoch, *self.past)
        if numbers.start == last.numbers.stop or (numbers.start > last.numbers.stop and may_leave_out):
            return None
        return ProducerConflict("", more={"next": last.numbers.stop})

    def _count(self, command: Publish, producer: Producer, outcome: Published) -> Published:
        """The outcome of the next publication of a producer, which is remembered (PROD-6)."""
        last = self.producers.pop((command.owner, producer.name), None)
        numbers = range(producer.sequence, producer.sequence + len(command.messages))
        outcome = replace(outcome, after_loss=numbers.start != (0 if last is None else last.numbers.stop))
        remembered = NaiveProducer(producer.epoch, numbers, command.messages, outcome)
        self.producers[command.owner, producer.name] = remembered
        return outcome

    def policy(self, name: str) -> ChannelPolicy:
        """That of the channel, or of the class, with this name."""
        policies = [policy for policy in self.limits.channels if name.startswith(policy.prefix)]
        return max(policies, key=lambda policy: len(policy.prefix), default=ChannelPolicy(prefix=""))

    def _seconds(self, name: str) -> float:
        """How long messages of this channel or class are kept."""
        seconds = 5.0 if name == EPHEMERAL else self.policy(name).retention_seconds
        return self.limits.retention_seconds if seconds is None else seconds

    def _evict(self, new: NaiveMessage) -> None:
        for name in new.channels:
            mine = [m for m in self.kept if name in m.keepers and m.kind != EPHEMERAL]
            most = self.policy(name).retention_messages or self.limits.retention_messages
            for message in mine[: max(0, min(2, len(mine) - most))]:
                self._drop(message, "evicted", name)
        if new.kind == EPHEMERAL:
            self._make_room(new, self.limits.ephemeral_bytes, {EPHEMERAL})
            return
        own = self.policy(new.kind).retention_bytes
        self._make_room(new, math.inf if own is None else own, {new.kind})
        self._make_room(new, self.limits.retention_bytes, {m.kind for m in self.kept if m.kind != EPHEMERAL})

    def _make_room(self, new: NaiveMessage, limit: float, kinds: set[str]) -> None:
        """Have these classes take no more than the limit together."""
        enough = self._bytes(new, kinds) - 2 * new.size
        mine: list[NaiveMessage] = []
        of_kind: list[NaiveMessage] = []
        while 0 < self._bytes(new, kinds) > max(limit - new.size, enough):
            mine, of_kind = [m for m in mine if m.keepers], [m for m in of_kind if m.keepers]
            if not of_kind:
                kind = max(kinds, key=lambda kind: (self._bytes(new, {kind}) / self.policy(kind).share, kind))
                of_kind = [m for m in self.kept if m is not new and m.kind == kind]
            if not mine:
                size = {m.owner: sum(other.size for other in of_kind if other.owner == m.owner) for m in of_kind}
                mine = [m for m in of_kind if m.owner == max(size, key=lambda owner: (size[owner], owner))]
            self._drop(mine[0], "evicted", *mine[0].keepers)

    def _bytes(self, new: NaiveMessage, kinds: set[str]) -> int:
        return sum(m.size for m in self.kept if m is not new and m.kind in kinds)

    @property
    def bytes(self) -> int:
        return sum(m.size for m in self.kept if m.kind != EPHEMERAL)

    def _drop(self, message: NaiveMessage, reason: str, *channels: str) -> None:
        """Drop a message from these channels, and what they keep from before it; ephemeral ones without a trace.

        An ephemeral one that is before it goes from all of its channels.
        """
        for name in channels:
            for each in [m for m in self.kept if name in m.keepers]:
                if each.kind == EPHEMERAL and each.sequence <= message.sequence and message.kind != EPHEMERAL:
                    each.keepers.clear()
                elif each is message or (each.sequence < message.sequence and message.kind != EPHEMERAL):
                    each.keepers.discard(name)
                    if each.kind != EPHEMERAL:
                        self.drops.setdefault(name, []).append(Drop(each.sequence, each.time, reason))
        self.kept = [m for m in self.kept if m.keepers]

    def _erase(self, command: Erase) -> Outcome:
        cursor = command.cursor or Cursor(self.epoch, self.last)
        position = self.position(cursor)
        if position is None:
            return Erased(0, Cursor(self.epoch, self.last)) if command.by == "message" else BadRequest("")
        name = self.resolve(command.name)
        selected = [
            m
            for m in self.kept
            if (command.by == "message" and m.sequence == position)
            or (command.by == "channel" and name in m.keepers and m.sequence <= position)
            or (command.by == "owner" and m.owner == command.name and m.sequence <= position)
        ]
        for message in selected:
            if message.kind != EPHEMERAL:
                for keeper in message.keepers:
                    drop = Drop(message.sequence, message.time, "deleted")
                    self.drops.setdefault(keeper, []).append(drop)
            message.keepers.clear()
        self.kept = [m for m in self.kept if m.keepers]
        return Erased(len(selected), Cursor(self.epoch, position))

    def _open(self, name: str | None, ttl: float | None) -> str:
        self.last_id = max(self.last_id + 1, int(self.time * 1000))
        name = str(self.last_id) if name is None else name
        if ttl is None:
            policy = self.policy(name)
            least = policy.retention_seconds or 0.0
            ttl = policy.channel_ttl_seconds or max(self.limits.channel_ttl_seconds, least)
        self.open[name] = NaiveChannel(self.last_id, ttl, self.time + ttl)
        return name

    def _close(self, name: str, sequence: int) -> None:
        for message in [m for m in self.kept if name in m.keepers]:
            self._drop(message, "closed", name)
        del self.open[name]
        self.closed.append((name, sequence))
        self.closings[name] = Closing(sequence, math.ceil(self.time + self._seconds(name)))
        if sum(n not in self.open for n in self.closings) > self.limits.channels_limit:
            self.crowded = True

    def _state(self, name: str) -> ChannelState:
        channel = self.open[name]
        return ChannelState(channel.id, name, channel.expires)

    def assert_matches(self, snapshot: Snapshot) -> None:
        """Assert that the real state equals this one, and forget closings that the real state has forgotten."""
        assert (snapshot.head.epoch, snapshot.head.sequence, snapshot.head.time) == (self.epoch, self.last, self.time)
        assert {past.epoch: past.sequence for past in snapshot.head.past_epochs} == self.past
        assert snapshot.head.limits == self.limits
        assert {c.name: (c.id, c.ttl, c.expires) for c in snapshot.channels if c.id} == {
            name: (c.id, c.ttl, c.expires) for name, c in self.open.items()
        }
        kept = [
            (m.sequence, m.time, m.channels, bytes(m.data), (m.attributes or NONE).event, m.retention_class, m.owner)
            for m in snapshot.messages
        ]
        assert kept == [(m.sequence, m.time, m.channels, m.data, m.event, m.kind, m.owner) for m in self.kept]
        remembered = [(row.key, row.outcome) for row in snapshot.tables["keys"].in_order()]
        assert remembered == [(k, v[0]) for k, v in self.keys.items()]
        assert [
            (row.owner, row.name, row.epoch, row.first, row.published)
            for row in snapshot.tables["producers"].in_order()
        ] == [(*who, last.epoch, last.numbers.start, last.outcome) for who, last in self.producers.items()]
        assert [
            (row.channel, row.subject, bytes(row.data), row.sequence, row.time, row.holder, row.leaves_at)
            for row in snapshot.tables["members"].in_order()
        ] == [(m.channel, m.subject, m.data, m.sequence, m.since, m.holder, m.leaves_at) for m in self.members]
        assert snapshot.head.last_id == self.last_id
        reported = {c.name: c.closed_sequence for c in snapshot.channels}
        for name, closing in list(self.closings.items()):
            if reported.get(name, 0) != closing.sequence:
                assert closing.due <= self.time or self.crowded, f"{name} was forgotten too early"
                self.floor = max(self.floor, closing.sequence)
                del self.closings[name]
        assert snapshot.head.floor == self.floor

    def assert_answer(
        self,
        answer: Answer,
        names: tuple[str, ...],
        selection: Selection,
        after: int | None,
        *,
        held: bool = False,
        was_moved: bool = False,
        is_lost: bool = False,
    ) -> None:
        """Assert that this is what a client at `after` gets; None means a client without a cursor.

        A held poll has already passed over what is outside of its time range, so such a message may be dropped without
        a gap. Nor may it report a false gap, which the floor excuses for other polls, and for one that `was_moved` to
        another state while it was held.
        """
        messages = self.select(names, selection, after or 0)
        taken: list[NaiveMessage] = []
        size = 0
        for message in messages:
            size += len(message.data) + RECEIVED_OVERHEAD_BYTES * len(message.keepers.intersection(names))
            if taken and (len(taken) == selection.limit or size > self.limits.answer_limit_bytes):
                break
            taken.append(message)
        assert [(m.id, m.time, m.channels, bytes(m.data), m.event) for m in answer.messages] == [
            (f"{m.epoch}-{m.sequence}", m.time, tuple(n for n in names if n in m.keepers), m.data, m.event)
            for m in taken
        ]
        assert answer.more == (len(taken) < len(messages))
        end = taken[-1].sequence if answer.more else max(after or 0, self.last)
        assert answer.cursor == f"{self.epoch}-{end}"
        reported = {gap.channel: gap for gap in answer.gaps}
        assert len(reported) == len(answer.gaps)
        assert set(reported) <= set(names)
        for gap in answer.gaps:
            self._assert_until(gap, after or 0, is_exact=not was_moved and (after or 0) >= self.floor)
        if after is None or is_lost:
            return
        for name in names:
            self._assert_gap(name, reported.get(name), selection, after, held, was_moved)
            closing = self.closings.get(name)
            assert (name in answer.closed) == (closing is not None and closing.sequence > after), name

    def _assert_until(self, gap: Gap, after: int, *, is_exact: bool) -> None:
        """Assert that the gap ends behind all that its channel has dropped, and before all that it keeps.

        It may keep what is before a message that was erased. `is_exact`: right behind it.
        """
        epoch, _, until = gap.until.rpartition("-")
        assert epoch == self.epoch
        start = max(after, self.last_erased(gap.channel))
        kept = [m.sequence for m in self.kept if gap.channel in m.keepers and m.sequence > start]
        end = max([after, *[d.sequence for d in self.dropped(gap.channel, after)]])
        assert end <= int(until) < min([self.last + 1, *kept]), f"{gap} at {after}"
        assert int(until) == end or not is_exact, f"{gap} at {after}, and the last that was dropped is {end}"

    def _assert_gap(
        self, name: str, reported: Gap | None, selection: Selection, after: int, held: bool, was_moved: bool
    ) -> None:
        drops = self.dropped(name, after)
        if reported is None:
            missed = [d for d in drops if not held or selection.start <= d.time < selection.end]
            assert not missed, f"{name} dropped messages after {after} without a gap"
            forgotten = name not in self.closings and any(s > after for s in self.closings_of(name, after))
            assert not forgotten, f"{name} was closed after {after} without a gap"
        elif held and not was_moved and after < self.floor:
            assert drops or self.closings_of(name, after), f"{name} dropped nothing after {after}: a false gap"
        elif after >= self.floor:
            assert drops, f"{name} dropped no message after {after}: a false gap"
            assert reported.reason == max(drops, key=lambda drop: drop.sequence).reason

    def select(self, names: tuple[str, ...], selection: Selection, after: int) -> list[NaiveMessage]:
        return [
            m
            for m in self.kept
            if m.sequence > after and not m.keepers.isdisjoint(names) and selection.start <= m.time < selection.end
        ]

    def dropped(self, name: str, after: int) -> list[Drop]:
        return [d for d in self.drops.get(name, ()) if d.sequence > after]

    def last_erased(self, name: str) -> int:
        """The last message that was erased from this channel; 0: none."""
        return max([d.sequence for d in self.drops.get(name, ()) if d.reason == "deleted"], default=0)

    def closings_of(self, name: str, after: int) -> list[int]:
        return [sequence for n, sequence in self.closed if n == name and sequence > after]

    def must_answer(self, names: tuple[str, ...], selection: Selection, after: int) -> bool:
        """Whether a poll held since `after` must have been answered."""
        missed = any(selection.start <= d.time < selection.end for n in names for d in self.dropped(n, after))
        closed = any(self.closings_of(n, after) for n in names)
        return missed or closed or bool(self.select(names, selection, after))
