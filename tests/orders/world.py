"""One run by a seed: a cluster of logs and nodes, its publishers and subscribers, faults and splits, and the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from itertools import count
from random import Random
from types import ModuleType
from typing import Any

from tests.orders import model as the_model
from tests.orders.checker import BrokenPromise, Checker
from tests.orders.model import Appended, Directory, Gap, Node, Publish, Server, bits_of

CHANNELS = tuple(f"{name}{{{tag}}}" for tag in range(6) for name in "ab")
"""Two with each tag, which belong to one log forever."""
STEPS = 600
SERVERS = 5
SKEW = 120
"""How far the clocks of two servers differ at most, in steps, until one jumps."""

STATES = (
    "a loss during a split", "a loss after a split", "a split of a child", "a part of an answer",
    "a retry across a split", "a refusal", "a cursor from before a split", "a page that ends before a split",
    "a node dies during a split", "a gap: lost", "a gap: evicted", "a poll and a split at once",
)  # fmt: skip
"""What a long run must have come by."""


class Client:
    """A subscriber: its next poll, at any node."""

    def __init__(self, name: str, channels: tuple[str, ...], cursor: str, sleeps: float) -> None:
        self.name = name
        self.channels = channels
        self.cursor = cursor
        self.sleeps = sleeps
        """How often it could poll and does not; it is told of gaps then."""


class Publisher:
    """A publication until its publisher knows what became of it."""

    def __init__(self, name: str, command: Publish) -> None:
        self.name = name
        self.command = command
        self.at: tuple[Node, Appended] | None = None
        self.splits = 0


class World:
    def __init__(self, seed: int, model: ModuleType = the_model, *, clocks_jump: bool = True) -> None:
        """`clocks_jump`: a server that loses something may come back with a clock that is behind."""
        self.random = Random(seed)
        self.clocks_jump = clocks_jump
        self.model: Any = model
        self.checker = Checker(the_model.KEEP, allows_late=hasattr(model, "ALLOWS_LATE"))
        self.reached: Counter[str] = Counter()
        self._names = (f"e{number}" for number in count(1))
        self.servers: list[Server] = [model.Server() for _ in range(SERVERS)]
        self.skew = [self.random.randrange(SKEW) for _ in self.servers]
        self.nodes: list[Node] = [self._node() for _ in range(3)]
        self.nodes[0].follow("")  # the first log begins
        self.clients: list[Client] = []
        self.publishers: list[Publisher] = []
        self.helpers: list[tuple[Node, Generator[None]]] = []
        self.splits = 0
        self._numbers = count(1)
        self.steps = {
            self.publish: 20, self.attempt: 24, self.poll: 60, self.subscribe: 4, self.read: 20, self.save: 4,
            self.unfollow: 10, self.kill: 2, self.down: 4, self.up: 9, self.start_split: 6, self.help: 40,
            self.lose: 1.5,
        }  # fmt: skip
        if self.random.random() < 0.5:
            self.steps[self.lose] = 0  # nothing is ever lost, so no gap may say so

    def run(self) -> Counter[str]:
        """Raises: BrokenPromise."""
        steps, weights = list(self.steps), list(self.steps.values())
        for now, step in enumerate(self.random.choices(steps, weights, k=STEPS)):
            for server, skew in zip(self.servers, self.skew, strict=True):
                server.clock = now + skew
            with suppress(self.model.Unavailable):
                step()
        self.finish()
        self.checker.end()
        return self.reached

    # Steps.

    def publish(self) -> None:
        name = f"p{next(self._numbers)}"
        kind = self.random.random()
        if kind < 0.6:
            groups = [self._some_channels(self.random.choice((1, 2, 3)))]
        else:
            tag = self.random.randrange(6)
            groups = [(self.random.choice((f"a{{{tag}}}", f"b{{{tag}}}")),) for _ in range(self.random.randrange(2, 4))]
        messages = tuple((group, f"{name}/{n}") for n, group in enumerate(groups))
        self.checker.publishes(name, {data: group for group, data in messages})
        publisher = Publisher(name, self.model.Publish(name, messages))
        self.publishers.append(publisher)
        self._attempt(publisher)

    def attempt(self) -> None:
        if self.publishers:
            self._attempt(self.random.choice(self.publishers))

    def _attempt(self, publisher: Publisher) -> None:
        """The next thing that a publisher does: sends, again if it has to, or gets its answer."""
        if publisher.at is None:
            node = self.random.choice(self.nodes)
            if publisher.splits not in (0, self.splits):
                self.reached["a retry across a split"] += 1
            publisher.splits = publisher.splits or self.splits
            try:
                result: Any = node.publish(publisher.command)
            except self.model.Refused:
                self.reached["a refusal"] += 1
                self.checker.refused(publisher.name)
                self.publishers.remove(publisher)
                return
            if isinstance(result, self.model.Appended):
                publisher.at = node, result
                if self.random.random() < 0.1:
                    publisher.at = None  # the response does not arrive
            else:
                self._acknowledge(publisher, result.ids)
            return
        node, appended = publisher.at
        if node not in self.nodes:
            publisher.at = None
            return
        if appended.tag not in node.outcomes:
            self._try(lambda: node.follow(appended.prefix))
        if appended.tag in node.outcomes:
            self._acknowledge(publisher, node.outcomes[appended.tag])
        elif self.random.random() < 0.2:
            publisher.at = None

    def _acknowledge(self, publisher: Publisher, ids: tuple[str, ...]) -> None:
        self.checker.acknowledged(publisher.name, ids)
        self.publishers.remove(publisher)

    def subscribe(self) -> None:
        if len(self.clients) < 12:
            name = f"s{len(self.clients)}"
            cursor = self.random.choice(("earliest", "now"))
            client = Client(
                name, self._some_channels(self.random.choice((1, 2, 3, 6))), cursor, self.random.choice((0, 0.5, 0.95))
            )
            self.checker.subscribes(name, client.channels, is_earliest=cursor == "earliest")
            self.clients.append(client)

    def poll(self) -> None:
        if self.clients and (client := self.random.choice(self.clients)).sleeps < self.random.random():
            self._poll(client, self.random.choice(self.nodes))

    def _poll(self, client: Client, node: Node) -> bool:
        """Whether there was anything for it."""
        self.reached["polls"] += 1
        answer = node.answer(client.channels, client.cursor, self.random.choice((1, 2, 3, 10)))
        self.reached["polls that are answered"] += 1
        self._note(client, answer.cursor, answer.gaps)
        self.checker.answered(client.name, answer.messages, answer.gaps)
        client.cursor = answer.cursor
        return answer.more or bool(answer.messages) or bool(answer.gaps)

    def _note(self, client: Client, after: str, gaps: tuple[Gap, ...]) -> None:
        for gap in gaps:
            self.reached[f"a gap: {gap.reason}"] += 1
        if client.cursor in ("now", "earliest") or "." not in client.cursor + after:
            return
        before, now = the_model.read_cursor(client.cursor), the_model.read_cursor(after)
        leaves = {self._newest().leaf(channel) for channel in client.channels}
        if before.keys() - leaves:
            self.reached["a cursor from before a split"] += 1
            self.reached["a page that ends before a split"] += before != now and bool(now.keys() - leaves)
        splitting = self._newest().splitting
        self.reached["a poll and a split at once"] += bool(splitting.keys() & leaves)
        down = {prefix for prefix, number in self._newest().leaves.items() if not self.servers[number].is_up}
        if any(before.get(prefix) == now.get(prefix) for prefix in down & leaves) and before != now:
            self.reached["a part of an answer"] += 1

    def read(self) -> None:
        node = self.random.choice(self.nodes)
        if node.replicas:
            node.read(self.random.choice(list(node.replicas)), self.random.choice((1, 2, 100)))

    def save(self) -> None:
        node = self.random.choice(self.nodes)
        if node.replicas:
            node.save(self.random.choice(list(node.replicas)))

    def unfollow(self) -> None:
        node = self.random.choice(self.nodes)
        if node.replicas:
            node.unfollow(self.random.choice(list(node.replicas)))

    def kill(self) -> None:
        number = self.random.randrange(len(self.nodes))
        if any(node is self.nodes[number] for node, _ in self.helpers):
            self.reached["a node dies during a split"] += 1
        self.nodes[number] = self._node()
        self.helpers = [(node, steps) for node, steps in self.helpers if node in self.nodes]

    def down(self) -> None:
        self.random.choice(self.servers).is_up = False

    def up(self) -> None:
        self.random.choice(self.servers).is_up = True

    def lose(self) -> None:
        """A server restarts without some of its data. Never all copies of the directory are lost."""
        newest = self._newest()
        server = self.random.choice(self.servers)
        number = self.servers.index(server)
        others = [s for s in self.servers if s is not server and s.is_up and s.directory == newest]
        places = newest.leaves | {p: n for children in newest.splitting.values() for p, n in children.items()}
        prefixes = [prefix for prefix, at in places.items() if at == number]
        if newest.splitting:
            self.reached["a loss during a split"] += bool(prefixes)
        elif len(newest.leaves) > 1:
            self.reached["a loss after a split"] += bool(prefixes)
        self.checker.loses(frozenset(c for c in CHANNELS if any(bits_of(c).startswith(prefix) for prefix in prefixes)))
        self.skew[number] -= self.clocks_jump and self.random.choice((0, 0, 200))
        server.lose(everything=bool(others) and self.random.random() < 0.5)

    def start_split(self) -> None:
        """An operator: it is written to all servers before anything happens."""
        newest = self._newest()
        if newest.splitting or not all(server.is_up for server in self.servers) or len(newest.leaves) > 8:
            return
        parent = self.random.choice(list(newest.leaves))
        children = [parent + bits for bits in self.random.choice((("0", "1"), ("00", "01", "10", "11")))]
        self.reached["a split of a child"] += parent != ""
        self.splits += 1
        places = {prefix: self.random.randrange(SERVERS) for prefix in children}
        for server in self.servers:
            server.learn(self.model.Directory(newest.version + 1, newest.leaves, {parent: places}))

    def help(self) -> None:
        """Nodes do what is left to do of a split, several at a time."""
        if self.helpers and self.random.random() < 0.8:
            number = self.random.randrange(len(self.helpers))
            try:
                next(self.helpers[number][1])
            except (StopIteration, self.model.Unavailable):
                del self.helpers[number]
        elif self._newest().splitting:
            node = self.random.choice(self.nodes)
            self.helpers.append((node, node.split()))

    # The end.

    def finish(self) -> None:
        """All faults end; then everything must be well within a bounded number of tries."""
        for server in self.servers:
            server.is_up = True
            server.clock = 2 * STEPS
        for _ in range(4):
            for node in self.nodes:
                self._try(lambda node=node: list(node.split()))
        if self._newest().splitting:
            raise BrokenPromise("well again: a split does not end")
        for _ in range(100):
            for publisher in list(self.publishers):
                self._try(lambda publisher=publisher: self._attempt(publisher))
        if self.publishers:
            raise BrokenPromise(f"well again: {self.publishers[0].name} gets no answer")
        for server in self.servers:
            server.clock = 3 * STEPS
        for client in self.clients:
            quiet = 0
            for turn in range(400):
                node = self.nodes[turn % len(self.nodes)]
                self._try(lambda node=node: [node.follow(node.leaf(c)) for c in CHANNELS])
                had = self._try(lambda client=client, node=node: self._poll(client, node))
                quiet = quiet + 1 if had is False else 0
                if quiet == len(self.nodes):
                    break
            else:
                raise BrokenPromise(f"well again: {client.name} does not come to an end")

    # What the steps need.

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except self.model.Unavailable:
            return None

    def _node(self) -> Node:
        node: Node = self.model.Node(self.servers, lambda: next(self._names))
        return node

    def _newest(self) -> Directory:
        copies = [copy for server in self.servers if (copy := server.stored)]
        return max(copies, key=lambda copy: copy.version, default=Directory(1, {"": 0}, {}))

    def _some_channels(self, number: int) -> tuple[str, ...]:
        return tuple(self.random.sample(CHANNELS, number))


def run(seed: int, model: ModuleType = the_model, *, clocks_jump: bool = True) -> Counter[str]:
    """What the run came by. Raises: BrokenPromise."""
    return World(seed, model, clocks_jump=clocks_jump).run()
