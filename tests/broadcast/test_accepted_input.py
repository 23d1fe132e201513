"""Whatever one node accepts every node can read: from the log, from a checkpoint, and in an answer.

The second node reads with little stack left, because that is what limits how deeply a decoder can nest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pushup.core.answer import Answer
from pushup.core.commands import Command, Entry, Published
from pushup.core.cursor import Start
from pushup.core.errors import BadRequest, PushUpError
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import Limits
from pushup.core.poll import Poll, Selection
from pushup.core.snapshot import Snapshot, Tables, encode
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from pushup.net.api.bodies import write
from pushup.net.api.channel_routes import read_create, read_renew
from pushup.net.api.publishing import read_publication
from pushup.net.api.schemas import PublicationLimits

T = TypeVar("T")

FRAMES = 600
"""How much deeper in the stack the second node reads; a stack has 1,000 frames."""

_command = msgspec.json.Decoder(Command)


def deeper(call: Callable[[], T], frames: int = FRAMES) -> T:
    return call() if frames == 0 else deeper(call, frames - 1)


def numbers() -> st.SearchStrategy[str]:
    """JSON numbers of any length and size, as text."""
    digits = st.text("0123456789", min_size=1, max_size=40).map(lambda text: text.lstrip("0") or "0")
    return st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "-"]),
        digits,
        st.one_of(st.just(""), digits.map(".{}".format)),
        st.one_of(st.just(""), st.integers(-9999, 9999).map("e{}".format)),
    )


def strings() -> st.SearchStrategy[str]:
    """JSON strings with brackets, quotes, escapes and unpaired surrogates."""
    return st.text(st.sampled_from('ab[]{}"\\/\u00e9\u2028\U0001f600\ud800')).map(json.dumps)


def values() -> st.SearchStrategy[str]:
    leaves = st.one_of(st.sampled_from(["null", "true", "false", "[]", "{}"]), numbers(), strings())
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]"),
            st.lists(st.tuples(strings(), inner), max_size=4).map(
                lambda items: "{" + ",".join(f"{key}:{value}" for key, value in items) + "}"
            ),
        ),
        max_leaves=30,
    )


def wrapped(opening: str, closing: str) -> st.SearchStrategy[str]:
    """A value nested about as deeply as the limit or the stack allows."""
    depths = st.one_of(st.integers(55, 70), st.integers(100, 1100))
    return st.tuples(depths, values()).map(lambda given: opening * given[0] + given[1] + closing * given[0])


def bodies() -> st.SearchStrategy[bytes]:
    data = st.one_of(values(), wrapped("[", "]"), wrapped('{"a":', "}"), wrapped('[{"]":', "}]"))
    names = st.one_of(st.sampled_from(["a", "b", "42"]), st.text(min_size=1, max_size=80))
    message = st.tuples(st.lists(names, min_size=1, max_size=3).map(json.dumps), data).map(
        lambda given: f'"channels":{given[0]},"data":{given[1]}'
    )
    one = message.map(lambda text: "{" + text + "}")
    return st.one_of(
        one, st.lists(one, min_size=1, max_size=3).map(lambda them: '{"messages":[' + ",".join(them) + "]}")
    ).map(str.encode)


def nested(levels: int) -> bytes:
    """A publication whose body has this many levels, including its own object."""
    return b'{"channels":["a"],"data":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@settings(deadline=None, max_examples=300)
@given(bodies())
@example(nested(64))
@example(nested(960))
@example(nested(980))
def test_a_second_node_reads_and_answers_whatever_one_accepts(body: bytes) -> None:
    """The text in the log, a checkpoint of the resulting state, and the answer to a poll can all be read."""
    try:
        publication = read_publication(body, "key", PublicationLimits())
    except PushUpError:
        return
    written = encode(publication.command)
    command = deeper(lambda: _command.decode(written))
    assert command == publication.command

    second = ReplicatedState(Limits(), epoch="e")
    second.note_changes()
    outcome = second.apply(Entry("e", 1, 1000.0, command))
    if not isinstance(outcome, Published):
        assert isinstance(outcome, PushUpError)
        return
    saved = second.changes()
    tables = Tables()
    for row in saved.rows:
        deeper(partial(tables.add, row.key, row.body))
    third = restore(Snapshot(saved.head, tables))

    names = tuple(dict.fromkeys(name for draft in publication.command.messages for name in draft.channels))
    for state in (second, third):
        answer = HeldPolls[None](state).subscribe(Poll(Selection(names), Start.EARLIEST), None, 1000.0, 1000.0)
        assert isinstance(answer, Answer)
        read = json.loads(write(answer))
        sent = [json.loads(bytes(draft.data)) for draft in publication.command.messages]
        assert json.dumps([message["data"] for message in read["messages"]]) == json.dumps(sent)


@pytest.mark.parametrize("frames", [0, 300, FRAMES])
def test_how_deeply_a_body_may_nest_does_not_depend_on_the_stack(frames: int) -> None:
    """64 levels are accepted and 65 refused wherever the decoder is called; brackets in strings do not count."""
    limits = PublicationLimits()

    def read(body: bytes) -> Raw:
        return deeper(lambda: read_publication(body, None, limits), frames).command.messages[0].data

    assert read(nested(64)) == Raw(b"[" * 63 + b"]" * 63)
    for levels in (65, 400, 960, 100_000):
        with pytest.raises(BadRequest, match="more than 64 levels"):
            read(nested(levels))
    for text in (b"[" * 1000, b'\\"' + b"{" * 1000, b"\\\\" + b"[{" * 500, b'[\\"' * 300):
        read(b'{"channels":["a"],"data":"' + text + b'"}')
    flat = b"[" + b",".join([b'{"a":[]}'] * 1000) + b"]"
    assert read(b'{"channels":["a"],"data":' + flat + b"}") == Raw(flat)


@pytest.mark.parametrize("read", [read_create, lambda body: read_renew("a", body)])
def test_other_bodies_have_the_same_limit(read: Callable[[bytes], object]) -> None:
    """Whatever the body is for, nesting too deeply is a bad request and never a server error."""
    with pytest.raises(BadRequest):
        read(b'{"ttl":' + b"[" * 980 + b"]" * 980 + b"}")
