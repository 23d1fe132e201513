"""Runs mutants against tests, each in a fork of this process, which has run all tests once.

That run records which test executes which lines of the mutated files, and how long each takes. For a mutant, the tests
that execute its lines are run, the quickest first, until one fails. In the fork, the code of the mutant's function
replaces that of the functions that were made from it. A mutant outside of functions is carried out when its module is
imported: then the fork imports PushUp and the tests again.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant, SourceFile

MEMORY_BYTES = 4 << 30
"""A mutant that takes more address space than this in addition has failed."""

HANGING_SECONDS = 30.0
"""A mutant whose test waits that long has failed: tests here wait for nothing outside."""

KILLED, SURVIVED = 1, 0

OPTIONS = ("-qs", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of pytest. Hypothesis is imported before, so its own assertions are not rewritten."""


class Runner:
    """A pytest plugin: runs the tests, then calls `work`, which tries mutants with `survives`."""

    def __init__(self, files: Sequence[SourceFile], work: Callable[[Runner], None], most_seconds: float) -> None:
        self._paths = [str(file.path.absolute()) for file in files]
        self._work = work
        self._most_seconds = most_seconds
        self._items: dict[str, pytest.Item] = {}
        self._seconds: dict[str, float] = {}
        self._tests: dict[tuple[str, int], list[str]] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """No shrinking; before the modules of the tests are imported, which take the defaults."""
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutation", parent=settings.get_profile("pushup"), phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            pytest.exit("some tests cannot be imported", returncode=1)
        self._items = {item.nodeid: item for item in session.items}
        self._measure()
        self._remember_functions()
        gc.collect()
        gc.freeze()
        self._work(self)
        return True

    def _measure(self) -> None:
        """Run every test once, and end if one fails."""
        coverage = Coverage(data_file=None, include=self._paths, config_file=False)
        coverage.start()
        for name, item in self._items.items():
            coverage.switch_context(name)
            began = time.process_time()
            if trouble := _trouble(item):
                pytest.exit(f"this fails without any change: {name}\n{trouble}", returncode=1)
            self._seconds[name] = time.process_time() - began
        coverage.stop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no test reached these files
            data = coverage.get_data()
        for path in self._paths:
            for line, names in data.contexts_by_lineno(path).items():
                self._tests[path, line] = [name for name in names if name]

    def _remember_functions(self) -> None:
        """Find the functions of the mutated files, and forget what they have computed and kept."""
        gc.unfreeze()  # what tests/conftest.py has frozen is not in `get_objects`
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename in self._paths:
                self._functions.setdefault(_place(thing.__code__), []).append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper):
                thing.cache_clear()

    def tests_for(self, mutant: Mutant) -> list[str]:
        """The tests that reach it, quickest first, as many as the time is enough for.

        No test reaches a line that is executed on import only. For this it is those that reach the file, or all.
        """
        path = str(mutant.path.absolute())
        names = {name for line in mutant.lines for name in self._tests.get((path, line), ())}
        if not mutant.is_in_function and not names:
            names = {name for (of, _), tests in self._tests.items() if of == path for name in tests} or {*self._items}
        seconds = 0.0
        chosen = []
        for name in sorted(names, key=self._seconds.__getitem__):
            seconds += self._seconds[name]
            if seconds > self._most_seconds:
                break
            chosen.append(name)
        return chosen

    def survives(self, file: SourceFile, mutant: Mutant) -> bool:
        names = self.tests_for(mutant)
        code = file.code(mutant)
        process = os.fork()
        if process:
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == SURVIVED
        status = KILLED
        with contextlib.suppress(BaseException):
            sys.setrecursionlimit(2000)
            status = self._try(code, names, mutant)
        os._exit(status)

    def _try(self, code: CodeType, names: list[str], mutant: Mutant) -> int:
        """In the fork: whether a test fails."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY_BYTES, most))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if not (mutant.is_in_function and self._replace_functions(code)):
            self._allow(sum(self._seconds[name] for name in names) + 5)
            return _import_again(code, names)
        for name in names:
            self._allow(self._seconds[name])
            if _trouble(self._items[name]):
                return KILLED
        return SURVIVED

    def _allow(self, seconds: float) -> None:
        """What a test with a mutant may take: ten times what it took without, and a second."""
        signal.setitimer(signal.ITIMER_PROF, 1 + 10 * seconds)
        signal.setitimer(signal.ITIMER_REAL, HANGING_SECONDS + 10 * seconds)

    def _replace_functions(self, module: CodeType) -> bool:
        """Give the functions the code that they have in this module; False if that is impossible."""
        try:
            for code in _function_codes(module):
                for function in self._functions.get(_place(code), ()):
                    if function.__code__ != code:
                        function.__code__ = code
        except ValueError:  # it refers to other variables outside of it
            return False
        return True


def run(
    files: Sequence[SourceFile], tests: Sequence[str], work: Callable[[Runner], None], *, most_seconds: float
) -> int:
    """Run the tests, then `work`. Returns pytest's exit status. `most_seconds`: of tests for one mutant."""
    sys.dont_write_bytecode = True  # assertions are rewritten once; a mutant leaves nothing behind
    return pytest.main([*OPTIONS, "-m", "not processes", *tests], [Runner(files, work, most_seconds)])


def _trouble(item: pytest.Item) -> str:
    """Run a test; what is reported if it fails, else nothing."""
    reports = runtestprotocol(item, log=False, nextitem=None)
    return "".join(report.longreprtext or "?" for report in reports if report.failed)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _function_codes(code: CodeType) -> Iterator[CodeType]:
    """The functions and methods of a module; not those that are made by functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function
                yield constant
            else:
                yield from _function_codes(constant)


def _import_again(code: CodeType, names: list[str]) -> int:
    """Run the tests with everything of PushUp imported again, this module with this code."""
    importer = _Importer(code)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pushup", "tests")]:
        if not name.startswith("tests.mutation"):
            del sys.modules[name]
    status = pytest.main([*OPTIONS, "-x", *names], [importer])
    return SURVIVED if status == pytest.ExitCode.OK else KILLED


class _Importer(MetaPathFinder):
    """Imports one module with other code than its file has; before pytest, which reads those of plugins itself."""

    def __init__(self, code: CodeType) -> None:
        self._path = code.co_filename
        self._module = _module_of(Path(self._path))
        self._code = code

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        return spec_from_loader(name, _Loader(name, self._path, self._code))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def _module_of(path: Path) -> str:
    parts = path.with_suffix("").relative_to(Path.cwd()).parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _address_space() -> int:
    """Of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
