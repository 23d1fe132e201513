"""The faults that the checks have to notice. Each is one of `spoiled`, with a name that says what is wrong."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import spoiled_streams
from conformance.events import Event
from conformance.wire import Response
from spoiled import LATE_SECONDS, Fault, answers, header, objects, publications, replaced, status
from spoiled_streams import StreamFault


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


def _each_without(value: dict[str, Any], name: str) -> None:
    for message in value["messages"]:
        message.pop(name, None)


def _moved(by: int) -> Any:
    """The cursor of an answer, moved along the order."""

    def move(value: dict[str, Any]) -> None:
        if "cursor" in value:
            value["cursor"] = _beside(value["cursor"], by)

    return move


def _beside(cursor: str, by: int) -> str:
    epoch, _, sequence = cursor.rpartition("-")
    return f"{epoch}-{max(0, int(sequence) + by)}"


def _before_last(value: dict[str, Any]) -> None:
    """The cursor goes on with the last message again; its id is its place."""
    if value["messages"]:
        value["cursor"] = value["messages"][-1]["id"]
        _moved(-1)(value)


def _false_gap(value: dict[str, Any]) -> None:
    value["gaps"] = [{"channel": name, "reason": "evicted"} for m in value["messages"] for name in m["channels"]] or [
        {"channel": "?", "reason": "evicted"}
    ]


def _other_reason(value: dict[str, Any]) -> None:
    for gap in value["gaps"]:
        gap["reason"] = "unknown"


def _ends(by: int) -> Any:
    """Each gap ends elsewhere."""

    def move(value: dict[str, Any]) -> None:
        for gap in value["gaps"]:
            gap["until"] = _beside(gap["until"], by)

    return move


def _in_gaps(value: dict[str, Any]) -> None:
    """Messages name the channels that have dropped them."""
    for gap in value["gaps"]:
        for message in value["messages"]:
            if int(message["id"].rpartition("-")[2]) <= int(gap["until"].rpartition("-")[2]):
                message["channels"].append(gap["channel"])


def _wrapped(value: dict[str, Any]) -> None:
    for message in value["messages"]:
        message["data"] = [message["data"]]


def _lower(data: bytes) -> bytes:
    return re.sub(rb'channel=[^& ]*|"channels": \[[^]]*\]', lambda match: match[0].lower(), data)


class _Growing:
    """A cursor with a place for each channel, for one client at a time."""

    def __init__(self) -> None:
        self._count = 1

    def request(self, data: bytes) -> bytes:
        names = re.search(rb'"channels": \[([^]]*)\]', data)
        self._count = names[1].count(b",") + 1 if names else 1
        return data

    def answer(self, value: dict[str, Any]) -> None:
        value["cursor"] += ".0" * self._count


class _Telling:
    """Gaps for ephemeral messages that have been dropped, for one client at a time that polls one channel."""

    def __init__(self) -> None:
        self._published: dict[bytes, float] = {}
        self._polled = b""

    def request(self, data: bytes) -> bytes:
        if b'"ephemeral": true' in data and (name := re.search(rb'"channels": \["([^"]*)"', data)):
            self._published[name[1]] = time.monotonic()
        if poll := re.match(rb"GET /v1/poll\?channel=([^& ]*)", data):
            self._polled = poll[1]
        return data

    def answer(self, value: dict[str, Any]) -> None:
        if time.monotonic() - self._published.get(self._polled, math.inf) > 5.0:
            value["gaps"] = [{"channel": self._polled.decode(), "reason": "expired", "until": value["cursor"]}]


def _members(change: Any) -> Fault:
    """Lists of members that are changed."""
    return Fault(response=objects(lambda value: change(value) if "members" in value and "count" in value else None))


def _stranger(value: dict[str, Any]) -> None:
    value["members"].append({"subject": "stranger", "since": 1.0, "data": None})


def _doubled(value: dict[str, Any]) -> None:
    value["members"] *= 2


def _no_members(value: dict[str, Any]) -> None:
    value["messages"] = [message for message in value["messages"] if message.get("event") != "presence"]


def _only_numbers(value: dict[str, Any]) -> None:
    for message in value["messages"]:
        if message.get("event") == "presence":
            message["data"] = {"count": message["data"]["count"]}


class _Staying:
    """Lists in which nobody leaves."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Any]] = {}

    def __call__(self, value: dict[str, Any]) -> None:
        members = self._members.setdefault(value["channel"], {})
        members |= {member["subject"]: member for member in value["members"]}
        value["members"] = list(members.values())


_growing = _Growing()
_telling = _Telling()


def _is_news(response: Response) -> float:
    return LATE_SECONDS if b'"messages":[{' in response.body or b'"closed":["' in response.body else 0.0


def _no_timeout(data: bytes) -> bytes:
    return re.sub(rb'"timeout": [0-9.]+', b'"timeout": 0', re.sub(rb"timeout=[^& ]*", b"timeout=0", data))


def _messages(**changes: Any) -> Fault:
    """Streams whose messages have another field."""
    return Fault(stream=spoiled_streams.messages(lambda event: event._replace(**changes)))


def _ids(by: int) -> Fault:
    """Streams whose messages have another id."""
    return Fault(stream=spoiled_streams.messages(lambda event: event._replace(id=_beside(event.id, by))))


def _pieces(pattern: bytes, by: bytes) -> Fault:
    """Streams whose bytes are changed where they match."""
    return Fault(stream=StreamFault(pieces=lambda piece: re.sub(pattern, by, b"\n" + piece)[1:]))


def _lasting_event(event: Event) -> Event:
    return event._replace(data={name: field for name, field in event.data.items() if name != "ephemeral"})


def _wrapped_event(event: Event) -> Event:
    return event._replace(data={**event.data, "data": [event.data["data"]]})


FAULTS: dict[str, Fault] = {
    # Delivery.
    "loses the last message of an answer": Fault(response=answers(_without_last)),
    "repeats the last message of an answer": Fault(response=answers(_twice)),
    "turns answers around": Fault(response=answers(_reversed)),
    "returns the cursor before the last message": Fault(response=answers(_before_last)),
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
    "always says more": Fault(response=answers(_set(more=True))),
    "never says more": Fault(response=answers(_set(more=False))),
    "reports no gaps": Fault(response=answers(_set(gaps=[]))),
    "reports false gaps": Fault(response=answers(_false_gap)),
    "gives another reason": Fault(response=answers(_other_reason)),
    "names channels that have dropped a message": Fault(response=answers(_in_gaps)),
    "ends gaps too early": Fault(response=answers(_ends(-1))),
    "ends gaps too late": Fault(response=answers(_ends(1))),
    "deletes nothing": Fault(request=replaced(rb"DELETE /v1/messages[^ ]*", b"GET /healthz")),
    "reports no closings": Fault(response=answers(_set(closed=[]))),
    "reports false closings": Fault(response=answers(_set(closed=["other"]))),
    "gives messages another channel": Fault(response=answers(lambda value: _each(value, channels=["other"]))),
    "gives messages another id": Fault(response=answers(lambda value: _each(value, id="other"))),
    "gives messages another time": Fault(response=answers(lambda value: _each(value, time=1.0))),
    "reads data and writes it again": Fault(response=objects(lambda value: None)),
    "wraps data": Fault(response=answers(_wrapped)),
    "returns long cursors": Fault(response=objects(lambda v: v.update(cursor="x y" * 30) if "cursor" in v else None)),
    "returns cursors that grow": Fault(request=_growing.request, response=answers(_growing.answer)),
    "keeps ephemeral messages": Fault(request=replaced(rb'"ephemeral": true', b'"ephemeral":false')),
    "tells of ephemeral messages that are gone": Fault(request=_telling.request, response=answers(_telling.answer)),
    "calls no message ephemeral": Fault(response=answers(lambda value: _each_without(value, "ephemeral"))),
    "calls every message ephemeral": Fault(response=answers(lambda value: _each(value, ephemeral=True))),
    "lacks more": Fault(response=answers(lambda value: value.pop("more") and None)),
    "has no tickets": Fault(response=answers(lambda value: value.pop("ticket", None) and None)),
    # Requests.
    "ignores limit": Fault(request=replaced(rb"limit=[^& ]*", b"limit=")),
    "ignores times": Fault(request=replaced(rb"(from|to)=[^& ]*", rb"\1=")),
    "ignores keys": Fault(request=replaced(rb"(?i)\r\nIdempotency-Key: ", b"\r\nX-No-Key: ")),
    "ignores producers": Fault(request=replaced(rb', "producer": \{"name": "[^"]+", [^}]*\}', b"")),
    "does not check producers": Fault(request=replaced(rb', "producer": (7|\{[^}]*\})', b"")),
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
    "knows no tokens": Fault(request=replaced(rb"\r\nAuthorization: Bearer eyJ[^\r]*", b"")),
    "knows no URL tickets": Fault(request=replaced(rb"(GET /v1/events\?.*)&ticket=[^& ]*", rb"\1")),
    "knows no tickets": Fault(request=replaced(rb"\r\nPushUp-Ticket: [^\r]*", b"")),
    "takes a plus for a plus": Fault(request=replaced(rb"(channel=[^& ]*)\+", rb"\1%2B")),
    "sends no 100 Continue": Fault(request=replaced(rb"\r\nExpect: [^\r]*", b"")),
    # Statuses.
    "accepts everything": Fault(response=status(lambda s: 400 <= s < 500, 200)),
    "fails for everything": Fault(response=status(lambda s: 400 <= s < 500, 500)),
    "refuses everything": Fault(response=status(lambda s: s < 400, 400)),
    "says 200 for 201 and 204": Fault(response=status(lambda s: s in (201, 204), 200)),
    "says 400 for every error": Fault(response=status(lambda s: 400 < s < 500, 400)),
    # Heads.
    "sends chunks": Fault(chunks=True),
    "sends no head": Fault(bare=("cache-control", "date", "content-type", "allow", "www-authenticate", "connection")),
    "never closes": Fault(bare=("connection",), stays_open=True),
    "allows all origins": Fault(response=header("access-control-allow-origin", "https://conformance.invalid")),
    "lets responses be cached": Fault(bare=("cache-control",)),
    "exposes nothing": Fault(bare=("access-control-expose-headers",)),
    "allows no origin": Fault(bare=("access-control-allow-origin", "access-control-allow-methods")),
    # Errors and objects.
    "sends errors as text": Fault(response=lambda r: r._replace(body=b"error") if r.status >= 400 else r),
    "shows a traceback": Fault(
        response=objects(lambda v: v.update(detail="Traceback /usr/lib/x.py") if "detail" in v else None)
    ),
    "names no field": Fault(response=objects(lambda value: value.pop("field", None) and None)),
    "adds fields": Fault(response=publications(_set(extra=1))),
    "gives all the same id": Fault(
        response=publications(lambda value: value.update(id=7) if "id" in value else value.update(ids=["7"] * 2))
    ),
    "gives publications an old cursor": Fault(response=publications(_moved(-1))),
    "gives publications a late cursor": Fault(response=publications(_moved(1000))),
    "cuts long answers": Fault(response=lambda response: response._replace(body=response.body[:30000])),
    "gives objects other values": Fault(
        response=objects(lambda v: v.update({k: 1 for k in ("status", "bytes", "expires", "name") if k in v}))
    ),
    "lists nothing": Fault(response=objects(lambda v: v.update({k: [] for k in ("channels", "nodes") if k in v}))),
    "counts nothing": Fault(
        response=objects(lambda v: v.update(subscribers=0, messages=0) if "subscribers" in v else None)
    ),
    # Members.
    "shows nobody": _members(_set(members=[], count=0)),
    "shows a stranger": _members(_stranger),
    "shows members twice": _members(_doubled),
    "shows members in another order": _members(lambda value: value["members"].reverse()),
    "shows members at an old cursor": _members(_moved(-1)),
    "shows members at a late cursor": _members(_moved(1)),
    "lets nobody leave": _members(_Staying()),
    "tells of no members": Fault(response=answers(_no_members)),
    "tells only numbers of members": Fault(response=answers(_only_numbers)),
    "knows no hidden pages": Fault(request=replaced(rb"&hidden=[^& ]*", b"")),
    "ignores pages that close": Fault(request=replaced(rb"POST /v1/presence", b"OPTIONS /v1/presence")),
    # Streams.
    "loses a message of a stream": Fault(stream=StreamFault(spoiled_streams.without_third)),
    "sends no messages on streams": Fault(stream=spoiled_streams.messages(lambda event: None)),
    "repeats the messages of streams": Fault(stream=StreamFault(spoiled_streams.twice)),
    "turns streams around": Fault(stream=StreamFault(spoiled_streams.turned_around)),
    "calls no message of a stream ephemeral": Fault(stream=spoiled_streams.messages(_lasting_event)),
    "keeps each message until the next": Fault(stream=StreamFault(spoiled_streams.one_behind)),
    "leaves out the ids of messages": _messages(id=""),
    "gives messages of streams an old id": _ids(-1),
    "gives messages of streams a late id": _ids(1),
    "gives messages of streams a name": _messages(name="message"),
    "changes messages of streams": Fault(stream=spoiled_streams.messages(_wrapped_event)),
    "gives every event an id": Fault(stream=spoiled_streams.each(lambda e: e._replace(id=e.id or "e-1"))),
    "sends no events with names": Fault(stream=spoiled_streams.each(lambda e: None if e.name else e)),
    "sends no cursors on streams": Fault(stream=spoiled_streams.each(lambda e: e if e.name or e.is_message else None)),
    "asks every stream": Fault(stream=StreamFault(spoiled_streams.asking)),
    "tells of closings late": Fault(stream=StreamFault(spoiled_streams.closings_last)),
    "sends no heartbeats": Fault(stream=StreamFault(spoiled_streams.without_heartbeats)),
    "begins streams late": Fault(stream=StreamFault(late_seconds=LATE_SECONDS)),
    "buffers streams": Fault(stream=StreamFault(buffers=True)),
    "breaks streams off": Fault(stream=StreamFault(breaks_off=True)),
    "has one format for streams": Fault(request=replaced(rb"\r\nAccept: [^\r]*", b"")),
    "knows one format of events": Fault(request=replaced(rb'&format=raw|, "format": "raw"', b"")),
    "joins the lines of raw events": _pieces(rb"(\ndata: [^\n]*)(\ndata: [^\n]*)+", rb"\1"),
    "forgets the names of raw events": _pieces(rb"\nevent: (?!cursor)[^\n]*(?=\nid: )", b""),
    "sends cursors of raw streams without data": _pieces(rb"event: cursor\n(id: [^\n]*\n)data: {}\n", rb"\1"),
    "ignores Last-Event-ID": Fault(request=replaced(rb"\r\nLast-Event-ID: [^\r]*", b"")),
    "forgives streams their parameters": Fault(
        request=replaced(rb"(GET /v1/events\?[^ ]*?)&(chanel|timeout|limit)=[^& ]*", rb"\1")
    ),
}
"""By what is wrong."""

NOTICED: dict[str, tuple[str, ...]] = {
    "loses the last message of an answer": (
        "delivery/*",
        "cursors/work-again",
        "cursors/of-the-end-*",
        "cursors/are-for-all-channels",
        "cursors/may-be-*",
        "http/is-not-*",
        "polling/are-answered-at-once",
        "polling/are-woken-by-a-publication",
        "polling/share-messages",
        "polling/are-woken-on-each-channel",
        "polling/may-be-given-up",
        "polling/may-wait-for-channels-to-come",
        "publishing/is-found-at-once",
        "publishing/delivers-events-of-messages",
        "publishing/returns-ids-of-a-list-in-order",
        "polling/get-large-messages",
        "publishing/wakes-polls-with-a-whole-list",
        "cluster/wakes-polls-on-other-nodes",
        "cluster/has-one-*",
        "gaps/survive-a-new-channel-of-the-name",
        "keys/publish-a-list-once",
        "ephemeral/come-once-in-order",
        "ephemeral/reach-held-polls",
        "access/takes-tickets",
        "http/answers-a-half-closed-connection",
        "cluster/is-stable-on-all-nodes",
    ),
    "repeats the last message of an answer": (
        "delivery/repeats-nothing",
        "delivery/loses-nothing-of-many",
        "delivery/follows-a-publisher",
        "delivery/wakes-polls-that-arrive-with-a-message*",
        "polling/get-a-message-once",
        "polling/consume-nothing",
        "keys/publish-once*",
        "ephemeral/come-once-in-order",
        "publishing/counts-a-channel-once",
        "cluster/takes-cursors-to-other-nodes",
    ),
    "turns answers around": (
        "publishing/keeps-a-list-together",
        "publishing/wakes-polls-with-a-whole-list",
        "keys/may-be-empty",
        "ephemeral/come-once-in-order",
        "delivery/keeps-the-order-*",
    ),
    "returns the cursor before the last message": (
        "delivery/loses-nothing-*",
        "delivery/repeats-nothing",
        "delivery/follows-*",
        "delivery/shows-*",
        "delivery/wakes-polls-that-arrive-with-a-message-again",
        "cursors/include-*",
        "cluster/takes-cursors-to-other-nodes",
        "polling/merge-channels-in-order",
    ),
    "returns a cursor that skips a message": ("cursors/of-empty-answers-go-on", "cursors/of-first-empty-answers-go-on"),
    "returns the cursor of the beginning": ("cursors/of-empty-answers-advance", "polling/consume-nothing"),
    "ignores cursors": (
        "cursors/include-what-came",
        "cursors/are-for-all-channels",
        "delivery/repeats-nothing",
        "unread/takes-a-cursor-*",
    ),
    "treats each cursor as now": (
        "polling/may-be-given-up",
        "cursors/of-the-end-*",
        "delivery/loses-nothing-between-polls",
    ),
    "treats each poll as now": ("polling/are-answered-at-once", "cursors/may-be-left-out", "publishing/takes-any-json"),
    "never wakes": (
        "polling/are-woken-*",
        "ephemeral/reach-held-polls",
        "polling/share-messages",
        "gaps/end-held-polls-on-closed-channels",
        "delivery/serves-many-channels-at-once",
        "delivery/wakes-polls-*",
        "cluster/wakes-polls-on-other-nodes",
    ),
    "does not hold": (
        "polling/are-not-woken-by-others",
        "polling/end-*",
        "polling/may-ask-for-too-much-time",
        "polling/may-wait-for-*",
        "polling/wait-without-a-timeout",
        "http/keeps-a-pipeline-behind-a-held-poll",
        "channels/count-their-subscribers",
        "delivery/keeps-pipelined-polls-apart",
        "cluster/takes-cursors-of-publications-to-other-nodes",
    ),
    "holds for too long": ("polling/end-*", "polling/need-not-wait", "polling/may-wait-for-fractions"),
    "ends each connection": ("http/keeps-connections-open", "http/answers-a-pipeline-in-order"),
    "serves one connection at a time": (
        "http/is-not-delayed-by-*",
        "http/is-not-harmed-by-resets",
        "streams/are-not-delayed-*",
    ),
    "cuts long answers": ("http/sends-large-answers-to-slow-readers", "limits/let-a-message-be-as-large"),
    "always says more": ("polling/are-not-misled-when-all-came", "polling/say-whether-there-is-more"),
    "never says more": ("polling/say-whether-there-is-more", "polling/may-ask-for-too-many"),
    "reports no gaps": (
        "gaps/tell-of-evicted-messages",
        "gaps/tell-of-expired-messages",
        "gaps/are-not-reported-again",
        "gaps/have-a-reason",
        "gaps/leave-cursors-usable",
        "gaps/keep-nothing-back",
        "erasure/tells-who-has-not-seen-it",
        "cursors/of-others-get-a-gap",
    ),
    "reports false gaps": (
        "gaps/are-true",
        "gaps/are-not-*",
        "gaps/are-not-reported-to-those-who-saw-all",
        "ephemeral/drive-nothing-out",
        "ephemeral/leave-no-gap-*",
        "delivery/loses-nothing-between-*",
        "delivery/loses-nothing-of-many",
        "delivery/loses-nothing-when-polls-end",
    ),
    "gives another reason": ("gaps/have-a-reason", "gaps/tell-of-*messages"),
    "names channels that have dropped a message": ("gaps/end-where-they-say",),
    "ends gaps too early": ("gaps/end-where-they-say",),
    "ends gaps too late": ("gaps/end-where-they-say",),
    "deletes nothing": ("erasure/deletes-*", "erasure/tells-who-has-not-seen-it"),
    "reports no closings": ("gaps/tell-of-closed-channels", "gaps/end-held-*", "gaps/survive-*", "cluster/tells-of-*"),
    "reports false closings": ("gaps/are-not-for-newcomers", "polling/end-in-time"),
    "gives messages another channel": ("polling/see-only-their-channels", "polling/count-a-channel-once"),
    "gives messages another id": ("polling/get-messages-of-four-fields", "publishing/returns-ids-of-a-list-in-order"),
    "gives messages another time": ("publishing/never-turns-time-back",),
    "reads data and writes it again": ("publishing/keeps-the-text-of-data",),
    "wraps data": ("publishing/takes-any-json",),
    "returns long cursors": ("cursors/are-short-and-plain",),
    "returns cursors that grow": ("cursors/do-not-grow-with-channels",),
    "keeps ephemeral messages": (
        "ephemeral/are-marked-one-by-one",
        "ephemeral/are-dropped-without-a-gap",
        "ephemeral/leave-no-gap-*",
        "ephemeral/drive-nothing-out",
        "keys/compare-whether-messages-are-ephemeral",
    ),
    "tells of ephemeral messages that are gone": ("ephemeral/are-dropped-without-a-gap",),
    "calls no message ephemeral": ("ephemeral/are-marked-one-by-one", "ephemeral/reach-held-polls"),
    "calls every message ephemeral": ("ephemeral/are-marked-one-by-one", "polling/get-messages-of-four-fields"),
    "lacks more": ("polling/have-answers-of-five-fields",),
    "has no tickets": ("access/takes-tickets",),
    "ignores limit": ("polling/limit-their-messages", "polling/need-a-good-limit", "polling/have-two-forms"),
    "ignores times": (
        "polling/select-by-time",
        "polling/leave-what-they-exclude-behind",
        "polling/understand-rfc-3339",
        "polling/need-good-times",
    ),
    "ignores producers": (
        "producers/repeat-*",
        "producers/know-*",
        "producers/refuse-*",
        "producers/fence-*",
        "producers/may-*",
    ),
    "does not check producers": ("producers/are-checked",),
    "ignores keys": (
        "keys/publish-*",
        "keys/hold-beside-others",
        "keys/are-for-one-publication",
        "keys/compare-text",
        "keys/compare-events",
        "keys/compare-whether-messages-are-ephemeral",
        "ephemeral/share-the-key-of-others",
        "keys/have-255-characters",
        "cluster/shares-keys",
        "http/compares-field-names-without-case",
        "http/refuses-repeated-fields",
    ),
    "ignores case": ("names/are-compared-by-bytes",),
    "ignores acknowledgements": ("acknowledgements/may-be-stable", "cluster/is-stable-on-all-nodes"),
    "ignores lifetimes": (
        "channels/can-be-created",
        "channels/can-be-renewed",
        "channels/end-when-unused",
        "channels/can-be-shown",
        "channels/need-a-good-lifetime",
        "channels/live-longer-with-each-message",
    ),
    "ignores after": ("channels/can-be-listed",),
    "ignores Origin": ("access/stops-pages-of-others",),
    "ignores Host": ("access/answers-to-its-names-alone",),
    "needs no key": ("access/needs-a-key", "access/needs-a-known-key", "errors/say-how-to-authenticate"),
    "knows no key": ("access/takes-the-key",),
    "knows everybody": ("access/keeps-strangers-out", "access/ignores-bad-tickets"),
    "knows nobody": ("access/needs-no-key-for-polls",),
    "knows no tokens": ("tokens/*",),
    "knows no URL tickets": ("tokens/opens-streams-on-url-tickets", "tokens/ends-url-tickets-that-are-revoked"),
    "knows no tickets": ("access/takes-tickets",),
    "takes a plus for a plus": ("names/in-queries-are-percent-encoded",),
    "sends no 100 Continue": ("http/lets-clients-continue", "http/refuses-other-expectations"),
    "accepts everything": (
        "presence/shows-*",
        "presence/refuses-*",
        "unread/refuses-*",
        "unread/needs-*",
        "http/refuses-*",
        "tokens/refuses-url-tickets-elsewhere",
        "http/needs-a-*host",
        "http/needs-one-host",
        "http/answers-nothing-after-a-bad-request",
        "http/survives-unknown-methods",
        "http/gives-up-incomplete-requests",
        "errors/say-bad-request",
        "errors/refuse-*",
        "errors/change-nothing",
        "names/of-256-*",
        "names/must-*",
        "names/of-digits-are-ids",
        "publishing/needs-*",
        "publishing/takes-one-form",
        "publishing/checks-types",
        "publishing/refuses-other-events",
        "ephemeral/are-true-or-false",
        "publishing/refuses-more-levels",
        "keys/survive-a-refusal",
        "producers/lose-no-numbers",
        "publishing/publishes-all-or-nothing",
        "acknowledgements/are-checked",
        "polling/need-a-*",
        "polling/need-good-times",
        "polling/must-not-repeat-parameters",
        "polling/in-bodies-are-checked",
        "cursors/are-checked",
        "channels/must-exist",
        "channels/cannot-be-created-twice",
        "channels/are-listed-after-a-number",
        "channels/need-a-good-lifetime",
        "channels/can-be-closed",
        "limits/let-no-*",
        "limits/refuse-*",
        "access/stops-pages-of-others",
        "access/answers-to-its-names-alone",
        "access/keeps-strangers-out",
        "access/ignores-bad-tickets",
        "streams/have-no-other-format",
        "streams/keep-strangers-out",
        "streams/check-the-header-*",
    ),
    "fails for everything": ("errors/never-are-the-servers-own", "http/knows-its-*"),
    "refuses everything": (
        "unread/takes-values-*",
        "http/accepts-*",
        "http/answers-http-1-0",
        "http/ignores-upgrades",
        "http/needs-no-content-type",
        "http/answers-head",
        "http/answers-options-for-the-server",
        "http/reads-a-request-byte-by-byte",
        "http/lets-clients-continue",
        "names/of-255-bytes-work",
        "names/may-be-*",
        "publishing/takes-64-levels",
        "errors/ignore-the-underscore",
        "polling/take-many-channels",
        "polling/may-ask-for-*",
        "access/takes-the-key",
        "access/lets-its-own-pages-publish",
        "access/answers-to-addresses",
        "operations/*",
        "channels/stay-when-used",
        "channels/need-no-name",
        "acknowledgements/may-be-*",
        "limits/let-a-message-be-as-large",
    ),
    "says 200 for 201 and 204": (
        "http/answers-options",
        "channels/can-be-c*",
        "publishing/returns-*",
        "gaps/tell-of-closed-*",
    ),
    "says 400 for every error": (
        "errors/are-problems",
        "http/knows-its-*",
        "channels/must-exist",
        "limits/let-no-message-be-larger",
        "limits/let-no-body-be-larger",
        "limits/let-no-poll-be-larger",
        "limits/let-no-target-be-longer",
        "limits/let-no-head-be-larger",
        "keys/are-for-one-publication",
        "publishing/needs-channels-when-strict",
    ),
    "sends chunks": ("http/sends-lengths", "streams/end-with-the-connection-*"),
    "sends no head": (
        "http/forbids-caching",
        "http/sends-the-date",
        "http/answers-in-json",
        "http/answers-options",
        "errors/are-problems",
        "http/knows-its-methods",
        "errors/say-how-to-authenticate",
        "operations/has-metrics",
    ),
    "never closes": (
        "http/answers-http-1-0",
        "http/ends-connections-after-an-upgrade",
        "http/refuses-by-the-head",
        "http/answers-nothing-after-a-bad-request",
        "http/refuses-length-with-chunks",
    ),
    "allows all origins": ("access/lets-no-other-pages-read",),
    "allows no origin": (
        "access/lets-allowed-pages-read",
        "access/answers-preflight-requests",
        "streams/let-allowed-pages-read",
    ),
    "sends errors as text": ("errors/are-problems", "errors/say-bad-request"),
    "shows a traceback": ("errors/show-nothing-inside",),
    "names no field": ("errors/name-*", "errors/refuse-unknown-parameters", "publishing/needs-its-fields"),
    "adds fields": (
        "producers/go-on",
        "publishing/returns-id-time-and-cursor",
        "publishing/returns-a-list-for-a-list",
        "*/are-not-shown-unasked",
    ),
    "gives all the same id": (
        "publishing/makes-ids-unique",
        "channels/have-ids-of-their-own",
        "http/ignores-trailers",
        "limits/let-no-list-be-longer",
    ),
    "gives publications an old cursor": (
        "publishing/returns-the-place-behind",
        "gaps/are-not-reported-for-what-was-seen",
    ),
    "gives publications a late cursor": ("publishing/returns-the-place-behind",),
    "gives objects other values": (
        "operations/is-*",
        "publishing/creates-channels",
        "names/in-paths-are-one-segment",
        "names/may-be-replaced-by-ids",
    ),
    "lists nothing": ("operations/lists-its-nodes", "cluster/lists-both-nodes", "channels/can-be-listed"),
    "counts nothing": ("channels/can-be-shown", "channels/count-their-subscribers"),
    "lets responses be cached": ("http/forbids-caching", "streams/forbid-caching"),
    "exposes nothing": ("access/lets-allowed-pages-read-when-to-return",),
    "shows nobody": ("presence/lists-*", "presence/keeps-who-*", "presence/counts-*"),
    "shows a stranger": ("presence/counts-nobody-*",),
    "shows members twice": ("presence/counts-a-*",),
    "shows members in another order": ("presence/lists-*",),
    "shows members at an old cursor": ("presence/makes-*",),
    "shows members at a late cursor": ("presence/makes-*",),
    "lets nobody leave": ("presence/lets-*",),
    "tells of no members": ("presence/tells-*", "presence/keeps-who-*", "presence/lets-go-who-*"),
    "tells only numbers of members": ("presence/tells-of-*",),
    "knows no hidden pages": ("presence/keeps-hidden-*", "presence/refuses-*"),
    "ignores pages that close": ("presence/lets-go-at-*",),
    "loses a message of a stream": (
        "streams/lose-nothing-of-many",
        "streams/have-the-cursor-after-each-message",
        "streams/carry-*",
    ),
    "sends no messages on streams": (
        "streams/are-*",
        "ephemeral/reach-streams",
        "streams/have-messages-as-in-answers",
        "streams/continue-*",
        "streams/take-turns-*",
        "streams/let-requests-behind-*",
    ),
    "repeats the messages of streams": ("streams/lose-nothing-of-many", "streams/have-the-cursor-*"),
    "turns streams around": ("streams/have-the-order-of-polls", "streams/lose-nothing-of-many"),
    "calls no message of a stream ephemeral": ("ephemeral/reach-streams",),
    "keeps each message until the next": (
        "ephemeral/reach-streams",
        "streams/carry-messages-*",
    ),
    "leaves out the ids of messages": ("streams/have-messages-as-in-answers", "streams/have-the-cursor-*"),
    "gives messages of streams an old id": (
        "streams/have-the-cursor-*",
        "streams/continue-*",
        "streams/take-turns-*",
        "streams/move-the-cursor-*",
    ),
    "gives messages of streams a late id": ("streams/have-the-cursor-*", "streams/continue-*", "streams/take-turns-*"),
    "gives messages of streams a name": ("streams/have-messages-as-in-answers", "streams/are-server-sent-events"),
    "changes messages of streams": ("streams/have-messages-as-in-answers", "streams/carry-any-json"),
    "gives every event an id": (
        "unread/asks-streams",
        "streams/tell-of-gaps",
        "streams/tell-of-closings",
        "streams/hand-out-tickets",
        "streams/say-why-they-end",
    ),
    "sends no events with names": (
        "unread/asks-streams",
        "streams/tell-of-*",
        "streams/leave-nothing-out-*",
        "streams/hand-out-tickets",
        "streams/say-why-they-end",
        "streams/move-the-cursor-*",
    ),
    "sends no cursors on streams": ("streams/begin-with-a-cursor", "streams/end-gaps-at-an-id"),
    "asks every stream": ("unread/asks-nobody-else",),
    "tells of closings late": ("streams/tell-of-closings-before-*",),
    "sends no heartbeats": ("streams/have-heartbeats",),
    "begins streams late": ("streams/begin-at-once",),
    "buffers streams": ("streams/begin-at-once", "streams/carry-messages-*"),
    "breaks streams off": ("streams/end-as-*", "streams/say-why-*", "streams/let-requests-behind-*"),
    "has one format for streams": ("streams/may-be-lines-of-json", "streams/come-as-*", "streams/have-no-other-format"),
    "knows one format of events": (
        "raw-events/send-*",
        "raw-events/name-*",
        "raw-events/resume-*",
        "raw-events/have-two-formats",
        "raw-events/are-server-sent-*",
    ),
    "joins the lines of raw events": ("raw-events/send-strings-*",),
    "forgets the names of raw events": ("raw-events/name-*",),
    "sends cursors of raw streams without data": ("raw-events/send-every-*",),
    "ignores Last-Event-ID": (
        "raw-events/resume-*",
        "streams/answer-head",
        "streams/follow-the-header-*",
        "streams/check-the-header-*",
    ),
    "forgives streams their parameters": ("streams/fail-as-polls-do", "streams/have-neither-*"),
}
"""By fault, the checks that have to notice it; `*` stands for anything."""
