"""A worker's view of the whole machine: it asks the parent, which asks all workers, this one as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec
from msgspec import Raw
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from pushup.metrics import MetricsPage
from pushup.net.api.server_view import ServerView
from pushup.workers import control_protocol
from pushup.workers.control_protocol import Answer, Answers, Question
from pushup.workers.machine_metrics import Family, families, one_page
from pushup.workers.worker_queries import ANSWER_SECONDS

PARENT_SECONDS = 2 * ANSWER_SECONDS
"""How long to wait for the parent, which waits for the workers meanwhile."""

_families = msgspec.json.Decoder(list[Family])
_counts = msgspec.json.Decoder(list[int])

_log = Logger()

OnAnswers = Callable[[dict[str, Raw]], None]


class ServerQueries:
    """Asks and answers."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        name: str,
        page: MetricsPage,
        subscribers: Callable[[str], int],
        clock: IReactorTime,
    ) -> None:
        """`send`: to the parent; `name`: of this worker; the others: what it answers."""
        self._send = send
        self._name = name
        self._page = page
        self._subscribers = subscribers
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
        """The parent has all answers; if no worker answered in time, or the parent does not, there is this one."""
        asked = self._asked.pop(answers.number, None)
        if asked is None:
            return  # the parent was late, or has ended
        question, on_answers, deadline = asked
        if deadline.active():
            deadline.cancel()
        try:
            on_answers(answers.bodies or {self._name: self._own(question)})
        except Exception:
            _log.failure("could not answer a question about all workers")

    def be_alone(self) -> None:
        """The parent has ended: answer for this worker only."""
        self._is_alone = True
        for number in list(self._asked):
            self.answered(Answers(number, {}))

    def _own(self, question: Question) -> Raw:
        if question.channels is None:
            return Raw(msgspec.json.encode(families(self._page.collect())))
        return Raw(msgspec.json.encode([self._subscribers(name) for name in question.channels]))


_check: type[ServerView] = ServerQueries
