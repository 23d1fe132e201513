"""The parts of a server that the settings choose: its broadcast, its node, and who decides which polls are allowed."""

from __future__ import annotations

import math
import socket
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime

from pushup import __version__
from pushup.backends.authorization import Authorization, AuthorizationSettings, Authorizer
from pushup.backends.function_authorizer import FunctionAuthorizer, load
from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.tickets import Tickets
from pushup.backends.webhook import WebhookSender, WebhookSettings
from pushup.broadcast import Broadcast
from pushup.broadcast.journal import Journal
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.memory import MemoryBroadcast
from pushup.broadcast.progress_mark import ProgressMark, mark_path
from pushup.core.subscription import Holder
from pushup.host.build_form import build
from pushup.host.host import Host
from pushup.metrics import BackendCounters
from pushup.net.api.application import Api
from pushup.net.api.channel_rules import ChannelRule, PollRule
from pushup.net.api.request_log import RequestLog
from pushup.net.application_interface import Application
from pushup.net.proxies import ClientField, TrustedProxies
from pushup.net.reserve import RESERVED_CONNECTIONS
from pushup.node.node import Node
from pushup.settings.digests import digests
from pushup.settings.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pushup.backends.service_requestor import ServiceRequestor
    from pushup.tokens.tokens import Tokens

KEYS_TIMEOUT_SECONDS = 10.0
"""How long the issuer of tokens may take to send its keys."""

MARK_TIMEOUT_SECONDS = 30.0
"""How long a write of the mark may take before it counts as failed; nobody waits for it."""


def make_node(settings: Settings, host: Host, broadcast: Broadcast, worker: int = 0) -> Node[Holder]:
    """The node that follows this broadcast. `worker`: its number among those of its server; 0: there are none."""
    name = settings.server.node_name or socket.gethostname()
    node: Node[Holder] = Node(
        limits=settings.queue,
        hold_limits=settings.hold,
        drain_limits=settings.drain,
        presence_limits=settings.presence,
        broadcast=broadcast,
        clock=host.reactor,
        soon=host.demultiplexer.soon,
        random=host.random,
        metrics=host.metrics,
        name=f"{name} worker {worker}" if worker else name,
        version=f"{__version__}, {build()}",
        logs_evictions=worker <= 1,
    )
    node.settings = digests(settings)
    return node


def make_broadcast(settings: Settings, host: Host, number: int = 1) -> Broadcast:
    """The broadcast that the setting of this name asks for. `number`: of the worker that follows it."""
    return make_local_broadcast(settings, host) or _make_redis_broadcast(settings, host, number)


def make_local_broadcast(settings: Settings, host: Host) -> Broadcast | None:
    """The same if it is of one machine; None if the order is in Redis."""
    kind, _, path = settings.server.broadcast.partition(":")
    if kind == "memory":
        return MemoryBroadcast(epoch=host.name_epoch("", ""), limits=settings.queue, steady_time=host.steady_time)
    if kind == "journal":
        return _make_journal(Path(path), settings, host)
    return None


def _make_journal(path: Path, settings: Settings, host: Host) -> Journal:
    timeout = settings.journal.journal_timeout_seconds
    return Journal(
        partial(open_journal, path, settings.queue, host.name_epoch, open_file=host.open_journal),
        progress_mark=ProgressMark(host.mark(mark_path(path)), host.helpers("journal_mark", timeout), host.reactor),
        waiting_limits=settings.waiting,
        helpers=host.helpers("journal", timeout),
        rewriter=host.helpers("journal_rewrite", math.inf),
        clock=host.reactor,
        steady_time=host.steady_time,
    )


def _make_redis_broadcast(settings: Settings, host: Host, number: int) -> Broadcast:
    # Imported here, so that a single node does not load what it does not need.
    from pushup.broadcast.redis.redis_broadcast import RedisBroadcast

    return RedisBroadcast(
        host.connect_redis(settings.server.broadcast, settings.redis.redis_timeout_seconds),
        node_id=host.run_id,
        limits=settings.queue,
        redis_limits=settings.redis,
        waiting_limits=settings.waiting,
        clock=host.reactor,
        wall=host.wall,
        uptime=host.uptime,
        random=host.random,
        progress_mark=_make_progress_mark(settings, host, number),
        on_large=host.much_was_made,
    )


def _make_progress_mark(settings: Settings, host: Host, number: int) -> ProgressMark | None:
    """The mark beside which the log in Redis is checked; None without a `state_directory`."""
    path = _mark_path(settings, number)
    if path is None:
        return None
    return ProgressMark(host.mark(path), host.helpers("redis_mark", MARK_TIMEOUT_SECONDS), host.reactor)


def _mark_path(settings: Settings, number: int) -> Path | None:
    """Its file. Each worker has its own; that of the first is the one of a server without workers."""
    directory, is_redis = settings.server.state_directory, settings.server.broadcast.startswith("redis")
    name = quote(settings.redis.redis_prefix, safe="") + ("" if number == 1 else f".{number}")
    return Path(directory, f"{name}.mark") if directory and is_redis else None


class StateLock(Service):
    """Keeps other servers from using the same mark (`state_directory`), from start to stop."""

    _file: IO[bytes] | None = None

    def __init__(self, settings: Settings, host: Host, number: int = 1) -> None:
        self._path = _mark_path(settings, number)
        self._host = host

    def startService(self) -> None:
        """Create the directory if it is missing. Raises: SettingsError."""
        super().startService()
        if self._path is None:
            return
        directory = self._path.parent
        try:
            self._file = self._host.lock(self._path.with_suffix(".lock"))
        except BlockingIOError:
            raise SettingsError(
                f"state_directory: {directory} is in use by another server, perhaps one that is still stopping; give "
                "each server a directory of its own"
            ) from None
        except OSError as error:
            to_do = "write to" if directory.is_dir() else "create"
            reason = (error.strerror or "").lower()
            raise SettingsError(f"state_directory: cannot {to_do} {directory}: {reason}") from None

    def stopService(self) -> None:
        super().stopService()
        if self._file is not None:
            self._file.close()


def logged(apis: list[Api], clock: IReactorTime, settings: Settings) -> list[Application]:
    """What answers requests; at log level debug it logs each of them."""
    return [RequestLog(api, clock) if settings.server.log_level == "debug" else api for api in apis]


def other_connections(settings: Settings) -> tuple[int, int]:
    """How many there may be besides those of clients: to the application, and of operators."""
    backends = settings.authorization.authorize_at_most
    backends += settings.webhook.webhook_at_most if settings.webhook.webhook_url else 0
    return backends, RESERVED_CONNECTIONS * (2 if settings.server.operator_listen else 1)


def make_authorization(settings: AuthorizationSettings, host: Host, lifetime: float) -> Authorization | None:
    """Who decides which polls are allowed; None if everybody may poll everything. `lifetime`: the longest of a ticket.

    Raises: SettingsError.
    """
    if not (settings.authorize_url or settings.authorizer):
        return None
    return Authorization(
        _make_authorizer(settings, host),
        tickets=make_tickets(settings, host),
        ticket_seconds=settings.ticket_seconds,
        limit_seconds=lifetime,
        wall=host.wall,
        random=host.random,
    )


def _make_authorizer(settings: AuthorizationSettings, host: Host) -> Authorizer:
    counters = host.metrics.backend("authorization")
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
        pool = HelperPool("the authorizer", limits, reactor=host.reactor, counters=counters)
        return FunctionAuthorizer(function, pool)
    from pushup.backends.url_authorizer import UrlAuthorizer  # as `_make_requestor`

    url = settings.authorize_url
    return UrlAuthorizer(url, _make_requestor("authorize_url", url, limits, host, counters))


def _make_requestor(
    setting: str, url: str, limits: ServiceLimits, host: Host, counters: BackendCounters
) -> ServiceRequestor:
    """What sends requests to the URL of this setting."""
    # Imported here, because an HTTP client with TLS takes 12 MB.
    from pushup.backends.service_requestor import ServiceRequestor

    tls = url.startswith("https:")
    return ServiceRequestor(setting, limits, reactor=host.reactor, counters=counters, tls=tls)


def make_webhook_sender(settings: WebhookSettings, host: Host) -> WebhookSender | None:
    """What tells the application who has not read a message; None if nothing does."""
    if not settings.webhook_url:
        return None
    limits = ServiceLimits(
        at_most=settings.webhook_at_most, queue_limit=1, deadline_seconds=settings.webhook_timeout_seconds
    )
    counters = host.metrics.backend("webhooks")
    requestor = _make_requestor("webhook_url", settings.webhook_url, limits, host, counters)
    return WebhookSender(settings, requestor, host.wall)


def channel_rules(settings: Settings) -> tuple[PollRule, list[ChannelRule]]:
    """Who may poll where no table says so, and the rules of the tables."""
    default: PollRule = "anyone"
    if settings.authorization.authorize_url or settings.authorization.authorizer:
        default = "application"
    elif settings.tokens.issuers:
        default = "token"
    rules = [
        ChannelRule(table.prefix, table.poll or default, table.publish or "token")
        for table in settings.channels.channels
    ]
    return default, rules


def make_tokens(settings: Settings, host: Host) -> Tokens | None:
    """Whose signed tokens are accepted; None if none are. Raises: SettingsError."""
    if not settings.tokens.issuers:
        return None
    # Imported here, because PyJWT with the package cryptography takes some MB.
    from pushup.tokens.key_urls import KeyUrl
    from pushup.tokens.tokens import Tokens

    def make_key_url(url: str) -> KeyUrl:
        limits = ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=KEYS_TIMEOUT_SECONDS)
        counters = host.metrics.backend("token_keys")
        requestor = _make_requestor("token_jwks_url", url, limits, host, counters)
        # Without a User-Agent, firewalls of identity providers refuse the request.
        headers = {b"accept": b"application/json", b"user-agent": b"PushUp/" + __version__.encode()}
        return KeyUrl(url, lambda url: requestor.get(url, headers), host.reactor)

    lifetime = settings.queue.token_lifetime_limit_seconds
    try:
        return Tokens(settings.tokens, lifetime=lifetime, make_key_url=make_key_url, wall=host.wall)
    except ValueError as error:
        raise SettingsError(f"the keys of tokens: {error}") from None


def make_proxies(settings: Settings) -> TrustedProxies | None:
    """The proxies that are believed about whom they speak for; None: none is."""
    field: ClientField = "Forwarded" if settings.server.client_field == "Forwarded" else "X-Forwarded-For"
    return TrustedProxies(settings.server.trusted_proxies, field) if settings.server.trusted_proxies else None


def make_url_tickets(settings: Settings) -> Tickets | None:
    """What seals URL tickets; None if there are none."""
    return Tickets(settings.authorization.ticket_key.encode()) if settings.tokens.token_url_tickets else None


def make_tickets(settings: AuthorizationSettings, host: Host) -> Tickets:
    """Tickets with the key of the settings, or with one that ends with this server."""
    return Tickets((settings.ticket_key or host.ticket_key).encode())
