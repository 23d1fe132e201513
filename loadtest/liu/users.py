"""locust users that pull, long-poll, follow event streams and publish (PushUp §4). Only locust imports this file.

A message carries [number, creation time, payload], so that subscribers can tell how long it took, and whether any is
missing. Each subscriber starts at the current cursor and advances it with each response.
"""

from __future__ import annotations

import json
import math
import random
import time
from argparse import Namespace
from itertools import count
from typing import Any

import gevent
import msgspec
from locust import User, constant, task
from locust.exception import StopUser
from locust.runners import STATE_RUNNING

from loadtest.liu.tally import Tallies
from loadtest.load.counted_client import CountedClient

RETRY_SECONDS = 0.1
"""Delay before a subscriber retries a failed request."""

LISTENING_SECONDS = 20.0
"""How long the publisher waits for all subscribers to listen."""


class _Message(msgspec.Struct):
    channels: list[str]
    data: Any


class _Answer(msgspec.Struct):
    cursor: str
    messages: list[_Message]


class _Event(msgspec.Struct):
    """A message has no `event`; an `id` alone only moves the cursor."""

    event: str = ""
    id: str = ""
    data: msgspec.Raw = msgspec.Raw()


class _AnswerReader:
    """Parses answers; caches the last one, since most are equal to it."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Answer)
        self._body = b""
        self._answer = _Answer("", [])

    def read(self, body: bytes) -> _Answer:
        if body != self._body:
            self._answer = self._decoder.decode(body)
            self._body = body
        return self._answer


class Subscriber(User):
    """Polls its channels with its cursor. Subclasses define how long a poll is held, and the wait between polls."""

    abstract = True
    tallies: Tallies
    numbers = count()
    answers = _AnswerReader()
    events = msgspec.json.Decoder(_Event)
    messages = msgspec.json.Decoder(_Message)
    listens = False

    def on_start(self) -> None:
        options = _options(self)
        # Start at random times, so that polls are spread over the publish interval.
        gevent.sleep(random.random() * self.start_seconds(options))  # noqa: S311
        self.client = CountedClient(_host(self), closing=bool(options.close_connections))
        first = next(self.numbers)
        self.channels = [_channel(options, first + further) for further in range(options.channels_each)]
        self.timeout = self.poll_seconds(options)
        self.query = "".join(f"channel={channel}&" for channel in self.channels)
        self.seen = dict.fromkeys(self.channels, 0)
        while (body := self._get("cursor", "/v1/cursor")) is None:
            pass  # the server is not up yet
        self.cursor: str = json.loads(body)["cursor"]
        self._listen(1)
        self.listens = True

    def on_stop(self) -> None:
        if self.listens:
            self._listen(-1)

    def _listen(self, by: int) -> None:
        listening = self.tallies.listening
        for channel in self.channels:
            listening[channel] = listening.get(channel, 0) + by

    def start_seconds(self, options: Namespace) -> float:
        """The period over which these users start."""
        return 0.1

    def poll_seconds(self, options: Namespace) -> float:
        """How long a poll may be held."""
        raise NotImplementedError

    @task
    def poll(self) -> None:
        body = self._get("poll", f"/v1/poll?{self.query}cursor={self.cursor}&timeout={self.timeout:g}")
        if body is None:
            return
        now = time.time()
        answer = self.answers.read(body)
        self.cursor = answer.cursor
        for message in answer.messages:
            self._received(message, now)

    def _get(self, name: str, target: str) -> bytes | None:
        """The body of the response. On failure, waits `RETRY_SECONDS` and returns None."""
        client = self.client
        error: Exception | None = None
        body = b""
        began, sent, received = time.time(), client.sent, client.received
        try:
            status, body = client.get(target)
            if status != 200:
                error = ConnectionError(f"the server answered {status}")
        except OSError as failure:
            error = failure
        tally = self.tallies.now
        tally.polls += 1
        sent, received = client.sent - sent, client.received - received
        tally.sent += sent
        tally.received += received
        self._fire(name, time.time() - began, sent + received, error)
        if error is None:
            return body
        tally.failed += 1
        gevent.sleep(RETRY_SECONDS)
        return None

    def _received(self, message: _Message, now: float) -> None:
        channel = message.channels[0]
        number, created = message.data[0], message.data[1]
        tally = self.tallies.tally_for(created)
        if number <= self.seen[channel]:
            tally.repeated += 1
            return
        self.seen[channel] = number
        tally.delivered += 1
        tally.trips.append(now - created)
        self._fire("message trip", now - created, 0, None)

    def _fire(self, name: str, seconds: float, size: int, error: Exception | None) -> None:
        self.environment.events.request.fire(
            request_type=type(self).__name__,
            name=name,
            response_time=1000 * seconds,
            response_length=size,
            exception=error,
            context={},
        )


class ClientPull(Subscriber):
    """Pulls at a fixed interval, one second by default, with polls that are not held (PushUp §4, CP)."""

    def start_seconds(self, options: Namespace) -> float:
        return float(options.pull_interval)

    def poll_seconds(self, options: Namespace) -> float:
        return 0.0

    def on_start(self) -> None:
        super().on_start()
        self._due = time.time()

    def wait_time(self) -> float:
        """Seconds until the next pull is due; skips pulls that are already late, to keep the rhythm."""
        interval, now = _options(self).pull_interval, time.time()
        self._due += interval * max(1, math.ceil((now - self._due) / interval))
        return float(self._due - now)


class LongPoll(Subscriber):
    """Polls, waits for the response, and polls again at once (PushUp §4; MLP or ELP, depending on the server)."""

    wait_time = constant(0)

    def poll_seconds(self, options: Namespace) -> float:
        return float(options.poll_timeout)


class EventStream(Subscriber):
    """Follows an event stream, and opens the next one when it ends."""

    wait_time = constant(0)

    def poll_seconds(self, options: Namespace) -> float:
        return 0.0

    @task
    def poll(self) -> None:
        client, began, sent = self.client, time.time(), self.client.sent
        error: Exception | None = None
        tally = self.tallies.now
        tally.polls += 1
        before = client.received
        try:
            for events in client.stream(f"/v1/events?{self.query}cursor={self.cursor}"):
                now = time.time()
                for line in events.splitlines():
                    event = self.events.decode(line)
                    self.cursor = event.id or self.cursor
                    if event.event == "error":
                        raise ConnectionError(bytes(event.data).decode())
                    if not event.event and bytes(event.data):
                        self._received(self.messages.decode(event.data), now)
                self.tallies.now.received += client.received - before
                before = client.received
        except OSError as failure:
            error = failure
            self.tallies.now.failed += 1
            gevent.sleep(RETRY_SECONDS)
        tally.sent += client.sent - sent
        self._fire("stream", time.time() - began, client.sent - sent, error)


class Publisher(User):
    """Publishes a message per publish interval, on one channel after another."""

    fixed_count = 1
    tallies: Tallies
    wait_time = constant(0)

    def on_start(self) -> None:
        options = _options(self)
        key = f"Authorization: Bearer {options.publish_key}\r\n" if options.publish_key else ""
        self.client = CountedClient(_host(self), key, source=options.publish_from)
        self.numbers: dict[str, int] = {}
        self.turns = count()

    @task
    def publish_all(self) -> None:
        """Publish the configured number of messages at each publish interval, then end the test."""
        options = _options(self)
        self._wait_for_listeners()
        _sleep_until(options.begin_at)
        for interval in _intervals(options):
            self.tallies.begin(interval)
            begun = time.time()
            for number in count():
                if number == options.messages > 0:
                    break
                # Publish near the middle of each interval, so that the last message has time to arrive. Vary the time
                # between two pulls, or all messages would take as long as the first.
                jitter = min(options.pull_interval, interval / 2) * (random.random() - 0.5)  # noqa: S311
                _sleep_until(begun + (number + 0.5) * interval + jitter)
                self._publish()
            _sleep_until(begun + options.messages * interval)
            self.tallies.end()
        runner = self.environment.runner
        assert runner is not None
        gevent.spawn(runner.quit if self.environment.web_ui is None else runner.stop)  # this ends our greenlet, too
        raise StopUser

    def _wait_for_listeners(self) -> None:
        """Wait until all users have started and are listening."""
        runner = self.environment.runner
        assert runner is not None
        while runner.state != STATE_RUNNING:
            gevent.sleep(0.05)
        until = time.time() + LISTENING_SECONDS
        publishers = runner.user_classes_count.get(type(self).__name__, 0)
        listeners = (runner.user_count - publishers) * _options(self).channels_each
        while sum(self.tallies.listening.values()) < listeners and time.time() < until:
            gevent.sleep(0.05)

    def _publish(self) -> None:
        options = _options(self)
        channel = _channel(options, next(self.turns))
        number = self.numbers[channel] = self.numbers.get(channel, 0) + 1
        tally = self.tallies.now
        began = time.time()
        data = [number, began, "x" * options.payload_bytes]
        error: Exception | None = None
        length = 0
        try:
            status, body = self.client.post("/v1/messages", json.dumps({"channels": [channel], "data": data}).encode())
            length = len(body)
            if status != 201:
                error = ConnectionError(f"the server answered {status}")
        except OSError as failure:
            error = failure
        self.environment.events.request.fire(
            request_type="Publisher",
            name="publish",
            response_time=1000 * (time.time() - began),
            response_length=length,
            exception=error,
            context={},
        )
        if error is not None:
            tally.refused += 1
            return
        tally.published += 1
        tally.subscribers = sum(self.tallies.listening.values()) // options.channels_each
        tally.expected += self.tallies.listening.get(channel, 0)


def _options(user: User) -> Namespace:
    options = user.environment.parsed_options
    assert isinstance(options, Namespace)
    return options


def _host(user: User) -> str:
    return user.host or user.environment.host or "http://127.0.0.1:8080"


def _channel(options: Namespace, number: int) -> str:
    return f"{options.channel_name}-{number % options.channels}"


def _intervals(options: Namespace) -> list[float]:
    return [float(interval) for interval in options.publish_intervals.split(",")]


def _sleep_until(moment: float) -> None:
    gevent.sleep(max(0.0, moment - time.time()))
