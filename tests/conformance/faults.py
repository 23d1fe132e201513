"""The faults that the checks have to notice. Each is one of `spoiled`, with a name that says what is wrong."""

from __future__ import annotations

import itertools
import re
from typing import Any

from conformance.wire import Response
from spoiled import LATE_SECONDS, Fault, answers, header, objects, publications, replaced, status


def _set(**values: Any) -> Any:
    return lambda value: value.update(values)


def _without_last(value: dict[str, Any]) -> None:
    value["messages"] = value["messages"][:-1]


def _twice(value: dict[str, Any]) -> None:
    value["messages"] += value["messages"][-1:]


def _reversed(value: dict[str, Any]) -> None:
    value["messages"].reverse()


def _each(value: dict[str, Any], **changes: Any) -> None:
    for message in value["messages"]:
        message.update(changes)


def _moved(by: int) -> Any:
    """The cursor of an answer, moved along the order."""

    def move(value: dict[str, Any]) -> None:
        epoch, _, sequence = value["cursor"].rpartition("-")
        value["cursor"] = f"{epoch}-{max(0, int(sequence) + by)}"

    return move


def _false_gap(value: dict[str, Any]) -> None:
    value["gaps"] = [{"channel": name, "reason": "evicted"} for m in value["messages"] for name in m["channels"]] or [
        {"channel": "?", "reason": "evicted"}
    ]


def _lower(data: bytes) -> bytes:
    return data.lower() if data.startswith(b"GET /v1/poll") else data


def _is_news(response: Response) -> float:
    return LATE_SECONDS if b'"messages":[{' in response.body or b'"closed":["' in response.body else 0.0


_numbers = itertools.count()


def _new_id(value: dict[str, Any]) -> None:
    if "id" in value:
        value["id"] = f"new-{next(_numbers)}"


def _no_timeout(data: bytes) -> bytes:
    return re.sub(rb'"timeout": [0-9.]+', b'"timeout": 0', re.sub(rb"timeout=[^& ]*", b"timeout=0", data))


FAULTS: dict[str, Fault] = {
    # Delivery.
    "loses the last message of an answer": Fault(response=answers(_without_last)),
    "repeats the last message of an answer": Fault(response=answers(_twice)),
    "turns answers around": Fault(response=answers(_reversed)),
    "returns the cursor before the last message": Fault(response=answers(_moved(-1))),
    "returns a cursor that skips a message": Fault(response=answers(_moved(1))),
    "returns the cursor of the beginning": Fault(response=answers(_moved(-(10**9)))),
    "ignores cursors": Fault(request=replaced(rb"cursor=[^& ]*", b"cursor=")),
    "treats each cursor as now": Fault(request=replaced(rb"(cursor=)[^& ]*", rb"\1now")),
    "treats each poll as now": Fault(request=replaced(rb"(GET /v1/poll\?)(?!.*cursor=)", rb"\1cursor=now&")),
    "never wakes": Fault(late=_is_news),
    "does not hold": Fault(request=_no_timeout),
    "holds for too long": Fault(request=replaced(rb"timeout=[0-9.]+", b"timeout=4")),
    "ends each connection": Fault(closes=True),
    "serves one connection at a time": Fault(one_at_a_time=True),
    # Answers.
    "lacks more": Fault(response=answers(lambda value: value.pop("more"))),
    "always says more": Fault(response=answers(_set(more=True))),
    "never says more": Fault(response=answers(_set(more=False))),
    "reports no gaps": Fault(response=answers(_set(gaps=[]))),
    "reports false gaps": Fault(response=answers(_false_gap)),
    "gives another reason": Fault(
        response=answers(lambda value: [gap.update(reason="expired2") for gap in value["gaps"]] and None)
    ),
    "reports no closings": Fault(response=answers(_set(closed=[]))),
    "reports false closings": Fault(response=answers(_set(closed=["other"]))),
    "gives messages another channel": Fault(response=answers(lambda value: _each(value, channels=["other"]))),
    "gives messages another id": Fault(response=answers(lambda value: _each(value, id="other"))),
    "gives messages another time": Fault(response=answers(lambda value: _each(value, time=1.0))),
    "reads data and writes it again": Fault(response=objects(lambda value: None)),
    "wraps data": Fault(
        response=answers(lambda value: [m.update(data=[m["data"]]) for m in value["messages"]] and None)
    ),
    "returns long cursors": Fault(response=objects(lambda v: v.update(cursor="x y" * 30) if "cursor" in v else None)),
    "has no tickets": Fault(response=answers(lambda value: value.pop("ticket", None) and None)),
    # Requests.
    "ignores limit": Fault(request=replaced(rb"limit=[^& ]*", b"limit=")),
    "ignores times": Fault(request=replaced(rb"(from|to)=[^& ]*", rb"\1=")),
    "ignores keys": Fault(request=replaced(rb"(?i)\r\nIdempotency-Key: ", b"\r\nX-No-Key: ")),
    "ignores case": Fault(request=_lower),
    "ignores acknowledgements": Fault(request=replaced(rb', "ack": "stable"', b"")),
    "ignores lifetimes": Fault(request=replaced(rb'"ttl": [0-9]+', b'"ttl": 5000')),
    "ignores after": Fault(request=replaced(rb"\?after=[0-9]+", b"")),
    "ignores Origin": Fault(request=replaced(rb"\r\nOrigin: [^\r]*", b"")),
    "ignores Host": Fault(request=replaced(rb"\r\nHost: [^\r]*", b"\r\nHost: localhost")),
    "needs no key": Fault(
        request=replaced(rb"\r\nAuthorization: [^\r]*", b"\r\nAuthorization: Bearer good-key-0123456789")
    ),
    "knows no key": Fault(request=replaced(rb"\r\nAuthorization: [^\r]*", b"\r\nAuthorization: Bearer bad")),
    "knows everybody": Fault(request=replaced(rb"\r\nCookie: [^\r]*", b"\r\nCookie: user=ann")),
    "knows nobody": Fault(request=replaced(rb"\r\nCookie: [^\r]*", b"\r\nCookie: user=eve")),
    "knows no tickets": Fault(request=replaced(rb"\r\nPushUp-Ticket: [^\r]*", b"")),
    "takes a plus for a plus": Fault(request=replaced(rb"(channel=[^& ]*)\+", rb"\1%2B")),
    "sends no 100 Continue": Fault(request=replaced(rb"\r\nExpect: [^\r]*", b"")),
    "needs a content type": Fault(
        request=replaced(rb"^(POST [^ ]*)(?=[^\r]*\r\n(?!.*Content-Type: application/json))", rb"\1/x")
    ),
    # Statuses.
    "accepts everything": Fault(response=status(lambda s: 400 <= s < 500, 200)),
    "fails for everything": Fault(response=status(lambda s: 400 <= s < 500, 500)),
    "refuses everything": Fault(response=status(lambda s: s < 400, 400)),
    "says 200 for 201 and 204": Fault(response=status(lambda s: s in (201, 204), 200)),
    "says 400 for every error": Fault(response=status(lambda s: 400 < s < 500, 400)),
    "answers nothing": Fault(response=lambda response: None),
    # Heads.
    "sends chunks": Fault(chunks=True),
    "sends no head": Fault(bare=("cache-control", "date", "content-type", "allow", "www-authenticate", "connection")),
    "stays open after errors": Fault(bare=("connection",)),
    "allows all origins": Fault(response=header("access-control-allow-origin", "https://conformance.invalid")),
    "allows no origin": Fault(bare=("access-control-allow-origin", "access-control-allow-methods")),
    # Errors and objects.
    "sends errors as text": Fault(response=lambda r: r._replace(body=b"error") if r.status >= 400 else r),
    "shows a traceback": Fault(
        response=objects(lambda v: v.update(detail="Traceback /usr/lib/x.py") if "detail" in v else None)
    ),
    "names no field": Fault(response=objects(lambda value: value.pop("field", None) and None)),
    "adds fields": Fault(response=publications(_set(extra=1))),
    "gives each answer another id": Fault(response=publications(_new_id)),
    "gives all the same id": Fault(
        response=publications(lambda value: value.update(id=7) if "id" in value else value.update(ids=["7"] * 2))
    ),
    "gives publications an old cursor": Fault(response=publications(_moved(-1))),
    "gives publications a late cursor": Fault(response=publications(_moved(1))),
    "gives objects other values": Fault(
        response=objects(lambda v: v.update({k: 1 for k in ("status", "bytes", "expires", "name") if k in v}))
    ),
    "lists nothing": Fault(response=objects(lambda v: v.update({k: [] for k in ("channels", "nodes") if k in v}))),
    "counts nothing": Fault(
        response=objects(lambda v: v.update(subscribers=0, messages=0) if "subscribers" in v else None)
    ),
}
"""By what is wrong."""
