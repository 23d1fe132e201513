"""The simulated network: connections that deliver bytes in order, late, or not at all.

A connection is a pair of `End`s. What one end sends arrives at the other after the delay of the link between their
hosts. A link can be *clogged*, in one direction or in both: what is sent is kept, and arrives once it is released. It
can be *cut*: its connections are reset, and new ones fail.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tests.simulation.world import Process, World

WINDOW_BYTES = 256 * 1024
"""How much may be under way to somebody who does not read, before the sender has to wait."""


class End:
    """One end of a connection, used by a process. Who uses it sets the callbacks; they are its turns."""

    def __init__(self, network: Network, host: str, process: Process | None) -> None:
        self.network = network
        self.host = host
        self.process = process
        self.peer: End
        self.number = 0
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[], None] = lambda: None
        """The other end sends no more."""
        self.on_lost: Callable[[], None] = lambda: None
        """The connection was reset."""
        self.on_room: Callable[[], None] = lambda: None
        """More can be sent again."""
        self.window = WINDOW_BYTES
        """How much may be under way before it has to wait."""
        self.is_open = True
        self.has_ended = False
        """Whether this end sends no more."""
        self.unread = 0
        """Bytes sent by this end that the other end's user has not taken."""
        self.reads = True
        """Whether its user takes what arrives; else it stays on the way."""
        self.arrives_at = 0.0
        """When the last thing that was sent arrives; nothing overtakes it."""
        self._kept: list[tuple[str, bytes]] = []  # clogged
        self._arrived: list[bytes] = []  # not read yet

    @property
    def room(self) -> int:
        """How many bytes can be sent now."""
        return max(0, self.window - self.unread)

    def send(self, data: bytes) -> None:
        if self.is_open and not self.has_ended:
            self.network.on_send(self, data)
            self.unread += len(data)
            self._pass("data", data)

    def end(self) -> None:
        """Send no more."""
        if self.is_open and not self.has_ended:
            self.has_ended = True
            self._pass("end")

    def close(self) -> None:
        """Close this end: the other one sees an end, or a reset if it still sends."""
        if self.is_open:
            self.end()
            self._forget()

    def reset(self) -> None:
        """Break the connection."""
        if self.is_open:
            self._forget()
            self._pass("reset")

    def _forget(self) -> None:
        self.is_open = False
        self.network.connections.pop(min(self.number, self.peer.number), None)

    def read(self, reads: bool = True) -> None:
        """Take what arrives from now on, or leave it."""
        self.reads = reads
        if reads:
            arrived, self._arrived = self._arrived, []
            for data in arrived:
                self._take(data)

    # On the way.

    def _pass(self, kind: str, data: bytes = b"") -> None:
        link = self.network.link(self.host, self.peer.host)
        if link.clogged or self._kept:
            self._kept.append((kind, data))
            link.waiting.append(self)
            return
        world = self.network.world
        self.arrives_at = max(self.arrives_at, world.now + link.delay())
        peer = self.peer
        world.at(self.arrives_at, lambda: peer.arrive(kind, data), peer.process)

    def release(self) -> None:
        """The link is free again."""
        kept, self._kept = self._kept, []
        for kind, data in kept:
            self._pass(kind, data)

    def arrive(self, kind: str, data: bytes) -> None:
        """Something from the other end arrives here."""
        if not self.is_open:
            if kind == "data":
                self.peer.arrive("reset", b"")  # nobody is there any more
            return
        if kind == "data":
            if self.reads:
                self._take(data)
            else:
                self._arrived.append(data)
        elif kind == "end":
            self.on_end()
        else:
            self._forget()
            self.on_lost()

    def _take(self, data: bytes) -> None:
        had_room = self.peer.room > 0
        self.peer.unread -= len(data)
        self.on_data(data)
        if not had_room and self.peer.room > 0 and self.peer.is_open:
            peer = self.peer
            self.network.world.later(0, lambda: peer.on_room(), peer.process)


class Link:
    """One direction between two hosts."""

    def __init__(self, network: Network, name: str) -> None:
        self._random = network.world.random("link", name)
        self.seconds = 0.0005
        """The usual delay; it varies from half to twice of it."""
        self.clogged = False
        self.cut = False
        self.waiting: list[End] = []

    def delay(self) -> float:
        return self.seconds * (0.5 + 1.5 * self._random.random())

    def release(self) -> None:
        self.clogged = False
        waiting, self.waiting = self.waiting, []
        for end in waiting:
            end.release()


def _end_if_dead(end: End) -> None:
    """Reset a connection whose process has died while it was being made: nobody else would."""
    if end.process is not None and not end.process.alive:
        end.reset()


class Network:
    """All hosts, listeners and connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, tuple[Process, Callable[[End], None]]] = {}
        self.connections: dict[int, End] = {}
        """Every open connection, by the number of its first end."""
        self.on_send: Callable[[End, bytes], None] = lambda end, data: None
        """Called with what an end sends, before it is under way; for faults."""
        self._numbers = count(1)

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self, f"{source}>{target}")
        return link

    def both(self, one: str, other: str) -> tuple[Link, Link]:
        return self.link(one, other), self.link(other, one)

    def listen(self, host: str, process: Process, accept: Callable[[End], None]) -> None:
        """Accept connections; they end with the process."""
        self._listeners[host] = (process, accept)
        process.on_death.append(lambda: self.close_all(process))

    def stop_listening(self, host: str, process: Process) -> None:
        if host in self._listeners and self._listeners[host][0] is process:
            del self._listeners[host]

    def close_all(self, process: Process) -> None:
        """Reset every connection of a process that has died."""
        self.stop_listening(process.name, process)
        for end in [e for c in list(self.connections.values()) for e in (c, c.peer)]:
            if end.process is process:
                end.reset()

    def connect(
        self, source: str, process: Process | None, target: str, made: Callable[[End], None], failed: Callable[[], None]
    ) -> None:
        """Open a connection from a host to another; one of the two is called."""
        there, back = self.both(source, target)
        world = self.world

        def arrive() -> None:
            found = self._listeners.get(target)
            if there.cut or there.clogged or back.clogged or found is None or not found[0].alive:
                world.later(1.0 if there.clogged or back.clogged else back.delay(), failed, process)
                return
            listener, accept = found
            one, other = End(self, source, process), End(self, target, listener)
            one.peer, other.peer = other, one
            one.number, other.number = next(self._numbers), next(self._numbers)
            self.connections[one.number] = one
            made_at = world.now + back.delay()
            one.arrives_at = other.arrives_at = made_at

            def take() -> None:
                if other.is_open:  # or it was reset before the listener had looked
                    accept(other)

            if listener.paused:  # the kernel accepts
                listener.postponed.append(take)
            else:
                world.at(world.now, take, listener)
            world.at(made_at, lambda: made(one), process)
            world.at(made_at, lambda: _end_if_dead(one))

        if process is None or process.alive:
            world.later(there.delay(), arrive)

    def cut(self, one: str, other: str) -> None:
        """No new connections between the two, and those that exist are reset."""
        for link in self.both(one, other):
            link.cut = True
        for end in list(self.connections.values()):
            if {end.host, end.peer.host} == {one, other}:
                end.reset()
                end.peer.reset()
                for each in (end, end.peer):
                    self.world.later(0, each.on_lost, each.process)

    def heal(self) -> None:
        """Release every link."""
        for link in list(self._links.values()):
            link.cut = False
            link.seconds = min(link.seconds, 0.002)
            link.release()
