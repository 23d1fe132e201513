"""Who follows by this node, on channels with presence (decision 39).

The node counts the polls and streams of each member that it holds. It appends what changes, a few milliseconds later
and together: `Here` when somebody comes, `Away` when nobody has come back within the grace. Members that an entry puts
in question it claims again, if they still follow here. Once a second it looks for members that may leave, and for nodes
that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from msgspec import Raw, Struct
from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast, Member
from pushup.clock import Timer
from pushup.core.attendance import NULL, Attendance, Away, Gone, Here, Key, Leave
from pushup.core.channel import Touched
from pushup.core.commands import Command, Outcome
from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.held_on_grants import HeldOnGrant
from pushup.core.members import GONE_AT_MOST
from pushup.core.poll import Selection
from pushup.core.state import ReplicatedState

TOGETHER_SECONDS = 0.05
"""What changes within this time is appended together."""

TOGETHER_AT_MOST = 100
"""Members in one entry."""

LOOK_SECONDS = 1.0

ANSWER_SECONDS = 2.0
"""How long other nodes have to say that a member follows there. Longer than an entry takes, and `LOOK_SECONDS`."""

GONE_SECONDS = 5.0
"""A node that has not reported for so long is gone."""

SPREAD_SECONDS = 0.5
"""Nodes append `Leave` after a random part of this, so that usually one does."""


class PresenceLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When members leave who do not come back."""

    presence_grace_seconds: float = 30.0
    """How long after its last poll or stream a member leaves."""
    presence_hidden_seconds: float = 90.0
    """The same for a page that has said that it is hidden: browsers slow it down."""


class _Follower:
    """A member as this node sees it: how many polls and streams it holds, and until when it waits for the next.

    `is_closing`: a page has said that it closes, and what it held may not have ended yet. `data`: of the latest token,
    as `given` with the time when it was issued. Told once, or two pages with different ones would go on for ever.
    """

    __slots__ = ("count", "data", "given", "grace", "is_closing", "is_told", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = self.grace = 0.0
        self.is_closing = self.is_told = False
        self.data, self.given = NULL, (0.0, b"")


class Presence:
    """The members that follow by this node. `start_from` whenever it has another state."""

    def __init__(
        self,
        broadcast: Broadcast,
        limits: PresenceLimits,
        *,
        state: Callable[[], ReplicatedState],
        members: Callable[[], list[Member]],
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        """`state`: the present one; `members`: the nodes that are alive; `random` returns a number in [0, 1)."""
        self._broadcast = broadcast
        self._limits = limits
        self._state = state
        self._members = members
        self._clock = clock
        self._random = random
        self._followers: dict[Key, _Follower] = {}
        self._held: dict[HeldOnGrant, list[Key]] = {}
        self._ends: list[tuple[float, Key]] = []  # a heap; those of followers that have come back are ignored
        self._new: dict[Key, None] = {}  # to be appended
        self._closed: dict[Key, float] = {}  # asked about by pages that close, and when
        self._gone: dict[str, float] = {}  # since when nodes that have members are missing
        self._orphans: list[Key] = []  # members of this node in another state, who may not follow here
        self._append_timer = Timer(clock, self._append_new)
        self._leave_timer = Timer(clock, self._append_leaves)
        self._look_timer = Timer(clock, self._look)

    @property
    def is_on(self) -> bool:
        """Whether any channel has members."""
        return self._state().rules.has_presence

    # What the HTTP interface tells it.

    def begins(self, held: HeldOnGrant) -> None:
        """A poll is held, or a stream is open."""
        if held.grant.subject and self.is_on:
            keys = self._follow(held.grant, held.selection)
            if keys:
                self._held[held] = keys

    def ends(self, held: HeldOnGrant) -> None:
        """It has ended."""
        if (keys := self._held.pop(held, None)) is not None:
            self._unfollow(keys)

    def seen(self, grant: Grant, selection: Selection) -> None:
        """A poll was answered at once."""
        if grant.subject and self.is_on:
            self._unfollow(self._follow(grant, selection))

    def closes(self, subject: str, channels: tuple[str, ...]) -> None:
        """A page of this subject closes. Its poll or stream ends by itself, before or after this."""
        members, followers = self._state().members, self._followers
        keys = [key for key in self._keys(subject, channels) if key in followers or members.member(key) is not None]
        for key in keys:
            self._expect_end(key)
        if keys:
            self._submit(Away(self._broadcast.node_id, tuple(keys), ANSWER_SECONDS, is_closed=True))

    def _expect_end(self, key: Key) -> None:
        """A page of this member closes, here or elsewhere: it has no grace, unless another page turns out to follow."""
        if (follower := self._followers.get(key)) is not None:
            follower.is_closing, follower.until = True, 0.0
            if not follower.count:
                heappush(self._ends, (0.0, key))

    def _keys(self, subject: str, channels: tuple[str, ...]) -> list[Key]:
        """The channels of these that have members."""
        state = self._state()
        names = dict.fromkeys(map(state.channels.name_of, channels))
        return [(name, subject) for name in names if state.rules.retention(name).presence]

    def _follow(self, grant: Grant, selection: Selection) -> list[Key]:
        limits = self._limits
        keys = self._keys(grant.subject, selection.channels)
        for key in keys:
            follower = self._followers.setdefault(key, _Follower())
            follower.count += 1
            follower.is_closing = False
            follower.grace = limits.presence_hidden_seconds if selection.hidden else limits.presence_grace_seconds
            given = grant.issued_at, grant.presence
            if grant.presence and given != follower.given and grant.issued_at >= follower.given[0]:
                follower.data, follower.given, follower.is_told = Raw(grant.presence), given, False
            self._claim(key, follower)
        if keys:
            self._look_later()
        return keys

    def _unfollow(self, keys: list[Key]) -> None:
        now = self._clock.seconds()
        for key in keys:
            follower = self._followers[key]
            follower.count -= 1
            if not follower.count:
                follower.until = now + (0.0 if follower.is_closing else follower.grace)
                heappush(self._ends, (follower.until, key))

    # What the node tells it.

    def applied(self, touched: Touched) -> None:
        """An entry asks about members, each with whether its page has closed, or says who follows by some node.

        That may be this one, some time ago: an entry can be on its way for long.
        """
        now, here = self._clock.seconds(), touched.answered
        if here is not None and here.node == self._broadcast.node_id:
            self._orphans += [member.key for member in here.members if member.key not in self._followers]
        for key, is_closed in touched.asked:
            follower = self._followers.get(key)
            if follower is not None and is_closed:
                self._closed[key] = now  # its own poll may not have ended yet
                self._new.pop(key, None)
                self._expect_end(key)
            elif follower is not None and (follower.count or follower.until > now):
                self._claim(key, follower)

    def start_from(self) -> None:
        """The node has another state: claim there whoever follows here."""
        now = self._clock.seconds()
        for key, follower in self._followers.items():
            follower.is_told = False
            if follower.count or follower.until > now:
                self._claim(key, follower)
        # It may have members of this node who follow no more: of the process before (a worker that was replaced, or a
        # server with a journal), or because it is older than what this node knew.
        self._orphans = self._state().members.held_by(self._broadcast.node_id)
        self._look_later()

    def stop(self) -> None:
        """Append nothing more. Other nodes ask about the members of this one."""
        for timer in (self._append_timer, self._leave_timer, self._look_timer):
            timer.stop()

    # What it appends.

    def _claim(self, key: Key, follower: _Follower) -> None:
        """Append `Here` soon, if the state does not say so."""
        members = self._state().members
        row = members.member(key)
        is_known = row is not None and not row.leaves_at and (follower.is_told or follower.data in (NULL, row.data))
        if not is_known and not (row is None and members.is_full):
            self._new[key] = None
            self._append_timer.not_after(self._clock.seconds() + TOGETHER_SECONDS)

    def _append_new(self) -> None:
        new, self._new = self._new, {}
        told = [(key, self._followers[key]) for key in new if key in self._followers]
        for _, follower in told:
            follower.is_told = True
        known = [Attendance(*key, follower.data) for key, follower in told]
        for n in range(0, len(known), TOGETHER_AT_MOST):
            self._submit(Here(self._broadcast.node_id, tuple(known[n : n + TOGETHER_AT_MOST])))

    def _append_leaves(self) -> None:
        keys = self._state().members.due(self._broadcast.now(), TOGETHER_AT_MOST)
        if keys:
            self._submit(Leave(tuple(keys)))

    def _submit(self, command: Command) -> None:
        self._broadcast.append(command, partial(self._submitted, command))

    def _submitted(self, command: Command, outcome: Outcome) -> None:
        """What was refused is tried again, a second later; who leaves and which nodes are gone is looked for anyway."""
        if isinstance(outcome, PushUpError):
            if isinstance(command, Here):
                self._new |= dict.fromkeys([member.key for member in command.members])
                self._append_timer.not_after(self._clock.seconds() + LOOK_SECONDS)
            elif isinstance(command, Away):
                self._clock.callLater(LOOK_SECONDS, self._submit, command)
        elif isinstance(command, Leave):
            self._leave_timer.not_after(self._clock.seconds() + TOGETHER_SECONDS)  # the next ones, if there are more

    def _look(self) -> None:
        """Once a second, while there are channels with members."""
        now = self._clock.seconds()
        self._look_for_ends(now)
        for key in [key for key, at in self._closed.items() if at <= now - LOOK_SECONDS / 2]:
            del self._closed[key]
            follower = self._followers.get(key)
            if follower is not None and follower.count:  # another page of this user is still there
                follower.is_closing = False
                self._claim(key, follower)
        self._look_for_gone(now)
        members = self._state().members
        next_leave = members.next_leave
        if next_leave is not None and next_leave <= self._broadcast.now():
            self._leave_timer.not_after(now + SPREAD_SECONDS * self._random())
        self._look_later()

    def _look_later(self) -> None:
        if self.is_on or self._followers:
            self._look_timer.not_after(self._clock.seconds() + LOOK_SECONDS)

    def _look_for_ends(self, now: float) -> None:
        """Ask about those who have not come back."""
        members, me = self._state().members, self._broadcast.node_id
        away: list[Key] = []
        while self._ends and self._ends[0][0] <= now:
            until, key = heappop(self._ends)
            follower = self._followers.get(key)
            if follower is None or follower.count or follower.until != until:
                continue
            del self._followers[key]
            row = members.member(key)
            if row is not None and row.holder == me and not row.leaves_at:
                away.append(key)
        self._ask(away, ANSWER_SECONDS)

    def _ask(self, keys: list[Key], seconds: float) -> None:
        """Ask about these members of this node."""
        for n in range(0, len(keys), TOGETHER_AT_MOST):
            self._submit(Away(self._broadcast.node_id, tuple(keys[n : n + TOGETHER_AT_MOST]), seconds))

    def _look_for_gone(self, now: float) -> None:
        """Ask about the members of nodes that are gone."""
        me, grace = self._broadcast.node_id, self._limits.presence_grace_seconds
        some, self._orphans = self._orphans[:GONE_AT_MOST], self._orphans[GONE_AT_MOST:]
        self._ask([key for key in some if key not in self._followers], grace)
        living = {me, *[member.id for member in self._members()]}
        self._gone = {name: self._gone.get(name, now) for name in self._state().members.holders if name not in living}
        for name, since in self._gone.items():
            if now - since >= GONE_SECONDS:
                self._submit(Gone(name, grace))
