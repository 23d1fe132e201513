"""Producers with an outbox: a check of their own, by what their instances send and are told.

An outbox is the table of a database: its messages have numbers, and it knows which were answered. An instance tries a
batch until it is answered. Another may take over with the next epoch, while the earlier one goes on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from loadtest.history.events import BrokenPromise, Draft, Publish, acknowledged
from tests.simulation.clients import PUBLISHER_SECONDS, RETRY_SECONDS, attributes_of, key_of
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.world import Process, World

LOOK_SECONDS = 0.2
"""How often an instance looks for new messages."""

BATCHES = (1, 1, 2, 5)
"""The most messages in one publication."""


class Written(NamedTuple):
    """A message in an outbox."""

    name: str
    """Of the publication in the record, which has only this message."""
    channels: tuple[str, ...]

    @property
    def data(self) -> str:
        return f"{self.name}/0"


class Outbox:
    """All messages of a producer, the number of the next one to be answered, and the instances that publish them."""

    def __init__(self, world: World, network: Network, record: Record, name: str, hosts: list[str]) -> None:
        """`hosts`: where they publish."""
        self.world, self.network, self.record, self.hosts = world, network, record, hosts
        self.name = name
        self.messages: list[Written] = []
        self.next = 0
        self.senders: list[set[int]] = []
        """The epochs that have sent each number."""
        self.answered: dict[int, float] = {}
        """When each epoch was first told that its publication is there."""
        self.fresh: list[tuple[str, int]] = []
        """The ids of messages that only one epoch has sent, with that epoch."""
        self.ids: dict[int, str] = {}
        """The id of each number, as it was acknowledged last."""
        self.instances: list[Instance] = []
        self.take_over()

    def write(self, channels: tuple[str, ...]) -> None:
        self.messages.append(Written(f"{self.name}.{len(self.messages)}", channels))
        self.senders.append(set())

    def take_over(self) -> None:
        """Start another instance, which has the next epoch."""
        self.instances.append(Instance(self, len(self.instances) + 1))

    @property
    def is_empty(self) -> bool:
        """Whether the last instance has nothing to publish any more."""
        return self.next == len(self.messages) and self.instances[-1].next == self.next

    def sends(self, first: int, count: int, epoch: int) -> None:
        for number in range(first, first + count):
            message = self.messages[number]
            if not self.senders[number]:
                draft = Draft(message.channels, message.data, "ephemeral" in attributes_of(message.data))
                # A key tells the checker that it may be published again after a loss; `check` is stricter.
                self.record.take(Publish(self.record.now, message.name, (draft,), f"producer {message.name}"))
            self.senders[number].add(epoch)

    def published(self, first: int, ids: list[str], answer: Any, epoch: int) -> None:
        """Raises: BrokenPromise."""
        if answer.get("after_loss"):
            self.world.reach("a producer was told that numbers before are not known")
            if self.record.checker.lossless:
                raise BrokenPromise(f"producers are kept: {self.name} was told of a loss at {first}; there was none")
        for number, id_ in enumerate(ids, first):
            message, before = self.messages[number], self.ids.get(number)
            if before is None:
                told = {"ids": [id_], "time": answer["time"], "cursor": answer["cursor"]}
                self.record.take(acknowledged(self.record.now, message.name, told))
            elif before == id_:
                self.world.reach("a producer's publication was repeated")
            self.ids[number] = id_
            if self.senders[number] == {epoch}:
                self.fresh.append((id_, epoch))

    def is_answered(self, epoch: int, began_at: float) -> None:
        """An epoch is told that its publication, sent at some time, is there. Raises: BrokenPromise."""
        later = [e for e, at in self.answered.items() if e > epoch and at < began_at]
        if later and self.record.checker.lossless:
            raise BrokenPromise(f"fenced: {self.name} published in epoch {epoch}, and {later} had published before")
        self.answered.setdefault(epoch, self.record.now)

    def check(self) -> None:
        """Each number is in the order once, in the order of numbers, and epochs do not come back.

        Raises: BrokenPromise.
        """
        checker, place = self.record.checker, self.record.checker.order.place
        if checker.unknowable:
            return  # the order was put back, and goes on as if it had not been
        ids: dict[str, list[str]] = {}
        for id_, data in checker.data_at.items():
            ids.setdefault(data, []).append(id_)
        places = []
        for number, message in enumerate(self.messages):
            of_message = ids.get(message.data, [])
            if len(of_message) > 1 and (checker.lossless or len({place(id_)[:2] for id_ in of_message}) == 1):
                raise BrokenPromise(f"once: number {number} of {self.name} has the ids {of_message}")
            places += [(place(id_), number) for id_ in of_message]
        places.sort()
        for (earlier, low), (later, high) in pairwise(places):
            if earlier[:2] == later[:2] and low >= high:
                raise BrokenPromise(f"in order: number {low} of {self.name} is at {earlier}, and {high} at {later}")
        if checker.lossless:
            epochs = [epoch for _, epoch in sorted((place(id_), epoch) for id_, epoch in self.fresh)]
            if epochs != sorted(epochs):
                raise BrokenPromise(f"fenced: the epochs of {self.name} published in the order {epochs}")


class Instance:
    """One program that publishes what is in the outbox, from where that was answered when it started."""

    def __init__(self, outbox: Outbox, epoch: int) -> None:
        self.outbox = outbox
        self.epoch = epoch
        self.next = outbox.next
        self.process = Process(outbox.world, f"{outbox.name}, epoch {epoch}")
        self._random = outbox.world.random("producer", self.process.name)
        self._look()

    def _look(self) -> None:
        count = min(self._random.choice(BATCHES), len(self.outbox.messages) - self.next)
        if count:
            self._try(self.next, count)
        else:
            self.process.later(LOOK_SECONDS, self._look)

    def _try(self, first: int, count: int) -> None:
        outbox = self.outbox
        client = HttpClient(outbox.network, self.process)
        host = self._random.choice(outbox.hosts)
        messages = [
            {"channels": list(message.channels), "data": message.data, **attributes_of(message.data)}
            for message in outbox.messages[first : first + count]
        ]
        producer = {"name": outbox.name, "epoch": self.epoch, "sequence": first}
        headers = {"Authorization": f"Bearer {key_of(outbox.name[:2])}"}
        data = request("POST", "/v1/messages", {"messages": messages, "producer": producer}, **headers)
        outbox.world.tell(f"{self.process.name}: publishes {first} to {first + count - 1} at {host}")
        outbox.sends(first, count, self.epoch)
        began_at = outbox.record.now

        def replied(reply: Message | None) -> None:
            client.drop()
            text = "no reply" if reply is None else f"{reply.status} {reply.body.decode()}"
            outbox.world.tell(f"{self.process.name}: {text}")
            if reply is None or reply.status >= 500:
                self.process.later(RETRY_SECONDS, lambda: self._try(first, count))
            else:
                self._answered(first, count, reply, began_at)

        client.ask(host, data, PUBLISHER_SECONDS, replied)

    def _answered(self, first: int, count: int, reply: Message, began_at: float) -> None:
        """Raises: BrokenPromise."""
        outbox, answer = self.outbox, reply.json
        if reply.status == 201:
            if len(answer["ids"]) != count:
                raise BrokenPromise(f"{outbox.name} got {answer['ids']} for {count} messages")
            outbox.is_answered(self.epoch, began_at)
            outbox.published(first, answer["ids"], answer, self.epoch)
            self._go_on(first + count)
        elif reply.status == 200 and answer == {"duplicate": True}:
            outbox.world.reach("a producer repeated what came before its last publication")
            outbox.is_answered(self.epoch, began_at)
            self._go_on(first + count)
        elif answer["type"] == "urn:pushup:producer-sequence":
            outbox.world.reach("a producer's number was not the next one")
            if answer["next"] > len(outbox.messages) or (answer["next"] < first and outbox.record.checker.lossless):
                raise BrokenPromise(f"numbers are known: {outbox.name} sent {first}, and was told {answer}")
            self._go_on(answer["next"], goes_back=answer["next"] < first)
        elif answer["type"] == "urn:pushup:producer-fenced":
            outbox.world.reach("an earlier epoch of a producer was fenced")
            if not self.epoch < answer["epoch"] <= len(outbox.instances):
                raise BrokenPromise(f"fenced: epoch {self.epoch} of {outbox.name} was told {answer}")
        else:
            raise BrokenPromise(f"{outbox.name} was told {reply.status} {answer}")

    def _go_on(self, number: int, *, goes_back: bool = False) -> None:
        outbox = self.outbox
        self.next = number
        outbox.next = number if goes_back else max(outbox.next, number)
        self.process.later(0.0, self._look)


class Producers:
    """All outboxes of a run."""

    def __init__(self, world: World, network: Network, record: Record, hosts: list[str], count: int) -> None:
        self.outboxes = [Outbox(world, network, record, f"p{n}.outbox", hosts) for n in range(count)]

    def hang(self, producer: int, seconds: float) -> None:
        """The latest instance of a producer stands still."""
        process = self.outboxes[producer].instances[-1].process
        process.pause()
        process.world.later(seconds, process.resume)

    @property
    def are_done(self) -> bool:
        return all(outbox.is_empty for outbox in self.outboxes)

    def check(self) -> None:
        """Raises: BrokenPromise."""
        for outbox in self.outboxes:
            outbox.check()

    def check_done(self) -> None:
        """All faults have ended for a while. Raises: BrokenPromise."""
        for outbox in self.outboxes:
            if not outbox.is_empty:
                raise BrokenPromise(
                    f"live again: {outbox.name} has {len(outbox.messages)} messages, and is at {outbox.next}"
                )

    def leave(self) -> None:
        for outbox in self.outboxes:
            for instance in outbox.instances:
                instance.process.die()
