"""Formation of a new view: from what the processes that agreed to it have told, to its first decision.

Ours; the paper leaves the membership protocol to [6]. Whoever calls for a view has promises of a majority not to follow
an earlier view, and what each of them knows (as in viewstamped replication). The latest decision among them is the
history that goes on. Who was in that view, and has not begun anew since, continues; all others begin anew, at what is
stable in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.mishra.core.messages import Atomicity, Decision, Entry, Fate, Id, Place, Reconfiguration

EMPTY = Decision(0, 0, 0, (), 0, (), (float("-inf"), 0, 0))
"""The history before the first group."""


def enough(answers: Mapping[int, Reconfiguration], team: int) -> bool:
    """Whether these processes can form a group without losing the history.

    A majority of the team has to know some history, so that one of them was in the last group. Processes that know none
    may have been restarted: they only do if they are a majority and nobody knows more, or if the team is complete.
    """
    majority = team // 2 + 1
    knowing = sum(answer.known is not None for answer in answers.values())
    return len(answers) == team or knowing >= majority or (knowing == 0 and len(answers) >= majority)


def form(view: int, caller: int, answers: Mapping[int, Reconfiguration]) -> Decision:
    """The first decision of a view with all who answered."""
    latest = max(
        (answer.known for answer in answers.values() if answer.known), key=lambda known: known.key, default=EMPTY
    )
    continuing = {member: answer for member, answer in answers.items() if _continues(answer, latest.place(member))}
    base = max([latest.base, *(answer.trimmed for answer in continuing.values())])
    entries = latest.entries[base - latest.base :]
    places = [_place(member, answer, view, latest, base, continuing) for member, answer in sorted(answers.items())]
    return Decision(view, 0, caller, tuple(places), base, tuple(_fates(entries, base, continuing)), latest.mark)


def _continues(answer: Reconfiguration, place: Place | None) -> bool:
    """Whether what a process knows is the beginning of this history.

    It is even if it has not heard of the latest view, or of several: whoever formed them had its promise and counted on
    what it holds.
    """
    known = answer.known
    return known is not None and place is not None and place.boot == answer.boot and place.joined <= known.view


def _place(
    member: int, answer: Reconfiguration, view: int, latest: Decision, base: int, continuing: Mapping[int, object]
) -> Place:
    before = latest.place(member)
    if member in continuing and before:
        return Place(member, answer.boot, before.joined, max(answer.held, base), before.following)
    return Place(member, answer.boot, view, base, answer.following)


def _fates(entries: tuple[Entry, ...], base: int, continuing: Mapping[int, Reconfiguration]) -> list[Entry]:
    """The entries; those are lost that nobody holds, and strong and strict ones that depend on a lost one."""
    held: set[Id] = {update_id for answer in continuing.values() for update_id in answer.ids}
    up_to = max((answer.held for answer in continuing.values()), default=base)
    first_lost: int | None = None
    result = []
    for ordinal, entry in enumerate(entries, base + 1):
        depends = entry.atomicity is not Atomicity.WEAK and first_lost is not None and entry.depends_on >= first_lost
        if entry.fate is Fate.DELIVERED and (depends or (ordinal > up_to and entry.id not in held)):
            entry = Entry(*entry.id, entry.order, entry.atomicity, entry.depends_on, Fate.LOST)
            first_lost = first_lost or ordinal
        result.append(entry)
    return result


def first_lost(before: Decision, after: Decision) -> int | None:
    """The first ordinal that a new view has lost of a history; None if it lost none."""
    known = {base: entry.fate for base, entry in enumerate(before.entries, before.base + 1)}
    return next(
        (
            ordinal
            for ordinal, entry in enumerate(after.entries, after.base + 1)
            if entry.fate is Fate.LOST and known.get(ordinal, Fate.DELIVERED) is not Fate.LOST
        ),
        None,
    )
