"""Questions about the whole machine: a worker asks the parent, and the parent all workers, that one as well.

They are about the metrics, or the subscribers of some channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import msgspec
from msgspec import Raw, Struct, structs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from pushup.core.errors import PushUpError, Unavailable
from pushup.metrics import MetricsPage
from pushup.net.api.node_interface import ServerView
from pushup.workers import control_protocol
from pushup.workers.control_protocol import Answer, Answers, Question
from pushup.workers.machine_metrics import Family, counters, families, one_page

ANSWER_SECONDS = 1.0
"""How long to wait for the answers of all workers."""

PARENT_SECONDS = 2 * ANSWER_SECONDS
"""How long to wait for the parent, which waits for the workers meanwhile."""

OnAnswers = Callable[[dict[str, Raw]], None]
"""Takes the answers by the worker's number; those about metrics also of `parent`."""

_families = msgspec.json.Decoder(list[Family])
_counts = msgspec.json.Decoder(list[int])

_log = Logger()


class _Asked(Struct):
    """A question, and the workers that have not answered it."""

    on_answers: OnAnswers
    waiting: set[int]
    answers: dict[int, Raw]
    is_for_metrics: bool
    deadline: IDelayedCall


class WorkerQueries:
    """The parent's questions to its workers: those under way; and the last metrics of each worker."""

    def __init__(
        self, send: Callable[[int, Question], None], own_metrics: Callable[[], list[Family]], clock: IReactorTime
    ) -> None:
        """`send` takes the number of a worker; `own_metrics`: those of this process."""
        self._send = send
        self._own_metrics = own_metrics
        self._clock = clock
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self._metrics: dict[int, Raw] = {}  # the last ones of each worker, to be kept when it has ended
        self._past: list[Family] = []  # the counters of workers that have ended

    def ask(self, workers: Iterable[int], wanted: Question, on_answers: OnAnswers) -> None:
        """Ask these workers what another worker wants to know. `on_answers` is called once, after `ANSWER_SECONDS` at
        most."""
        number = next(self._numbers)
        deadline = self._clock.callLater(ANSWER_SECONDS, self._end, number)
        waiting = {*workers}
        self._asked[number] = _Asked(on_answers, waiting, {}, wanted.channels is None, deadline)
        for worker in tuple(waiting):
            self._send(worker, structs.replace(wanted, number=number))

    def answered(self, worker: int, number: int, answer: Raw) -> None:
        """A worker has answered this question."""
        asked = self._asked.get(number)
        if asked is not None and worker in asked.waiting:
            asked.answers[worker] = answer
            if asked.is_for_metrics:
                self._metrics[worker] = answer
            self._do_not_wait(worker, number, asked)

    def forget(self, worker: int) -> None:
        """A worker has ended: it is not waited for, and its counters stay."""
        if (metrics := self._metrics.pop(worker, None)) is not None:
            self._past = counters([self._past, _families.decode(metrics)])
        for number, asked in list(self._asked.items()):
            if asked.is_for_metrics:
                asked.answers.pop(worker, None)  # it is among the past ones now
            if worker in asked.waiting:
                self._do_not_wait(worker, number, asked)

    def _do_not_wait(self, worker: int, number: int, asked: _Asked) -> None:
        asked.waiting.discard(worker)
        if not asked.waiting:
            asked.deadline.cancel()
            self._end(number)

    def _end(self, number: int) -> None:
        """All have answered, or enough time has passed."""
        asked = self._asked.pop(number)
        answers = asked.answers
        if asked.is_for_metrics:
            answers |= {worker: self._metrics[worker] for worker in asked.waiting if worker in self._metrics}
        bodies = {str(worker): answers[worker] for worker in sorted(answers)}
        if asked.is_for_metrics:
            bodies["parent"] = Raw(msgspec.json.encode([*self._past, *self._own_metrics()]))
        asked.on_answers(bodies)


class ServerQueries:
    """A worker's questions to the parent, and its own answers."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        name: str,
        page: MetricsPage,
        subscribers: Callable[[str], int],
        set_out: Callable[[bool], None],
        clock: IReactorTime,
    ) -> None:
        """`send`: to the parent; `name`: of this worker; the others: what it answers, and does."""
        self._send = send
        self._name = name
        self._page = page
        self._subscribers = subscribers
        self._set_out = set_out
        self._clock = clock
        self._numbers = count(1)
        self._asked: dict[int, tuple[Question, OnAnswers, IDelayedCall]] = {}
        self._is_alone = False

    def metrics(self, on_text: Callable[[bytes], None]) -> None:
        def answered(bodies: dict[str, Raw]) -> None:
            on_text(one_page({name: _families.decode(body) for name, body in bodies.items()}))

        self._ask(Question(next(self._numbers)), answered)

    def subscribers(self, names: list[str], on_counts: Callable[[list[int]], None]) -> None:
        def answered(bodies: dict[str, Raw]) -> None:
            on_counts([sum(counts) for counts in zip(*map(_counts.decode, bodies.values()), strict=True)])

        if names:
            self._ask(Question(next(self._numbers), tuple(names)), answered)
        else:
            on_counts([])

    def set_out(self, is_out: bool, on_done: Callable[[PushUpError | None], None]) -> None:
        why = "the server's parent process does not answer; once it runs again it does this, or else restart the server"
        self._ask(
            Question(next(self._numbers), (), is_out), lambda bodies: on_done(None if bodies else Unavailable(why))
        )

    def _ask(self, question: Question, on_answers: OnAnswers) -> None:
        if self._is_alone:
            on_answers({self._name: self._own(question)})
        else:
            alone = Answers(question.number, {})
            deadline = self._clock.callLater(PARENT_SECONDS, self.answered, alone)
            self._asked[question.number] = question, on_answers, deadline
            self._send(control_protocol.frame(question))

    def answer(self, question: Question) -> None:
        """Answer a question of the parent."""
        self._send(control_protocol.frame(Answer(question.number, self._own(question))))

    def answered(self, answers: Answers) -> None:
        """The parent has all answers; if no worker answered in time, or the parent does not, there is this one. It does
        not leave the rotation, or come back, while the parent hangs: the others would not."""
        asked = self._asked.pop(answers.number, None)
        if asked is None:
            return  # the parent was late, or has ended
        question, on_answers, deadline = asked
        is_late = not deadline.active()
        if not is_late:
            deadline.cancel()
        try:
            is_refused = is_late and question.is_out is not None
            on_answers({} if is_refused else answers.bodies or {self._name: self._own(question)})
        except Exception:
            _log.failure("could not answer a request that needs data from all workers")

    def be_alone(self) -> None:
        """The parent has ended: answer for this worker only."""
        self._is_alone = True
        for number in list(self._asked):
            self.answered(Answers(number, {}))

    def _own(self, question: Question) -> Raw:
        if question.is_out is not None:
            self._set_out(question.is_out)
        if question.channels is None:
            return Raw(msgspec.json.encode(families(self._page.collect())))
        return Raw(msgspec.json.encode([self._subscribers(name) for name in question.channels]))


_check: type[ServerView] = ServerQueries
