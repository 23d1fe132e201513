"""Publishers and subscribers, as processes of their own: what they send, what they are told, and when they give up."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import quote

from tests.simulation.checker import Checker, Follower, Publication
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.world import BrokenPromise, Process, World

RETRY_SECONDS = 0.3
PUBLISHER_SECONDS = 8.0
"""How long a publisher waits for a response."""

ATTEMPTS = 12
"""How often a publisher with an idempotency key tries."""

PROMPT_SECONDS = 1.0
"""In this time a held poll is answered with a message that was acknowledged, where there is no fault."""

EMPTY_AT_ONCE = 10
"""So many answers without anything, each at once although the poll had a timeout, are a loop. A drain gives a few."""


class Publisher:
    """Makes one publication after the other."""

    def __init__(self, world: World, network: Network, name: str, checker: Checker) -> None:
        self.world = world
        self.process = Process(world, name)
        self._network = network
        self._checker = checker
        self._number = 0

    def publish(
        self, host: str, channels: list[tuple[str, ...]], key: str | None, ack: str, name: str | None = None
    ) -> None:
        """Publish a message for each of these groups of channels."""
        self._number += 1
        publication = Publication(name or f"{self.process.name}.{self._number}", channels, key, ack)
        self._checker.published(publication)
        self._try(host, publication, 1)

    def _try(self, host: str, publication: Publication, attempt: int) -> None:
        client = HttpClient(self._network, self.process)
        messages = [
            {"channels": list(c), "data": d} for c, d in zip(publication.channels, publication.data, strict=True)
        ]
        body: dict[str, object] = {**messages[0]} if len(messages) == 1 else {"messages": messages}
        if publication.ack != "accepted":
            body.update(ack=publication.ack, ack_timeout=3.0)
        headers = {} if publication.key is None else {"Idempotency_Key": publication.key}
        data = request("POST", "/v1/messages", body, **headers)
        self.world.tell(f"{publication.name}: publishes on {publication.channels} at {host}")

        began = self.world.now

        def replied(reply: Message | None) -> None:
            client.drop()
            text = "no reply" if reply is None else f"{reply.status} {reply.body.decode()}"
            self.world.tell(f"{publication.name}: {text}")
            if reply is not None and reply.status == 201:
                if attempt > 1 and reply.json["time"] < began - 0.1:
                    self.world.reach("a key was tried again after its publication had succeeded")
                self._checker.acknowledged(publication, reply.json)
            elif reply is not None and 400 <= reply.status < 500:
                publication.refused = True
            elif publication.key is not None and attempt < ATTEMPTS:
                self.process.later(RETRY_SECONDS * attempt, lambda: self._try(host, publication, attempt + 1))
            else:
                publication.given_up = True

        client.ask(host, data, PUBLISHER_SECONDS, replied)


class Subscriber:
    """Polls, and continues with the cursor of each answer that it got."""

    def __init__(
        self, world: World, network: Network, name: str, checker: Checker, channels: tuple[str, ...], cursor: str
    ) -> None:
        self.world = world
        self.process = Process(world, name)
        self.name = name
        self.chain = Follower(name, channels, cursor)
        self._random = world.random("subscriber", name)
        self._network = network
        self._checker = checker
        self._client = HttpClient(network, self.process)
        self.hosts = ["balancer"]
        self.timeout = 10.0
        self.limit = 100
        self.slow = 0.0
        """Seconds before it reads an answer."""
        self.must_be_in_time = False
        """Whether a late answer is a broken promise: there is no fault that excuses it."""
        self.prompt_from = math.inf
        """From this time on, a late delivery is a broken promise as well."""
        self._asked_timeout = 0.0
        self._empty_at_once = 0
        self.pause = 0.0
        """Seconds between an answer and the next poll."""
        self.sleeps_until = 0.0
        checker.followers.append(self.chain)

    def start(self) -> None:
        self.process.later(0, self._poll)

    def sleep(self, seconds: float) -> None:
        """Break off, and come back with the old cursor."""
        self.sleeps_until = self.world.now + seconds
        self._client.drop()
        self.process.later(seconds, self._poll)

    def leave(self) -> None:
        """End, with whatever is under way."""
        self.process.die()
        self._client.drop()

    def fork(self, name: str) -> Subscriber:
        """Another subscriber that continues from the same cursor, and has received the same."""
        other = Subscriber(self.world, self._network, name, self._checker, self.chain.channels, self.chain.cursor)
        other.chain.copy(self.chain)
        other.hosts, other.timeout, other.limit = self.hosts, self.timeout, self.limit
        return other

    def _poll(self) -> None:
        if self._client.is_busy or self.world.now < self.sleeps_until - 1e-6:
            return
        query = "&".join(f"channel={quote(name, safe='')}" for name in self.chain.channels)
        target = f"/v1/poll?{query}&cursor={self.chain.cursor}&timeout={self.timeout:g}&limit={self.limit}"
        host = self._random.choice(self.hosts)
        self.chain.polled_at = self.world.now
        self._asked_timeout = self.timeout
        self._client.ask(host, request("GET", target), self.timeout + 10.0, self._replied, self.slow)

    def _replied(self, reply: Message | None) -> None:
        wait = self.pause
        held = self.world.now - self.chain.polled_at
        if self.must_be_in_time and held > self._asked_timeout + self.slow + 1.5:
            raise BrokenPromise(
                f"holds end in time: {self.name} asked for {self._asked_timeout:g} s, and was held for {held:.1f} s"
            )
        if reply is None or reply.status != 200:
            text = "no reply" if reply is None else f"{reply.status} {reply.body.decode()}"
            if text != self.chain.last_trouble:
                self.chain.last_trouble = text
                self.world.tell(f"{self.name}: at {self.chain.cursor or 'the beginning'}: {text}")
            wait = RETRY_SECONDS * (0.5 + self._random.random())
        else:
            self.chain.last_trouble = ""
            answer = reply.json
            if answer["messages"] or answer["gaps"] or answer["closed"]:
                self.world.tell(f"{self.name}: at {self.chain.cursor or 'the beginning'}: {reply.body.decode()}")
            self._checker.answered(self.chain, answer)
            self._check_promptness(answer, held)
            if not answer["messages"] and not answer["gaps"] and self.timeout == 0:
                wait = max(wait, 0.25)
        self.process.later(wait, self._poll)

    def _check_promptness(self, answer: Any, held: float) -> None:
        """Messages come as soon as they are acknowledged; an answer without any does not come before its time."""
        for message in answer["messages"]:
            publication = self._checker.publications[message["data"].rpartition("/")[0]]
            could_come_at = max(self.chain.polled_at, publication.acknowledged_at)
            late = self.world.now - could_come_at - self.slow
            if publication.ids and publication.began_at >= self.prompt_from and late > PROMPT_SECONDS:
                raise BrokenPromise(
                    f"delivered at once: {self.name} got {message['data']} {late:.1f} s after it was acknowledged"
                )
        is_empty = not answer["messages"] and not answer["gaps"] and not answer["closed"]
        is_early = self._asked_timeout >= 1 and held - self.slow < 0.1
        self._empty_at_once = self._empty_at_once + 1 if is_empty and is_early else 0
        if self._empty_at_once > EMPTY_AT_ONCE:
            raise BrokenPromise(
                f"no hot loop: {self.name} was answered {self._empty_at_once} times at once, each time without anything"
            )
