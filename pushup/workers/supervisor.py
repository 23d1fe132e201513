"""Starts the workers, and keeps them going: one that ends, or sends no heartbeat, is replaced."""

from __future__ import annotations

import signal
from collections.abc import Callable

from msgspec import DecodeError, Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from pushup.metrics import counter, gauge
from pushup.net.log_throttle import LogThrottle
from pushup.service_tree import Periodic
from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link, Silence
from pushup.workers import control_protocol
from pushup.workers.machine_metrics import Family, families
from pushup.workers.machine_queries import WorkerQueries
from pushup.workers.worker_process import Child, StartWorker, told

SILENCE_SECONDS = 10.0
"""A worker that sends no heartbeat for this long is killed, and replaced."""

FIRST_SIGN_SECONDS = 60.0
"""How long a new worker may take until its first heartbeat."""

ABORT_SECONDS = 1.0
"""How long such a worker has to write to the log where it was stuck (SIGABRT), before it is killed."""

STEADY_SECONDS = 3.0
"""A worker that has lived for this long is replaced at once."""

RETRY_SECONDS = (0.5, 30.0)
"""The pause before a worker is replaced that has not: the first, and the longest. It doubles each time."""

CHECK_SECONDS = 0.05
"""How often to look whether a process whose link has ended has ended as well."""

_log = Logger()


class _Worker(Struct, eq=False):
    """A worker, from when it is started until its process has ended."""

    number: int
    link: Link
    child: Child
    started_at: float
    silence: Silence
    """Since its last heartbeat, or its start."""
    has_begun: bool = False
    """Whether it has sent a heartbeat."""
    why_not_ready: str | None = "it is starting"
    is_killed: bool = False


class Supervisor:
    """The workers 1 to `size`."""

    _settings: Settings  # set by `begin`

    def __init__(
        self,
        size: int,
        start: StartWorker,
        *,
        attach: Callable[[str, Callable[[str], None]], Link] | None,
        on_ready: Callable[[], None],
        own_metrics: Callable[[], list[Family]],
        ticket_key: str,
        clock: IReactorTime,
    ) -> None:
        """`attach` makes the link for the order (`Hub.attach`); None: the workers have another.

        `on_ready` is called when all are ready for the first time; `own_metrics`: those of this process.
        `ticket_key`: as in `Begin`.
        """
        self._size = size
        self._start = start
        self._attach = attach
        self._ticket_key = ticket_key
        self._questions = WorkerQueries(self._ask, lambda: [*own_metrics(), *self._metrics()], clock)
        self._on_ready: Callable[[], None] | None = on_ready
        self._clock = clock
        self._workers: dict[int, _Worker] = {}
        self._failures: dict[int, int] = {}
        self._retries: dict[int, IDelayedCall] = {}
        self._replaced = 0
        self._is_out = False  # whether all workers are to be out of rotation
        self._rarely = LogThrottle(clock.seconds)
        self._stopped: Deferred[None] | None = None
        self._watching = Periodic(
            self._watch,
            control_protocol.SIGN_SECONDS,
            clock,
            if_it_fails="worker monitoring failed: hung workers will not be replaced; restart the server",
        )

    def begin(self, settings: Settings) -> None:
        """Start all workers with these settings. Raises: OSError."""
        self._settings = settings
        for number in range(1, self._size + 1):
            self._start_worker(number)
        self._watching.startService()

    def stop(self, seconds: float) -> Deferred[None]:
        """Let all of them drain and exit; those that have not within `seconds` are killed."""
        self._stopped = Deferred()
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        for worker in self._workers.values():
            self._send(worker, control_protocol.Stop())
        kill = self._clock.callLater(seconds, self._kill_all, seconds)
        self._stopped.addBoth(lambda result: kill.cancel() if kill.active() else None)
        stopped = self._stopped
        self._end_if_all_have()
        return stopped

    def reload(self, settings: Settings) -> None:
        """Have all workers apply those of these settings that can change."""
        self._settings = settings
        for worker in self._workers.values():
            self._send(worker, control_protocol.Reload(settings))

    def why_not_ready(self) -> str | None:
        """Why clients cannot be served; None if at least one worker can serve them, and all could at some time."""
        reasons = self._reasons()
        return None if self._on_ready is None and len(reasons) < self._size else "; ".join(reasons)

    def _reasons(self) -> list[str]:
        """Why workers cannot serve clients: one for each that cannot."""
        reasons: dict[int, str | None] = dict.fromkeys(range(1, self._size + 1), "it is not running")
        reasons |= {worker.number: worker.why_not_ready for worker in self._workers.values()}
        return [f"worker {number}: {reason}" for number, reason in reasons.items() if reason is not None]

    # One worker.

    def _start_worker(self, number: int) -> None:
        # Links call back in later turns, when there is a `worker`.
        link = Link(lambda body: self._received(worker, body), lambda reason: self._check_end(worker))
        order: Link | None = None
        if self._attach is not None:
            order = self._attach(f"worker {number}", lambda reason: self._order_ended(worker, order, reason))
        child = self._start(number, link, order)
        silence = Silence(self._clock, control_protocol.SIGN_SECONDS)
        worker = self._workers[number] = _Worker(number, link, child, self._clock.seconds(), silence)
        self._send(worker, control_protocol.Begin(self._settings, self._ticket_key))
        if self._is_out:
            self._send(worker, control_protocol.Question(0, (), is_out=True))

    def _order_ended(self, worker: _Worker, order: Link | None, reason: str) -> None:
        """If the worker was given up it is killed at once: from now on nobody waits until it has applied an entry."""
        if order is not None and order.was_aborted:
            worker.is_killed = True
            worker.child.send_signal(signal.SIGKILL)
            _log.error("killed worker {number}: {reason}", number=worker.number, reason=reason)

    def _check_end(self, worker: _Worker) -> None:
        """Its link has ended; its process has, or will soon."""
        status = worker.child.poll()
        if status is None:
            self._clock.callLater(CHECK_SECONDS, self._check_end, worker)
            return
        del self._workers[worker.number]
        if self._stopped is not None:
            self._end_if_all_have()
        else:
            self._replaced += 1
            self._replace(worker, status)
        self._questions.forget(worker.number)

    def _replace(self, worker: _Worker, status: int) -> None:
        """Start another one, at once or after a while."""
        number, lived = worker.number, self._clock.seconds() - worker.started_at
        failures = self._failures[number] = 0 if lived >= STEADY_SECONDS else self._failures.get(number, 0) + 1
        shortest, longest = RETRY_SECONDS
        pause = min(shortest * 2 ** min(failures - 1, 16), longest) if failures else 0.0
        if status == 0 and not worker.is_killed:
            _log.info("worker {number} has stopped and is being replaced", number=number)
        elif times := self._rarely.passes(f"worker {number}"):
            _log.error(
                "worker {number} died ({status}) after {lived:.0f} s and is being replaced"
                + " ({times} times since last logged)" * (times > 1)
                + "; its clients reconnect to the others",
                number=number,
                status=told(status),
                lived=lived,
                times=times,
            )
        self._retries[number] = self._clock.callLater(pause, self._start_again, number)

    def _start_again(self, number: int) -> None:
        self._retries.pop(number, None)
        try:
            self._start_worker(number)
        except OSError as error:
            if self._rarely.passes("start"):
                _log.error("cannot start worker {number}: {error}; retrying", number=number, error=error)
            self._retries[number] = self._clock.callLater(RETRY_SECONDS[1], self._start_again, number)

    def _watch(self) -> None:
        for worker in list(self._workers.values()):
            silent = worker.silence.look()
            if silent > (SILENCE_SECONDS if worker.has_begun else FIRST_SIGN_SECONDS) and not worker.is_killed:
                self._kill(worker, f"no heartbeat for {silent:.0f} s")

    def _kill(self, worker: _Worker, reason: str) -> None:
        worker.is_killed = True
        _log.error("killing worker {number}: {reason}", number=worker.number, reason=reason)
        worker.child.send_signal(signal.SIGABRT)  # it writes where it is stuck
        self._clock.callLater(ABORT_SECONDS, worker.child.send_signal, signal.SIGKILL)

    def _kill_all(self, seconds: float) -> None:
        for worker in self._workers.values():
            self._kill(worker, f"it did not stop within {seconds:.0f} s")

    def _end_if_all_have(self) -> None:
        if self._stopped is not None and not self._workers:
            self._watching.stopService()
            self._stopped.callback(None)

    # What workers say.

    def _received(self, worker: _Worker, body: bytes) -> None:
        try:
            message = control_protocol.read_by_parent(body)
        except DecodeError as error:
            text = "malformed message from worker {number}: {error} (please report this as a bug)"
            _log.error(text, number=worker.number, error=error)
            return
        match message:
            case control_protocol.Sign(why_not_ready):
                worker.silence.end()
                worker.has_begun = True
                worker.why_not_ready = why_not_ready
                if self._on_ready is not None and not self._reasons():
                    on_ready, self._on_ready = self._on_ready, None
                    on_ready()
            case control_protocol.Question(number) as wanted:
                if wanted.is_out is not None:
                    self._is_out = wanted.is_out
                asked = [
                    each.number
                    for each in self._workers.values()
                    if each.has_begun or each is worker or wanted.is_out is not None
                ]
                self._questions.ask(
                    asked, wanted, lambda bodies: self._send(worker, control_protocol.Answers(number, bodies))
                )
            case control_protocol.Answer(number, answer):
                self._questions.answered(worker.number, number, answer.copy())

    def _send(self, worker: _Worker, message: control_protocol.ToWorker) -> None:
        worker.link.send(control_protocol.frame(message))

    def _ask(self, number: int, question: control_protocol.Question) -> None:
        self._send(self._workers[number], question)

    def _metrics(self) -> list[Family]:
        text = "Workers that have ended, and were replaced"
        return families([
            gauge("workers", "Workers that run", len(self._workers)), counter("workers_replaced", text, self._replaced)
        ])  # fmt: skip
