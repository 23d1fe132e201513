"""Erasures of messages, as an application asks for them: what was acknowledged as deleted is told to the checker."""

from __future__ import annotations

from urllib.parse import quote

from loadtest.history.events import Erased
from tests.simulation.clients import PUBLISHER_SECONDS, key_of
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.world import Process, World


class Erasures:
    """Whoever deletes messages."""

    def __init__(self, world: World, network: Network, record: Record) -> None:
        self._world = world
        self._network = network
        self._record = record
        self._process = Process(world, "eraser")

    def erase(self, which: str, back: int, host: str) -> None:
        """Delete the message that was acknowledged so many publications ago; or all up to it, by `which`.

        `channel`: of its first channel; `owner`: of its publisher.
        """
        publications = [each for each in self._record.checker.publications.values() if each.ids]
        if len(publications) <= back:
            return
        chosen = publications[-1 - back]
        channel = chosen.channels[0][0]
        target, ids = f"/{chosen.ids[0]}", {chosen.ids[0]}
        if which == "channel":
            target = f"?channel={quote(channel)}&until={chosen.ids[-1]}"
            ids = {
                id_
                for each in publications
                for id_, channels in zip(each.ids, each.channels, strict=True)
                if channel in channels and self._is_before(id_, chosen.ids[-1])
            }
        elif which == "owner":
            target, ids = f"?owner={chosen.name[:2]}", set()
        headers = {"Authorization": f"Bearer {key_of('p0')}"}
        client = HttpClient(self._network, self._process)

        def replied(reply: Message | None) -> None:
            client.drop()
            self._world.tell(f"eraser: {'no reply' if reply is None else reply.body.decode()}")
            if reply is not None and reply.status == 200:
                if reply.json["deleted"]:
                    self._world.reach("a message was deleted")
                self._record.take(Erased(at=self._record.now, ids=tuple(sorted(ids))))

        self._world.tell(f"eraser: DELETE {target} at {host}")
        client.ask(host, request("DELETE", f"/v1/messages{target}", **headers), PUBLISHER_SECONDS, replied)

    def _is_before(self, id_: str, until: str) -> bool:
        """Whether it is this message, or in the same epoch before it."""
        order = self._record.checker.order
        return order.epoch(id_) == order.epoch(until) and order.place(id_) <= order.place(until)
