"""What clients ask of a member (§2): to broadcast an update, or to retrieve something about the service's state.

One datagram each. The second is answered, with the state and what the member has measured; `Measure` begins that anew.
"""

from __future__ import annotations

import msgspec

from loadtest.mishra.core.messages import Atomicity, Order


class Broadcast(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """Broadcast this update. `at`: when the client asked, by the machine's monotonic clock."""

    order: Order
    atomicity: Atomicity
    at: float
    data: bytes


class Measure(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Measure from now on; deliveries after `until` (monotonic) do not count as throughput."""

    until: float


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Retrieve the state. `token` comes back, so that the answer is not taken for that of an earlier question."""

    token: int


Request = Broadcast | Measure | Ask


class Costs(msgspec.Struct, frozen=True, array_like=True):
    """What the load cost until it ended.

    `sent`: messages by kind; `switches`: of context; `cpu`: seconds of it; `selects`: calls, which threads do not make.
    """

    sent: dict[str, int]
    events: int
    switches: int
    cpu: float
    selects: int


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The answer. Times in seconds; `delivery` is from the client's request to each delivery at this member,
    `stability` from the client's request to when this member, the proposer, knows that the update is stable. `traced`
    and `example`: the sums and the example of `trace`, if there is one.
    """

    token: int
    in_group: bool
    view: int
    members: int
    accepted: int
    refused: int
    delivered_in_time: int
    delivery_count: int
    delivery_mean: float
    delivery_p99: float
    stability_count: int
    stability_mean: float
    stability_p99: float
    outcomes: dict[str, int]
    views: int
    left: dict[str, int]
    costs: Costs
    traced: dict[str, float]
    example: list[tuple[str, float, int]]


encode = msgspec.msgpack.Encoder().encode
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reports = msgspec.msgpack.Decoder(Report)


def decode_request(data: bytes) -> Request:
    """Raises: msgspec.DecodeError."""
    return _requests.decode(data)


def decode_report(data: bytes) -> Report:
    """Raises: msgspec.DecodeError."""
    return _reports.decode(data)
