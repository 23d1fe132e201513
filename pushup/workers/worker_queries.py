"""WorkerQueries to all workers: about their metrics, or the subscribers of some channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import msgspec
from msgspec import Raw, Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from pushup.workers.control_protocol import Question
from pushup.workers.machine_metrics import Family, counters

ANSWER_SECONDS = 1.0
"""How long to wait for the answers of all workers."""

OnAnswers = Callable[[dict[str, Raw]], None]
"""Takes the answers by the worker's number; those about metrics also of `parent`."""

_families = msgspec.json.Decoder(list[Family])


class _Asked(Struct):
    """A question, and the workers that have not answered it."""

    on_answers: OnAnswers
    waiting: set[int]
    answers: dict[int, Raw]
    is_for_metrics: bool
    deadline: IDelayedCall


class WorkerQueries:
    """Those under way, and the last metrics of each worker."""

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

    def ask(self, workers: Iterable[int], channels: tuple[str, ...] | None, on_answers: OnAnswers) -> None:
        """Ask these workers for the subscribers of channels; None: for metrics. Once, after `ANSWER_SECONDS` at most,
        `on_answers` is called."""
        number = next(self._numbers)
        deadline = self._clock.callLater(ANSWER_SECONDS, self._end, number)
        waiting = {*workers}
        self._asked[number] = _Asked(on_answers, waiting, {}, channels is None, deadline)
        for worker in tuple(waiting):
            self._send(worker, Question(number, channels))

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
