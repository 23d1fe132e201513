"""The replicated state: channels, messages and idempotency keys, the same on every node (PushUp §3.3).

A deterministic state machine. It changes only by `apply`, so states that were given the same entries are equal.
It knows nothing of polls: `touched` says which channels the last entry concerned, so that `held_polls` can wake those
who wait there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter

from msgspec import UNSET, Raw

from pushup.core.attendance import Away, Gone, Here, Leave
from pushup.core.bounded_table import Remembered
from pushup.core.channel import Attributes, Channel, Message
from pushup.core.channels import is_id, unknown_channel
from pushup.core.commands import (
    ChannelState,
    Claim,
    Claimed,
    Close,
    Closed,
    Configure,
    Continue,
    Create,
    Done,
    Draft,
    Entry,
    Erase,
    Expire,
    Outcome,
    Publish,
    Published,
    Read,
    Renew,
    Revoke,
    RevokedBefore,
    Told,
    Upgrade,
)
from pushup.core.cursor import Cursor, began_at, message_cursor
from pushup.core.erasure import erase
from pushup.core.errors import BadRequest, ChannelExists, KeyReused, OutOfOrder, PushUpError, UnknownChannel
from pushup.core.grant import Grant
from pushup.core.members import ChannelPresence, view
from pushup.core.presence import ask, here, leave
from pushup.core.revocations import Revocation
from pushup.core.state_rows import StateRows

EXPIRE_AT_MOST = 1000
"""The work that one entry does for what is due, some 5 ms: channels to check or close, and messages, each once for each
of its channels. What is begun is finished; the rest is left for the next entry. Keys are counted separately."""

PRESENCE = Attributes(event="presence")
"""Of the messages that tell who follows a channel."""

_BY_NOBODY = Publish(())


class ReplicatedState(StateRows):
    """The state after some entry."""

    def apply(self, entry: Entry) -> Outcome:
        """Carry out the entry's command; the first entry of each second also expires what is due. O(log n) per channel.

        Raises: OutOfOrder unless it follows the last entry; VersionTooNew. Nothing has changed then.
        """
        epoch, sequence = self.cursor.epoch, self.cursor.sequence
        if entry.epoch != epoch or entry.sequence != sequence + 1 or entry.time < self.time:
            raise OutOfOrder(f"entry {entry.epoch}-{entry.sequence} at {entry.time} after {self.cursor} at {self.time}")
        command = entry.command
        self.rules.require(command.version if type(command) is Upgrade else 0)
        new_second = entry.time // 1 > self.time
        self.time = self.cache.drops.time = entry.time
        sequence += command.width
        self.cursor = Cursor(epoch, sequence)
        self.change_log.sequence = sequence
        self.touched.clear()
        if new_second or isinstance(command, Expire):
            self._expire(entry)
        match command:
            case Publish():
                return self._publish(entry, command)
            case Create(name=name, ttl=ttl):
                return self._create(name, ttl, entry.time)
            case Renew(channel=name, ttl=ttl):
                return self._renew(name, ttl, entry.time)
            case Close(channel=name):
                return self._close_by_name(name, entry)
            case Revoke():
                return self._revoke(entry, command)
            case Erase():
                return erase(self, command, EXPIRE_AT_MOST)
            case Read(subject=subject, ids=ids):
                self.webhooks.read(subject, ids)
            case Claim(ids=ids):
                return Claimed(self.webhooks.claim(ids, entry.time))
            case Told(ids=ids):
                for id_ in ids:
                    self.webhooks.remove(id_)
            case Here():
                here(self, command, entry, partial(self._tell, entry))
            case Leave():
                leave(self, command, entry, partial(self._tell, entry))
            case Away() | Gone():
                ask(self, command, entry.time)
            case Continue(epoch=name):
                return self._continue(name, entry.sequence - 1)
            case Upgrade(version=version):
                self.rules.version = max(self.version, version)
            case Configure(limits=limits):
                self.rules.set_limits(limits)
                self.cache.use_limits()
        return Done()

    def _continue(self, epoch: str, last_sequence: int) -> Outcome:
        """Go on under a new name; the old one was good up to `last_sequence`."""
        old = self.cursor.epoch
        if epoch == old or self.past_epochs.good_up_to(epoch) >= 0:
            return BadRequest(f"the order was called {epoch} before", field="epoch")
        self.past_epochs = self.past_epochs.and_then(old, last_sequence, keeps_first=self.version > 1)
        self.cursor = Cursor(epoch, self.cursor.sequence)
        self.touched.continued_after = last_sequence
        return Done()

    @property
    def next_expiry(self) -> float | None:
        """When something is due to expire next. If no other entry comes then, an `Expire` entry is needed."""
        times = [table.next_time for table in self._tables.values()]
        return min([t for t in times if t is not None], default=None)

    def _expire(self, entry: Entry) -> None:
        """Expire what is due by the entry's time, up to `EXPIRE_AT_MOST`."""
        for table in self.bounded.values():
            table.expire(entry.time, EXPIRE_AT_MOST)
        count = self.cache.expire(entry.time, EXPIRE_AT_MOST)
        expired: list[Channel] = []
        while count < EXPIRE_AT_MOST and (channel := self.channels.next_due(entry.time)) is not None:
            if channel.due <= entry.time:
                expired.append(channel)
                count += len(channel.messages or ())
            count += 1
        expired.sort(key=attrgetter("name"))  # the order in which closed channels are forgotten
        for channel in expired:
            self._close(channel, entry)
        while count < EXPIRE_AT_MOST and self.channels.forget_due(entry.time, entry.sequence):
            count += 1

    def _publish(self, entry: Entry, command: Publish) -> Outcome:
        key = command.key
        if key is not None and (before := self.keys.row(key)) is not None:
            if before.fingerprint == command.fingerprint:
                return before.outcome
            text = "this key was used for other messages, and nothing was published; use a new key for each publication"
            return KeyReused(text, field="Idempotency-Key")
        producer, after_loss = command.producer, False
        if producer is not None:
            known = self.producers.known(command, producer, entry.epoch, self.past_epochs)
            if known is not None:
                return known
            after_loss = self.producers.is_after_loss(command, producer)
        if (error := self._why_not(command.messages)) is not None:
            return error
        for sequence, draft in enumerate(command.messages, entry.sequence):
            self._add(draft, sequence, entry, command)
        outcome = Published(entry.epoch, entry.sequence, len(command.messages), entry.time, after_loss)
        if producer is not None:
            self.producers.add(command, producer, outcome)
        if key is not None and not command.is_ephemeral:
            self.keys.put(Remembered.of(key, outcome, command.fingerprint))
        return outcome

    def _why_not(self, drafts: tuple[Draft, ...]) -> PushUpError | None:
        """The error if these messages cannot all be published; None if they can."""
        find = self.channels.find
        # In order, so that the outcome names the same one on every node.
        new = {name: None for draft in drafts for name in draft.channels if find(name) is None}
        for name in new:
            if self.limits.strict_channels or is_id(name):
                return unknown_channel(name, field="channels")
        full = self.channels.room_for(len(new), drafts) if new else None
        for draft in drafts:
            if draft.unread is not None:
                too_many = self.webhooks.why_not(drafts)
                return too_many if isinstance(too_many, BadRequest) else full or too_many
        return full

    def _add(self, draft: Draft, sequence: int, entry: Entry, command: Publish) -> None:
        """Put one message of a publication on its channels, opening those that are not open."""
        find, open_, time = self.channels.find, self.channels.open, entry.time
        channels = [find(name) or open_(name, None, time) for name in draft.channels]
        if len(channels) > 1:
            channels = list(dict.fromkeys(channels))  # a channel may be given by its name and by its id
        names = tuple([c.name for c in channels])
        is_ephemeral = draft.attributes is not None and draft.is_ephemeral
        shelf = self.cache.shelf(channels, command.owner, is_ephemeral=is_ephemeral)
        message = Message(sequence, time, names, draft.data, draft.attributes, shelf, traceparent=command.traceparent)
        self.cache.add(message, channels)
        if draft.unread is not None:
            self.webhooks.add(f"{entry.epoch}-{sequence}", sequence, time, names, draft.unread)
        for channel in channels:
            channel.expires = time + channel.ttl
            self.channels.note(channel)
        self.touched.woken.extend(channels)

    def _tell(self, entry: Entry, channel: str, data: Raw, sequence: int) -> None:
        """Tell a channel who follows it."""
        self._add(Draft((channel,), data, PRESENCE), sequence, entry, _BY_NOBODY)

    def presence(self, channel: str) -> ChannelPresence:
        """Who follows the channel with this name or id. Raises: UnknownChannel, if its channels have no members."""
        name = self.channels.name_of(channel)
        if not self.rules.retention(name).presence:
            text = f"{name!r} has no presence; set presence = true in the [[channels]] table of its prefix"
            raise UnknownChannel(text, field="channel")
        count = self.members.count(name)
        shown = UNSET if count > self.limits.presence_limit else tuple(map(view, self.members.of_channel(name)))
        return ChannelPresence(name, str(self.cursor), count, shown)

    def _create(self, name: str | None, ttl: float | None, time: float) -> Outcome:
        if name is not None and self.channels.find(name) is not None:
            return ChannelExists(f"channel {name!r} already exists", field="name")
        full = self.channels.room_for(1)
        return full or _state(self.channels.open(name, ttl, time))

    def _renew(self, name: str, ttl: float | None, time: float) -> Outcome:
        if (channel := self.channels.find(name)) is None:
            return unknown_channel(name)
        self.channels.renew(channel, ttl, time)
        return _state(channel)

    def _revoke(self, entry: Entry, command: Revoke) -> Outcome:
        kept = self.revocations.add(command, entry.sequence, entry.time)
        if not isinstance(kept, Revocation):
            return kept
        self.touched.revoked = kept.row_name
        return RevokedBefore(kept.issued_before)

    def is_revoked(self, grant: Grant) -> bool:
        """Whether nobody may use this grant of a token or ticket any more: it was revoked, or nobody knows.

        An order that continues no other does not know what was revoked before it began. What was issued in the second
        in which it began counts as later.
        """
        if grant.valid_until == math.inf:
            return False  # a key's, or nobody's
        past = self.past_epochs.all
        began = began_at(past[0].epoch if past else self.cursor.epoch)
        return grant.issued_at < began or self.revocations.include(grant)

    def unread_by(self, subject: str, names: Iterable[str], cursor: Cursor) -> Iterator[str]:
        """The ids of messages that wait for this subject, and that it has read if it has seen these up to a cursor.

        `names`: of channels, or their ids.
        """
        past, last = self.past_epochs, self.cursor.epoch
        cursor = past.translate(cursor, last)
        if cursor.epoch != last:
            return
        channels = map(self.channels.name_of, names)
        for id_ in self.webhooks.unread_by(subject, channels, cursor.sequence):
            if past.translate(message_cursor(id_), last).epoch == last:
                yield id_  # else it is of an order that was lost, and was not delivered by this one

    def _close_by_name(self, name: str, entry: Entry) -> Outcome:
        if (channel := self.channels.find(name)) is None:
            return unknown_channel(name)
        self._close(channel, entry)
        return Closed(channel.name)

    def _close(self, channel: Channel, entry: Entry) -> None:
        self.cache.drop_channel(channel)
        self.channels.close(channel, entry.sequence, entry.time)


def _state(channel: Channel) -> ChannelState:
    return ChannelState(channel.id, channel.name, channel.expires)
