"""Try mutants of files: `python -m tests.mutation pushup/core/state.py`. Prints those that no test notices."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.mutation.explained import SURVIVORS, Explained, read
from tests.mutation.mutants import Mutant, SourceFile
from tests.mutation.running import Runner, run

DOCUMENTED = "tests/test_documents.py::test_every_setting_is_documented_with_its_default"


class Report:
    """Tries mutants and prints what becomes of them."""

    def __init__(self, files: list[SourceFile], chosen: set[Mutant], explained: list[Explained]) -> None:
        self._files = files
        self._chosen = chosen
        self._explained = explained
        self.total: Counter[str] = Counter()

    def work(self, runner: Runner) -> None:
        start = time.monotonic()
        print(f"{'':44} mutants  killed  explained  survivors")
        for file in self._files:
            counts: Counter[str] = Counter()
            began = time.monotonic()
            for mutant in file.mutants:
                if mutant in self._chosen:
                    counts["mutants"] += 1
                    counts[self._try(runner, file, mutant)] += 1
            self._print(str(file.path), counts, time.monotonic() - began)
            self.total += counts
        self._print("together", self.total, time.monotonic() - start)

    def _try(self, runner: Runner, file: SourceFile, mutant: Mutant) -> str:
        if any(explained.fits(mutant) for explained in self._explained):
            return "explained"
        if not runner.survives(file, mutant):
            return "killed"
        print(f"{mutant}   ({len(runner.tests_for(mutant))} tests)", flush=True)
        return "survivors"

    def _print(self, name: str, counts: Counter[str], seconds: float) -> None:
        columns = (counts[key] for key in ("mutants", "killed", "explained", "survivors"))
        print(f"{name:44} {'{:7}{:8}{:11}{:11}'.format(*columns)}   {seconds:5.0f} s", flush=True)


def tests_of(path: Path) -> tuple[str, ...]:
    """The tests of the package: of `pushup/core/state.py`, `tests/core`. Those of documents compare default limits."""
    package = str(Path("tests", path.parts[1]))
    return (package, DOCUMENTED) if path.name == "limits.py" else (package,)


def sample(file: SourceFile, count: int, seed: int) -> list[Mutant]:
    """Some mutants of a file, always the same for a seed."""
    return Random(f"{file.path} {seed}").sample(file.mutants, min(count, len(file.mutants)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="files and folders of pushup")
    parser.add_argument("--tests", nargs="*", help="files, folders or ids of tests, by default those of the package")
    parser.add_argument("--sample", type=int, help="try so many of each file, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant, the quickest first")
    parser.add_argument("--line", type=int, action="append", help="only mutants of this line")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--all", action="store_true", help="try also those that survivors.toml explains")
    options = parser.parse_args()
    paths = sorted({file for path in options.paths for file in ([path] if path.is_file() else path.rglob("*.py"))})
    files = [SourceFile(path) for path in paths]
    mutants = [m for file in files for m in file.mutants if not options.line or m.line in options.line]
    explained = read()
    for e in explained:
        if any(e.file == str(path) for path in paths) and not options.line:
            for change in e.changes:
                if not any(mutant.change == change and e.fits(mutant) for mutant in mutants):
                    print(f"{SURVIVORS.name}: {e.file} has no such mutant any more: {e.line}: {change}")
    if options.sample is not None:
        mutants = [m for file in files for m in sample(file, options.sample, options.seed) if m in mutants]
    if options.list:
        print("\n".join(map(str, mutants)))
        return 0
    report = Report(files, set(mutants), [] if options.all else explained)
    tests = options.tests or sorted({tests for path in paths for tests in tests_of(path)})
    status = run(files, tests, report.work, most_seconds=options.seconds)
    return status or report.total["survivors"] > 0


if __name__ == "__main__":
    sys.exit(main())
