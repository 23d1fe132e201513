"""The application that PushUp calls about messages that were not read: it checks each call, and answers or does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from loadtest.history.events import BrokenPromise
from tests.simulation.http import Message, Reader
from tests.simulation.network import End, Network
from tests.simulation.outgoing import APPLICATION
from tests.simulation.world import Process, World

SECRET = b"a key of the simulated application"
URL = f"http://{APPLICATION}/unread"
KEY = "whsec_" + base64.b64encode(SECRET).decode()

LATE_SECONDS = 13.0
"""After this it answers if it is slow: PushUp has given up (`webhook_timeout_seconds`)."""

MOODS = ("fails", "fails", "silent", "late", "hangs up", "down", "gone")
"""What it may do instead of answering: an error; nothing; too late; it takes note, and closes; it is not there; it
wants no other attempt. Errors come twice as often.
"""


class Call(NamedTuple):
    """What it was told. `timestamp`: of this attempt; `data` is None if there was none any more."""

    at: float
    timestamp: int
    id: str
    channels: tuple[str, ...]
    subjects: tuple[str, ...]
    data: str | None


class Application:
    """One process, which keeps what it has taken note of."""

    def __init__(self, world: World, network: Network, on_call: Callable[[Call], None]) -> None:
        """`on_call` judges each call. Raises: BrokenPromise."""
        self._world = world
        self._network = network
        self._on_call = on_call
        self.process = Process(world, APPLICATION)
        self.mood = ""
        self.calls: list[Call] = []
        self.knows: set[str] = set()
        """The ids of calls that it has taken note of."""
        self.agreed_to: set[str] = set()
        """The ids of calls that it has answered, or is about to, in time or not."""
        network.listen(APPLICATION, self.process, self._accept)

    def be(self, mood: str) -> None:
        """Have this mood from now on; empty: it answers."""
        self._world.tell(f"{APPLICATION}: {mood or 'answers'}")
        self.mood = mood
        if mood == "down":
            self._network.close_all(self.process)
        else:
            self._network.listen(APPLICATION, self.process, self._accept)

    def _accept(self, end: End) -> None:
        reader = Reader()

        def received(data: bytes) -> None:
            for message in reader.feed(data):
                self._called(end, message)

        end.on_data = received
        end.on_end = end.on_lost = end.close

    def _called(self, end: End, request: Message) -> None:
        """Raises: BrokenPromise."""
        call = self._read(request)
        self._world.tell(f"{APPLICATION}: {self.mood or 'takes note'}: {call}")
        self._world.reach("the application was called")
        if call.id in self.knows:
            self._world.reach("the application was called again about what it knew")
        self.calls.append(call)
        self._on_call(call)
        match self.mood:
            case "fails":
                end.send(_response("500 Internal Server Error"))
            case "gone":
                self.agreed_to.add(call.id)
                end.send(_response("410 Gone"))
            case "silent":
                pass
            case "hangs up":
                self.knows.add(call.id)
                end.close()
            case "late":
                self.agreed_to.add(call.id)
                self.process.later(LATE_SECONDS, lambda: _send_if_open(end))
            case _:
                self.knows.add(call.id)
                self.agreed_to.add(call.id)
                end.send(_response("204 No Content"))

    def _read(self, request: Message) -> Call:
        """Raises: BrokenPromise."""
        headers, body = request.headers, request.json
        id_, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        signed = f"{id_}.{timestamp}.".encode() + request.body
        signature = base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
        message = body["data"]
        if headers["webhook-signature"] != f"v1,{signature}" or not timestamp.isdigit():
            raise BrokenPromise(f"calls are signed: {headers}")
        if request.first_line != "POST /unread HTTP/1.1" or body["type"] != "message.unread" or message["id"] != id_:
            raise BrokenPromise(f"calls are of one form: {request.first_line}, {id_}: {body}")
        return Call(
            self._world.now,
            int(timestamp),
            id_,
            tuple(message["channels"]),
            tuple(message["subjects"]),
            message["data"],
        )


def _send_if_open(end: End) -> None:
    if end.is_open:
        end.send(_response("204 No Content"))


def _response(status: str) -> bytes:
    length = "" if status.startswith("204") else "Content-Length: 0\r\n"
    return f"HTTP/1.1 {status}\r\n{length}\r\n".encode()
