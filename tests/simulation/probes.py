"""Asks every node for what it takes for the present: after `stable`, none may answer without the entry.

Each is asked in three ways: `GET /v1/cursor`, a poll without a cursor, and a poll with one, both with `timeout=0`. A
node that cannot know whether it is up to date may refuse; it may not answer from the past.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadtest.history.clients import Publication
from loadtest.history.events import BrokenPromise
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.server import Server
from tests.simulation.steps import NAMES
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

EVERY_SECONDS = 0.25
TIMEOUT_SECONDS = 4.0
CHANNELS = "&".join(f"channel={name}" for name in NAMES if name.isascii() and name.isalpha())


class Probes:
    """One client for each node. It begins with the first publication that was stable."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._last: Publication | None = None  # the last one that was stable
        self._probes: list[_Probe] = []

    def stable(self, publication: Publication) -> None:
        """This publication was acknowledged as stable just now."""
        if not self._simulation.plan.setup.get("probes"):
            return
        place = self._simulation.checker.order.place
        if self._last is None:
            self._probes = [_Probe(self._simulation, self, server) for server in self._simulation.servers]
            for probe in self._probes:
                probe.ask()
        if self._last is None or place(self._last.ids[-1]) < place(publication.ids[-1]):
            self._last = publication

    def leave(self) -> None:
        """Ask no more."""
        for probe in self._probes:
            probe.leave()

    @property
    def last(self) -> Publication | None:
        """What every answer to a request that is sent now must include."""
        return self._last if self._simulation.checker.lossless else None


class _Probe:
    def __init__(self, simulation: Simulation, probes: Probes, server: Server) -> None:
        self._simulation = simulation
        self._probes = probes
        self._server = server
        self._process = Process(simulation.world, f"probe of {server.name}")
        self._client = HttpClient(simulation.network, self._process)
        self._random = simulation.world.random("probe", server.name)
        self._cursor = ""

    def ask(self) -> None:
        target = self._random.choice(("/v1/cursor", f"/v1/poll?{CHANNELS}&cursor=now&timeout=0", ""))
        if not target and self._cursor:
            target = f"/v1/poll?{CHANNELS}&cursor={self._cursor}&timeout=0"
        expected = self._probes.last
        world, sent_at = self._simulation.world, self._simulation.world.now
        if self._server.is_up and self._server.reported_at == -math.inf and self._server.node.cursor.epoch:
            world.reach("a node had yet to report when it was asked for the present")

        def replied(reply: Message | None) -> None:
            if reply is not None and reply.status == 200:
                self._check(target or "/v1/cursor", reply, expected, sent_at)
            elif reply is not None:
                world.reach("a node refused to say what is the present")
            self._process.later(EVERY_SECONDS * (0.5 + self._random.random()), self.ask)

        self._client.ask(self._server.name, request("GET", target or "/v1/cursor"), TIMEOUT_SECONDS, replied)

    def leave(self) -> None:
        self._process.die()
        self._client.drop()

    def _check(self, target: str, reply: Message, expected: Publication | None, sent_at: float) -> None:
        simulation, answer = self._simulation, reply.json
        place = simulation.checker.order.place
        if expected is not None and self._probes.last is not None and not answer.get("more"):
            simulation.world.reach("a node said what is the present after a publication was stable")
            if place(answer["cursor"]) < place(expected.ids[-1]):
                raise BrokenPromise(
                    f"stable: {expected.name} ({expected.ids[-1]}) was, and {self._server.name} answered {target} with "
                    f"{answer['cursor']}, {simulation.world.now - sent_at:.2f} s after it was asked"
                )
        self._cursor = answer["cursor"]
