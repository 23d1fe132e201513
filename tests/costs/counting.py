"""Counts what Python does while something runs: the same numbers every time, on every machine.

The tests, and Twisted's `Clock`, stand in for the operating system. What runs inside of them is not counted.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from twisted.internet import task

ROOT = Path(__file__).parents[2]

STAND_INS = (str(ROOT / "tests"), str(ROOT / "pushup" / "testing"), str(task.__file__))

SOCKETS = str(ROOT / "pushup" / "testing" / "in_memory.py")
"""What is allocated here counts: the bytes of requests."""

_INLINE = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))
"""Calls only in Python 3.11: later versions have no function for these."""


class Work(NamedTuple):
    """What ran."""

    files: tuple[str, ...]
    """Below `pushup/`, in the order in which they were reached."""
    crossings: int
    """Calls from one of these files into another, even if a library's functions are in between."""
    calls: int
    """Calls of functions of PushUp."""
    outside_calls: int
    """Calls from there of anything else: functions in C, system calls, libraries."""
    instructions: int
    """Bytecode instructions, those of libraries included."""


@cache
def _file_of(path: str) -> str:
    """The path below `pushup/`; empty for a file that is not there, or stands in for another."""
    of_product = path.startswith(f"{ROOT / 'pushup'}/") and not path.startswith(STAND_INS)
    return path.removeprefix(f"{ROOT / 'pushup'}/") if of_product else ""


@cache
def _is_stand_in(path: str) -> bool:
    return path.startswith(STAND_INS)


class _Counter:
    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.crossings = self.calls = self.outside_calls = self.instructions = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`."""
        file = _file_of(frame.f_code.co_filename)
        if event == "c_call":
            self.outside_calls += bool(file)
        elif event == "call" and file and frame.f_code.co_name not in _INLINE:
            self.calls += 1
            self.files[file] = None
            self.crossings += _caller(frame) not in ("", file)
        elif event == "call" and not file and frame.f_back is not None:
            self.outside_calls += bool(_file_of(frame.f_back.f_code.co_filename))

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """For `sys.settrace`."""
        if event == "opcode":
            self.instructions += 1
        elif event == "call" and _is_stand_in(frame.f_code.co_filename):
            return None
        else:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self.trace

    def instruction(self, code: CodeType, _: int) -> None:
        """For `sys.monitoring`."""
        self.instructions += not _is_stand_in(code.co_filename)


def _caller(frame: FrameType) -> str:
    """The file of the nearest function of PushUp that called this one; empty if none did."""
    caller = frame.f_back
    while caller is not None:
        if file := _file_of(caller.f_code.co_filename):
            return file
        caller = caller.f_back
    return ""


def count(run: Callable[[], object]) -> Work:
    """What running this takes."""
    counter = _Counter()
    with _undisturbed(), _instructions(counter):
        before = counter.instructions  # of entering the context
        sys.setprofile(counter.profile)
        try:
            run()
        finally:
            sys.setprofile(None)
            instructions = counter.instructions - before
    return Work(tuple(counter.files), counter.crossings, counter.calls, counter.outside_calls, instructions)


@contextmanager
def _instructions(counter: _Counter) -> Iterator[None]:
    """Has instructions counted."""
    if sys.version_info < (3, 12):
        sys.settrace(counter.trace)
        try:
            yield
        finally:
            sys.settrace(None)
    else:  # where tracing misses the instructions of functions that were not traced before
        tool, event = sys.monitoring.PROFILER_ID, sys.monitoring.events.INSTRUCTION
        sys.monitoring.use_tool_id(tool, "tests.costs")
        sys.monitoring.register_callback(tool, event, counter.instruction)
        sys.monitoring.set_events(tool, event)
        try:
            yield
        finally:
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.free_tool_id(tool)


def memory(run: Callable[[], object]) -> int:
    """The bytes allocated by running this, and not freed since. What stand-ins allocate does not count."""
    with _undisturbed():
        gc.freeze()  # or each collection would look at everything that the tests have imported
        gc.collect()  # it also empties the free lists, or objects from there would seem to take no memory
        tracemalloc.start()
        try:
            before = _allocated()
            run()
            return _allocated() - before
        finally:
            tracemalloc.stop()
            gc.unfreeze()


def _allocated() -> int:
    gc.collect()
    traces = tracemalloc.take_snapshot().statistics("filename")
    return sum(
        found.size for found in traces if (path := found.traceback[0].filename) == SOCKETS or not _is_stand_in(path)
    )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the garbage collector, which would run now and then, and without what measures coverage."""
    profile, trace = sys.getprofile(), sys.gettrace()
    sys.setprofile(None)
    sys.settrace(None)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.settrace(trace)
        sys.setprofile(profile)
