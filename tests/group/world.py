"""A team of members on one simulated time: every fault and every delay follows from a seed; every promise is checked.

The network loses, delays, duplicates and reorders datagrams; some come so late that they must be dropped. Processes
crash and begin anew without a memory; the team is partitioned; clocks start apart and drift. Each life of a process
(from when it begins a history anew until it does so again, or crashes) is recorded, and judged by `promises`.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from loadtest.mishra.core.effects import Delivered, Effect, Ended, Joined, Left, Outcome, Send
from loadtest.mishra.core.member import Member
from loadtest.mishra.core.messages import Atomicity, Fate, Id, Order, Update
from loadtest.mishra.core.settings import Settings, Timeout

SETTINGS = Settings(
    team=3, decider=0.01, decision=0.1, election=0.05, clock=0.25, join=0.1, request=0.05, late=0.15, settle=0.006,
    precision=0.005, termination=1.0,
)  # fmt: skip

QUICK = 0.003
"""The longest usual delay of a datagram, s."""


class BrokenPromise(AssertionError):
    """`promise`: which one."""

    def __init__(self, promise: str, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise


@dataclass
class Life:
    """What a process did with one history. `base`: what is up to this ordinal it got as the service's state."""

    process: int
    boot: int
    base: int
    delivered: dict[Id, Update] = field(default_factory=dict)
    order: dict[int, Id] = field(default_factory=dict)
    held: set[Id] = field(default_factory=set)
    proposed: list[Id] = field(default_factory=list)
    crashed: bool = False


@dataclass
class Faults:
    """Chances for each datagram, and of each fault a second."""

    loss: float = 0.0
    duplication: float = 0.0
    slow: float = 0.0
    late: float = 0.0
    crashes: float = 0.0
    partitions: float = 0.0


ALL_FAULTS = Faults(loss=0.05, duplication=0.05, slow=0.05, late=0.02, crashes=1.0, partitions=0.7)


class World:
    """Run it for some time with faults, then `heal` and see that everything works again."""

    def __init__(self, seed: int, *, settings: Settings = SETTINGS, faults: Faults | None = None) -> None:
        self.random = random.Random(seed)
        self.settings = settings
        self.faults = faults or Faults()
        self.now = 0.0
        self.lives: list[Life] = []
        self.life: dict[int, Life | None] = {}
        self.members: dict[int, Member | None] = {}
        self.seen: Counter[str] = Counter()
        self.proposed: dict[Id, Update] = {}
        self.depends: dict[Id, dict[Id, int]] = {}
        self.outcomes: dict[Id, Outcome] = {}
        self.due: dict[Id, float] = {}
        self.orders: tuple[Order, ...] = tuple(Order)
        self.atomicities: tuple[Atomicity, ...] = tuple(Atomicity)
        self.forgotten = -1.0
        """When fewer than a majority last remembered anything; what was proposed before that may be lost."""
        self._apart: dict[int, int] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._boots: Counter[int] = Counter()
        self._clocks = {
            process: (self.random.uniform(1000, 2000), self.random.uniform(-1e-4, 1e-4))
            for process in range(settings.team)
        }
        for process in range(settings.team):
            self.start(process)

    # What happens

    def start(self, process: int) -> None:
        self._boots[process] += 1
        self.life[process] = None
        self.members[process] = Member(
            process, boot=self._boots[process], settings=self.settings, now=self.local(process)
        )

    def crash(self, process: int) -> None:
        self.seen["crash"] += 1
        self.members[process] = None
        if life := self.life[process]:
            life.crashed = True
        self.life[process] = None
        remember = sum(bool(member and member.history.decision) for member in self.members.values())
        if remember < self.settings.majority:
            self.forgotten = self.now

    def partition(self, *groups: Iterable[int]) -> None:
        """Only processes of one group reach each other; without groups, all do."""
        self._apart = {process: index for index, group in enumerate(groups) for process in group}

    def propose(self, process: int, order: Order, atomicity: Atomicity) -> Id | None:
        member = self.members[process]
        if member is None:
            return None
        life = self.life[process]
        before = {known: at for at, known in life.order.items() if known in life.delivered} if life else {}
        up_to = member.delivery.up_to
        data = f"{len(self.proposed)}".encode()
        sequence, effects = member.propose(self.local(process), data, order, atomicity)
        if sequence is None:
            return None
        update_id = (process, sequence)
        self.depends[update_id] = {known: at for known, at in before.items() if at <= up_to}
        if life:
            life.proposed.append(update_id)
        self.due[update_id] = self.now + self.settings.termination
        self.proposed[update_id] = Update(process, sequence, order, atomicity, 0.0, 0, data)
        self._carry_out(process, effects)
        return update_id

    def is_promised(self, update_id: Id) -> bool:
        """Whether a majority has remembered everything since this was proposed."""
        return self.due[update_id] - self.settings.termination > self.forgotten

    def run(self, seconds: float, *, rate: float = 100.0) -> None:
        """Run on, with so many proposals a second at random processes."""
        end = self.now + seconds
        self._propose_sometime(end, rate)
        for name, chance in (("crash", self.faults.crashes), ("partition", self.faults.partitions)):
            if chance:
                self._fault_sometime(name, chance, end)
        while self._step(end):
            pass
        self.now = end

    def heal(self, seconds: float = 3.0) -> None:
        """End all faults, start whoever has crashed, and wait until all is well. Then every life is complete."""
        self.faults = Faults()
        self.partition()
        for process, member in self.members.items():
            if member is None:
                self.start(process)
        self.run(seconds, rate=0.0)

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def local(self, process: int) -> float:
        offset, drift = self._clocks[process]
        return offset + self.now * (1 + drift)

    def _global(self, process: int, local: float) -> float:
        offset, drift = self._clocks[process]
        return (local - offset) / (1 + drift)

    def _step(self, end: float) -> bool:
        """The next event, whichever it is: a timeout goes before a datagram, the clock's before others (§4)."""
        timeouts = [
            (max(self.now, self._global(process, at)), list(Timeout).index(timeout), process, timeout)
            for process, member in self.members.items()
            if member
            for timeout, at in member.deadlines.items()
        ]
        first = min(timeouts, default=None)
        if first and first[0] <= end and (not self._events or first[0] <= self._events[0][0]):
            self.now, _, process, timeout = first
            member = self.members[process]
            assert member is not None
            self._carry_out(process, member.expire(timeout, max(self.local(process), member.deadlines[timeout])))
        elif self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            what()
        else:
            return False
        return True

    def _propose_sometime(self, end: float, rate: float) -> None:
        if rate and (when := self.now + self.random.expovariate(rate)) < end:

            def propose() -> None:
                process = self.random.randrange(self.settings.team)
                self.propose(process, self.random.choice(self.orders), self.random.choice(self.atomicities))
                self._propose_sometime(end, rate)

            self.at(when, propose)

    def _fault_sometime(self, name: str, chance: float, end: float) -> None:
        when = self.now + self.random.expovariate(chance)
        if when >= end:
            return

        def fault() -> None:
            process = self.random.randrange(self.settings.team)
            lasts = self.random.uniform(0.05, 0.8)
            if name == "crash" and self.members[process]:
                self.crash(process)
                self.at(self.now + lasts, lambda: self.start(process) if self.members[process] is None else None)
            elif name == "partition":
                self.seen["partition"] += 1
                members = self.random.sample(range(self.settings.team), self.settings.team)
                cut = self.random.randrange(1, self.settings.team)
                self.partition(members[:cut], members[cut:])
                self.at(self.now + lasts, self.partition)
            self._fault_sometime(name, chance, end)

        self.at(when, fault)

    # What members ask for

    def _carry_out(self, process: int, effects: list[Effect]) -> None:
        member = self.members[process]
        assert member is not None
        for effect in effects:
            match effect:
                case Joined(view, _, anew, base):
                    self.seen["joined anew" if anew else "continued"] += 1
                    if anew:
                        self.life[process] = Life(process, self._boots[process], base)
                        self.lives.append(self.life[process] or Life(process, 0, 0))
                    del view
                case Left(reason):
                    self.seen[reason] += 1
                case Delivered(update):
                    self._record(process)
                    self._judge(process, member, update)
                case Ended(sequence, outcome):
                    self._end((process, sequence), outcome)
                case Send(to, data):
                    for other in to:
                        self._transmit(process, other, data)
        self._record(process)

    def _record(self, process: int) -> None:
        """Whatever the member knows of the order, and holds."""
        member, life = self.members[process], self.life[process]
        if member is None or life is None:
            return
        history = member.history
        decision = history.decision
        assert decision is not None
        for ordinal, entry in enumerate(decision.entries, decision.base + 1):
            if life.order.setdefault(ordinal, entry.id) != entry.id:
                raise BrokenPromise("order", f"ordinal {ordinal} was {life.order[ordinal]}, now it is {entry.id}")
            if entry.fate is Fate.DELIVERED and (ordinal <= history.up_to or history.held(entry.id)):
                life.held.add(entry.id)
        life.held.update(history.loose)

    def _end(self, update_id: Id, outcome: Outcome) -> None:
        self.seen[f"outcome {outcome.name}"] += 1
        if update_id in self.outcomes:
            raise BrokenPromise("termination", f"{update_id} has ended twice")
        self.outcomes[update_id] = outcome

    def _transmit(self, sender: int, receiver: int, data: bytes) -> None:
        faults = self.faults
        copies = 0 if self.random.random() < faults.loss else 1 + (self.random.random() < faults.duplication)
        for _ in range(copies):
            delay = self.random.uniform(0.0005, QUICK)
            if self.random.random() < faults.slow:
                delay *= self.random.uniform(1, 20)
            if self.random.random() < faults.late:
                delay += 2 * self.settings.late * self.random.random()

            def arrive() -> None:
                if self._apart.get(sender) == self._apart.get(receiver) and (member := self.members[receiver]):
                    before = member.state().late_datagrams
                    self._carry_out(receiver, member.receive(self.local(receiver), data))
                    self.seen["late"] += member.state().late_datagrams - before

            self.at(self.now + delay, arrive)

    # Promises about single deliveries

    def _judge(self, process: int, member: Member, update: Update) -> None:
        life = self.life[process]
        assert life is not None
        proposed = self.proposed.get(update.id)
        if proposed and (proposed.data, proposed.order) != (update.data, update.order):
            raise BrokenPromise("integrity", f"{update.id} was not proposed like this")
        if update.id in life.delivered:
            raise BrokenPromise("once", f"{process} delivers {update.id} twice")
        if update.order is Order.TIME:
            last = max((old.stamp for old in life.delivered.values() if old.order is Order.TIME), default=0.0)
            if update.stamp <= last:
                raise BrokenPromise("time order", f"{process} delivers {update.stamp} after {last}")
        if update.order is not Order.NONE and update.id not in life.order.values():
            raise BrokenPromise("total order", f"{process} delivers {update.id} without an ordinal")
        depends = self.depends.get(update.id, {})
        if update.atomicity is Atomicity.STRONG:
            self._judge_strong(process, update, depends)
        if update.atomicity is Atomicity.STRICT:
            self._judge_strict(process, member, update, depends)
        life.delivered[update.id] = update

    def _judge_strong(self, process: int, update: Update, depends: dict[Id, int]) -> None:
        for known, ordinal in depends.items():
            if not self.is_promised(known):
                continue
            holders = {life.process for life in self.lives if known in life.held or ordinal <= life.base}
            if len(holders) < self.settings.majority:
                raise BrokenPromise("strong", f"{process} delivers {update.id}; only {holders} hold {known}")

    def _judge_strict(self, process: int, member: Member, update: Update, depends: dict[Id, int]) -> None:
        decision = member.history.decision
        assert decision is not None
        for place in decision.places:
            life, other = self.life[place.member], self.members[place.member]
            if not life or not other or life.boot != place.boot or not other.history.decision:
                continue
            if other.history.decision.view != decision.view:
                continue
            missing = [
                known
                for known, at in depends.items()
                if known not in life.held and at > life.base and self.is_promised(known)
            ]
            if missing:
                raise BrokenPromise("strict", f"{process} delivers {update.id}; {place.member} has no {missing[0]}")
