"""Publishing in the background, so that no request waits for PushUp."""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import re
import threading
import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from pushup.client import Client

PATIENCE_SECONDS = 60.0
"""For how long a message is tried; PushUp restarts in less."""

QUEUE_LIMIT = 10_000
"""Messages that wait while PushUp does not answer."""

EXIT_SECONDS = 2.0
"""How long a process that ends waits for its messages."""

HTML_EVENT = "html"
"""The event of a message that live.js puts into the page. No other message is taken for HTML."""

_begins_with_id = re.compile(r"""\s*<[a-z](?:[^>"']|"[^"]*"|'[^']*')*?\sid\s*=""", re.IGNORECASE).match
"""An element with an id, which may come after quoted values that contain anything."""

_log = logging.getLogger("pushup.frameworks")

_publishers: WeakSet[Publisher] = WeakSet()
"""Those of this process."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish."""

    channel: str
    data: Any
    event: str | None = None

    @classmethod
    def of(cls, channel: str, data: Any = None, html: str | None = None) -> Outgoing:
        """One with a copy of the data, which the caller may change, or with HTML. Raises: ValueError, TypeError."""
        given = json.dumps([channel, data if html is None else html], allow_nan=False, ensure_ascii=False)
        channel, copy = json.loads(given.encode())  # an error if there is half a character
        if html is None:
            return cls(channel, copy)
        if data is not None:
            raise ValueError("publish data or html, not both")
        if not _begins_with_id(html):
            raise ValueError(
                'html must begin with an element that has an id, such as <li id="note-7">; '
                "without one, a page that is loaded meanwhile shows it twice"
            )
        return cls(channel, copy, HTML_EVENT)


class Publisher:
    """One thread publishes messages in their order. Each is tried for a minute; what fails is logged and dropped."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.begin()
        _publishers.add(self)

    def begin(self) -> None:
        """Begin, also anew after a fork: what waits is published by the parent, which has the thread."""
        self._queue = queue.Queue[tuple[float, Outgoing] | None]()  # None ends the thread
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def publish(self, message: Outgoing) -> None:
        """Never waits and never fails."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # not alive: its log handler failed, for example
                thread = threading.Thread(target=self._run, name="pushup-publisher", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # there are too many, or the program ends
                    _drop(message, error)
                    return
                self._thread = thread
                atexit.unregister(_end_all)
                atexit.register(_end_all)  # anew, for multiprocessing forgets those of before a fork
            if self._queue.qsize() < QUEUE_LIMIT:
                self._queue.put((time.monotonic() + PATIENCE_SECONDS, message))
            else:
                _drop(message, f"{QUEUE_LIMIT} messages are waiting already")

    def flush(self, timeout: float = EXIT_SECONDS) -> bool:
        """Wait for all messages, for at most so many seconds; returns whether none is left."""
        until = time.monotonic() + timeout
        while self._queue.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.01)
        return not self._queue.unfinished_tasks

    def close(self) -> None:
        """Wait for the messages as a process that ends does. The thread ends after the last one, maybe later."""
        with self._lock:
            if (thread := self._thread) is not None and thread.is_alive():
                self._queue.put(None)
                self._queue.task_done()  # it does not count as a message
        if thread is not None:
            thread.join(EXIT_SECONDS)

    def tell_losses(self) -> None:
        """Log how many messages were not published as the process ends."""
        if lost := self._queue.unfinished_tasks:
            _log.error("%d messages are lost: PushUp did not take them before this process ended", lost)

    def _run(self) -> None:
        while True:
            if (waiting := self._queue.get()) is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue  # something came after `close`
            until, message = waiting
            try:
                left = max(0.0, until - time.monotonic())
                self._client.publish(message.channel, message.data, event=message.event, patience=left)
            except Exception as error:  # the next message may be a better one
                _drop(message, error)
            finally:
                self._queue.task_done()


def flush_all(timeout: float) -> None:
    """Wait for the messages of all publishers of this process, for at most so many seconds."""
    until = time.monotonic() + timeout
    for publisher in [*_publishers]:
        publisher.flush(until - time.monotonic())


def _begin_in_child() -> None:
    for publisher in [*_publishers]:
        publisher.begin()


def _end_all() -> None:
    flush_all(EXIT_SECONDS)
    for publisher in [*_publishers]:
        publisher.tell_losses()


os.register_at_fork(after_in_child=_begin_in_child)


def _drop(message: Outgoing, why: object) -> None:
    _log.error("not published on %s: %s. Pages show it when they are loaded again", message.channel, why)
