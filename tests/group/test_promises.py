"""Each promise holds in simulated teams with every fault, and is broken by a core that is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from loadtest.mishra.core import formation, ordering
from loadtest.mishra.core.delivery import Delivery
from loadtest.mishra.core.effects import Outcome
from loadtest.mishra.core.history import History
from loadtest.mishra.core.member import Member
from loadtest.mishra.core.messages import Atomicity, Entry, Fate, Order, Update
from loadtest.mishra.core.termination import Termination
from tests.group.simulate import simulate
from tests.group.world import BrokenPromise

SEEDS = 30

BATCHES = ((0, 17, *range(1, 5)), (*range(5, 17), *range(18, SEEDS)))
"""The first batch is part of `make check`. In each, everything happens that should."""


@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_every_promise_holds(batch: int) -> None:
    """With loss, delay, duplication, crashes and partitions; and all of that was there, and what it leads to."""
    seen: Counter[str] = Counter()
    for seed in BATCHES[batch]:
        seen += simulate(seed)
    wanted = {
        "crash", "partition", "late", "joined anew", "continued", "excluded", "no majority", "clock not synchronized",
        *(f"outcome {outcome.name}" for outcome in Outcome),
    }  # fmt: skip
    assert not wanted - seen.keys()


Patch = Callable[[pytest.MonkeyPatch], None]


def deliver_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """An update that is missing holds back none with a greater ordinal."""

    def take(self: Delivery) -> list[Update]:
        taken = [update for update in self._waiting.values() if self.allowed(update.atomicity, update.depends_on)]
        self._waiting.clear()
        for ordinal in range(self._history.base + 1, self._history.end + 1):
            entry = self._history.entry(ordinal)
            update = self._history.held(entry.id)
            if update and entry.order is not Order.NONE and entry.id not in self._delivered:
                taken.append(update)
        self._delivered.update(update.id for update in taken)
        while self.up_to < self._history.end and self._done(self._history.entry(self.up_to + 1)):
            self.up_to += 1
        return taken

    patch.setattr(Delivery, "take", take)


def order_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """The decider forgets the last stamp in time order."""
    choose = ordering.choose

    def forgetful(loose: list[Update], places: object, **options: float) -> ordering.Chosen:
        return choose(loose, places, **{**options, "mark": formation.EMPTY.mark})  # type: ignore[arg-type]

    patch.setattr(ordering, "choose", forgetful)


def lose_at_every_view(patch: pytest.MonkeyPatch) -> None:
    """A new view gives up every update that was not stable."""

    def fates(entries: tuple[Entry, ...], base: int, continuing: object) -> list[Entry]:
        del base, continuing
        return [Entry(*entry.id, entry.order, entry.atomicity, entry.depends_on, Fate.LOST) for entry in entries]

    patch.setattr(formation, "_fates", fates)


def weaken(this: Atomicity, to: Atomicity) -> Patch:
    """One atomicity is treated as another."""

    def weakened(patch: pytest.MonkeyPatch) -> None:
        allowed = Delivery.allowed
        patch.setattr(
            Delivery, "allowed", lambda self, given, depends: allowed(self, to if given is this else given, depends)
        )

    return weakened


def end_only_what_is_stable(patch: pytest.MonkeyPatch) -> None:
    """A proposer is not told when nobody knows what became of its update."""
    patch.setattr(Termination, "expire", lambda self, now: [])
    patch.setattr(Termination, "give_up", lambda self: self._due.clear() or [])


def take_everything(patch: pytest.MonkeyPatch) -> None:
    """An update that was stable and dropped is new when it comes again."""
    patch.setattr(History, "_awaited", lambda self, update_id: self.decision is not None)


def never_ask(patch: pytest.MonkeyPatch) -> None:
    """Whatever is lost stays lost."""
    patch.setattr(Member, "_repair_losses", lambda self, now, decision: None)


WEAK, STRONG, STRICT = (Atomicity.WEAK,), (Atomicity.STRONG,), (Atomicity.STRICT,)

BROKEN: dict[str, tuple[Patch, tuple[Order, ...], tuple[Atomicity, ...]]] = {
    "total order": (deliver_what_is_held, (Order.TOTAL,), WEAK),
    "time order": (order_as_they_come, (Order.TIME,), WEAK),
    "once": (take_everything, (Order.NONE,), WEAK),
    "weak": (lose_at_every_view, (Order.NONE,), WEAK),
    "strong": (weaken(Atomicity.STRONG, Atomicity.WEAK), tuple(Order), STRONG),
    "strict": (weaken(Atomicity.STRICT, Atomicity.STRONG), tuple(Order), STRICT),
    "termination": (end_only_what_is_stable, tuple(Order), WEAK),
    "progress": (never_ask, tuple(Order), WEAK),
}


@pytest.mark.thorough
@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_core_breaks_its_promise(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation notices, and says which promise; for the same proposals, the core as it is keeps all."""
    patch, orders, atomicities = BROKEN[promise]
    for seed in range(SEEDS // 6):
        simulate(seed, orders, atomicities)
    patch(monkeypatch)
    broken: set[str] = set()
    for seed in range(SEEDS):
        try:
            simulate(seed, orders, atomicities)
        except BrokenPromise as error:
            broken.add(error.promise)
        if promise in broken:
            return
    pytest.fail(f"only these were broken: {broken}")
