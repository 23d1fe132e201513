"""The parts of a server that the settings choose: its broadcast, who decides which polls are allowed, its workers."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import random
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from pushup.backends.authorization import Authorization, AuthorizationSettings, Authorizer
from pushup.backends.function_authorizer import FunctionAuthorizer, load
from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.tickets import Tickets
from pushup.broadcast import Broadcast
from pushup.broadcast.epochs import next_epoch
from pushup.broadcast.hub.worker_broadcast import HubBroadcast
from pushup.broadcast.journal import Journal
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.memory import MemoryBroadcast
from pushup.broadcast.progress_mark import MarkFile, ProgressMark, lock_file, mark_path
from pushup.clock import uptime
from pushup.host.process_limits import spare_garbage_collector
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api.server_view import ServerView
from pushup.net.wait.demultiplexer import Demultiplexer
from pushup.node.node import Node
from pushup.settings.settings import Settings, SettingsError
from pushup.transport.framed_link import Link

MARK_TIMEOUT_SECONDS = 30.0
"""How long a write of the mark may take before it counts as failed; nobody waits for it."""


class WorkerParts(Struct, frozen=True, kw_only=True):
    """What a worker process has from its parent."""

    number: int
    addresses: tuple[str, ...]
    """The TCP addresses, whose ports all workers share."""
    sockets: list[socket.socket]
    """The other listening sockets, which they share themselves."""
    use: Callable[[Demultiplexer], None]
    """Called with what drives the connections of clients, so that it drives those to the parent as well."""
    connect: Callable[[Link], None] | None
    """Connects a link to the order of this machine; None with Redis."""
    on_state: Callable[[], None]
    """Called when the state has come from there, so that clients can be served."""
    on_lost: Callable[[str], None]
    """Called with the reason when that link has ended."""
    make_machine: Callable[[MetricsPage, Node[Any]], ServerView]
    """What answers questions about all workers."""


def make_broadcast(
    settings: Settings,
    reactor: Any,
    metrics: Metrics,
    demultiplexer: Demultiplexer,
    steady_time: Callable[[], float],
    worker: WorkerParts | None = None,
) -> Broadcast:
    """The broadcast that the setting of this name asks for; it is not started.

    `steady_time` gives entries their times, unless Redis or the parent process does.
    """
    if worker is not None and worker.connect is not None:
        return HubBroadcast(
            worker.connect,
            worker_id=str(worker.number),
            waiting_limits=settings.waiting,
            clock=reactor,
            uptime=uptime,
            on_state=worker.on_state,
            on_lost=worker.on_lost,
            on_large=spare_garbage_collector,
        )
    local = make_local_broadcast(settings, reactor, metrics, steady_time)
    return local or _make_redis_broadcast(settings, reactor, metrics, demultiplexer, worker)


def make_local_broadcast(
    settings: Settings, reactor: Any, metrics: Metrics, steady_time: Callable[[], float]
) -> Broadcast | None:
    """The same if it is of one machine; None if the order is in Redis."""
    kind, _, path = settings.server.broadcast.partition(":")
    if kind == "memory":
        return MemoryBroadcast(epoch=_name_epoch("", ""), limits=settings.queue, steady_time=steady_time)
    if kind == "journal":
        return _make_journal(Path(path), settings, reactor, metrics, steady_time)
    return None


def _make_journal(
    path: Path, settings: Settings, reactor: Any, metrics: Metrics, steady_time: Callable[[], float]
) -> Journal:
    limits = ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=settings.journal.journal_timeout_seconds)

    def helpers(name: str) -> HelperPool:
        return HelperPool(name, limits, reactor=reactor, counters=metrics.backend(name))

    return Journal(
        partial(open_journal, path, settings.queue, _name_epoch),
        high_water=ProgressMark(MarkFile(mark_path(path)), helpers("journal_mark"), reactor),
        waiting_limits=settings.waiting,
        helpers=helpers("journal"),
        clock=reactor,
        steady_time=steady_time,
    )


def _name_epoch(after: str, cluster: str) -> str:
    return next_epoch(after, time.time(), random, cluster)


def _make_redis_broadcast(
    settings: Settings, reactor: Any, metrics: Metrics, demultiplexer: Demultiplexer, worker: WorkerParts | None
) -> Broadcast:
    # Imported here, so that a single node does not load what it does not need.
    from pushup.broadcast.redis.address import parse_address
    from pushup.broadcast.redis.connector import Connector
    from pushup.broadcast.redis.redis_broadcast import RedisBroadcast

    connector = Connector(
        parse_address(settings.server.broadcast),
        reactor=reactor,
        timeout=settings.redis.redis_timeout_seconds,
        name="pushup",
        adopt=demultiplexer.adopt,
    )
    return RedisBroadcast(
        connector,
        node_id=secrets.token_hex(4),
        limits=settings.queue,
        redis_limits=settings.redis,
        waiting_limits=settings.waiting,
        clock=reactor,
        wall=time.time,
        random=random,
        high_water=_make_high_water(settings, reactor, metrics, 1 if worker is None else worker.number),
        on_large=spare_garbage_collector,
    )


def _make_high_water(settings: Settings, reactor: Any, metrics: Metrics, worker: int) -> ProgressMark | None:
    """The mark beside which the log in Redis is checked; None without a `state_directory`. Raises: SettingsError.

    Each worker has its own; that of the first is the one of a server without workers.
    """
    if not settings.server.state_directory:
        return None
    directory = Path(settings.server.state_directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"state_directory: cannot create {directory}: {(error.strerror or '').lower()}") from None
    limits = ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=MARK_TIMEOUT_SECONDS)
    helpers = HelperPool("redis_mark", limits, reactor=reactor, counters=metrics.backend("redis_mark"))
    name = quote(settings.redis.redis_prefix, safe="")
    path = directory / (f"{name}.mark" if worker == 1 else f"{name}.{worker}.mark")
    try:
        lock = lock_file(path.with_suffix(".lock"))
    except BlockingIOError:
        raise SettingsError(
            f"state_directory: {directory} is in use by another server, perhaps one that is still stopping; give each "
            "server a directory of its own"
        ) from None
    except OSError as error:
        raise SettingsError(f"state_directory: cannot write to {directory}: {error.strerror}") from None
    return ProgressMark(MarkFile(path, lock), helpers, reactor)


def make_authorization(settings: AuthorizationSettings, reactor: Any, metrics: Metrics) -> Authorization | None:
    """Who decides which polls are allowed; None if everybody may poll everything. Raises: SettingsError."""
    if not (settings.authorize_url or settings.authorizer):
        return None
    return Authorization(
        _make_authorizer(settings, reactor, metrics),
        tickets=make_tickets(settings),
        ticket_seconds=settings.ticket_seconds,
        wall=time.time,
        random=random,
    )


def _make_authorizer(settings: AuthorizationSettings, reactor: Any, metrics: Metrics) -> Authorizer:
    counters = metrics.backend("authorization")
    limits = ServiceLimits(
        at_most=settings.authorize_at_most,
        queue_limit=settings.authorize_queue_limit,
        deadline_seconds=settings.authorize_timeout_seconds,
    )
    if not settings.authorize_url:
        try:
            function = load(settings.authorizer)
        except ValueError as error:
            raise SettingsError(f"authorizer: {error}") from None
        return FunctionAuthorizer(function, HelperPool("the authorizer", limits, reactor=reactor, counters=counters))
    # Imported here, because an HTTP client with TLS takes 12 MB.
    from pushup.backends.service_requestor import ServiceRequestor
    from pushup.backends.url_authorizer import UrlAuthorizer

    tls = settings.authorize_url.startswith("https:")
    requestor = ServiceRequestor("authorize_url", limits, reactor=reactor, counters=counters, tls=tls)
    return UrlAuthorizer(settings.authorize_url, requestor)


def make_tickets(settings: AuthorizationSettings) -> Tickets:
    """Tickets with the key of the settings, or with a random one that ends with this process."""
    return Tickets((settings.ticket_key or secrets.token_hex(32)).encode())
