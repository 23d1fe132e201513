"""Who follows a channel: lists of members, and the messages that change them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from conformance.checks.tokens import signed
from conformance.registry import Failed, must
from conformance.trial import Trial
from conformance.wire import Response

NEEDS = ("presence", "token")

LEAVE_SECONDS = 3.0
"""How long after the grace a member leaves, and how long after its page said that it closes."""

LISTS = 8
"""So many lists are compared with the messages after each."""


def _room(t: Trial) -> str:
    return t.channel(prefix=t.options.presence)


def _fields(t: Trial, channel: str, subject: str | None, data: Any = None) -> dict[str, str]:
    token = signed(t, poll=[], sub=subject, pushup={"poll": [channel], "presence": data})
    return {**t.without_credentials(), "Authorization": f"Bearer {token}"}


def _visit(t: Trial, channel: str, subject: str | None, data: Any = None, **given: str) -> None:
    """A poll that is answered at once."""
    query = urlencode({"channel": channel, "timeout": 0, "limit": 1, **given})
    t.status(t.client().call("GET", f"/v1/poll?{query}", **_fields(t, channel, subject, data)), 200)


def _stay(t: Trial, channel: str, subject: str) -> None:
    """Open a stream, which stays open until the check ends."""
    t.client().stream(channel, cursor="now", **_fields(t, channel, subject))


def _close(t: Trial, channel: str, subject: str) -> None:
    """A page closes, and says so as a browser does: with the token in the body, which is called text."""
    token = signed(t, poll=[channel], sub=subject)
    body = {"channels": [channel], "token": token}
    fields = {**t.without_credentials(), "Authorization": "", "Content_Type": "text/plain;charset=UTF-8"}
    t.status(t.client().call("POST", "/v1/presence", body, **fields), 204)


def _show(t: Trial, channel: str, subject: str | None = None) -> Response:
    return t.client().call("GET", f"/v1/presence?channel={channel}", **_fields(t, channel, subject))


def _list(t: Trial, channel: str) -> dict[str, Any]:
    value = t.status(_show(t, channel), 200).json
    t.true(isinstance(value, dict) and "count" in value, f"expected a list of members, and {value} came")
    return dict(value)


def _subjects(value: dict[str, Any]) -> list[str]:
    return [member["subject"] for member in value.get("members", [])]


def _until(t: Trial, channel: str, subjects: list[str], within: float = 0.0) -> dict[str, Any]:
    """The list, as soon as it has just these members, in this order."""
    deadline = time.monotonic() + (within or t.patience)
    while _subjects(value := _list(t, channel)) != subjects:
        if time.monotonic() > deadline:
            t.same("the members", _subjects(value), subjects)
        t.sleep(0.05)
    return value


def _told(t: Trial, channel: str, cursor: str = "") -> list[dict[str, Any]]:
    """The data of all messages about members after the cursor."""
    data: list[dict[str, Any]] = []
    more = True
    while more:
        query = urlencode({"channel": channel, "timeout": 0, "cursor": cursor})
        response = t.client().call("GET", f"/v1/poll?{query}", **_fields(t, channel, None))
        answer = t.native.read_answer(response, cursor)
        t.same("the gaps", answer.gaps, ())
        data += [message.data for message in answer.messages if message.event == "presence"]
        cursor, more = answer.cursor, answer.more
    return data


def _applied(members: list[dict[str, Any]], told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list of members after these messages. Raises: Failed if they do not fit."""
    now = {member["subject"]: member for member in members}
    for data in told:
        for member in data.get("joins", []):
            if member["subject"] in now:
                raise Failed(f"expected nobody to join twice, and {data} came after a list with {member['subject']!r}")
            now[member["subject"]] = member
        for member in data.get("updates", []):
            if member["subject"] not in now:
                raise Failed(f"expected nobody to change who is not there, and {data} came")
            now[member["subject"]] = member
        for subject in data.get("leaves", []):
            if now.pop(subject, None) is None:
                raise Failed(f"expected nobody to leave who is not there, and {data} came")
        if data["count"] != len(now):
            raise Failed(f"expected the number of members to be {len(now)}, and {data} came")
    return list(now.values())


@must("PRESENCE-2", *NEEDS)
def lists_who_follows(t: Trial) -> None:
    """In the order in which they joined, with what their tokens say of them."""
    name = _room(t)
    people: dict[str, Any] = {"bob": {"name": "Bob", "tags": [1, {"é": None}]}, "ann": None, "zoe": "x" * 1022}
    begin = time.time()
    for number, (subject, data) in enumerate(people.items(), 1):
        _visit(t, name, subject, data, hidden="true")
        value = _until(t, name, list(people)[:number])
    t.same("the fields", sorted(value), ["channel", "count", "cursor", "members"])
    t.same("the channel and the number", (value["channel"], value["count"]), (name, 3))
    t.same("the fields of a member", sorted(value["members"][0]), ["data", "since", "subject"])
    t.same("their data", {member["subject"]: member["data"] for member in value["members"]}, people)
    times = [member["since"] for member in value["members"]]
    t.true(times == sorted(times), f"expected times in the order of joining, and {times} came")
    t.true(abs(times[0] - begin) < 3600, f"expected seconds since the epoch, and {times[0]} came")


@must("PRESENCE-2", *NEEDS)
def shows_members_to_readers_alone(t: Trial) -> None:
    """Who may not poll the channel gets 401 or 403; a channel whose members are not kept 404, two channels 400."""
    name, other = _room(t), t.channel()
    t.same("the number of members at first", _list(t, name)["count"], 0)
    _visit(t, name, "ann")
    target = f"/v1/presence?channel={name}"
    t.status(t.client().call("GET", target, **_fields(t, other, "eve")), 401, 403)
    t.status(t.client().call("GET", target, **t.without_credentials(), Authorization=""), 401, 403)
    t.problem(_show(t, other), 404, "unknown-channel", "channel")
    t.problem(t.client().call("GET", f"{target}&channel={name}2", **_fields(t, f"{name}*", None)), 400, "bad-request")


@must("PRESENCE-1", *NEEDS)
def counts_a_subject_once(t: Trial) -> None:
    """However many polls and streams they have."""
    name = _room(t)
    for _ in range(2):
        _stay(t, name, "ann")
    _until(t, name, ["ann"])
    _visit(t, name, "ann")
    _stay(t, name, "bob")
    _until(t, name, ["ann", "bob"])
    t.same("the number of those who joined", [len(data.get("joins", [])) for data in _told(t, name)], [1, 1])


@must("PRESENCE-1", *NEEDS)
def counts_nobody_without_a_subject(t: Trial) -> None:
    """Nor who polls another channel, or only reads the list."""
    name, other = _room(t), _room(t)
    _visit(t, name, None)
    _visit(t, other, "eve")
    t.status(_show(t, name, "eve"), 200)
    t.sleep(0.3)
    _visit(t, name, "ann", hidden="true")
    _until(t, name, ["ann"])
    t.same("the number of messages", len(_told(t, name)), 1)


@must("PRESENCE-1", *NEEDS)
def keeps_who_comes_back(t: Trial) -> None:
    """Between two polls nobody leaves, and then joins again."""
    name, grace = _room(t), t.limits["presence_grace_seconds"]
    _visit(t, name, "ann")
    before = _until(t, name, ["ann"])["members"]
    for _ in range(4):
        t.outlast(grace / 3)
        _visit(t, name, "ann")
    t.same("the members", _list(t, name)["members"], before)
    t.same("the number of messages", len(_told(t, name)), 1)


@must("PRESENCE-1", *NEEDS)
def keeps_hidden_pages_for_longer(t: Trial) -> None:
    """When who was not hidden has left, those who were are still there, whether the query said so or the body."""
    name, grace = _room(t), t.limits["presence_grace_seconds"]
    _visit(t, name, "ann", hidden="true")
    body = {"channels": [name], "timeout": 0, "hidden": True}
    t.status(t.client().call("POST", "/v1/poll", body, **_fields(t, name, "bob")), 200)
    _visit(t, name, "eve", hidden="false")
    _until(t, name, ["ann", "bob", "eve"])
    t.outlast(grace)
    deadline = time.monotonic() + LEAVE_SECONDS + t.patience
    while "eve" in (subjects := _subjects(_list(t, name))):
        t.true(time.monotonic() < deadline, f"expected eve to leave after {grace} s, and she stays")
        t.sleep(0.05)
    t.same("those who are hidden", sorted(subjects), ["ann", "bob"])


@must("PRESENCE-3", *NEEDS)
def tells_of_each_change(t: Trial) -> None:
    """Who joins, who has other data and who leaves is a message of its own kind; a poll that goes on is none."""
    name = _room(t)
    steps: list[tuple[Callable[[], None], dict[str, Any]]] = [
        (partial(_visit, t, name, "ann", {"n": 1}), {"joins": [("ann", {"n": 1})]}),
        (partial(_visit, t, name, "bob", hidden="true"), {"joins": [("bob", None)]}),
        (partial(_visit, t, name, "ann", {"n": 2}), {"updates": [("ann", {"n": 2})]}),
        (partial(_visit, t, name, "ann", {"n": 2}), {}),
        (partial(_close, t, name, "bob"), {"leaves": ["bob"]}),
    ]
    expected = [change for _, change in steps if change]
    count = 0
    for step, change in steps:
        step()
        count += bool(change)
        deadline = time.monotonic() + LEAVE_SECONDS + t.patience
        while len(told := _told(t, name)) < count:
            t.true(time.monotonic() < deadline, f"expected a message with {change}, and {told} came")
            _visit(t, name, "ann")  # who has not said other data keeps what they said
            t.sleep(0.05)
    t.same("the messages", [_short(data) for data in told], expected)
    t.same("the numbers of members", [data["count"] for data in told], [1, 2, 2, 1])


def _short(data: dict[str, Any]) -> dict[str, Any]:
    """What a message says, without times and the number."""
    parts = {name: part for name, part in data.items() if name != "count"}
    return {n: part if n == "leaves" else [(m["subject"], m["data"]) for m in part] for n, part in parts.items()}


@must("PRESENCE-3", *NEEDS)
def tells_only_numbers_of_many(t: Trial) -> None:
    """With more members than `presence_limit`, lists and messages have none; up to there, all have."""
    name, limit = _room(t), t.limits["presence_limit"]
    _stay(t, name, "first")
    for number in range(limit):
        _visit(t, name, f"user{number}", hidden="true")
    deadline = time.monotonic() + t.patience
    while (value := _list(t, name))["count"] <= limit:
        t.true(time.monotonic() < deadline, f"expected {limit + 1} members, and {value['count']} came")
        t.sleep(0.05)
    t.same("the fields of the list", sorted(value), ["channel", "count", "cursor"])
    told = _told(t, name)
    few, many = told[:-1], told[-1:]
    t.same("the last message", [(sorted(data), data["count"] > limit) for data in many], [(["count"], True)])
    _applied([], few)  # there are none if all have joined in the same moment


@must("PRESENCE-4", *NEEDS)
def makes_lists_and_messages_agree(t: Trial) -> None:
    """Each list, with the messages after its cursor, gives the last list, while people come and go."""
    name = _room(t)
    lists: list[dict[str, Any]] = []
    people = [f"user{n}" for n in range(min(6, t.limits["presence_limit"] - 1))]

    def come_and_go() -> None:
        for number, subject in enumerate(people):
            _visit(t, name, subject, number, hidden="true")
            t.sleep(0.2)
            if number % 2:
                _close(t, name, subject)

    def look() -> None:
        for _ in range(LISTS):
            lists.append(_list(t, name))
            t.sleep(0.1)

    t.together(come_and_go, look)
    last = _until(t, name, people[::2], LEAVE_SECONDS + t.patience)
    for value in lists:
        t.same("the members", _applied(value["members"], _told(t, name, value["cursor"])), last["members"])
    t.same("the messages after the last list", _told(t, name, last["cursor"]), [])


@must("PRESENCE-5", *NEEDS)
def lets_go_who_does_not_come_back(t: Trial) -> None:
    """Some seconds after the grace, with a message; who still follows stays."""
    name, grace = _room(t), t.limits["presence_grace_seconds"]
    _stay(t, name, "bob")
    _until(t, name, ["bob"])
    _visit(t, name, "ann")
    t.outlast(grace)
    _until(t, name, ["bob"], LEAVE_SECONDS + t.patience)
    t.same("the last message", [_short(data) for data in _told(t, name)[-1:]], [{"leaves": ["ann"]}])


@must("PRESENCE-6", *NEEDS)
def lets_go_at_once_who_closes(t: Trial) -> None:
    """Long before the grace is over, unless they follow elsewhere. Who is no member may say so, too."""
    name = _room(t)
    _stay(t, name, "bob")
    _until(t, name, ["bob"])
    _visit(t, name, "ann", hidden="true")
    _until(t, name, ["bob", "ann"])
    for subject in ("bob", "ann", "eve"):
        _close(t, name, subject)
    _until(t, name, ["bob"], min(t.limits["presence_hidden_seconds"] - 2, LEAVE_SECONDS + t.patience))
    t.sleep(1.0)
    _until(t, name, ["bob"])


@must("PRESENCE-7", *NEEDS)
def refuses_other_values(t: Trial) -> None:
    """More than 1024 bytes or 64 levels in a token, and a `hidden` that is neither true nor false."""
    name = _room(t)
    _visit(t, name, "ann", "x" * 1022)
    target = f"/v1/poll?channel={name}&timeout=0"
    for data in ("x" * 1023, json.loads("[" * 65 + "]" * 65)):
        t.problem(t.client().call("GET", target, **_fields(t, name, "ann", data)), 401, "invalid-token")
    for value in ("yes", "1", "True"):
        response = t.client().call("GET", f"{target}&hidden={value}", **_fields(t, name, "ann"))
        t.problem(response, 400, "bad-request", "hidden")
    for bad in ("true", 1, None):
        body = {"channels": [name], "timeout": 0, "hidden": bad}
        t.problem(t.client().call("POST", "/v1/poll", body, **_fields(t, name, "ann")), 400, "bad-request", "hidden")
