"""What PushUp promises, checked from outside: a model that knows only what publishers and subscribers were told.

It shares two facts with the code under test: a cursor is `<epoch>-<sequence>`, and later epochs have later names. The
simulation also looks into its servers (`tests/simulation/inside.py`).

| promise | here |
|---|---|
| an acknowledged message is delivered, or covered by a reported gap | `check_deliveries` |
| a reported gap is true | `_check_gaps` |
| nothing twice, one order | `_check_message` |
| a refused publication changes nothing | `_check_message` |
| an ephemeral message is dropped without a trace | `check_deliveries`, `_check_gaps` |
| everybody reads to the end, after the last fault | `check_deliveries` |
"""

from __future__ import annotations

from collections.abc import Callable

from loadtest.history import events
from loadtest.history.assumed import Assumed
from loadtest.history.clients import Follower, Publication, Step
from loadtest.history.events import BadHistory, BrokenPromise, Event
from loadtest.history.forgetting import may_forget
from loadtest.history.order import Epoch, Order, Place
from loadtest.kit.values import Limits


class Checker:
    """All publications, and all that was delivered, as far as the events of a history have told."""

    def __init__(self) -> None:
        self.now = 0.0
        """The time of the last event."""
        self.publications: dict[str, Publication] = {}
        self.followers: dict[str, Follower] = {}
        self.without_loss: dict[str, int] = {}
        """Gaps without a loss, by reason: allowed only where completeness could not be proven."""
        self.data_at: dict[str, str] = {}
        """The data of each id, as anybody was told."""
        self._ids_of: dict[str, list[str]] = {}
        """The ids of each data, as anybody was told; several if it was published again after its key was forgotten."""
        self._message: dict[str, tuple[Publication, int]] = {}
        self.order = Order()
        self._last_acknowledged = ""
        self.lossless = True
        """Whether nothing has happened so far that can lose an acknowledged message."""
        self.assumed = Assumed(Limits())
        self.erased_at: dict[str, float] = {}
        """When somebody was told that the message with this id is deleted."""
        self.clock_is_true = True
        """Whether the clock that orders everything has not jumped."""
        self.forgets: Callable[[Follower, str], bool] = lambda follower, channel: may_forget(self, follower)
        """Whether a channel may have been forgotten: then a gap may be reported without a loss."""
        self.unknowable: list[tuple[float, str]] = []
        """When a log was put back so that nobody can know of it, and where it ends. Whoever had not read further is not
        told; whoever had, in an epoch that began later, may get messages again."""
        self.confirmed: Callable[[Publication, str], None] = lambda publication, ack: None
        """Called with each confirmed publication, for checks from inside."""

    def take(self, event: Event) -> None:
        """The next event. Raises: BrokenPromise; BadHistory, if the event cannot follow the earlier ones."""
        self.now = event.at
        match event:
            case events.Begin():
                self._begin(event)
            case events.Publish():
                self._publish(event)
            case events.Acknowledged():
                self._acknowledged(self._publication(event.publication), event)
            case events.Refused():
                self._publication(event.publication).refused = True
            case events.Poll():
                self._poll(event)
            case events.Answered():
                self._answered(self._polling(event.subscriber), event)
            case events.Failed():
                self._polling(event.subscriber).polls = False
            case events.Fork():
                self._fork(event)
            case events.Left():
                self._follower(event.subscriber).has_left = True
            case events.Fault():
                self.lossless = self.lossless and not event.may_lose
                self.clock_is_true = self.clock_is_true and not event.moves_clock
            case events.Erased():
                self.erased_at = dict.fromkeys(event.ids, event.at) | self.erased_at
            case events.LimitsChange():
                self.assumed.add(event.limits)
            case events.PutBack():
                self.lossless = False
                self.unknowable.append((event.at, _cursor(event.end)))
                self.order.put_back(event.end, self.data_at)
                self._last_acknowledged = ""  # its successors are named by a clock that may be behind
                for publication in self.publications.values():
                    publication.began_after = ""
            case events.Begun():
                self.order.begins(event.epoch, event.after)
            case events.End():
                self.check_deliveries(event.cursor and _cursor(event.cursor))
            case events.GivenUp():
                self._publication(event.publication)

    def _begin(self, event: events.Begin) -> None:
        if event.format != events.FORMAT:
            raise BadHistory(f"the format is {event.format}, and this is a checker of format {events.FORMAT}")
        self.assumed = Assumed(event.limits)

    # What publishers are told.

    def _publication(self, name: str) -> Publication:
        if name not in self.publications:
            raise BadHistory(f"there was no publication {name!r}")
        return self.publications[name]

    def _publish(self, event: events.Publish) -> None:
        if event.publication in self.publications:
            raise BadHistory(f"there was already a publication {event.publication!r}")
        publication = self.publications[event.publication] = Publication(event)
        publication.began_after = self._last_acknowledged
        for number, data in enumerate(publication.data):
            if data in self._message:
                raise BadHistory(f"there was already a message {data!r}")
            self._message[data] = (publication, number)

    def _acknowledged(self, publication: Publication, event: events.Acknowledged) -> None:
        if len(event.ids) != len(publication.data):
            raise BrokenPromise(f"{publication.name} got {len(event.ids)} ids for {len(publication.data)} messages")
        for id_, data in zip(event.ids, publication.data, strict=True):
            self._note(_cursor(id_), data, publication.name)
        if publication.began_after and self._by_name(event.ids[0]) <= self._by_name(publication.began_after):
            raise BrokenPromise(
                f"one order: {publication.name} has the id {event.ids[0]}, and began when {publication.began_after} "
                "had been acknowledged"
            )
        self._last_acknowledged = max(self._last_acknowledged, event.ids[-1], key=self._by_name)
        publication.ids = event.ids
        publication.acknowledged_at = event.at
        self.confirmed(publication, event.ack)

    def _by_name(self, id_: str) -> tuple[Epoch, int]:
        """A sort key of ids: by the names of epochs, whether they continue each other or not."""
        return self.order.epoch(id_), int(id_.rpartition("-")[2] or 0)

    def _note(self, id_: str, data: str, who: str) -> None:
        """Every id means the same to everybody."""
        known = self.data_at.setdefault(id_, data)
        if known != data:
            raise BrokenPromise(f"one order: the id {id_} is {known!r}, and for {who} it is {data!r}")
        ids = self._ids_of.setdefault(data, [])
        if id_ not in ids:
            ids.append(id_)
        if len(ids) > 1 and self._message[data][0].key is None:  # with a key, it may be published again
            raise BrokenPromise(f"one order: {data!r} has the id {ids[0]}, and for {who} it has {id_}")

    def acknowledged_after(self, cursor: str) -> bool:
        """Whether anything was acknowledged in the epoch of this cursor, after it."""
        ids = [publication.ids[-1] for publication in self.publications.values() if publication.ids]
        epoch, place = self.order.epoch, self.order.place
        return any(epoch(id_) == epoch(cursor) and place(id_) > place(cursor) for id_ in ids)

    # What subscribers are told.

    def _follower(self, name: str) -> Follower:
        if name not in self.followers:
            raise BadHistory(f"there was no subscriber {name!r}")
        return self.followers[name]

    def _polling(self, name: str) -> Follower:
        follower = self._follower(name)
        if not follower.polls:
            raise BadHistory(f"the subscriber {name!r} had not polled")
        return follower

    def _poll(self, event: events.Poll) -> None:
        name = event.subscriber
        follower = self.followers.setdefault(name, Follower(name, event.channels, event.cursor))
        if follower.polls or follower.has_left:
            raise BadHistory(f"the subscriber {name!r} {'already polls' if follower.polls else 'had left'}")
        if (follower.channels, follower.cursor) != (event.channels, event.cursor):
            raise BadHistory(
                f"the subscriber {name!r} polls {list(event.channels)} at {event.cursor!r}, "
                f"and had {list(follower.channels)} at {follower.cursor!r}; use another name for another chain"
            )
        follower.polls = True

    def _fork(self, event: events.Fork) -> None:
        if event.subscriber in self.followers:
            raise BadHistory(f"there was already a subscriber {event.subscriber!r}")
        self.followers[event.subscriber] = self._follower(event.of).fork(event.subscriber)

    def _answered(self, follower: Follower, event: events.Answered) -> None:
        before, after = follower.cursor, _cursor(event.cursor)
        step = Step(before, after, event.gaps, event.at)
        if not set(step.gaps) <= set(follower.channels):
            raise BrokenPromise(f"{follower.name} was told of gaps on channels it did not ask for: {step.gaps}")
        if "-" in before and not step.tells_of_loss:
            self._check_progress(follower, step)
        self.order.learn(after, [_cursor(message.id) for message in event.messages])
        if step.tells_of_loss:
            follower.last_id = ""  # sequences after that come again
        for message in event.messages:
            self._check_message(follower, message, step)
        self._check_gaps(follower, step)
        follower.cursor = after
        follower.polls = False
        follower.steps.append(step)

    def _check_progress(self, follower: Follower, step: Step) -> None:
        self.order.learn(step.after, [step.before])
        if self.order.place(step.after) < self.order.place(step.before):
            raise BrokenPromise(f"one order: {follower.name} went back from {step.before} to {step.after}")

    def _check_message(self, follower: Follower, message: events.Delivered, step: Step) -> None:
        data, id_ = message.data, message.id
        if follower.received.get(data) == id_ and self._may_begin_again(follower, step):
            self._count("not a gap: received again, and nobody can know")
        elif data in follower.received and not self._is_published_again(data, id_, follower.received[data]):
            raise BrokenPromise(
                f"nothing twice: {follower.name} received {data} as {follower.received[data]} and as {id_}"
            )
        if data not in self._message:
            raise BrokenPromise(f"{follower.name} received {data}, which nobody published")
        publication, number = self._message[data]
        if publication.refused:
            raise BrokenPromise(f"refused: {follower.name} received {data}, whose publication was refused")
        published = [c for c in follower.channels if c in publication.channels[number]]
        # What is before a deleted message may still be kept.
        is_before_deleted = [c for c in message.channels if step.gaps.get(c) == "deleted"]
        expected = [c for c in published if c in is_before_deleted or not self._is_in_gap(step, c, id_)]
        if "-" not in step.before or step.tells_of_loss:  # no gap tells which of its channels had dropped it
            expected = [c for c in published if c in message.channels]
        elif publication.ephemeral[number]:  # a channel that was closed has dropped it without one
            expected = [c for c in expected if c in message.channels]
        if list(message.channels) != expected or not expected:
            raise BrokenPromise(f"{follower.name} received {data} on {list(message.channels)} instead of {expected}")
        if self.lossless and id_ in self.erased_at and self._is_after_erasure(step, self.erased_at[id_]):
            raise BrokenPromise(f"nothing after an erasure: {follower.name} received {id_}, which had been deleted")
        self._note(id_, data, follower.name)
        place = self.order.place
        last, follower.last_id = follower.last_id, id_
        if last and place(last) >= place(id_):
            raise BrokenPromise(f"one order: {follower.name} received {id_} after {last}")
        if place(id_) > place(step.after):
            raise BrokenPromise(f"{follower.name} received {id_}, which is after its new cursor {step.after}")
        follower.received[data] = id_

    def _is_after_erasure(self, step: Step, at: float) -> bool:
        """Whether the node that answered knew what was erased at this time: it knew of a later publication."""
        later = [each.ids[0] for each in self.publications.values() if each.ids and each.began_at > at]
        return any(self.order.place(id_) <= self.order.place(step.after) for id_ in later)

    def _is_in_gap(self, step: Step, channel: str, id_: str) -> bool:
        """Whether this step tells of a gap on the channel that ends at the message or behind it."""
        return channel in step.ends and self.order.place(id_) <= self.order.place(step.ends[channel])

    def _ends_an_order(self, step: Step) -> bool:
        """Whether it tells of a loss, and what comes after it has other places than what came before."""
        changes = self.order.epoch(step.before) != self.order.epoch(step.after)
        return step.tells_of_loss and (changes or self.order.place(step.after) < self.order.place(step.before))

    def _may_begin_again(self, follower: Follower, step: Step) -> bool:
        """Whether it was told of a loss since a log was put back that does not know its epoch."""
        told = [s.at for s in (*follower.steps, step) if s.tells_of_loss]
        return bool(self.unknowable and told and told[-1] >= self.unknowable[0][0])

    def _is_published_again(self, data: str, id_: str, before: str) -> bool:
        """Whether a publisher has tried its key again after the key was forgotten: it is another message then."""
        publication, _ = self._message[data]
        if publication.key is None or id_ == before:
            return False
        if publication.leaves_no_key:
            self._count("not a gap: ephemeral messages, which leave no key, published again")
            return True
        forgets = self._may_forget_key(publication) or self.order.epoch(id_) != self.order.epoch(before)
        if forgets:
            self._count("not a gap: a key was forgotten, and its messages published again")
        return forgets

    def _may_forget_key(self, publication: Publication) -> bool:
        is_old = self.now - publication.began_at > self.assumed.key_seconds or not self.clock_is_true
        return publication.key is not None and (is_old or self.assumed.keys_limit < 100)

    def _check_gaps(self, follower: Follower, step: Step) -> None:
        """A reported gap is true: something on that channel, after the cursor, was not delivered and never will be."""
        for channel, reason in step.gaps.items():
            early = reason == "expired" and self.clock_is_true and not self._has_old(channel)
            if early and not self.forgets(follower, channel):
                raise BrokenPromise(
                    f"nothing expires early: {follower.name} was told that messages on {channel} had expired"
                )
            if reason == "lost":
                if self.lossless:
                    raise BrokenPromise(
                        f"{follower.name} was told that messages on {channel} were lost; nothing can have been"
                    )
                if not self._has_undelivered(follower, channel, step):
                    self._count("completeness could not be proven")
            elif not self._has_undelivered(follower, channel, step):
                if self._is_on_several(follower, channel, step):
                    self._count("dropped from one channel, delivered through another")
                    continue
                if self._may_begin_again(follower, step):
                    self._count("received before a log was put back, and nobody can know")
                    continue
                if not self.forgets(follower, channel):
                    raise BrokenPromise(
                        f"a gap is true: {follower.name} at {step.before} was told of a gap on {channel} ({reason}), "
                        "but every message on it was delivered"
                    )
                self._count("a channel was forgotten")

    def _has_old(self, channel: str) -> bool:
        """Whether anything was published on this channel longer ago than it is kept."""
        for publication in self.publications.values():
            age = self.now - publication.began_at + 1.0
            for channels, is_ephemeral in zip(publication.channels, publication.ephemeral, strict=True):
                if channel in channels and not is_ephemeral and age > self.assumed.message_seconds(channels):
                    return True
        return False

    def _count(self, reason: str) -> None:
        self.without_loss[reason] = self.without_loss.get(reason, 0) + 1

    def _has_undelivered(self, follower: Follower, channel: str, step: Step) -> bool:
        """Whether anything on this channel may have come after the cursor that this follower did not get."""
        for publication in self.publications.values():
            # An earlier try may have been published, and dropped before anybody received it.
            may_be_another = self._may_forget_key(publication)
            for data in publication.lasting_on(channel):
                ids = self._ids_of.get(data, ())
                missed = [id_ for id_ in ids if may_be_another or follower.received.get(data) != id_]
                if not ids or any(self._is_after(id_, step.before) for id_ in missed):
                    return True
        return False

    def _is_on_several(self, follower: Follower, channel: str, step: Step) -> bool:
        """Whether a message after the cursor may have been dropped from this channel and received on another."""
        for data, id_ in follower.received.items():
            publication, number = self._message[data]
            channels = set(() if publication.ephemeral[number] else publication.channels[number])
            if channel in channels and len(channels & set(follower.channels)) > 1 and self._is_after(id_, step.before):
                return True
        return False

    def _is_after(self, id_: str, cursor: str) -> bool:
        return "-" not in cursor or self.order.place(id_) > self.order.place(cursor)

    # In the end.

    def check_deliveries(self, end: str | None = None) -> None:
        """Every acknowledged message was delivered to every follower of its channels, or a gap covered it.

        Ephemeral ones need not be: they may have been dropped before the follower polled.

        `end`: every follower that has not left must have reached this cursor, if it is not empty, and have everything.
        If it is None, and of one that has left, no more is asked than what its own cursor has passed.
        """
        place_of = self.order.place
        for follower in self.followers.values():
            if follower.starts:
                continue
            read_to_end = end is not None and not follower.has_left
            if read_to_end and end and place_of(follower.cursor) < place_of(end):
                raise BrokenPromise(f"live again: {follower.name} is at {follower.cursor}, and the end is {end}")
            for publication in self.publications.values():
                for number, channels in enumerate(publication.channels if publication.ids else ()):
                    wanted = set(channels) & set(follower.channels)
                    if not wanted or publication.ephemeral[number] or publication.data[number] in follower.received:
                        continue
                    if read_to_end or place_of(publication.ids[number]) <= place_of(follower.cursor):
                        self._check_covered(follower, publication, number, wanted)

    def _check_covered(self, follower: Follower, publication: Publication, number: int, wanted: set[str]) -> None:
        """`wanted`: the channels of the message that it follows."""
        first, place_of = follower.steps[0], self.order.place
        id_ = publication.ids[number]
        place = place_of(id_)
        if publication.began_at < first.at and place <= place_of(first.after):
            return  # from before its time
        for step in follower.steps[1:] if "-" not in first.before else follower.steps:
            is_earlier = self.order.epoch(step.after) < self.order.epoch(id_)
            if step.at < publication.began_at or (is_earlier and not self.unknowable):
                continue  # that answer was made before the message
            if self._ends_an_order(step) and wanted & set(step.gaps):
                return
            if place_of(step.before) < place <= place_of(step.after) or self._passes_by_name(step, id_):
                is_covered = [c in step.gaps and (c not in step.ends or self._is_in_gap(step, c, id_)) for c in wanted]
                if any(is_covered):
                    return
                if not is_earlier:  # a restored log may have ended the order of an earlier step
                    break
        if self._nobody_can_know(follower, publication, place):
            self._count("not a gap: lost, and nobody can know")
            return
        raise BrokenPromise(
            f"delivered or covered by a gap: {follower.name} neither received {publication.data[number]} "
            f"({publication.ids[number]}, acknowledged at {publication.acknowledged_at:.4f}, "
            f"on {sorted(wanted)}) nor was told of a gap"
        )

    def _passes_by_name(self, step: Step, id_: str) -> bool:
        """Whether this step passes over a whole epoch in which the id is, and of which no subscriber was told."""
        if "-" not in step.before or self.order.place(id_)[:2] == self.order.place(step.after)[:2]:
            return False
        return self.order.epoch(step.before) < self.order.epoch(id_) < self.order.epoch(step.after)

    def _nobody_can_know(self, follower: Follower, publication: Publication, place: Place) -> bool:
        """Whether this message was lost when a log was put back, and this follower was at or before the end of that."""
        for at, end in self.unknowable:
            before = [step for step in follower.steps if step.at <= at]
            is_behind = not before or self.order.place(before[-1].after) <= self.order.place(end)
            is_later = self.order.epoch(publication.ids[-1]) > self.order.epoch(end) or place > self.order.place(end)
            if publication.began_at <= at and is_later and is_behind:
                return True
        return False


def _cursor(text: str) -> str:
    """A cursor of a server, or an id. Raises: BrokenPromise, if it is none."""
    epoch, _, sequence = text.rpartition("-")
    if not epoch or not sequence.isdigit():
        raise BrokenPromise(f"a cursor or an id is `<epoch>-<sequence>`: {text!r}")
    return text
