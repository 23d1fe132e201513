"""One run: a cluster is built, a plan is carried out, everything is healed, and then nothing may be missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

from loadtest.history import events
from loadtest.history.events import BrokenPromise, Event
from pushup.backends.webhook import WebhookSettings
from pushup.broadcast.redis.scripts import SCRIPTS
from pushup.core import members, state
from pushup.core.commands import Entry, Outcome
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.net.api.schemas import StreamLimits
from pushup.node.drain import DrainLimits
from pushup.settings.channel_policies import ChannelSettings, ChannelTable
from pushup.settings.server import ServerSettings
from pushup.settings.settings import Settings
from pushup.transport import framed_link as link_module
from tests.next_version import NEXT_VERSION, know, next_version
from tests.simulation import application, inside, reach
from tests.simulation.balancer import Balancer
from tests.simulation.clients import HEARTBEAT_SECONDS, Publisher, Subscriber
from tests.simulation.erasures import Erasures
from tests.simulation.lease_plan import LEASE_WEIGHTS
from tests.simulation.network import End, Network
from tests.simulation.other_cluster import OtherCluster
from tests.simulation.parent import HOST as PARENT
from tests.simulation.parent import Parent
from tests.simulation.plan import LIMITS, WEIGHTS, WORKER_WEIGHTS
from tests.simulation.presence import GHOST_SECONDS, GONE_AT_MOST, POLICY, POLL_SECONDS, STILL, LeavesSeen, Tab, Tabs
from tests.simulation.presence import SETTINGS as PRESENCE
from tests.simulation.presence_plan import HIDDEN_SECONDS
from tests.simulation.probes import Probes
from tests.simulation.producers import Producers
from tests.simulation.record import Record
from tests.simulation.redis_server import HOST as REDIS
from tests.simulation.redis_server import RedisServer
from tests.simulation.server import Server
from tests.simulation.steps import FAULT_SECONDS, NAMES, Plan, Step
from tests.simulation.stranger_plan import STRANGER_WEIGHTS
from tests.simulation.unread import UnreadMessages
from tests.simulation.unread_plan import SUBJECTS as READERS
from tests.simulation.user_plan import SUBJECTS
from tests.simulation.users import SETTINGS as TOKENS
from tests.simulation.users import Session, Users
from tests.simulation.world import START, TURN_WORK, Clock, Process, World

HEAL_SECONDS = 40.0
"""How long after the last fault everything must be live again."""

SETTLE_SECONDS = 20.0
"""By then nothing that was begun before happens any more, such as the last restart of a rolling upgrade."""

INVARIANTS_EVERY = 4
"""Looks inside the servers for each at their invariants, which take longer."""

LAST_UNREAD_SECONDS = 1.4
"""For so long the last messages wait for readers: less than it takes until a poll without an answer is sent again."""

CALLS_SECONDS = 140.0
"""In this time the application is told about all that was not read: claims have ended that last for a minute."""

DELIVERY_SECONDS = 25.0
"""How long after that every subscriber must have everything."""

REDIS_SETTINGS_SECONDS = 2.0
"""`redis_timeout_seconds` of the simulated servers."""


class Result(NamedTuple):
    """The outcome of a run."""

    plan: Plan
    broken: str
    """The promise that was broken; empty if none was."""
    digest: str
    reached: dict[str, int]
    without_loss: dict[str, int]
    story: list[str]
    events: int
    longest_turn: int
    history: list[Event]


class Simulation:
    """A cluster, its clients, and the steps that a plan may contain."""

    def __init__(self, plan: Plan) -> None:
        setup = plan.setup
        self.plan = plan
        state.EXPIRE_AT_MOST = setup["expire_at_most"]
        self.world = World(plan.seed)
        self.network = Network(self.world)
        self.record = Record(self.world)
        self.checker = self.record.checker
        self.kind = setup["kind"]
        self.redis: RedisServer | None = None
        if self.kind == "redis":
            self.redis = RedisServer(self.world, self.network, appendfsync=setup["appendfsync"])
            self.redis.has_replica = setup["replica"]
        settings = Settings(
            server=structs.replace(ServerSettings(), listen=()),
            queue=Limits(**LIMITS[setup["limits"]]),
            drain=DrainLimits(drain_seconds=1.0),
            stream=StreamLimits(stream_heartbeat_seconds=HEARTBEAT_SECONDS, stream_seconds=40.0),
            redis=structs.replace(Settings().redis, redis_timeout_seconds=REDIS_SETTINGS_SECONDS, redis_durable=True),
        )
        self.erasures = Erasures(self.world, self.network, self.record)
        self.users: Users | None = None
        if "users" in setup:
            self.users = Users(self.world, self.network, self.record)
            rules = tuple([ChannelTable(prefix=name, poll="anyone") for name in NAMES])  # for clients without a user
            settings = structs.replace(settings, tokens=TOKENS, channels=ChannelSettings(channels=rules))
        self.tabs: Tabs | None = None
        if "presence" in setup:
            rules = (*settings.channels.channels, ChannelTable(prefix="room", poll="anyone"))
            settings = structs.replace(
                settings, presence=PRESENCE, channels=ChannelSettings(channels=rules), queue=Limits(channels=(POLICY,))
            )
        self.unread: UnreadMessages | None = None
        if "unread_limit" in setup:
            self.unread = UnreadMessages(self.world, self.network, self.record)
            self.unread.keeps_all = setup["limits"] == "roomy"
            webhook = WebhookSettings(webhook_url=application.URL, webhook_key=application.KEY)
            queue = structs.replace(settings.queue, unread_limit=setup["unread_limit"])
            settings = structs.replace(settings, webhook=webhook, queue=queue)
        self.jumps_alone = {step.kind for step in plan.steps if step.kind in WEIGHTS} == {"jump"}
        self.parent: Parent | None = None
        if "has_parent" in setup:
            link_module.UNSENT_LIMIT_BYTES = setup["unsent_limit"]
            self.parent = Parent(self.world, self.network, self.kind, settings, setup["piece"])
            self.parent.on_entry = self._note_entry
            self.parent.start()
        self.servers = [
            Server(self.world, self.network, f"n{n}", self.kind, settings, self.parent) for n in range(setup["nodes"])
        ]
        if self.parent is not None:
            self.parent.on_given_up = self._give_up
        if "presence" in setup:
            members.GONE_AT_MOST = GONE_AT_MOST
            self.tabs = Tabs(self.world, self.network, self.record, self.servers)
            self.tabs.is_prompt = not setup["slow_node"]
            leaves = LeavesSeen(self.tabs)
            for server in self.servers:
                server.before_entry = leaves.before
        for server in self.servers:
            for link in self.network.both(server.name, REDIS if self.parent is None else PARENT):
                link.seconds = setup["delay"]
                if server.name == "n0" and setup["slow_node"]:
                    link.seconds = setup["slow_node"]
            if setup["old_nodes"]:
                server.version = LATEST_VERSION
            server.on_entry = self._note_entry
            if self.unread is not None:
                server.on_state = self.unread.starts
            server.start()
        self.other: OtherCluster | None = None
        if "other_cluster" in setup:
            self.other = OtherCluster(self.world, self.network, self.servers[0], self._redis)
        self.balancer = Balancer(self.world, self.network, [server.name for server in self.servers])
        self.producers: Producers | None = None
        if "producers" in setup:
            hosts = ["balancer", *[server.name for server in self.servers]]
            self.producers = Producers(self.world, self.network, self.record, hosts, setup["producers"])
        if self.tabs is not None:
            self.tabs.watch()
        self.publishers = [Publisher(self.world, self.network, f"p{n}", self.record) for n in range(3)]
        for publisher in self.publishers:
            publisher.unread = self.unread
        self.subscribers: dict[int, Subscriber] = {}
        self.backups: list[tuple[str, bytes, bytes | None]] = []
        """Copies of the journal and its mark."""
        self.epochs: list[str] = []
        """The names of all epochs that the log in Redis has had."""
        self._opened_at: dict[Clock, float] = {}
        """By how much the clock of a machine was ahead when its journal was opened."""
        self._last_fault: float | None = None
        self._looks = 0
        self.is_stopping = False
        self.probes = Probes(self)
        self.checker.forgets = inside.may_forget(self)
        self.limits = settings.queue
        """Of the next start of any server."""
        self.record.take(events.Begin(at=0.0, format=events.FORMAT, limits=self.limits))
        self.checker.confirmed = inside.check_confirmation(self)
        reach.watch(self)
        if self.other is not None:
            self.other.watch()
        if self.parent is not None:
            self.parent.on_start = self._note_clock
        elif self.kind == "journal":
            for server in self.servers:
                server.on_start = self._note_clock
            self._back_up()
        self._look_inside()

    # The run.

    def run(self) -> None:
        world = self.world
        for step in self.plan.steps:
            world.at(START + step.at, partial(self._do, step))
        world.run(START + FAULT_SECONDS)
        self._heal()
        self._wait(HEAL_SECONDS, least=SETTLE_SECONDS, until=lambda: inside.is_live(self))
        if self.other is None and self._remove_marks():
            self._wait(HEAL_SECONDS, least=SETTLE_SECONDS, until=lambda: inside.is_live(self))
        inside.check_live(self)
        if self.producers is not None:
            self._finish_producers(self.producers)
        self._finish()
        if self.producers is not None:
            self.producers.check()
        if self.tabs is not None:
            self._finish_tabs(self.tabs)
            # Some users poll at another server each time, so that nodes ask and answer for ever.
            self._wait(HEAL_SECONDS, least=0.0, until=lambda: inside.are_at_one_place(self))
        inside.check_equal(self)
        self.record.take(events.End(at=self.record.now))
        self._stop()
        inside.check_nothing_left(self)
        if world.longest_turn > TURN_WORK:
            raise BrokenPromise(f"a turn took {world.longest_turn} units of work; {TURN_WORK} are allowed")

    def _wait(self, most: float, *, least: float, until: Callable[[], bool]) -> None:
        """Let at most so many seconds pass, and no fewer than `least`."""
        end = self.world.now + most
        self.world.run(self.world.now + least)
        while self.world.now < end and not until():
            self.world.run(self.world.now + 0.25)

    def _look_inside(self) -> None:
        """Twice a second."""
        self._looks += 1
        if self._looks % INVARIANTS_EVERY == 0:
            inside.check_invariants(self)
            inside.check_owners(self)
            inside.check_marks(self)
        if self.tabs is not None and self.tabs.had_faults and not inside.all_are_ready(self):
            self.tabs.note_fault(stands_still=self.tabs.only_stood_still)  # it is not over
        inside.check_held(self)
        inside.check_equal_now(self)
        inside.check_versions(self)
        if not self.is_stopping:
            self.world.later(0.5, self._look_inside)

    def _do(self, step: Step) -> None:
        is_told_by_client = step.kind in ("publish", "subscribe", "stranger", "revoke", "erase", "produce")
        self.world.tell(f"-- {step.kind}" if is_told_by_client else f"-- {step.kind} {step.arguments}")
        if any(step.kind in weights for weights in (WEIGHTS, WORKER_WEIGHTS, LEASE_WEIGHTS, STRANGER_WEIGHTS)):
            if self._last_fault is not None and step.at - self._last_fault < 2.0:
                self.world.reach("two faults at once")
            self._last_fault = step.at
            self._note_fault(step.kind)
            self._fault(step.kind)
        getattr(self, f"do_{step.kind}")(**step.arguments)

    def _note_fault(self, kind: str = "") -> None:
        if self.unread is not None:
            self.unread.faults.append(self.world.now)
        if self.tabs is not None and kind != "drain" and (kind or self.tabs.had_faults):
            self.tabs.note_fault(stands_still=kind in STILL or (not kind and self.tabs.only_stood_still))

    def _note_entry(self, entry: Entry, outcome: Outcome) -> None:
        if self.unread is not None:
            self.unread.applied(entry, outcome)

    def _heal(self) -> None:
        self.world.tell("== all faults end")
        if self.tabs is not None:
            self.tabs.on_question = lambda: None
        self._note_fault()
        if self.unread is not None:
            self.unread.application.be("")
        self.network.heal()
        self.network.on_send = lambda end, data: None
        if self.other is not None:
            self.other.heal()
        if self.parent is not None:
            self.parent.disk.failing, self.parent.disk.slow = "", 0.0
            if self.parent.process is not None:
                self.parent.process.resume()
            self.parent.start_again()
        for server in self.servers:
            server.disk.failing, server.disk.slow, server.disk.on_call = "", 0.0, None
            if server.is_running and server.process is not None:
                server.process.resume()
            elif not server.is_running:
                server.start_again()
        if self.redis is not None:
            self.redis.redis.denies = ""
            self.redis.process.resume()
            self.redis.resume_replica()
            if not self.redis.process.alive:
                self.redis.restart(len(self.redis.writes))
        self.do_upgrade()

    def _remove_marks(self) -> bool:
        """As an operator, do what the log of a server says that has the mark of a cluster which Redis has lost.

        Returns whether there was such a server.
        """
        refusing = []
        for server in () if self.redis is None or self.checker.lossless else self.servers:
            trouble = server.node.why_not_ready() if server.is_running else None
            if trouble is not None and "belongs to cluster" in trouble.operator_detail:
                refusing.append(server)
        for server in refusing:
            self.world.tell(f"{server.name}: an operator removes its mark and starts it again")
            server.kill()
            server.disk.mark = None
            server.start_again()
        return bool(refusing)

    @property
    def _redis(self) -> RedisServer:
        """That of a cluster which has one."""
        assert self.redis is not None
        return self.redis

    @property
    def _may_be_full(self) -> bool:
        """A journal that was opened with a clock behind it expires nothing until then, and may stay full."""
        return not self.checker.clock_is_true and self.plan.setup["limits"] == "few channels"

    def _finish_producers(self, producers: Producers) -> None:
        """Let every producer publish what is in its outbox."""
        self._wait(HEAL_SECONDS, least=0.0, until=lambda: producers.are_done)
        if not self._may_be_full:
            producers.check_done()

    def _finish(self) -> None:
        """Publish once more on every channel, and let every subscriber read to the end."""
        for server in self.servers:
            server.start_again()
        prompt = [subscriber for subscriber in self.subscribers.values() if subscriber.is_prompt]
        for subscriber in self.subscribers.values():
            subscriber.timeout, subscriber.pause, subscriber.slow = min(subscriber.timeout, 2.0), 0.0, 0.0
            subscriber.prompt_from = self.record.now
        channels = {c for s in self.subscribers.values() for c in s.channels}
        publisher, random, began = self.publishers[0], self.world.random("last"), self.world.now
        if self.unread is not None:
            self.unread.last_from = began
        for channel in sorted(channels):
            # Two, for whoever polls again with the first has hardly been registered when the second comes.
            publisher.publish("balancer", [(channel,)], f"nearly last on {channel}", "accepted")
            self.world.run(self.world.now + random.uniform(0.0, 0.02))
            publisher.publish("balancer", [(channel,)], f"last on {channel}", "accepted", unread=self._last_unread)
        self._wait(DELIVERY_SECONDS, least=3.0, until=lambda: inside.all_have_read(self))
        for name, publication in () if self._may_be_full else self.checker.publications.items():
            if publication.key is not None and publication.key.startswith("last on") and not publication.ids:
                raise BrokenPromise(f"live again: {name} could not be published after all faults had ended")
        for subscriber in self.subscribers.values():
            inside.check_read_to_end(self, subscriber)
            if self.unread is not None and subscriber.session is not None:
                subject, is_prompt = subscriber.session.subject, subscriber in prompt
                self.unread.read_to_end(subject, subscriber.channels, at_once=is_prompt)
        if self.other is not None:
            self.other.check()

    def _finish_tabs(self, tabs: Tabs) -> None:
        """Let half of the tabs go without a word, and wait until nobody knows them."""
        for number, tab in tabs.tabs.items():
            if number % 2:
                tab.close()
        self.world.run(self.world.now + HIDDEN_SECONDS + GHOST_SECONDS)
        tabs.check_end()

    @property
    def _last_unread(self) -> tuple[float, tuple[str, ...]] | None:
        return (LAST_UNREAD_SECONDS, READERS) if self.plan.setup.get("unread_limit", 0) > 100 else None

    def _finish_unread(self, unread: UnreadMessages) -> None:
        """Wait until the application was told about all that nobody has read."""
        if self.checker.clock_is_true:
            self._wait(CALLS_SECONDS, least=0.0, until=lambda: not inside.waiting_webhooks(self))
            inside.check_webhooks(self)
            unread.check()

    def _stop(self) -> None:
        """Stop the clients and then the servers, in good order."""
        self.is_stopping = True
        for subscriber in self.subscribers.values():
            subscriber.leave()
        self.probes.leave()
        if self.tabs is not None:
            self.tabs.leave()
        if self.producers is not None:
            self.producers.leave()
        if self.other is not None:
            self.other.stop()
        self.balancer.process.die()
        self.world.run(self.world.now + 1.0)
        inside.check_nobody_waits(self)
        if self.unread is not None:
            self._finish_unread(self.unread)
        for server in self.servers:
            server.is_over = True
            server.stop()
        if self.parent is not None:
            self.parent.is_over = True
            self._stop_parent_when_alone(lambda: None)
        self.world.run(self.world.now + 30.0)

    # Clients.

    def do_publish(
        self,
        publisher: int,
        groups: list[tuple[str, ...]],
        key: bool,
        ack: str,
        target: str,
        node: int,
        unread: tuple[float, tuple[str, ...]] | None = None,
    ) -> None:
        who = self.publishers[publisher]
        host = "balancer" if target == "balancer" else self.servers[node % len(self.servers)].name
        who.publish(host, groups, f"k{self.world.now:.6f}" if key else None, ack, unread=unread)

    def do_subscribe(
        self,
        number: int,
        channels: tuple[str, ...],
        cursor: str,
        timeout: float,
        limit: int,
        direct: bool,
        slow: float,
        pause: float,
        streams: bool = False,
    ) -> None:
        subscriber = Subscriber(self.world, self.network, f"s{number}", self.record, channels, cursor)
        subscriber.must_be_in_time = self.jumps_alone
        subscriber.timeout, subscriber.limit, subscriber.slow, subscriber.pause = timeout, limit, slow, pause
        if direct:
            subscriber.hosts = [server.name for server in self.servers]
        if self.users is not None and self.unread is not None:
            subscriber.session = Session(self.users, subscriber.name)
        elif self.users is not None and number % 5:
            subscriber.session = Session(self.users, SUBJECTS[number % 5 == 1])
        subscriber.unread = self.unread
        if streams:
            subscriber.nodes = [server.name for server in self.servers]
        self.subscribers[number] = subscriber
        subscriber.start()

    def do_sleep(self, number: int, seconds: float) -> None:
        if number in self.subscribers:
            self.subscribers[number].sleep(seconds)

    def do_fork(self, number: int) -> None:
        if number in self.subscribers and self.subscribers[number].has_begun:
            other = self.subscribers[number].fork(f"s{number}f")
            self.subscribers[100 + number] = other
            other.start()

    def do_revoke(self, subject: str, target: str, node: int) -> None:
        assert self.users is not None
        self.users.revoke(subject, "balancer" if target == "balancer" else self._server(node).name)

    def do_erase(self, which: str, back: int, target: str, node: int) -> None:
        self.erasures.erase(which, back, "balancer" if target == "balancer" else self._server(node).name)

    def do_application(self, mood: str, seconds: float) -> None:
        """The application does not answer calls for a while."""
        assert self.unread is not None
        application = self.unread.application
        self._note_fault()
        application.be(mood)

        def mend() -> None:
            self._note_fault()
            application.be("")

        self.world.later(seconds, mend)

    def do_produce(self, producer: int, channels: tuple[str, ...]) -> None:
        assert self.producers is not None
        self.producers.outboxes[producer].write(channels)

    def do_take_over(self, producer: int) -> None:
        assert self.producers is not None
        self.producers.outboxes[producer].take_over()

    def do_tab(
        self,
        number: int,
        subject: str,
        channels: tuple[str, ...],
        streams: bool,
        direct: bool,
        pause: float,
        is_named: bool,
        node: int | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`node`: it asks only this server."""
        assert self.tabs is not None
        hosts = [server.name for server in self.servers] if direct else ["balancer"]
        if node is not None:
            hosts = [self._server(node).name]
        name = f"tab {number} of {subject} since {self.world.now - START:.1f}"
        tab = Tab(
            self.tabs, name, hosts, subject=subject, channels=channels, streams=streams, pause=pause,
            poll_seconds=poll_seconds, is_named=is_named,
        )  # fmt: skip
        self.tabs.open(number, tab)

    def do_hide_tab(self, number: int, hidden: bool) -> None:
        if self.tabs is not None and number in self.tabs.tabs:
            self.tabs.tabs[number].is_hidden = hidden

    def do_close_tab(self, number: int, says: bool) -> None:
        if self.tabs is not None and number in self.tabs.tabs:
            self.tabs.tabs[number].close(says=says)

    def do_stand_still(self, after: float, seconds: float) -> None:
        """When a node next asks about a member, the order stands still soon, for so long."""
        assert self.tabs is not None
        kind, more = ("parent_pause", {}) if self.parent is not None else ("redis_pause", {"node": 0, "what": ""})

        def stand_still() -> None:
            at = self.world.now - START + after
            if at < FAULT_SECONDS:
                self.world.reach("the order stood still after a question")
                pause = Step(at, kind, {**more, "seconds": seconds})
                self.world.later(after, lambda: self._do(pause))

        self.tabs.on_question = stand_still

    def do_hang_producer(self, producer: int, seconds: float) -> None:
        assert self.producers is not None
        self.producers.hang(producer, seconds)

    # Faults of servers.

    def _server(self, node: int) -> Server:
        return self.servers[node % len(self.servers)]

    def _fault(self, what: str, *, may_lose: bool = False, moves_clock: bool = False) -> None:
        self.record.take(events.Fault(at=self.record.now, what=what, may_lose=may_lose, moves_clock=moves_clock))

    def _note_clock(self, clock: Clock) -> None:
        """A journal is opened: it goes on with the wall clock of its machine, right or wrong."""
        if self.unread is not None and self.kind == "journal":
            end = (self.servers[0] if self.parent is None else self.parent).disk.end()
            self.unread.starts(*(end or ("", 0)))
        if self.kind == "journal" and clock.offset != self._opened_at.get(clock, 0.0):
            self._opened_at[clock] = clock.offset
            self._fault("a journal is opened after the clock has jumped", moves_clock=True)

    def _may_lose(self) -> None:
        if self.checker.lossless:
            self._fault("acknowledged entries may be lost from now on", may_lose=True)

    @property
    def ends_with_server(self) -> bool:
        """Whether the state ends with the only server."""
        return self.kind == "memory" and self.parent is None

    def do_kill(self, node: int, seconds: float) -> None:
        server = self._server(node)
        if self.parent is not None and server.is_running and not server.node.cursor.epoch:
            self.world.reach("a worker died before it had the state")
        server.kill()
        if self.ends_with_server:
            self._may_lose()
        self.world.later(seconds, server.start_again)

    def do_pause(self, node: int, seconds: float, what: str) -> None:
        self._pause(self._server(node).process, seconds)

    def _pause(self, process: Process | None, seconds: float) -> None:
        if process is not None and process.alive:
            process.pause()
            self.world.later(seconds, process.resume)

    def do_drain(self, node: int, seconds: float) -> None:
        server = self._server(node)
        server.stop()
        if self.ends_with_server:
            self._may_lose()
        self._start_when_stopped(server, seconds)

    def _start_when_stopped(self, server: Server, seconds: float) -> None:
        if server.is_running:
            self.world.later(0.5, lambda: self._start_when_stopped(server, seconds))
        else:
            self.world.later(seconds, server.start_again)

    def do_upgrade(self) -> None:
        """A rolling upgrade: the servers are restarted one after the other, and know the next version."""
        old = [server for server in self.servers if server.version == LATEST_VERSION]
        for number, server in enumerate(old):
            self.world.later(6.0 * number, partial(self._restart_with, server, NEXT_VERSION))

    def do_roll_back(self, node: int, seconds: float) -> None:
        """One server is restarted as it was before the upgrade, and later upgraded again."""
        server = self._server(node)
        self._restart_with(server, LATEST_VERSION, seconds)

    def _restart_with(self, server: Server, version: int, seconds: float = 0.0) -> None:
        server.version = version
        server.stop()
        self._start_when_stopped(server, seconds)

    def do_stop_all(self, redis: str, good: bool, seconds: float, share: float) -> None:
        """Stop every server, let something happen meanwhile, and start them again."""
        if self.ends_with_server:
            self._may_lose()
        for server in self.servers:
            if good:
                server.stop()
            else:
                server.kill()

        def meanwhile() -> None:
            for server in self.servers:
                if server.is_running:
                    server.kill()
            if self.redis is not None:
                if redis in ("old", "power", "restart", "without_save"):
                    more = {"share": share} if redis == "old" else {}
                    getattr(self, f"do_redis_{redis}")(seconds=0.0, **more)
            elif self.kind == "journal" and redis == "put_back" and self.parent is None:
                self._put_back(share)
            for server in self.servers:
                self.world.later(seconds, server.start_again)

        self.world.later(8.0 if good else 0.1, meanwhile)

    def do_jump(self, node: int, by: float) -> None:
        server = self._server(node)
        if server.is_running and server.node.polls.count:
            self.world.reach("a clock jumped while polls were held")
        server.clock.jump(by)

    # Faults of the parent process.

    def do_parent_kill(self, seconds: float) -> None:
        parent = self.parent
        assert parent is not None
        if self.kind == "memory":
            self._may_lose()
        parent.kill()
        self.world.later(seconds, parent.start_again)

    def _give_up(self, name: str) -> None:
        """A worker is too far behind: it is killed, and replaced."""
        server = next(server for server in self.servers if server.name == name)
        server.kill()
        self.world.later(0.5, server.start_again)

    def do_parent_pause(self, seconds: float) -> None:
        assert self.parent is not None
        self._pause(self.parent.process, seconds)

    def do_parent_stop(self, seconds: float) -> None:
        """All workers drain, and then the parent stops; it is started again."""
        parent = self.parent
        assert parent is not None
        if self.kind == "memory":
            self._may_lose()
        for server in self.servers:
            server.stop()
            self._start_when_stopped(server, seconds)
        self._stop_parent_when_alone(lambda: self.world.later(seconds, parent.start_again))

    def _stop_parent_when_alone(self, stopped: Callable[[], None], tries: int = 40) -> None:
        assert self.parent is not None
        if tries and any(server.is_running and server.draining for server in self.servers):
            self.world.later(0.2, lambda: self._stop_parent_when_alone(stopped, tries - 1))
        else:
            self.parent.stop(stopped)

    # Faults of links.

    def do_clog(self, node: int, other: str, seconds: float, direction: str) -> None:
        there, back = self.network.both(self._server(node).name, other)
        for link, clogged in ((there, direction != "from"), (back, direction != "to")):
            if clogged:
                link.clogged = True
                self.world.later(seconds, link.release)
        self._note_cut()

    def _note_cut(self) -> None:
        links = [link for server in self.servers for link in self.network.both(server.name, REDIS)]
        if self.redis is not None and all(
            a.cut or a.clogged or b.clogged for a, b in zip(links[::2], links[1::2], strict=True)
        ):
            self.world.reach("all nodes were cut off from Redis at once")

    def do_cut(self, node: int, other: str, seconds: float) -> None:
        name = self._server(node).name
        self.network.cut(name, other)
        self._note_cut()

        def mend() -> None:
            for link in self.network.both(name, other):
                link.cut = False

        self.world.later(seconds, mend)

    def do_late(self, what: str, seconds: float, flush: bool) -> None:
        """The next append or save of a node is under way for so long; Redis may lose everything meanwhile."""
        sha = {"append": SCRIPTS[0], "save": SCRIPTS[2], "report": SCRIPTS[4]}[what].sha.encode()

        def hold_up(end: End, data: bytes) -> None:
            if end.peer.host == REDIS and sha in data:
                self.network.on_send = lambda end, data: None
                link = self.network.link(end.host, REDIS)
                link.clogged = True
                self.world.tell(f"{end.host}: its next {what} is late")
                self.world.later(seconds, link.release)
                if flush:
                    self.world.later(1.0, self.do_redis_flush)

        self.network.on_send = hold_up

    def do_cut_off(self, node: int, seconds: float, how: str) -> None:
        """A node cannot reach Redis for about as long as its lease lasts, and comes back."""
        if how == "cut":
            self.do_cut(node, REDIS, seconds)
        else:
            self.do_clog(node, REDIS, seconds, how)

    def do_join_slowly(self, node: int, seconds: float, delay: float) -> None:
        """A node starts anew, and its first reports are under way for long."""
        self.do_slow_link(node, REDIS, seconds, delay)
        self.do_kill(node, 0.0)

    def do_late_report(self, seconds: float) -> None:
        """The next report of a node is under way for so long."""
        self.do_late("report", seconds, flush=False)

    def do_slow_link(self, node: int, other: str, seconds: float, delay: float) -> None:
        links = self.network.both(self._server(node).name, other)
        before = links[0].seconds
        for link in links:
            link.seconds = delay

        def mend() -> None:
            if self.world.now < START + FAULT_SECONDS:  # or it is healed, and would be slow again if it was before
                for link in links:
                    link.seconds = before

        self.world.later(seconds, mend)

    # Faults of Redis.

    def _restart_redis(self, count: int, seconds: float, *, promoted: bool = False) -> None:
        redis = self._redis
        has_all = count >= len(redis.writes) and redis.appendfsync == "always"
        is_durable = not self.plan.setup["replica"]  # with a replica it cannot be proven
        if promoted or not has_all or not is_durable:  # else it is known that nothing is missing
            self._may_lose()
        redis.stop()

        def start() -> None:
            if not redis.process.alive:
                redis.restart(min(count, len(redis.writes)), promoted=promoted)
                reach.redis_came_back(self)

        self.world.later(seconds, start)

    def do_redis_restart(self, seconds: float) -> None:
        """All that it had is there again, unless it does not keep a file of each write."""
        redis = self._redis
        self._restart_redis(redis.dumps[-1] if redis.appendfsync == "none" else len(redis.writes), seconds)

    def do_redis_power(self, seconds: float) -> None:
        """What was synced is there again."""
        redis = self._redis
        self._restart_redis(redis.dumps[-1] if redis.appendfsync == "none" else redis.synced, seconds)

    def do_redis_old(self, seconds: float, share: float) -> None:
        """An older file is put in place."""
        self._restart_redis(int(len(self._redis.writes) * share), seconds)

    def do_redis_without_save(self, seconds: float, tries: int = 40) -> None:
        """It comes back with every entry, but without the last save of the checkpoint; later a node starts again."""
        redis = self._redis
        count = inside.before_last_save(redis)
        if count is None or redis.writes[count][0] > redis.now() - 0.6:
            if tries:  # wait for a moment at which nothing was published since the last save
                self.world.later(0.05, lambda: self.do_redis_without_save(seconds, tries - 1))
            return
        self.world.reach("Redis came back with every entry, but without the last save")
        self._restart_redis(count, seconds)
        self.world.later(seconds + 6.0, lambda: self.do_kill(1, 0.0))

    def do_redis_failover(self, seconds: float) -> None:
        """The replica takes over."""
        self._restart_redis(self._redis.replicated, seconds, promoted=True)

    def do_redis_replica_restart(self, seconds: float) -> None:
        """Redis is lost, and its replica is restarted as the primary, which has none itself.

        It looks as if it had always been alone, and syncs each write.
        """
        redis = self._redis
        if redis.has_replica:
            redis.has_replica = False
            reach.replica_takes_over(self)
            self._may_lose()
            self._restart_redis(redis.replicated, seconds)

    def do_lost_together(self, node: int, seconds: float) -> None:
        """Redis is lost with the only node that had its last entries, and the replica lacks them."""
        redis, server = self._redis, self._server(node)
        if not redis.has_replica or not server.is_up:
            return
        redis.replica_paused = True
        for other in self.servers:
            if other is not server:
                self.do_cut(self.servers.index(other), REDIS, 0.6)
        for name in NAMES[:2]:
            self.publishers[0].publish(server.name, [(name,)], None, "accepted")

        def lose() -> None:
            if redis.process.alive:
                self.do_redis_replica_restart(0.1)
                server.kill()
                self.world.later(seconds, server.start_again)

        self.world.later(0.4, lose)

    def do_stranger(self, channel: str, key: bool) -> None:
        """Somebody publishes in the other cluster."""
        assert self.other is not None
        self.other.publish(channel, key=key)

    def do_other_redis(self, node: int, seconds: float) -> None:
        """A server's address of Redis leads to that of another cluster for a while."""
        assert self.other is not None
        self.other.lead_here(self._server(node), seconds)

    def do_other_node(self, seconds: float) -> None:
        """The other cluster's server is led to this Redis for a while."""
        assert self.other is not None
        self.other.lead_there(seconds)

    def do_other_state_directory(self, node: int, seconds: float, removed: bool) -> None:
        """A server starts again with the state directory of another cluster, until an operator has read its log."""
        assert self.other is not None
        self.other.give_state_directory(self._server(node), seconds, removed=removed)

    def do_drain_and_failover(self, node: int, seconds: float) -> None:
        self.do_drain(node, 0.0)
        if self._redis.has_replica:
            self.world.later(seconds, lambda: self.do_redis_failover(0.0))
        else:
            self.world.later(seconds, lambda: self.do_redis_restart(0.0))

    def do_cut_all(self, seconds: float) -> None:
        for node in range(len(self.servers)):
            self.do_cut(node, REDIS, seconds)

    def do_poison(self, width: int, what: str) -> None:
        """Somebody appends an entry that no node can read."""
        redis = self._redis
        self._may_lose()
        state = redis.data.get(b"{pushup}:5:state")
        if state is not None and redis.process.alive:
            keys = [b"{pushup}:5:state", b"{pushup}:5:log"]
            arguments = [state[b"epoch"], b"poison", b"%d" % width, what.encode(), redis.redis.history.encode()]
            words = [b"EVALSHA", SCRIPTS[0].sha.encode(), b"2", *keys, *arguments]
            self.world.tell(f"redis: somebody appends {what}: {redis.execute(words)}")

    def do_poison_one(self, node: int) -> None:
        """An entry that one node cannot apply the first time: the others are not concerned, and nothing is lost."""
        name = self._server(node).name
        self.world.reach("one node could not apply an entry that others could")
        what = f"poison for {name} {len(self.checker.publications)}"
        self.publishers[0].publish("balancer", [(NAMES[0],)], what, "accepted", f"p0.{what}")

    def do_new_settings(self, limits: dict[str, Any]) -> None:
        """The servers are restarted one after the other, with other limits."""
        alone = [step.kind for step in self.plan.steps if step.kind in WEIGHTS] == ["new_settings"]
        alone = alone and not self.plan.setup["slow_node"]
        self.limits = structs.replace(self.limits, **limits)
        self.record.take(events.LimitsChange(at=self.record.now, limits=self.limits))
        for number, server in enumerate(self.servers):

            def restart(server: Server = server) -> None:
                server.use(**limits)
                self.do_drain(self.servers.index(server), 0.0)
                if alone:
                    self.world.later(5.9, lambda: inside.check_ready(server))

            self.world.later(6.0 * number, restart)

    def do_redis_evict(self, key: str) -> None:
        self._may_lose()
        self._redis.evict(b"{pushup}:5:" + key.encode())

    def do_redis_flush(self) -> None:
        self._may_lose()
        self._redis.flush()

    def do_redis_deny(self, node: int, seconds: float, what: str) -> None:
        redis = self._redis
        redis.redis.denies = f"{what} command not allowed"

        def allow() -> None:
            redis.redis.denies = ""

        self.world.later(seconds, allow)

    def do_redis_pause(self, node: int, seconds: float, what: str) -> None:
        self._pause(self._redis.process, seconds)

    def do_redis_jump(self, node: int, by: float) -> None:
        self._fault("the clock of Redis jumps", moves_clock=True)
        self._redis.offset_seconds += by

    def do_replica_pause(self, node: int, seconds: float, what: str) -> None:
        self._redis.replica_paused = True
        self.world.later(seconds, self._redis.resume_replica)

    # Faults of disks.

    def do_disk(self, what: str, seconds: float) -> None:
        disk = self.servers[0].disk if self.parent is None else self.parent.disk
        if what == "slow":
            disk.slow = 0.5
        else:
            disk.failing = what

        def mend() -> None:
            disk.failing, disk.slow = "", 0.0

        self.world.later(seconds, mend)

    def do_kill_writing(self, seconds: float, share: float) -> None:
        """The server dies during its next call to the disk."""
        server = self.servers[0]

        def kill() -> None:
            server.kill()
            self.world.later(seconds, server.start_again)

        server.disk.on_call = lambda delay: self.world.later(share * delay, kill)

    def _back_up(self) -> None:
        server = self.servers[0]
        if not server.disk.in_transaction:
            self.backups.append((f"{self.world.now - START:.1f}", server.disk.backup(), server.disk.mark))
        if self.world.now < START + FAULT_SECONDS:
            self.world.later(2.0, self._back_up)

    def do_put_back(self, share: float, good: bool, *, with_mark: bool = False) -> None:
        """The server is stopped, an older copy of its journal is put in place, and it starts again."""
        server = self.servers[0]
        if good:
            server.stop()
        else:
            server.kill()

        def put() -> None:
            if server.is_running:
                server.kill()
            self._put_back(share, with_mark=with_mark)
            server.start_again()

        self.world.later(8.0 if good else 0.1, put)

    def do_put_back_with_mark(self, share: float, good: bool) -> None:
        """As `do_put_back`, and its mark is put back, too: nobody can know."""
        self.do_put_back(share, good, with_mark=True)

    def _put_back(self, share: float, *, with_mark: bool = False) -> None:
        time, backup, mark = self.backups[int(share * len(self.backups))]
        disk = self.servers[0].disk
        self._may_lose()
        self.world.reach("the journal was put back to an earlier time")
        self.world.tell(f"n0: the journal of {time} s is put back" + (", and its mark" if with_mark else ""))
        disk.put_back(backup)
        if with_mark:
            disk.mark = mark
        end = disk.end()
        if end is not None:
            inside.note_unknowable(self, f"{end[0]}-{end[1]}")


@implementer(ILogObserver)
class _Log:
    """Adds what servers log to the story."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.info:
            process = self._world.running
            self._world.tell(f"{process.name if process else 'nobody'} logs: {formatEvent(event)}")


def simulate(plan: Plan, observe: Callable[[Simulation], None] | None = None) -> Result:
    """Carry out a plan."""
    with next_version():
        know(LATEST_VERSION)  # unless a server knows more
        return _simulate(plan, observe)


def _simulate(plan: Plan, observe: Callable[[Simulation], None] | None) -> Result:
    broken = ""
    expire_at_most = state.EXPIRE_AT_MOST
    unsent_limit, gone_at_most = link_module.UNSENT_LIMIT_BYTES, members.GONE_AT_MOST
    simulation = Simulation(plan)
    if observe is not None:
        observe(simulation)
    world = simulation.world
    log = _Log(world)
    globalLogPublisher.addObserver(log)
    try:
        simulation.run()
    except BrokenPromise as error:
        broken = str(error)
        world.tell(f"!! {broken}")
    finally:
        globalLogPublisher.removeObserver(log)
        state.EXPIRE_AT_MOST = expire_at_most
        link_module.UNSENT_LIMIT_BYTES = unsent_limit
        members.GONE_AT_MOST = gone_at_most
        for server in simulation.servers:
            server.forget()
        if simulation.other is not None:
            simulation.other.server.forget()
        if simulation.parent is not None:
            simulation.parent.disk.close()
    return Result(
        plan, broken, world.digest, dict(sorted(world.reached.items())), dict(simulation.checker.without_loss),
        world.story, world.event_count, world.longest_turn, simulation.record.events,
    )  # fmt: skip
