"""A worker's view of the whole machine: it asks the parent, which asks all workers, this one as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec
from msgspec import Raw
from twisted.logger import Logger

from pushup.metrics import MetricsPage
from pushup.net.api.machine import Machine
from pushup.workers import control
from pushup.workers.control import Answer, Answers, Question
from pushup.workers.machine_metrics import Family, families, one_page

_families = msgspec.json.Decoder(list[Family])
_counts = msgspec.json.Decoder(list[int])

_log = Logger()

OnAnswers = Callable[[dict[str, Raw]], None]


class Siblings:
    """Asks and answers."""

    def __init__(
        self, send: Callable[[bytes], None], name: str, page: MetricsPage, subscribers: Callable[[str], int]
    ) -> None:
        """`send`: to the parent; `name`: of this worker; the others: what it answers."""
        self._send = send
        self._name = name
        self._page = page
        self._subscribers = subscribers
        self._numbers = count(1)
        self._asked: dict[int, tuple[Question, OnAnswers]] = {}
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
            self._asked[question.number] = question, on_answers
            self._send(control.frame(question))

    def answer(self, question: Question) -> None:
        """Answer a question of the parent."""
        self._send(control.frame(Answer(question.number, self._own(question))))

    def answered(self, answers: Answers) -> None:
        """The parent has all answers."""
        _, on_answers = self._asked.pop(answers.number)
        try:
            on_answers(answers.bodies)
        except Exception:
            _log.failure("could not answer a question about all workers")

    def be_alone(self) -> None:
        """The parent has ended: answer for this worker only."""
        self._is_alone = True
        asked, self._asked = self._asked, {}
        for question, on_answers in asked.values():
            on_answers({self._name: self._own(question)})

    def _own(self, question: Question) -> Raw:
        if question.channels is None:
            return Raw(msgspec.json.encode(families(self._page.collect())))
        return Raw(msgspec.json.encode([self._subscribers(name) for name in question.channels]))


_check: type[Machine] = Siblings
