"""Who follows by this node, on channels with presence (decision 39).

The node counts the polls and streams of each member that it holds. It appends what changes, a few milliseconds later
and together: `Here` when somebody comes, `Away` when nobody has come back within half of the grace: a node that hangs
may answer late, and one that has been killed cannot. Members that an entry puts in question it claims again, if they
still follow here. Twice a second it looks for members that may leave (`leaving`), and for nodes that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast, Member
from pushup.clock import Timer
from pushup.core.attendance import NULL, Attendance, Away, Gone, Here, Key
from pushup.core.channel import Touched
from pushup.core.commands import Command, Outcome
from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.held_on_grants import HeldOnGrant
from pushup.core.members import GONE_AT_MOST
from pushup.core.poll import Selection
from pushup.core.state import ReplicatedState
from pushup.node.follower import Follower, Followers
from pushup.node.leaving import TOGETHER_AT_MOST, Leaving

TOGETHER_SECONDS = 0.05
"""What changes within this time is appended together."""

LOOK_SECONDS = 0.5

ANSWER_SECONDS = 2.0
"""How soon those may leave about whom a node asks. Longer than an entry takes, and `CLOSING_SECONDS`."""

GONE_SECONDS = 5.0
"""A node that has not reported for so long is gone."""

CLOSING_SECONDS = 1.0
"""How long after its page said that it closes a poll or stream may not have ended yet."""


class PresenceLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When members leave who do not come back."""

    presence_grace_seconds: float = 30.0
    """How long after its last poll or stream a member leaves."""
    presence_hidden_seconds: float = 90.0
    """The same for a page that has said that it is hidden: browsers slow it down."""


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
        self._leaving = Leaving(broadcast, state=state, members=members, clock=clock, random=random)
        self._followers = Followers()
        # Behind each of these: what puts something in -> what takes it out.
        self._held: dict[HeldOnGrant, list[Key]] = {}  # `begins` -> `ends`
        self._new: dict[Key, None] = {}  # to be appended: `_claim`, or refused -> `_append_new`
        self._claims = 0  # how many `Here` are on their way
        self._asked: dict[Key, int] = {}  # who follows here, place of the first question: `applied` -> `answered`
        self._refused: dict[tuple[float, bool], dict[Key, None]] = {}  # by `seconds`, `is_closed`: -> `_ask_again`
        self._closed: dict[Key, float] = {}  # whose page closes, and when: `applied` -> `_look`, a while later
        self._gone: dict[str, float] = {}  # since when nodes with members are missing: made by `_look_for_gone`
        self._orphans: list[Key] = []  # of this node, may not follow here: `start_from`, `applied` -> `_look_for_gone`
        self._append_timer = Timer(clock, self._append_new)
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
        self._ask(keys, ANSWER_SECONDS, is_closed=True)

    def _expect_end(self, key: Key) -> None:
        """A page of this member closes, here or elsewhere: it has no grace, unless another page turns out to follow."""
        if (follower := self._followers.get(key)) is not None:
            follower.is_closing, follower.until = True, 0.0
            if not follower.count:
                self._followers.expect_end(key, follower)

    def _keys(self, subject: str, channels: tuple[str, ...]) -> list[Key]:
        """The channels of these that have members."""
        state = self._state()
        names = dict.fromkeys(map(state.channels.name_of, channels))
        return [(name, subject) for name in names if state.rules.retention(name).presence]

    def _follow(self, grant: Grant, selection: Selection) -> list[Key]:
        limits = self._limits
        keys = self._keys(grant.subject, selection.channels)
        for key in keys:
            follower = self._followers.setdefault(key, Follower())
            follower.count += 1
            follower.is_closing = False
            follower.grace = limits.presence_hidden_seconds if selection.hidden else limits.presence_grace_seconds
            follower.take_data(grant)
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
                follower.until = now + (0.0 if follower.is_closing else follower.grace / 2)
                self._followers.expect_end(key, follower)

    # What the node tells it.

    def applied(self, touched: Touched) -> None:
        """An entry asks about members, or says who follows by a node: maybe this one, if it was on its way for long."""
        now, here = self._clock.seconds(), touched.answered
        if here is not None and here.node == self._broadcast.node_id:
            self._orphans += [member.key for member in here.members if member.key not in self._followers]
        self._leaving.asked(key for key, _ in touched.asked)
        for key, is_closed in touched.asked:
            follower = self._followers.get(key)
            if follower is None:
                continue
            self._asked.setdefault(key, self._state().cursor.sequence)
            if is_closed:
                self._closed[key] = now  # its own poll may not have ended yet
                self._new.pop(key, None)
                self._expect_end(key)
            elif follower.is_here(now):
                self._claim(key, follower)

    def start_from(self) -> None:
        """The node has another state: claim there whoever follows here."""
        now = self._clock.seconds()
        self._leaving.start_from()
        self._asked = dict.fromkeys(self._followers, 0)
        for key, follower in self._followers.items():
            follower.is_told = False
            if follower.is_here(now):
                self._claim(key, follower)
        # They may follow no more: this process or this state is newer than the other.
        self._orphans = self._state().members.held_by(self._broadcast.node_id)
        self._look_later()

    def stop(self) -> None:
        """Claim those who were here last, so that other nodes ask about them, too; append nothing after that."""
        now, me, row_of = self._clock.seconds(), self._broadcast.node_id, self._state().members.member
        last = [(key, each.data) for key, each in self._followers.items() if each.is_here(now)]
        new = [Attendance(*key, data) for key, data in last if (row := row_of(key)) is not None and row.holder != me]
        for n in range(0, len(new), TOGETHER_AT_MOST):
            self._broadcast.append(Here(me, tuple(new[n : n + TOGETHER_AT_MOST])), lambda _: None)
        for part in (self._append_timer, self._leaving, self._look_timer):
            part.stop()

    @property
    def answered(self) -> int:
        """All questions up to this entry were answered by this node, if they concern it."""
        now, members = self._clock.seconds(), self._state().members
        while self._asked:
            key, place = next(iter(self._asked.items()))
            follower, row = self._followers.get(key), members.member(key)
            if follower is not None and follower.is_here(now) and row is not None and row.leaves_at:
                return place - 1
            del self._asked[key]
        return self._state().cursor.sequence

    # What it appends.

    def _claim(self, key: Key, follower: Follower) -> None:
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
            self._claims += 1
            self._submit(Here(self._broadcast.node_id, tuple(known[n : n + TOGETHER_AT_MOST])))

    def _submit(self, command: Command) -> None:
        self._broadcast.append(command, partial(self._submitted, command))

    def _submitted(self, command: Command, outcome: Outcome) -> None:
        """What was refused is tried again at the next look; which nodes are gone is looked for anyway."""
        if isinstance(command, Here):
            self._claims -= 1
        if isinstance(outcome, PushUpError):
            if isinstance(command, Here):
                self._new |= dict.fromkeys([member.key for member in command.members])
            elif isinstance(command, Away):
                again = self._refused.setdefault((command.seconds, command.is_closed), {})
                again |= dict.fromkeys(command.members)

    def _look(self) -> None:
        """Twice a second, while there are channels with members."""
        now = self._clock.seconds()
        self._look_for_ends(now)
        self._append_new()
        self._ask_again()
        for key in [key for key, at in self._closed.items() if at <= now - CLOSING_SECONDS]:
            del self._closed[key]
            follower = self._followers.get(key)
            if follower is not None and follower.count:  # another page of this user is still there
                follower.is_closing = False
                self._claim(key, follower)
        self._look_for_gone(now)
        self._leaving.look()
        self._look_later()

    def _look_later(self) -> None:
        if self.is_on or self._followers or len(self._state().members):
            self._look_timer.not_after(self._clock.seconds() + LOOK_SECONDS)

    def _look_for_ends(self, now: float) -> None:
        """Ask about those who have not come back."""
        members, me = self._state().members, self._broadcast.node_id
        away: dict[float, list[Key]] = {}  # by the rest of the grace
        for key, follower in self._followers.pop_ended(now):
            row = members.member(key)
            if row is not None and row.holder == me and not row.leaves_at:
                away.setdefault(0.0 if follower.is_closing else follower.grace / 2, []).append(key)
        for rest, keys in away.items():
            self._ask(keys, rest + ANSWER_SECONDS)

    def _ask(self, keys: list[Key], seconds: float, *, is_closed: bool = False) -> None:
        """Ask about these members of this node or, if their pages close, of any."""
        for n in range(0, len(keys), TOGETHER_AT_MOST):
            some = tuple(keys[n : n + TOGETHER_AT_MOST])
            self._submit(Away(self._broadcast.node_id, some, seconds, is_closed))

    def _ask_again(self) -> None:
        """Ask what was refused about those who are still members, unless they have come back."""
        row_of, refused, self._refused = self._state().members.member, self._refused, {}
        for (seconds, is_closed), keys in refused.items():
            left = [key for key in keys if row_of(key) is not None and (is_closed or key not in self._followers)]
            asked = keys if is_closed and self._claims else left  # some may just become members
            self._ask(list(asked), seconds, is_closed=is_closed)

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
