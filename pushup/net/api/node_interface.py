"""What the HTTP application needs of its node (`pushup.node.node` has it), and of all processes of its server."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from pushup.core.answer import Answer
from pushup.core.channel import Channel
from pushup.core.commands import Ack, Command, Confirmation, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.held_on_grants import HeldOnGrants
from pushup.core.members import ChannelPresence
from pushup.core.poll import Poll, Selection
from pushup.core.state_transfer import Outgoing
from pushup.core.subscription import Holder, Subscription
from pushup.core.tracing import Trace
from pushup.metrics import Metrics


class Readers(Protocol):
    """Who has read what."""

    def note(self, subject: str, channels: tuple[str, ...], cursor: Cursor, /) -> None: ...
    def are_awaited(self, subject: str, channels: tuple[str, ...], cursor: str, /) -> bool: ...


class Presence(Protocol):
    """Who follows by this node."""

    def seen(self, grant: Grant, selection: Selection, /) -> None: ...
    def closes(self, subject: str, channels: tuple[str, ...], /) -> None: ...


class WebhookCaller(Protocol):
    """What calls the application about messages that were not read."""

    @property
    def is_on(self) -> bool: ...


class Node(Protocol):
    """A node as the calls of the HTTP application see it."""

    @property
    def metrics(self) -> Metrics: ...

    # Polls and streams.

    @property
    def here(self) -> Cursor: ...
    def poll(self, poll: Poll, holder: Holder, at_most: float = math.inf, /) -> Answer | Subscription[Holder]: ...
    def abandon(self, subscription: Subscription[Any], /) -> None: ...
    @property
    def held_on_grants(self) -> HeldOnGrants: ...
    def is_revoked(self, grant: Grant, /) -> bool: ...
    @property
    def is_draining(self) -> bool: ...

    @property
    def readers(self) -> Readers: ...
    @property
    def presence(self) -> Presence: ...

    # Publications.

    def submit(self, command: Command, on_outcome: Callable[[Outcome], None], /) -> None: ...
    def confirm(
        self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: Callable[[Confirmation], None], /
    ) -> None: ...

    @property
    def webhook_caller(self) -> WebhookCaller: ...

    def soon(self, call: Callable[[], None], /) -> None: ...

    # Channels and messages.

    def name_of(self, channel: str, /) -> str: ...
    def channel(self, name: str) -> Channel: ...
    def channels(self, after: int, most: int) -> list[Channel]: ...
    def members_of(self, channel: str, /) -> ChannelPresence: ...
    def channels_of(self, message: Cursor, /) -> tuple[str, ...]: ...

    # Operations.

    @property
    def trace(self) -> Callable[[Cursor, Cursor | None], Trace | None]: ...
    def members(self) -> list[Any]: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def later(self) -> Callable[..., object]: ...
    @property
    def find_end(self) -> Callable[[Callable[[Cursor], None]], None]: ...
    @property
    def outgoing(self) -> Outgoing | None: ...
    def read_out(self) -> Outgoing: ...
    def was_read(self) -> None: ...
    @property
    def stored_format(self) -> int: ...
    def answer_balancer(self, host: str) -> PushUpError | None: ...


class ServerView(Protocol):
    """All processes of this server."""

    def metrics(self, on_text: Callable[[bytes], None]) -> None:
        """Their metrics, in Prometheus' text format."""

    def subscribers(self, names: list[str], on_counts: Callable[[list[int]], None]) -> None:
        """How many polls wait for each of these channels."""

    def set_out(self, is_out: bool, on_done: Callable[[PushUpError | None], None]) -> None:
        """Take them out of rotation, or back. `on_done` is told why that is not done."""


class OneProcess:
    """A server without workers: the answers come at once."""

    def __init__(
        self,
        metrics_text: Callable[[], bytes],
        subscribers: Callable[[str], int],
        set_out: Callable[[bool], None] = lambda is_out: None,
    ) -> None:
        """`set_out` takes its node out of rotation, or back."""
        self._metrics_text = metrics_text
        self._subscribers = subscribers
        self._set_out = set_out

    def metrics(self, on_text: Callable[[bytes], None]) -> None:
        on_text(self._metrics_text())

    def subscribers(self, names: list[str], on_counts: Callable[[list[int]], None]) -> None:
        on_counts([self._subscribers(name) for name in names])

    def set_out(self, is_out: bool, on_done: Callable[[PushUpError | None], None]) -> None:
        self._set_out(is_out)
        on_done(None)


_check: type[ServerView] = OneProcess
