"""Histories as files: what is written is what is read, and a line that is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.__main__ import main
from loadtest.history.events import (
    FORMAT,
    Acknowledged,
    Answered,
    BadHistory,
    Begin,
    Begun,
    Delivered,
    Draft,
    End,
    Erased,
    Event,
    Failed,
    Fault,
    Fork,
    Gap,
    GivenUp,
    Left,
    LimitsChange,
    Poll,
    Publish,
    PutBack,
    Refused,
    acknowledged,
    answered,
)  # fmt: skip
from loadtest.history.file import read_history, write_history
from loadtest.history.verdict import Verdict, check
from pushup.core.limits import Limits

BEGIN = Begin(0.0, FORMAT)
PUBLISHED = Publish(1.0, "p1", (Draft(("a", "tag:é"), "one"),))
EACH: list[Event] = [
    Begin(0.0, FORMAT, Limits(retention_seconds=8.0)),
    PUBLISHED,
    Acknowledged(1.5, "p1", ("e1-1",), "stable"),
    Publish(2.0, "p2", (Draft(("a",), "two"), Draft(("a",), "three", ephemeral=True)), "k1", "replicated"),
    Refused(2.1, "p2", "422"),
    Publish(2.5, "p3", (Draft(("b",), "four"),)),
    GivenUp(2.6, "p3"),
    Poll(3.0, "s1", ("a",), "", 25.0),
    Answered(3.1, "s1", "e1-1", (Delivered("e1-1", ("a",), "one"),)),
    Poll(3.2, "s1", ("a",), "e1-1"),
    Failed(3.3, "s1", "no response"),
    Fork(3.4, "s2", "s1"),
    Left(3.5, "s2"),
    LimitsChange(4.0, Limits(channels_limit=5)),
    Fault(5.0, "kill", "n0", 3.0, may_lose=True, moves_clock=True),
    Erased(5.9, ("e1-1",)),
    PutBack(6.0, "e1-0"),
    Begun(6.0, "e0", "e1"),
    Poll(7.0, "s1", ("a",), "e1-1"),
    Answered(7.1, "s1", "e2-0", gaps=(Gap("a", "lost"),), closed=("a",)),
    End(8.0, "e2-0"),
]
"""A history with an event of each kind, and each field used."""


def judge(path: Path) -> tuple[int, str]:
    """The exit status, and what is printed."""
    result = CliRunner().invoke(main, ["judge", str(path)])
    return result.exit_code, result.output


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    """Every kind of event, with every field."""
    write_history(tmp_path / "h", EACH)
    assert list(read_history(tmp_path / "h")) == EACH
    assert {type(event) for event in EACH} == set(Event.__args__)


def test_the_events_of_responses() -> None:
    """Bodies are taken as the server sent them; a message's time is not part of a history."""
    message = {"id": "e1-1", "time": 5.5, "channels": ["a"], "data": "one"}
    body = {"cursor": "e1-2", "messages": [message], "more": True, "gaps": [], "closed": ["b"]}
    assert answered(1.0, "s", body) == Answered(1.0, "s", "e1-2", (Delivered("e1-1", ("a",), "one"),), (), ("b",))
    assert acknowledged(1.0, "p", {"id": "e1-1", "time": 5.5}) == Acknowledged(1.0, "p", ("e1-1",))
    body = {"ids": ["e1-1", "e1-2"], "time": 5.5, "ack": "stable"}
    assert acknowledged(1.0, "p", body) == Acknowledged(1.0, "p", ("e1-1", "e1-2"), "stable")


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ('{"event": "poll", "at": 1}', "line 2: Object missing required field `subscriber`"),
        ('{"event": "pull", "at": 1}', "line 2: Invalid value 'pull'"),
        ('{"event": "left", "at": "1", "subscriber": "s"}', "line 2: Expected `float`, got `str` - at `$.at`"),
        ('{"event": "left", "at": 1, "subscriber": "s", "x": 1}', "line 2: Object contains unknown field `x`"),
        ("", "line 2 is not a JSON object"),
        ("{", "line 2 is not a JSON object"),
        ("[1]", "line 2: Expected `object`, got `array`"),
        ('{"event": "begin", "at": 1, "format": 1}', "line 2: a history begins with `begin`"),
        ('{"event": "left", "at": 1, "subscriber": "s"}', "line 2: there was no subscriber 's'"),
        ('{"event": "answered", "at": 1, "subscriber": "s", "cursor": "e1-1"}', "line 2: there was no subscriber 's'"),
        ('{"event": "given_up", "at": 1, "publication": "p"}', "line 2: there was no publication 'p'"),
    ],
)
def test_a_line_that_is_wrong(tmp_path: Path, second: str, what: str) -> None:
    """The exit status is 2, and the error names the line and what is wrong with it."""
    path = tmp_path / "h"
    path.write_text('{"event": "begin", "at": 0, "format": 1}\n' + second + "\n")
    status, output = judge(path)
    assert status == 2
    assert f"{path} is not a history: {what}" in output


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([], "it is empty"),
        ([PUBLISHED], "line 1: a history begins with `begin`"),
        ([Begin(0.0, FORMAT + 1)], "line 1: the format is 2, and this is a checker of format 1"),
        ([BEGIN, End(1.0), End(2.0)], "line 3: .* nothing follows after `end`"),
        ([BEGIN, PUBLISHED, PUBLISHED], "line 3: there was already a publication 'p1'"),
        ([BEGIN, PUBLISHED, Publish(2.0, "p2", PUBLISHED.messages)], "line 3: there was already a message 'one'"),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Poll(1.0, "s", ("a",), "")], "line 3: the subscriber 's' already polls"),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Failed(1.0, "s"), Failed(1.0, "s")], "line 4: .*'s' had not polled"),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Left(1.0, "s"), Failed(1.0, "s"), Poll(2.0, "s", ("a",), "")],
         "line 5: the subscriber 's' had left"),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Failed(1.0, "s"), Poll(2.0, "s", ("a",), "e1-1")],
         "line 4: the subscriber 's' polls .'a'. at 'e1-1', and had .'a'. at ''; use another name"),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Failed(1.0, "s"), Poll(2.0, "s", ("b",), "")], "line 4: .* polls .'b'."),
        ([BEGIN, Poll(1.0, "s", ("a",), ""), Fork(1.0, "s", "s")], "line 3: there was already a subscriber 's'"),
    ],
)  # fmt: skip
def test_events_that_cannot_follow_each_other(tmp_path: Path, events: list[Event], what: str) -> None:
    """No server is accused of what the recorder did wrong."""
    write_history(tmp_path / "h", events)
    with pytest.raises(BadHistory, match=what):
        verdict_of(tmp_path / "h")


def verdict_of(path: Path) -> Verdict:
    return check(read_history(path))


def test_the_verdict_is_printed(tmp_path: Path) -> None:
    """What the history contains; the exit status is 0 if every promise was kept, else 1, with the line."""
    write_history(tmp_path / "h", EACH)
    status, output = judge(tmp_path / "h")
    assert (status, output.splitlines()[-1]) == (0, "every promise was kept")
    assert "       3 publish\n" in output
    write_history(tmp_path / "h", [*EACH[:-1], End(8.0, "e2-1")])
    status, output = judge(tmp_path / "h")
    assert status == 1
    assert output.endswith("line 21: live again: s1 is at e2-0, and the end is e2-1\n")


@pytest.mark.parametrize("last", [0, 1])
def test_a_history_that_breaks_off(tmp_path: Path, last: int) -> None:
    """It is judged by what the subscribers have passed: here by whether the cursor of the last answer passes `five`."""
    missed: list[Event] = [Publish(7.2, "p5", (Draft(("a",), "five"),)), Acknowledged(7.2, "p5", ("e2-1",))]
    poll = Poll(7.2, "s1", ("a",), "e2-0")
    write_history(tmp_path / "h", [*EACH[:-1], *missed, poll, Answered(7.3, "s1", f"e2-{last}")])
    status, output = judge(tmp_path / "h")
    assert status == last
    assert ("\ndelivered or covered by a gap: s1 neither received five" in output) is bool(last)


@pytest.mark.parametrize("arguments", [["judge"], ["journal", __file__]])
def test_only_judge_takes_a_file(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "judge needs a FILE, and nothing else takes one" in result.output
