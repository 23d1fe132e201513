"""The functions that events invoke at a member, the same for both drivers: for a request, a message, and each timeout.

None of them blocks, and none may run while another does. That is the drivers' business.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections import Counter, defaultdict

import msgspec

from loadtest.mishra import requests
from loadtest.mishra.core.effects import Delivered, Effect, Ended, Joined, Left, Outcome, Send
from loadtest.mishra.core.member import Member
from loadtest.mishra.core.messages import Update
from loadtest.mishra.core.settings import Settings, Timeout
from loadtest.mishra.requests import Ask, Broadcast, Costs, Measure, Report
from loadtest.reports.results import percentile

Address = tuple[str, int]

SAMPLES = 50_000
"""The most times that are kept of each kind; means are of all."""

DATAGRAM = 65_536

_AT = struct.Struct("d")


def asked_at(update: Update) -> float:
    """When the client asked for this update."""
    at: float = _AT.unpack_from(update.data)[0]
    return at


class Times:
    """Some durations, s: their mean, and a part of them for the percentile."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._samples: list[float] = []

    def add(self, seconds: float) -> None:
        self.count += 1
        self._sum += seconds
        if len(self._samples) < SAMPLES:
            self._samples.append(seconds)

    @property
    def mean(self) -> float:
        return self._sum / self.count if self.count else 0.0

    def high(self) -> float:
        return percentile(self._samples, 0.99)


class Service:
    """A member, its sockets, and what it measures. `peers`: the address of each member of the team.

    `selects`: how often the event loop has called `select` in this measurement. `traced` and `example`: what a `trace`
    has found.
    """

    def __init__(
        self, member: int, *, peers: list[Address], messages: socket.socket, clients: socket.socket, settings: Settings
    ) -> None:
        self.messages = messages
        self.clients = clients
        self.core = Member(member, boot=int(time.time()), settings=settings, now=time.monotonic())
        self._peers = peers
        self._costs: Costs | None = None
        self._events = 0
        self.selects = 0
        self.traced: defaultdict[str, float] = defaultdict(float)
        self.example: list[tuple[str, float, int]] = []
        self._left: Counter[str] = Counter()
        self._begin(0.0)

    def client_request(self, data: bytes, address: Address) -> None:
        """A client asks for something. What is not understood is ignored."""
        self._count_event()
        try:
            request = requests.decode_request(data)
        except msgspec.DecodeError:
            return
        match request:
            case Broadcast(order, atomicity, at, payload):
                sequence, effects = self.core.propose(time.monotonic(), _AT.pack(at) + payload, order, atomicity)
                if sequence is None:
                    self._refused += 1
                else:
                    self._asked_at[sequence] = at
                    self._accepted += 1
                self._carry_out(effects)
            case Measure(until):
                self._begin(until)
            case Ask(token):
                self.clients.sendto(requests.encode(self._report(token)), address)

    def message(self, data: bytes) -> None:
        """Another member has sent something."""
        self._count_event()
        self._carry_out(self.core.receive(time.monotonic(), data))

    def timeout(self, timeout: Timeout) -> None:
        """A timeout may have passed; it may have been moved meanwhile, too."""
        now = time.monotonic()
        if self.core.deadlines.get(timeout, now + 1) <= now:
            self._count_event()
            self._carry_out(self.core.expire(timeout, now))

    def _count_event(self) -> None:
        """Count events, messages and resources until the load ends; the protocol goes on after it."""
        if self._costs is None and time.monotonic() > self._until:
            self._costs = self._costs_now()
        self._events += 1

    def _costs_now(self) -> Costs:
        usage, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        return Costs(
            sent=dict(self.core.sent),
            events=self._events,
            switches=usage.ru_nvcsw + usage.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
            cpu=usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
            selects=self.selects,
        )

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for member in effect.to:
                    self._send(effect.data, self._peers[member])
            elif isinstance(effect, Delivered):
                now = time.monotonic()
                self._delivery.add(now - asked_at(effect.update))
                self._in_time += now <= self._until
            elif isinstance(effect, Ended):
                asked = self._asked_at.pop(effect.sequence, None)
                if asked is not None:
                    self._outcomes[effect.outcome.name] += 1
                    if effect.outcome is Outcome.STABLE:
                        self._stability.add(time.monotonic() - asked)
            elif isinstance(effect, Joined):
                self._views += 1
            elif isinstance(effect, Left):
                self._left[effect.reason] += 1

    def _send(self, data: bytes, address: Address) -> None:
        try:
            self.messages.sendto(data, address)
        except OSError:  # the network loses a datagram: nobody listens there, or a buffer is full
            self._unsent += 1

    def _begin(self, until: float) -> None:
        """Measure anew."""
        self._until = until
        self._costs = None
        self._events = self.selects = 0
        self._left.clear()
        self._accepted = self._refused = self._in_time = self._views = self._unsent = 0
        self._asked_at: dict[int, float] = {}
        self._delivery, self._stability = Times(), Times()
        self._outcomes: Counter[str] = Counter()
        self.core.sent.clear()
        self.traced.clear()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    def _report(self, token: int) -> Report:
        state, costs = self.core.state(), self._costs or self._costs_now()
        return Report(
            token=token, in_group=state.in_group, view=state.view, members=len(state.members),
            accepted=self._accepted, refused=self._refused, delivered_in_time=self._in_time,
            delivery_count=self._delivery.count, delivery_mean=self._delivery.mean, delivery_p99=self._delivery.high(),
            stability_count=self._stability.count, stability_mean=self._stability.mean,
            stability_p99=self._stability.high(), outcomes=dict(self._outcomes), views=self._views,
            left=dict(self._left), costs=costs, traced=dict(self.traced),
            example=self.example,
        )  # fmt: skip
