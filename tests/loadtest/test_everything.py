"""`python -m loadtest all`: which experiments run, in which order, and what a second run does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import loadtest
from loadtest.__main__ import EXPERIMENTS
from loadtest.everything import ALIASES, ALL, DONE, PLAN, run_all


class Runs:
    """Notes the experiments that are run; those in `failing` fail."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.failing: set[str] = set()

    def __call__(self, name: str, mode: str, folder: Path) -> bool:
        self.seen.append(f"{name} {mode}")
        return name not in self.failing


def test_every_experiment_is_run() -> None:
    """Each once: `trip-time` is another name for `traffic`."""
    assert EXPERIMENTS["trip-time"] is EXPERIMENTS["traffic"]
    assert PLAN.keys() == EXPERIMENTS.keys()
    assert set(ALL) == EXPERIMENTS.keys() - set(ALIASES)
    assert ALIASES == ("trip-time",)


def test_the_readme_leads_to_every_experiment() -> None:
    """Each row names a command, and first the file of its experiment or one beside it, which exists."""
    folder = Path(loadtest.__file__).parent
    found = re.findall(r"^\|[^|]*\| `([\w-]+)` \| \[`([\w/.]+)`\]", (folder / "README.md").read_text(), re.MULTILINE)
    assert {command for command, _ in found} == EXPERIMENTS.keys()
    for command, path in found:
        experiment = EXPERIMENTS[command].__file__
        assert (folder / path).is_file()
        assert experiment is not None
        assert (folder / path).parent == Path(experiment).parent, f"{command}: {path}"


def test_a_second_run_does_what_is_left(tmp_path: Path) -> None:
    """What failed is tried again, what was done is not; a full run does not count as done by a quick one."""
    runs = Runs()
    runs.failing = {"stalls", "peers"}
    assert run_all(tmp_path, quick=True, run=runs) == ["stalls", "peers"]
    assert runs.seen == [f"{name} --quick" for name in ALL]
    runs = Runs()
    assert run_all(tmp_path, quick=True, run=runs) == []
    assert runs.seen == ["stalls --quick", "peers --quick"]
    runs = Runs()
    assert run_all(tmp_path, quick=False, run=runs) == []
    assert runs.seen == [f"{name} --full" for name in ALL]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """What was done before is noted at once."""
    second = ALL[1]

    def interrupted(name: str, mode: str, folder: Path) -> bool:
        if name == second:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path, quick=True, run=interrupted)
    runs = Runs()
    run_all(tmp_path, quick=True, run=runs)
    assert runs.seen[0] == f"{second} --quick"


def test_what_measures_other_code_now_is_run_again(tmp_path: Path) -> None:
    run_all(tmp_path, quick=True, run=Runs())
    noted = json.loads((tmp_path / DONE).read_text())
    noted["stalls"]["code"]["pushup/core"] = "of an older commit"
    (tmp_path / DONE).write_text(json.dumps(noted))
    runs = Runs()
    run_all(tmp_path, quick=True, run=runs)
    assert runs.seen == ["stalls --quick"]


def test_how_long_it_takes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line says which experiment it is, and how much time is left in all."""
    run_all(tmp_path, quick=False, run=Runs())
    lines = capsys.readouterr().err.splitlines()
    first, last = ALL[0], ALL[-1]
    assert lines[0].startswith(f"1/{len(ALL)} {first}: about ")
    assert lines[-1] == f"{len(ALL)}/{len(ALL)} {last}: about 40 min; 40 min left in all"
