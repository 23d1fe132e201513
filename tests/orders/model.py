"""K logs, each for the channels whose hash has one prefix, and nodes that follow the logs which their clients need.

A log is an order of its own: epoch, sequences, time, as the one order is today. Prefixes are text of `0` and `1`; the
log with the empty prefix has all channels. A *split* seals a log with its last entry and continues it in others, with
longer prefixes. Each of these *children* has a part of the same state and goes on from the same sequence; the parent's
name is a former name of it. So a cursor of the parent is a place in each child.

What the simulation tests already is simplified. Each call of a server is one step. A log whose server has lost
something begins a new epoch, because no epoch spans two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from hashlib import blake2b
from typing import Literal, NamedTuple

KEEP = 6
"""Messages that a channel keeps."""


class Unavailable(Exception):
    """503: try again, here or at another node."""


class Refused(Exception):
    """409: the channels of one publication belong to several logs."""


def bits_of(channel: str) -> str:
    """The hash that decides to which log a channel belongs; of the part in braces, if it has one."""
    tag = re.search(r"\{(.+?)\}", channel)
    return f"{int.from_bytes(blake2b((tag[1] if tag else channel).encode(), digest_size=2).digest(), 'big'):016b}"


class Message(NamedTuple):
    time: int
    sequence: int
    epoch: str
    channels: tuple[str, ...]
    data: str

    @property
    def id(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class Publish(NamedTuple):
    key: str
    messages: tuple[tuple[tuple[str, ...], str], ...]
    """For each message its channels and its data."""


class Split(NamedTuple):
    """The last entry of a log."""


class Entry(NamedTuple):
    sequence: int
    time: int
    tag: str
    command: Publish | Split


class Past(NamedTuple):
    """A former name of an order: the log that it was part of, and its last sequence there."""

    prefix: str
    epoch: str
    upto: int


class Channel:
    def __init__(self, messages: Iterable[Message] = (), dropped: int = 0, dropped_at: int = -1) -> None:
        self.messages = list(messages)
        self.dropped = dropped
        """The highest sequence that this channel does not keep any more."""
        self.dropped_at = dropped_at
        """Its time."""


class Place(NamedTuple):
    """One part of a cursor: everything in this log up to the sequence has been seen."""

    epoch: str
    sequence: int


class State:
    """The replicated state of one log."""

    def __init__(self, prefix: str, epoch: str, sequence: int = 0, time: int = 0, past: tuple[Past, ...] = ()) -> None:
        self.prefix = prefix
        self.epoch = epoch
        self.sequence = sequence
        self.time = time
        self.past = past
        self.began = time
        """When the order began."""
        self.channels: dict[str, Channel] = {}
        self.keys: dict[str, tuple[str, ...]] = {}

    def apply(self, entry: Entry) -> tuple[str, ...]:
        """The ids of what was published."""
        self.time = entry.time
        if isinstance(entry.command, Split):
            self.sequence = entry.sequence
            return ()
        key, messages = entry.command
        self.sequence = entry.sequence + len(messages) - 1
        if key not in self.keys:
            for sequence, (channels, data) in enumerate(messages, entry.sequence):
                self._add(Message(entry.time, sequence, self.epoch, channels, data))
            self.keys[key] = tuple(f"{self.epoch}-{entry.sequence + n}" for n in range(len(messages)))
        return self.keys[key]

    def _add(self, message: Message) -> None:
        for name in message.channels:
            channel = self.channels.setdefault(name, Channel())
            channel.messages.append(message)
            if len(channel.messages) > KEEP:
                first = channel.messages.pop(0)
                channel.dropped, channel.dropped_at = first.sequence, first.time

    def part(self, prefix: str, epoch: str) -> State:
        """What a child begins with, or a copy. Keys go to all children: nothing tells where one would come again."""
        past = self.past if epoch == self.epoch else (*self.past, Past(self.prefix, self.epoch, self.sequence))
        part = State(prefix, epoch, self.sequence, self.time, past)
        part.channels = {
            name: Channel(channel.messages, channel.dropped, channel.dropped_at)
            for name, channel in self.channels.items()
            if bits_of(name).startswith(prefix)
        }
        part.keys = dict(self.keys)
        part.began = self.began
        return part

    def after(self, names: list[str], sequence: int) -> dict[Message, list[str]]:
        """The messages after a sequence, each with those of the channels that keep it."""
        found: dict[Message, list[str]] = {}
        for name in names:
            for message in self.channels[name].messages if name in self.channels else ():
                if message.sequence > sequence:
                    found.setdefault(message, []).append(name)
        return found

    def find(self, place: Place) -> int | None:
        """The sequence up to which everything has been seen; None: this order does not know the place."""
        if place.epoch == self.epoch:
            return place.sequence
        return next((place.sequence for p in self.past if p.epoch == place.epoch and place.sequence <= p.upto), None)

    def place_at(self, sequence: int) -> tuple[str, Place]:
        """The prefix and the place, under the name that the order had there: before a split, that of the parent.

        So what is shared by several logs has one place, and their parts of a cursor move together. Right at a split,
        all of that has been seen, and each log is on its own.
        """
        for past in self.past:
            if sequence < past.upto:
                return past.prefix, Place(past.epoch, sequence)
        return self.prefix, Place(self.epoch, sequence)


class Log:
    """One log, as it is stored: a checkpoint and the entries after it."""

    def __init__(self, state: State, run: int, *, is_open: bool) -> None:
        self.checkpoint = state
        self.epoch = state.epoch
        self.entries: list[Entry] = []
        self.end = state.sequence
        self.time = state.time
        self.run = run
        """The run of the server in which it began."""
        self.is_open = is_open
        """Takes entries."""
        self.is_sealed = False
        self.is_committed = False
        """It is sealed, and its children may be open: the record that decides whether a missing child may be lost."""

    def save(self, state: State) -> None:
        """A checkpoint; the entries up to it are removed."""
        if state.sequence > self.checkpoint.sequence:
            self.checkpoint = state.part(state.prefix, state.epoch)
            self.entries = [entry for entry in self.entries if entry.sequence > state.sequence]


class Directory(NamedTuple):
    """Which logs there are, and on which server. Higher versions replace lower ones."""

    version: int
    leaves: dict[str, int]
    splitting: dict[str, dict[str, int]]
    """A log that is being split, and where its children will be."""

    def leaf(self, channel: str) -> str:
        return next(prefix for prefix in self.leaves if bits_of(channel).startswith(prefix))


class Server:
    """A Redis: logs, and a copy of the directory. Each call is one step."""

    def __init__(self) -> None:
        self.is_up = True
        self.run = 0
        self.clock = 0
        self._logs: dict[str, Log] = {}
        self.stored: Directory | None = None
        """Its copy of the directory."""

    def lose(self, *, everything: bool) -> None:
        """It restarts without some of its latest writes; `everything`: it is empty."""
        self.run += 1
        if everything:
            self._logs.clear()
            self.stored = None

    @property
    def directory(self) -> Directory | None:
        self._reach()
        return self.stored

    def learn(self, directory: Directory) -> None:
        self._reach()
        if self.stored is None or self.stored.version < directory.version:
            self.stored = directory

    def log(self, prefix: str) -> Log | None:
        """None if it has none of this run."""
        self._reach()
        log = self._logs.get(prefix)
        return log if log and log.run == self.run else None

    def begin(self, state: State, run: int, *, is_open: bool) -> None:
        """A log, if there is none yet and the server is still in this run."""
        if self.log(state.prefix) is None and self.run == run:
            self._logs[state.prefix] = Log(state, run, is_open=is_open)

    def append(self, prefix: str, epoch: str, tag: str, command: Publish | Split) -> bool:
        """Whether it was appended."""
        log = self.log(prefix)
        if log is None or log.epoch != epoch or log.is_sealed or not log.is_open:
            return False
        log.time = max(log.time, self.clock)
        log.entries.append(Entry(log.end + 1, log.time, tag, command))
        log.end += len(command.messages) if isinstance(command, Publish) else 1
        log.is_sealed = isinstance(command, Split)
        return True

    def remove(self, prefix: str) -> None:
        self._logs.pop(prefix, None)

    def _reach(self) -> None:
        if not self.is_up:
            raise Unavailable


class Appended(NamedTuple):
    """Its outcome will be among those of its node."""

    prefix: str
    tag: str


class Published(NamedTuple):
    ids: tuple[str, ...]


class Gap(NamedTuple):
    channel: str
    reason: Literal["evicted", "lost"]


class Answer(NamedTuple):
    cursor: str
    messages: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Of each its id, its data and its channels."""
    more: bool
    gaps: tuple[Gap, ...]


Vector = dict[str, Place]
"""A cursor: a place for the prefix of each log that it is about."""


def write_cursor(vector: Vector) -> str:
    """Where there is only one log, a cursor is as it is today."""
    if vector.keys() == {""}:
        return f"{vector[''].epoch}-{vector[''].sequence}"
    return "~".join(f"{prefix}.{place.epoch}.{place.sequence}" for prefix, place in sorted(vector.items()))


def read_cursor(text: str) -> Vector:
    """A cursor of today is a place in the log that has all channels."""
    if "-" in text:
        epoch, _, sequence = text.partition("-")
        return {"": Place(epoch, int(sequence))}
    parts = [part.split(".") for part in text.split("~")]
    return {prefix: Place(epoch, int(sequence)) for prefix, epoch, sequence in parts}


Phase = Literal["open", "sealed", "committed", "lost"]


class Node:
    def __init__(self, servers: list[Server], new_name: Callable[[], str]) -> None:
        self.servers = servers
        self.replicas: dict[str, State] = {}
        """The states of the logs that this node follows."""
        self.outcomes: dict[str, tuple[str, ...]] = {}
        """What became of the publications of this node, by tag."""
        self._new_name = new_name
        """A name that no epoch and no entry has had; later ones are later."""
        self._directory: Directory | None = None
        self._tags: set[str] = set()

    # Where channels are.

    def refresh(self, *, from_all: bool = False) -> Directory:
        """The newest directory that can be reached. `from_all`: or nothing, if a server cannot be.

        A server that lost its copy gets one only from a node that has just heard from all the others: an older copy
        could make others believe that a log which was split is still one.
        """
        copies = {server: server.directory for server in self.servers if server.is_up}
        if from_all and len(copies) < len(self.servers):
            raise Unavailable
        for copy in copies.values():
            if copy and (self._directory is None or copy.version > self._directory.version):
                self._directory = copy
        if self._directory is None:
            if len(copies) < len(self.servers):
                raise Unavailable  # one of the others may know
            self._directory = Directory(1, {"": 0}, {})
        if len(copies) == len(self.servers):
            for server in copies:
                server.learn(self._directory)
        return self._directory

    def leaf(self, channel: str) -> str:
        """The prefix of the log in which this channel is now."""
        directory = self._directory or self.refresh()
        prefix = directory.leaf(channel)
        if prefix in directory.splitting and self._phase(prefix) in ("committed", "lost"):
            return next(child for child in directory.splitting[prefix] if bits_of(channel).startswith(child))
        return prefix

    def _server(self, prefix: str) -> Server:
        directory = self._directory or self.refresh()
        for children in directory.splitting.values():
            if prefix in children:
                return self.servers[children[prefix]]
        if prefix not in directory.leaves:
            raise Unavailable
        return self.servers[directory.leaves[prefix]]

    def _phase(self, parent: str) -> Phase:
        """How far the split of this log is."""
        log = self._server(parent).log(parent)
        if log is None:
            return "lost"
        if not log.is_sealed:
            return "open"
        return "committed" if log.is_committed else "sealed"

    # Following.

    def follow(self, prefix: str) -> State:
        """The state of a log, up to its present end. Raises: Unavailable."""
        server = self._server(prefix)
        log = server.log(prefix)
        if log is None or not log.is_open:
            log = self._recover(prefix)
        state = self.replicas.get(prefix)
        if state is None or state.epoch != log.epoch or state.sequence < log.checkpoint.sequence:
            state = self.replicas[prefix] = log.checkpoint.part(prefix, log.epoch)
        self.read(prefix)
        return state

    def read(self, prefix: str, at_most: int | None = None) -> None:
        """The next entries of a log that this node follows, if there are any."""
        log, state = self._server(prefix).log(prefix), self.replicas[prefix]
        if log is None or log.epoch != state.epoch or log.checkpoint.sequence > state.sequence:
            return
        for entry in [entry for entry in log.entries if entry.sequence > state.sequence][:at_most]:
            ids = state.apply(entry)
            if entry.tag in self._tags:
                self.outcomes[entry.tag] = ids
            if isinstance(entry.command, Split):
                self.refresh()

    def _recover(self, prefix: str) -> Log:
        """The log is not where it was: it was split, its server has lost it, or it is a child that is not open yet."""
        self.replicas.pop(prefix, None)
        directory = self.refresh(from_all=True)
        if prefix in directory.splitting:
            raise Unavailable  # its children have the rest
        server = self._server(prefix)
        log = server.log(prefix)
        if log is None:
            server.begin(State(prefix, self._new_name(), time=self._time(server)), server.run, is_open=True)
            log = server.log(prefix)
            assert log
        log.is_open = True
        return log

    def _time(self, server: Server) -> int:
        """The least time of an order that begins here."""
        return server.clock

    def unfollow(self, prefix: str) -> None:
        self.replicas.pop(prefix, None)

    def save(self, prefix: str) -> None:
        """A checkpoint of this log."""
        state, log = self.replicas[prefix], self._server(prefix).log(prefix)
        if log and log.epoch == state.epoch:
            log.save(state)

    # Splitting. Any node may do this, several at a time; one that dies is replaced by any other.

    def split(self) -> Generator[None]:
        """What is left to do of a split, in steps. Raises: Unavailable."""
        directory = self.refresh(from_all=True)
        for parent, places in directory.splitting.items():
            children = {prefix: self.servers[number] for prefix, number in places.items()}
            runs = {prefix: server.run for prefix, server in children.items()}  # before the phase: see `begin`
            yield
            source = self._server(parent)
            if self._phase(parent) == "open":
                source.append(parent, self.follow(parent).epoch, self._new_name(), Split())
                yield
            if self._phase(parent) == "sealed":
                state = self.follow(parent)
                yield
                for prefix, server in children.items():
                    server.begin(state.part(prefix, self._new_name()), runs[prefix], is_open=False)
                    yield
                log = source.log(parent)
                if log and log.is_sealed and all(server.log(prefix) for prefix, server in children.items()):
                    log.is_committed = True
                yield
            if self._phase(parent) in ("committed", "lost"):
                for prefix in children:
                    self.follow(prefix)
                    yield
                leaves = {prefix: number for prefix, number in directory.leaves.items() if prefix != parent}
                self._directory = Directory(directory.version + 1, leaves | places, {})
                self.refresh(from_all=True)
                yield
                source.remove(parent)
                self.replicas.pop(parent, None)

    # Publishing.

    def publish(self, command: Publish) -> Appended | Published:
        """Raises: Unavailable, Refused.

        What came of an earlier attempt may be unknown, and its log split since. So a publication is refused only once
        none of the logs knows its key.
        """
        leaves = sorted({self.leaf(channel) for channels, _ in command.messages for channel in channels})
        if len(leaves) > 1:
            for state in map(self.follow, leaves):
                if command.key in state.keys:
                    return Published(state.keys[command.key])
            raise Refused
        state = self.replicas.get(leaves[0]) or self.follow(leaves[0])
        tag = self._new_name()
        if not self._server(leaves[0]).append(leaves[0], state.epoch, tag, command):
            self.refresh()
            self.follow(leaves[0])
            raise Unavailable
        self._tags.add(tag)
        return Appended(leaves[0], tag)

    # Polling.

    def answer(self, channels: tuple[str, ...], cursor: str, limit: int) -> Answer:
        """What comes after the cursor: `earliest`, `now`, or of an earlier answer. Raises: Unavailable.

        Before a split, the logs' parts of the cursor are one; so no log may be left out then, or a message on channels
        of several logs could come twice. After it, a log that cannot be reached holds back no other.
        """
        vector = {} if cursor in ("earliest", "now") else read_cursor(cursor)
        parts: list[Part] = []
        kept: Vector = {}
        gaps: list[Gap] = []
        by_leaf: dict[str, list[str]] = {}
        for channel in channels:
            by_leaf.setdefault(self.leaf(channel), []).append(channel)
        for leaf, names in sorted(by_leaf.items()):
            if any(prefix != leaf and prefix.startswith(leaf) for prefix in vector):
                self.refresh()  # the client knows of a split that this node does not
                raise Unavailable
            prefix = max((prefix for prefix in vector if leaf.startswith(prefix)), key=len, default="none")
            try:
                state = self._current(leaf, vector.get(prefix))
            except Unavailable:
                if prefix != leaf:
                    raise
                kept[leaf] = vector[leaf]
                continue
            if not vector:
                after = 0 if cursor == "earliest" else state.sequence
            elif (place := state.find(vector[prefix])) is None:
                after = 0
                gaps += [Gap(name, "lost") for name in names]
            else:
                after = place
                gaps += [Gap(n, "evicted") for n in names if n in state.channels and state.channels[n].dropped > after]
            parts.append(Part(state, after, state.after(names, after)))
        if not parts:
            raise Unavailable
        taken, places = first_page(parts, limit)
        messages = [
            (m.id, m.data, tuple(c for c in channels if any(c in p.messages.get(m, ()) for p in parts))) for m in taken
        ]
        more = any(m not in taken for part in parts for m in part.messages)
        return Answer(write_cursor(kept | places), tuple(messages), more, tuple(gaps))

    def _current(self, leaf: str, place: Place | None) -> State:
        """The state of a log, far enough for this place in it; up to its end if there is none."""
        state = self.replicas.get(leaf)
        if state is None or place is None:
            return self.follow(leaf)
        known = state.find(place)
        if known is None or known > state.sequence:
            state = self.follow(leaf)  # what this node knows is not the newest, or it would know this place
        return state


class Part(NamedTuple):
    """What one log has for a poll."""

    state: State
    after: int
    messages: dict[Message, list[str]]
    """The messages after it, and which of the channels keep them."""


def first_page(parts: list[Part], limit: int) -> tuple[list[Message], Vector]:
    """The first messages of all logs, in the order of their times, and the cursor after them.

    Of a log that has more, the client has seen all up to the last message of the page: if that is another log's, up to
    where the two were one.
    """
    taken = sorted({message for part in parts for message in part.messages})[:limit]
    last = next((part.state for part in parts if taken and taken[-1] in part.messages), None)
    vector: Vector = {}
    for state, after, messages in parts:
        upto = state.sequence
        if any(message not in taken for message in messages):
            shared = [past.upto for past in state.past if last and past in last.past]
            own = [message.sequence for message in messages if message in taken]
            upto = max(after, *own, min(taken[-1].sequence, max(shared, default=0)))
        prefix, place = state.place_at(upto)
        vector[prefix] = max(place, vector.get(prefix, place), key=lambda place: place.sequence)
    return taken, vector
