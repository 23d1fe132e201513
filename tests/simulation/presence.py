"""Users who follow channels with presence, in tabs, and who reads who is there: a check of its own.

It knows when the requests of tabs were sent and answered, and whether they were said to close. Who is there follows
from that; the tables of the servers are only asked when an entry has made somebody leave.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import jwt

from loadtest.history.events import BrokenPromise
from pushup.core.attendance import Away, Key, Leave
from pushup.core.limits import ChannelPolicy
from pushup.node.leaving import PATIENCE_SECONDS
from pushup.node.presence import PresenceLimits
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.presence_plan import GRACE_SECONDS, HIDDEN_SECONDS
from tests.simulation.record import Record
from tests.simulation.server import Server
from tests.simulation.streams import Event, EventStream
from tests.simulation.users import SETTINGS as TOKENS
from tests.simulation.world import Process, World

STILL = ("redis_pause", "parent_pause")
"""Faults while which the order stands still, and nothing else."""

SETTINGS = PresenceLimits(presence_grace_seconds=GRACE_SECONDS, presence_hidden_seconds=HIDDEN_SECONDS)
POLICY = ChannelPolicy(prefix="room", presence=True)
CHANNELS = ("room:1", "room:2")

POLL_SECONDS = 1.0
"""How long a watcher polls, and most tabs."""

CLOSED_SECONDS = 8.0
"""For so long after a page of a user said that it closes, its other tabs have to be seen following."""

PROMPT_SECONDS = 5.0
"""How long after the last page of a user said that it closes the user is gone, where there is no fault."""

GONE_AT_MOST = 1
"""Members of a node about whom one entry asks here: as few as can be."""

LEAVE_SECONDS = 4.0
"""How long after the grace a member is gone at the latest, where there is no fault."""

NOTED_SECONDS = 0.3
"""A server has said by then that somebody has come."""

CALM_SECONDS = 25.0
"""After a fault, and whatever comes from it, all is as usual."""

GHOST_SECONDS = 3.0 + 8.0
"""How long after the grace nobody is a member any more, whatever has happened: lease, and what was promised."""


class Contact(NamedTuple):
    """A tab was answered by a server, which it had asked at the earliest then."""

    sent: float
    at: float
    host: str
    process: Process | None
    is_hidden: bool


class Follows(Protocol):
    """Who is there by a tab, and where."""

    @property
    def subject(self) -> str: ...
    @property
    def channels(self) -> tuple[str, ...]: ...


class Tabs:
    """All tabs of all users, and those who look who is there."""

    def __init__(self, world: World, network: Network, record: Record, servers: list[Server]) -> None:
        self.world = world
        self.network = network
        self.record = record
        self.servers = servers
        self.is_prompt = True
        """Whether a server knows soon what another one has heard."""
        self._fault_at = -math.inf
        """When the last fault was, by the true time. A drain is none: nobody leaves because of it."""
        self._first_fault_at = -math.inf
        """When the first one was after it had last been calm."""
        self._loss_at = -math.inf
        """The same without those that let the order stand still: nobody leaves because of them either."""
        self.on_question: Callable[[], None] = lambda: None
        """Called once, when an entry asks about members."""
        self.tabs: dict[int, Tab] = {}
        self.watchers: list[Watcher] = []
        self._contacts: dict[Key, list[Contact]] = {}
        self._last: dict[Key, float] = {}
        self._shown: dict[Key, float] = {}
        self._closed: dict[Key, float] = {}
        self._prompt: dict[Key, float] = {}

    def watch(self) -> None:
        """Begin to look who is there."""
        hosts = [server.name for server in self.servers]
        self.watchers = [Watcher(self, f"watcher {n}", channel, hosts) for n, channel in enumerate(CHANNELS)]

    def open(self, number: int, tab: Tab) -> None:
        if (before := self.tabs.get(number)) is not None:
            before.close()
        self.tabs[number] = tab

    def leave(self) -> None:
        for one in (*self.tabs.values(), *self.watchers):
            one.close()

    def note_fault(self, *, stands_still: bool = False) -> None:
        """`stands_still`: the order did, and no server or connection has failed."""
        if self.is_calm:
            self._first_fault_at = self.world.now
        self._fault_at = self.world.now
        if not stands_still:
            self._loss_at = self.world.now

    @property
    def had_faults(self) -> bool:
        return self._fault_at > -math.inf

    @property
    def is_calm(self) -> bool:
        return self._fault_at < self.world.now - CALM_SECONDS

    @property
    def only_stood_still(self) -> bool:
        """Whether there was no other fault lately."""
        return self._loss_at < self.world.now - CALM_SECONDS

    # What tabs do.

    def asks(self, tab: Follows, *, is_shown: bool = False) -> None:
        """A tab has sent something, or has it under way; what it is answered, it may never get.

        `is_shown`: it says so, and then the grace is the short one.
        """
        for channel in tab.channels:
            self._last[channel, tab.subject] = self.world.now
            if is_shown:
                self._shown[channel, tab.subject] = self.world.now

    def answered(self, tab: Follows, sent: float, host: str, process: Process | None, *, is_hidden: bool) -> None:
        contact = Contact(sent, self.world.now, host, process, is_hidden)
        for channel in tab.channels:
            self._contacts.setdefault((channel, tab.subject), []).append(contact)
        self.asks(tab)

    def closes(self, closing: Follows) -> None:
        """A page has said that it closes."""
        for channel in closing.channels:
            self._closed[channel, closing.subject] = self.world.now
            self._prompt.pop((channel, closing.subject), None)

    def closed(self, closing: Follows) -> None:
        """The server has heard that. Unless another tab is seen later, the user leaves at once."""
        subject = closing.subject
        others = [tab.channels for tab in self.tabs.values() if tab.is_open and tab.subject == subject]
        for channel in closing.channels:
            if not any(channel in channels for channels in others):
                self._prompt[channel, subject] = self.world.now

    # Who leaves.

    def left(self, key: Key) -> None:
        """An entry has made a member leave. Raises: BrokenPromise if one of its tabs was answered lately."""
        now = self.world.now
        self.world.reach("a member has left")
        contacts = self._contacts.get(key, [])
        patience = PATIENCE_SECONDS if self.had_faults else 0.0  # nodes wait for others after an outage
        was_closed = self._closed.get(key, -math.inf) > now - CLOSED_SECONDS - patience
        shown = self._shown.get(key, -math.inf)
        # The entry may have waited since the order stood still. Who was gone at any time since then may have left.
        may_have_waited = self.only_stood_still and not self.is_calm
        is_exact = self._is_exact
        held = self._held(key) if is_exact else ()
        before = now
        for contact in (*held, *reversed(contacts[-40:])):
            # A process that has ended has taken with it who was hidden. Of streams it is not known which one it was.
            knows = contact.process is not None and contact.process.alive
            seconds = HIDDEN_SECONDS if contact.is_hidden and contact.sent > shown and knows else GRACE_SECONDS
            # Where no server has failed, a tab was there until it was answered.
            last, noted = (contact.at, contact.sent) if is_exact else (contact.sent, contact.at)
            if last < before - (1.2 if was_closed else seconds - 1.0):
                continue
            if noted > now - NOTED_SECONDS:
                continue  # who comes back after the grace, a moment before the entry, leaves and joins
            if may_have_waited and contact.sent > self._first_fault_at:
                before = contact.sent
            elif is_exact or self._was_served(contact):
                raise BrokenPromise(f"nobody leaves who follows: {key} has left, and was there: {contact}")

    @property
    def _is_exact(self) -> bool:
        """No server has failed, and none has a slow link: that one may be back after the others' patience."""
        return self.only_stood_still and self.is_prompt

    def _held(self, key: Key) -> list[Contact]:
        """The polls and streams of this member that servers hold, if none has failed."""
        channel, subject = key
        return [
            Contact(tab.held_since, self.world.now, "", None, tab.is_hidden)
            for tab in self.tabs.values()
            if tab.held_since is not None and tab.is_open and tab.subject == subject and channel in tab.channels
        ]

    def _was_served(self, contact: Contact) -> bool:
        """Whether it was answered by a server that has known since what goes on."""
        if not self.record.checker.lossless or not contact.host:
            return False
        server = next(server for server in self.servers if server.name == contact.host)
        is_same = server.process is contact.process and server.is_up
        return is_same and server.parent is None and server.following_since < contact.sent - CALM_SECONDS / 2

    # Who is there.

    def check_members(self, channel: str, members: dict[str, Any], asked_at: float, where: str) -> None:
        """A server has said who is there. Raises: BrokenPromise if somebody is named who is long gone."""
        if not self.is_calm:
            return
        for subject in members:
            key = channel, subject
            last = self._last.get(key, -math.inf)
            was_closed = self.is_prompt and self._closed.get(key, -math.inf) >= last and key in self._prompt
            if was_closed and self._prompt[key] < asked_at - PROMPT_SECONDS:
                raise BrokenPromise(f"who closes the last page leaves: {where} names {subject}, closed at {last}")
            if last < asked_at - HIDDEN_SECONDS - LEAVE_SECONDS - 1.0:
                raise BrokenPromise(f"nobody stays who is gone: {where} names {subject}, last there at {last}")
            self.world.reach("a member was named, while all was calm")

    def check_end(self) -> None:
        """All faults have ended, some users are gone, and nobody has come or gone for long. Raises: BrokenPromise."""
        for channel in CHANNELS:
            there = {tab.subject for tab in self.tabs.values() if tab.is_open and channel in tab.channels}
            for server in self.servers:
                members = {member.subject for member in server.node.state.members.of_channel(channel)}
                if members - there:
                    raise BrokenPromise(f"nobody stays who is gone: {server.name} has {sorted(members - there)}")
                if there - members:
                    raise BrokenPromise(f"who follows is a member: {server.name} lacks {sorted(there - members)}")
        for watcher in self.watchers:
            watcher.check_end()


class LeavesSeen:
    """Tells which members each entry has made leave, when the first server applies it."""

    def __init__(self, tabs: Tabs) -> None:
        self._tabs = tabs
        self._seen: set[tuple[str, int]] = set()

    def before(self, node: Any, entry: Any) -> Callable[[], None] | None:
        place = entry.epoch, entry.sequence
        if isinstance(entry.command, Away):
            on_question, self._tabs.on_question = self._tabs.on_question, lambda: None
            on_question()
        if not isinstance(entry.command, Leave) or place in self._seen:
            return None
        self._seen.add(place)
        had = [key for key in entry.command.members if node.state.members.member(key) is not None]

        def after() -> None:
            for key in had:
                if node.state.members.member(key) is None:
                    try:
                        self._tabs.left(key)
                    except BrokenPromise as error:
                        self._tabs.world.end_with(error)

        return after


class Client:
    """A process with one connection, which asks one server after the other."""

    def __init__(self, tabs: Tabs, name: str, hosts: list[str]) -> None:
        self._tabs = tabs
        self.name = name
        self.hosts = hosts
        self.process = Process(tabs.world, name)
        self.random = tabs.world.random("presence", name)
        self._client = HttpClient(tabs.network, self.process)
        self.cursor = ""

    @property
    def is_open(self) -> bool:
        return self.process.alive

    def close(self) -> None:
        self.process.die()
        self._client.drop()

    def ask(self, host: str, data: bytes, on_reply: Callable[[Message | None], None]) -> None:
        self._client.ask(host, data, 5.0, on_reply)

    def _process_of(self, host: str) -> Process | None:
        return next((server.process for server in self._tabs.servers if server.name == host), None)


class Tab(Client):
    """A page of a user, which polls or has a stream, and may be hidden."""

    def __init__(
        self,
        tabs: Tabs,
        name: str,
        hosts: list[str],
        *,
        subject: str,
        channels: tuple[str, ...],
        streams: bool,
        pause: float,
        poll_seconds: float,
        is_named: bool,
    ) -> None:
        """`is_named`: its token says what others are shown of the user."""
        super().__init__(tabs, name, hosts)
        self.subject = subject
        self.channels = channels
        self.is_hidden = False
        self.held_since: float | None = None
        """When its poll or stream was sent; None between two of them, and where a proxy may not pass it on."""
        self._pause = pause
        self._poll_seconds = poll_seconds
        self._public = {"presence": {"name": subject.upper()}} if is_named else {}
        self._streams = streams and "balancer" not in hosts
        self._stream: EventStream | None = None
        self.process.later(0, self._poll)

    def _headers(self) -> dict[str, str]:
        now = int(self._tabs.world.now)
        claims = {
            "iss": "app", "aud": "pushup", "sub": self.subject, "iat": now, "exp": now + 600,
            "pushup": {"poll": ["*"], **self._public},
        }  # fmt: skip
        return {"Authorization": f"Bearer {jwt.encode(claims, TOKENS.token_secrets[0], algorithm='HS256')}"}

    def _poll(self) -> None:
        host = self.random.choice(self.hosts)
        query = "&".join(f"channel={quote(channel)}" for channel in self.channels) + f"&cursor={self.cursor or 'now'}"
        is_hidden = self.is_hidden
        query += "&hidden=true" if is_hidden else ""
        sent, process = self._tabs.world.now, self._process_of(host)
        self._tabs.asks(self, is_shown=not is_hidden)
        self.held_since = None if process is None else sent
        if self._streams and self.random.random() < 0.5:
            self._open_stream(host, query)
            return

        def replied(reply: Message | None) -> None:
            self.held_since = None
            self._tabs.asks(self)
            if reply is not None and reply.status == 200:
                self.cursor = reply.json["cursor"]
                self._tabs.answered(self, sent, "" if process is None else host, process, is_hidden=is_hidden)
                self.process.later(self._pause, self._poll)
            else:
                self._tabs.world.tell(f"{self.name}: {reply and reply.first_line}")
                self.process.later(0.2 + 0.3 * self.random.random(), self._poll)

        seconds = self._poll_seconds
        target = f"/v1/poll?{query}&timeout={seconds:g}"
        self._client.ask(host, request("GET", target, **self._headers()), seconds + 3.0, replied)

    def _open_stream(self, host: str, query: str) -> None:
        opened, is_hidden = self._tabs.world.now, self.is_hidden

        def streamed(events: list[Event]) -> None:
            self.cursor = next((event.id for event in reversed(events) if event.id), self.cursor)
            # When it was sent can be known only where nothing delays it.
            sent = self._tabs.world.now - 1.0 if self._tabs.is_calm else opened
            self._tabs.answered(self, sent, "", None, is_hidden=is_hidden)

        def ended(why: str) -> None:
            self.held_since = None
            self._tabs.asks(self)
            self._stream = None
            self.process.later(0.1 + 0.3 * self.random.random(), self._poll)

        self._stream = EventStream(
            self._tabs.network, self.process, silence=15.0, slow=lambda: 0.0, on_events=streamed, on_end=ended
        )
        self._stream.open(host, f"/v1/events?{query}", self._headers())
        self.process.later(self.random.uniform(2.0, 12.0), self._leave_stream)

    def _leave_stream(self) -> None:
        if self._stream is not None:
            self._stream.drop()
            self._stream = None
            self._poll()

    def close(self, *, says: bool = False) -> None:
        """`says`: as `navigator.sendBeacon` does, which outlives the page."""
        if not self.is_open:
            return
        self._tabs.asks(self)
        super().close()
        if self._stream is not None:
            self._stream.drop()
        if says:
            self._tabs.closes(self)
            beacon = Client(self._tabs, f"beacon of {self.name}", self.hosts)
            body = {"channels": list(self.channels)}
            data = request("POST", "/v1/presence", body, **self._headers())

            def heard(reply: Message | None) -> None:
                beacon.close()
                if reply is not None and reply.status == 204:
                    self._tabs.closed(self)

            beacon.ask(self.random.choice(self.hosts), data, heard)


class Watcher(Client):
    """Reads who is there, follows the channel from that cursor, and compares what others say at the same cursor."""

    def __init__(self, tabs: Tabs, name: str, channel: str, hosts: list[str]) -> None:
        super().__init__(tabs, name, hosts)
        self.channel = channel
        self._members: dict[str, Any] = {}
        self._at: list[tuple[int, dict[str, Any]]] = []
        """The members after each message, and its sequence."""
        self._pending: list[tuple[int, dict[str, Any], str]] = []
        self.compared = 0
        self.process.later(1.0, self._begin)

    def _look(self, then: Callable[[str, dict[str, Any]], None], otherwise: Callable[[], None]) -> None:
        host, asked_at = self.random.choice(self.hosts), self._tabs.world.now

        def replied(reply: Message | None) -> None:
            if reply is None or reply.status != 200:
                self.process.later(0.5, otherwise)
                return
            found = reply.json
            members = {member["subject"]: (member["since"], member["data"]) for member in found["members"]}
            self._tabs.check_members(self.channel, members, asked_at, f"{host} at {found['cursor']}")
            then(found["cursor"], members)

        target = f"/v1/presence?channel={quote(self.channel)}"
        self._client.ask(host, request("GET", target), 3.0, replied)

    def _begin(self) -> None:
        """From a snapshot."""

        def begun(cursor: str, members: dict[str, Any]) -> None:
            self.begin_at(cursor, members)
            self._poll()

        self._look(begun, self._begin)

    def begin_at(self, cursor: str, members: dict[str, Any]) -> None:
        """Follow the channel from here."""
        self.cursor, self._members, self._pending = cursor, members, []
        self._at = [(int(cursor.rpartition("-")[2]), members)]

    def _poll(self) -> None:
        def replied(reply: Message | None) -> None:
            if reply is None or reply.status != 200:
                self.process.later(0.3, self._poll)
                return
            answer = reply.json
            epoch = answer["cursor"].rpartition("-")[0]
            if answer["gaps"] or answer["closed"] or epoch != self.cursor.rpartition("-")[0]:
                self._begin()
                return
            for message in answer["messages"]:
                self.take(int(message["id"].rpartition("-")[2]), message)
            self.cursor = answer["cursor"]
            self._compare()
            self.process.later(0, self._poll_or_look)

        target = f"/v1/poll?channel={quote(self.channel)}&cursor={self.cursor}&timeout={POLL_SECONDS:g}"
        self._client.ask(self.random.choice(self.hosts), request("GET", target), POLL_SECONDS + 3.0, replied)

    def _poll_or_look(self) -> None:
        if self.random.random() < 0.5:
            self._poll()
            return

        def looked(cursor: str, members: dict[str, Any]) -> None:
            if cursor.rpartition("-")[0] == self.cursor.rpartition("-")[0]:
                self.compare(cursor, members)
            self._poll()

        self._look(looked, self._poll)

    def take(self, sequence: int, message: dict[str, Any]) -> None:
        """Raises: BrokenPromise if it says what cannot be, as the page knows."""
        data, members = message["data"], dict(self._members)
        self._tabs.world.tell(f"{self.name}: {message['id']} {json.dumps(data)}")
        for one in data.get("joins", ()):
            if one["subject"] in members:
                raise BrokenPromise(f"who joins was not there: {message}, and {self.channel} had {members}")
            members[one["subject"]] = one["since"], one["data"]
        for one in data.get("updates", ()):
            if one["subject"] not in members:
                raise BrokenPromise(f"who changes is there: {message}, and {self.channel} had {members}")
            if one["data"] is None:
                raise BrokenPromise(f"no data are no update: {message}")
            members[one["subject"]] = one["since"], one["data"]
        for subject in data.get("leaves", ()):
            if subject not in members:
                raise BrokenPromise(f"who leaves was there: {message}, and {self.channel} had {members}")
            del members[subject]
        if data["count"] != len(members):
            raise BrokenPromise(f"messages have the number of members: {message}, and there are {members}")
        self._members = members
        self._at.append((sequence, members))

    def compare(self, cursor: str, members: dict[str, Any]) -> None:
        """A server had these members at this cursor; what is not read yet is compared later. Raises: BrokenPromise."""
        self._pending.append((int(cursor.rpartition("-")[2]), members, cursor))
        self._compare()

    def _compare(self) -> None:
        """Raises: BrokenPromise if a server had other members at some cursor than the messages say."""
        here = int(self.cursor.rpartition("-")[2])
        for sequence, members, cursor in [one for one in self._pending if one[0] <= here]:
            known = [then for at, then in self._at if at <= sequence]
            if known:
                self.compared += 1
                self._tabs.world.reach("a list of members was compared with the messages")
                if known[-1] != members:
                    raise BrokenPromise(f"lists and messages agree: at {cursor} {members}, not {known[-1]}")
        self._pending = [one for one in self._pending if one[0] > here]

    def check_end(self) -> None:
        if not self.compared:
            raise BrokenPromise(f"live again: {self.name} could compare nothing")
