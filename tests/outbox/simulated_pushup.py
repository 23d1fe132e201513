"""What docs/guide/publishing.md says about producers, and nothing else of a server; for `SimulatedDriver`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from pushup.client import Client
from tests.client.simulated_driver import Reply, Sent, SimulatedDriver, answer


@dataclass
class SimulatedPushUp:
    """`messages`: the data of each message that was published, in order. `fault` may answer instead of the server."""

    messages: list[Any] = field(default_factory=list)
    producers: dict[str, tuple[int, int, list[Any], dict[str, Any]]] = field(default_factory=dict)
    """Of each: its epoch, the number of its last publication's first message, those messages, the answer."""
    sizes: list[int] = field(default_factory=list)
    fault: Callable[[Callable[[], Reply]], Reply] = lambda publish: publish()

    def client(self) -> Client:
        driver = SimulatedDriver(a=repeat(Reply(decide=lambda sent: self.fault(lambda: self._publish(sent)))))
        return Client("unix:a", driver=driver, patience=0)

    def _publish(self, sent: Sent) -> Reply:
        assert "idempotency-key" not in sent.headers
        messages, producer = sent.body["messages"], sent.body["producer"]
        name, epoch, first = producer["name"], producer["epoch"], producer["sequence"]
        for number, message in enumerate(messages):
            if message["channels"] == ["closed"]:
                return _problem(403, "forbidden", field="channels")
            if message["data"] == "large":
                return _problem(413, "message-too-large", field=f"messages[{number}].data")
        known_epoch, known_first, known, before = self.producers.get(name, (0, first, [], {}))
        expected = known_first + len(known)
        if epoch < known_epoch:
            return _problem(409, "producer-fenced", field="producer.epoch", epoch=known_epoch)
        if known and (first, messages) == (known_first, known):
            return answer(201, before)
        if first + len(messages) <= known_first:
            return answer(200, {"duplicate": True})
        if first != expected:
            return _problem(409, "producer-sequence", field="producer.sequence", next=expected)
        unknown = name not in self.producers
        ids = [f"e-{len(self.messages) + number}" for number in range(len(messages))]
        given = {"ids": ids, "time": 1.0, "cursor": ids[-1]}
        given |= {"after_loss": True} if unknown and first else {}
        self.messages += [message["data"] for message in messages]
        self.sizes.append(len(messages))
        self.producers[name] = (epoch, first, messages, given)
        return answer(201, given)


def _problem(status: int, code: str, **more: Any) -> Reply:
    return answer(status, {"type": f"urn:pushup:{code}", "title": code, "status": status, "detail": code} | more)
