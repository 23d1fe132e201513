"""A worker's answers about the whole machine: it asks the parent, and adds up what comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from twisted.internet.task import Clock

from pushup.core.errors import PushUpError, Unavailable
from pushup.metrics import Metrics, MetricsPage
from pushup.transport.framed_link import LENGTH_BYTES
from pushup.workers import control_protocol
from pushup.workers.machine_metrics import families
from pushup.workers.machine_queries import PARENT_SECONDS, ServerQueries

POLLS = {"a": 3, "b": 1}


class Asking:
    """The siblings of worker 2; `sent` is what went to the parent."""

    def __init__(self) -> None:
        self.sent: list[control_protocol.ToParent] = []
        self.counts: list[list[int]] = []
        self.texts: list[str] = []
        self.metrics = Metrics()
        page = MetricsPage("", self.metrics.collect)
        self.page = page
        self.clock = Clock()
        self.out: list[bool] = []
        self.siblings = ServerQueries(
            self._send, "2", page, lambda name: POLLS.get(name, 0), self.out.append, self.clock
        )

    def _send(self, frame: bytes) -> None:
        self.sent.append(control_protocol.read_by_parent(frame[LENGTH_BYTES:]))

    def ask_for_counts(self, *names: str) -> None:
        self.siblings.subscribers([*names], self.counts.append)

    def ask_for_metrics(self) -> None:
        self.siblings.metrics(lambda text: self.texts.append(text.decode()))

    def are_told(self, **bodies: Any) -> None:
        """Let the answers to the oldest question come, by worker (`w1`)."""
        question = self.sent.pop(0)
        assert isinstance(question, control_protocol.Question)
        raw = {name.removeprefix("w"): Raw(msgspec.json.encode(body)) for name, body in bodies.items()}
        self.siblings.answered(control_protocol.Answers(question.number, raw))


def values(text: str, name: str) -> list[str]:
    """The lines of a metric without its comments."""
    return [line for line in text.splitlines() if line.startswith(name)]


def test_subscribers_of_all_workers_are_added_up() -> None:
    """For each channel."""
    asking = Asking()
    asking.ask_for_counts("a", "b", "c")
    assert asking.sent == [control_protocol.Question(1, ("a", "b", "c"))]
    asking.are_told(w1=[1, 0, 0], w2=[3, 1, 0], w3=[10, 20, 0])
    assert asking.counts == [[14, 21, 0]]


def test_no_channels_need_no_question() -> None:
    """The list is empty."""
    asking = Asking()
    asking.ask_for_counts()
    assert (asking.sent, asking.counts) == ([], [[]])


def test_if_nobody_answers_in_time_this_worker_counts() -> None:
    """There is one number for each channel in any case."""
    asking = Asking()
    asking.ask_for_counts("a", "b", "c")
    asking.are_told()
    assert asking.counts == [[3, 1, 0]]


def test_metrics_of_all_workers_are_one_page() -> None:
    """Its own are among those that come back."""
    asking = Asking()
    asking.metrics.answers = 5
    own = families(asking.page.collect())
    asking.metrics.answers = 7
    asking.ask_for_metrics()
    assert asking.sent == [control_protocol.Question(1)]
    asking.are_told(w1=own, w2=families(asking.page.collect()))
    (text,) = asking.texts
    assert values(text, "pushup_answers_total") == ["pushup_answers_total 12.0"]
    memory = values(text, "pushup_process_memory_bytes")
    assert [line.partition(" ")[0] for line in memory] == [
        'pushup_process_memory_bytes{worker="1"}',
        'pushup_process_memory_bytes{worker="2"}',
    ]


def test_all_leave_the_rotation_together() -> None:
    """The operator is answered when all have; a worker whose parent has ended leaves alone."""
    asking = Asking()
    done: list[bool] = []
    asking.siblings.set_out(True, lambda error: done.append(error is None))
    assert asking.sent == [control_protocol.Question(1, (), is_out=True)]
    asking.siblings.answer(control_protocol.Question(5, (), is_out=True))
    assert (asking.out, done) == ([True], [])
    del asking.sent[1]
    asking.are_told(w1=[], w2=[])
    assert (asking.out, done) == ([True], [True])
    asking.siblings.be_alone()
    asking.siblings.set_out(False, lambda error: done.append(error is None))
    assert (asking.out, done) == ([True, False], [True, True])


@pytest.mark.parametrize("is_out", [True, False])
def test_no_worker_leaves_the_rotation_alone_while_the_parent_hangs(is_out: bool) -> None:
    """Nor comes back alone. The operator is told; the parent asks all of them when it runs again."""
    asking = Asking()
    errors: list[PushUpError | None] = []
    asking.siblings.set_out(is_out, errors.append)
    asking.clock.advance(PARENT_SECONDS)
    (error,) = errors
    assert isinstance(error, Unavailable)
    assert "parent process does not answer" in error.detail
    asking.siblings.answer(control_protocol.Question(5, (), is_out=is_out))
    del asking.sent[1]
    asking.are_told(w1=[], w2=[])
    assert (asking.out, len(errors)) == ([is_out], 1)


def test_workers_that_are_late_leave_the_rotation_all_the_same() -> None:
    """The parent has told all of them."""
    asking = Asking()
    errors: list[PushUpError | None] = []
    asking.siblings.set_out(True, errors.append)
    asking.are_told()
    assert (asking.out, errors) == ([True], [None])


def test_it_answers_the_parent() -> None:
    """Its metrics, or the subscribers here, under the number of the question."""
    asking = Asking()
    asking.siblings.answer(control_protocol.Question(8, ("b", "x", "a")))
    asking.siblings.answer(control_protocol.Question(9))
    counts, page = asking.sent
    assert isinstance(counts, control_protocol.Answer)
    assert isinstance(page, control_protocol.Answer)
    assert (counts.number, msgspec.json.decode(counts.body)) == (8, [1, 0, 3])
    assert page.number == 9
    sent, expected = (msgspec.json.decode(page.body), families(asking.page.collect()))
    assert [name for name, *_ in sent] == [family.name for family in expected]


def test_questions_may_overlap() -> None:
    """Each asker gets its own answer."""
    asking = Asking()
    asking.ask_for_counts("a")
    asking.ask_for_counts("b")
    first, second = asking.sent
    asking.sent = [second, first]
    asking.are_told(w1=[20])
    assert asking.counts == [[20]]
    asking.are_told(w1=[10])
    assert asking.counts == [[20], [10]]


def test_when_the_parent_has_ended_this_worker_answers_alone() -> None:
    """What it was asked before, and everything after; what still comes of the parent is ignored."""
    asking = Asking()
    asking.ask_for_counts("a")
    asking.ask_for_metrics()
    asking.siblings.be_alone()
    assert asking.counts == [[3]]
    assert values(asking.texts[0], "pushup_process_memory_bytes")[0].startswith(
        'pushup_process_memory_bytes{worker="2"}'
    )
    asking.are_told(w1=[1])
    asking.ask_for_counts("a", "b")
    assert (asking.counts, len(asking.sent)) == ([[3], [3, 1]], 1)
    asking.siblings.be_alone()
    assert len(asking.counts) == 2
    assert asking.clock.getDelayedCalls() == []


def test_an_answer_that_cannot_be_used_is_logged(logged_failures: list[str]) -> None:
    """Others still can be."""
    asking = Asking()
    asking.ask_for_counts("a")
    asking.ask_for_counts("a")
    asking.are_told(w1=["nonsense"])
    assert ["could not answer a request" in line for line in logged_failures] == [True]
    logged_failures.clear()
    asking.are_told(w1=[4])
    assert asking.counts == [[4]]


def test_a_parent_that_hangs_is_not_waited_for() -> None:
    """After a while the answers are of this worker only; the parent's late answers are ignored."""
    asking = Asking()
    asking.ask_for_metrics()
    asking.ask_for_counts("a", "c")
    asking.clock.advance(PARENT_SECONDS - 0.1)
    assert (asking.texts, asking.counts) == ([], [])
    asking.clock.advance(0.2)
    assert values(asking.texts[0], "pushup_messages_total") == ["pushup_messages_total 0.0"]
    assert asking.counts == [[3, 0]]
    asking.are_told(parent=families(asking.page.collect()))
    asking.are_told(w1=[10, 10])
    asking.ask_for_counts("a")
    asking.are_told(w1=[1], w2=[3])
    assert (len(asking.texts), asking.counts) == (1, [[3, 0], [4]])
    assert asking.clock.getDelayedCalls() == []
