"""The promises that can only be judged when all faults are over and the group is whole again."""

from __future__ import annotations

from itertools import pairwise

from loadtest.mishra.core.effects import Outcome
from loadtest.mishra.core.messages import Atomicity, Id, Order
from tests.group.world import BrokenPromise, Life, World


def judge(world: World) -> None:
    """After `World.heal`. Raises: BrokenPromise."""
    lives = _whole(world)
    for one, other in pairwise(lives):
        _agree(world, one, other)
    for life in lives:
        for proposer in lives:
            _sequence(life, proposer)
        _strong(world, life)
    _outcomes(world, lives)


def _whole(world: World) -> list[Life]:
    """The lives of one group with everybody in it."""
    views = set()
    for process, member in world.members.items():
        state = member.state() if member else None
        if state is None or not state.in_group or len(state.members) != world.settings.team:
            raise BrokenPromise("progress", f"{process} is not in a group of all: {state}")
        views.add(state.view)
    if len(views) > 1:
        raise BrokenPromise("progress", f"there are several groups: {views}")
    lives = [life for life in world.life.values() if life]
    for life in lives:
        member = world.members[life.process]
        assert member is not None
        history = member.history
        if history.loose or history.up_to < history.end or member.delivery.up_to < history.end:
            raise BrokenPromise("progress", f"{life.process} has not delivered everything")
    return lives


def _agree(world: World, one: Life, other: Life) -> None:
    """Both know the same order where both know it, and have delivered the same of it."""
    base = max(one.base, other.base)
    ends = {max(life.order, default=base) for life in (one, other)}
    for ordinal in range(base + 1, max(ends) + 1):
        first, second = one.order.get(ordinal), other.order.get(ordinal)
        if first != second or first is None or second is None:
            raise BrokenPromise(
                "total order", f"ordinal {ordinal} is {first} at {one.process}, {second} at {other.process}"
            )
        if (first in one.delivered) != (second in other.delivered) and world.is_promised(first):
            raise BrokenPromise("weak", f"of {one.process} and {other.process} only one has delivered {first}")
    ordered = [
        [update_id for update_id, update in life.delivered.items() if update.order is not Order.NONE]
        for life in (one, other)
    ]
    common = set(ordered[0]) & set(ordered[1])
    if [known for known in ordered[0] if known in common] != [known for known in ordered[1] if known in common]:
        raise BrokenPromise("total order", f"{one.process} and {other.process} deliver in different orders")


def _sequence(life: Life, proposer: Life) -> None:
    """Ordered updates of a proposer that is still in the group were delivered in its sequence."""
    proposed = set(proposer.proposed)
    ordered = [
        known for known, update in life.delivered.items() if known in proposed and update.order is not Order.NONE
    ]
    if ordered != sorted(ordered):
        raise BrokenPromise("sequence", f"{life.process} delivers {ordered}")


def _strong(world: World, life: Life) -> None:
    """What a strong or strict update depends on is there, too."""
    for update_id, update in life.delivered.items():
        if update.atomicity is not Atomicity.WEAK:
            for known, ordinal in world.depends.get(update_id, {}).items():
                if ordinal > life.base and known not in life.delivered and _should_survive(world, known):
                    raise BrokenPromise("strong", f"{life.process} has {update_id}, but not {known}")


def _should_survive(world: World, update_id: Id) -> bool:
    """Whether an update that was to be delivered is held by a process that has not crashed since."""
    held = any(update_id in life.held and not life.crashed for life in world.lives)
    return held and world.is_promised(update_id) and world.outcomes.get(update_id) is not Outcome.LATE


def _outcomes(world: World, lives: list[Life]) -> None:
    """Every proposer that is still there was told what became of its updates, in time, and it is true."""
    places = {known: at for life in lives for at, known in life.order.items()}
    for update_id, due in world.due.items():
        outcome = world.outcomes.get(update_id)
        process, sequence = update_id
        proposer = world.life[process]
        if outcome is None and proposer and proposer.boot == sequence >> 32 and due < world.now - world.settings.clock:
            raise BrokenPromise("termination", f"{process} was never told of {update_id}")
        for life in lives:
            if outcome is Outcome.LATE and update_id in life.delivered:
                raise BrokenPromise("termination", f"{update_id} was refused, and {life.process} delivered it")
            known = places.get(update_id, 0) > life.base
            if (
                outcome is Outcome.STABLE
                and known
                and update_id not in life.delivered
                and _should_survive(world, update_id)
            ):
                raise BrokenPromise("termination", f"{update_id} is stable, and {life.process} has not delivered it")
