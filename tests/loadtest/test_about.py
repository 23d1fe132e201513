"""How a result was measured: what the program records, and which results are old."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from loadtest import __main__ as command
from loadtest.__main__ import main
from loadtest.everything import LONE, LONGEST, PLAN
from loadtest.reports import about
from loadtest.reports.about import NOT_RUN, ROOT, Measuring, NotOfThisCommit, changed_since, digests
from loadtest.reports.documents import old, publish
from loadtest.reports.results import Table
from loadtest.reports.saved import Saved
from pushup.parts import make_proxies
from pushup.settings.settings import Settings

BUSY = "import os, time; os.fork() and os._exit(0); print(os.getpid(), flush=True); time.sleep(0.2); exec('while 1: 0')"
"""Leaves a process behind that is busy and no child of ours, and prints its id."""


def write(folder: Path, name: str, **more: object) -> None:
    Table(name, "", ("a",), [(1,)]).write(folder, {"command": "python -m loadtest designs --full", **more})


def test_all_is_recorded() -> None:
    """Commit, date, machine and kernel, load and disturbances: by the program."""
    found = Measuring(["loadtest/roussev"]).about("c")
    assert re.fullmatch(r"[0-9a-f]{12}(, changed)?|unknown", str(found["commit"]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", str(found["date"]))
    assert re.search(r" processors( \(.+\))?, [\d.]+ GB of memory, Linux ", str(found["machine"]))
    assert re.fullmatch(r"[\d.]+ before, [\d.]+ after", str(found["load average"]))
    assert found["code"] == digests(["loadtest/roussev"])


def test_each_result_of_a_run_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes it beside the rows, with the code that the plan says."""
    measured = Table("growing-output", "", ("a",), [(1,)])
    monkeypatch.setitem(command.EXPERIMENTS, "growing-output", SimpleNamespace(run=lambda *, quick: ([measured], [])))
    for name in ("pin", "raise_file_limit"):  # of this process
        monkeypatch.setattr(command, name, lambda *_: None)
    done = CliRunner().invoke(main, ["growing-output", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    told = Saved(tmp_path).table("growing-output")["about"]
    assert told["code"] == digests(PLAN["growing-output"].measures)
    assert {"commit", "date", "machine", "load average", "disturbances"} <= told.keys()
    assert "commit: " in done.output
    assert "code" not in done.output


def test_a_process_of_others_is_a_disturbance() -> None:
    """It is named, with its share; what we have started is none."""
    ours = subprocess.Popen([sys.executable, "-c", "while 1: 0"])
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
    try:
        measuring = Measuring([])
        deadline = time.monotonic() + 10
        others: dict[int, float] = {}
        while others.get(pid, 0.0) < 0.1 and time.monotonic() < deadline:
            time.sleep(0.1)
            others = {id_: seconds for (id_, _), seconds in about._others().items()}
        told = str(measuring.about("c")["disturbances"])
        assert others[pid] >= 0.1
        assert ours.pid not in others
        assert re.search(r"others in all \d\.\d\d", told)
        assert "python" in told
    finally:
        subprocess.run(["kill", str(pid)], check=True)
        ours.kill()
        ours.wait()


def test_a_change_of_the_code_makes_a_result_old(tmp_path: Path) -> None:
    """In a file that it measures, also a new one; not elsewhere, and not by compiling."""
    for name in ("core/a.py", "other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    measured = {"code": digests(["core"], tmp_path), "commit": "c0ffee"}
    (tmp_path / "other.py").write_text("2")
    (tmp_path / "core" / "a.pyc").write_text("2")
    assert changed_since(measured, ["core"], tmp_path) == ""
    assert changed_since(measured, ["core", "other.py"], tmp_path) == "other.py changed since c0ffee"
    (tmp_path / "core" / "b.py").write_text("")
    assert changed_since(measured, ["core"], tmp_path) == "core changed since c0ffee"
    assert changed_since({}, ["core"], tmp_path) == "does not say of which code it is"


@pytest.mark.parametrize(
    ("name", "text", "is_old"),
    [
        ("a.py", "'Texts'\n\ndef f(\n):\n    'say.'\n    return 'a'  # and why\nA = 1\n'What.'\n", False),
        ("a.py", "def f():\n    return 'b'\nA = 1\n", True),
        ("a.py", "def f():\n    'a'\nA = 1\n", True),
        ("a.js", "def f(): return 'a'\nA = 1\n", True),
    ],
    ids=["texts", "another value", "only a text", "no Python"],
)
def test_what_is_said_about_the_code_makes_no_result_old(tmp_path: Path, name: str, text: str, *, is_old: bool) -> None:
    """Comments and docstrings, also those of attributes, and the format; in another language they do."""
    (tmp_path / name).write_text("def f():\n    return 'a'\nA = 1\n")
    measured = {"code": digests([name], tmp_path), "commit": "c0ffee"}
    (tmp_path / name).write_text(text)
    assert bool(changed_since(measured, [name], tmp_path)) == is_old


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_no_experiment_runs_makes_no_result_old(tmp_path: Path, name: str) -> None:
    file = tmp_path / "pushup" / name
    file.parent.mkdir(parents=True)
    before = digests(["pushup"], tmp_path)
    file.write_text("changed = True\n")
    assert digests(["pushup"], tmp_path) == before


def test_no_experiment_makes_backups_or_trusts_proxies() -> None:
    """So what they run can be left out: only commands for backups import the one, and without settings nothing is made
    of the other."""
    sources = {path: path.read_text() for folder in ("pushup", "loadtest") for path in (ROOT / folder).rglob("*.py")}
    assert {path.name for path, text in sources.items() if ".journal_copy import" in text} == {"backup_commands.py"}
    assert make_proxies(Settings()) is None
    assert not [path for path, text in sources.items() if "trusted_proxies" in text and "loadtest" in path.parts]


def test_a_result_of_a_folder_counts_for_a_part_of_it(tmp_path: Path) -> None:
    """If that part is as it was in the result's commit; only Git knows. So it is with a result without such digests."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    for name in ("core/a.py", "core/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=1")
    measured = {"code": digests(["core"], tmp_path), "commit": git("rev-parse", "HEAD").strip()}
    older = {"sources": {"core": "of its bytes"}, "commit": measured["commit"]}
    (tmp_path / "core" / "a.py").write_text("1  # why")
    assert changed_since(older, ["core"], tmp_path) == ""
    (tmp_path / "core" / "b.py").write_text("2")
    assert changed_since(older, ["core", "core/a.py"], tmp_path) == f"core changed since {measured['commit']}"
    assert changed_since(measured, ["core/a.py"], tmp_path) == ""
    for path in ("core", "core/b.py"):
        assert changed_since(measured, [path], tmp_path) == f"{path} changed since {measured['commit']}"
    assert "core/a.py" in changed_since({**measured, "commit": "c0ffee"}, ["core/a.py"], tmp_path)


def test_what_a_lone_server_runs_is_what_its_results_depend_on() -> None:
    """Of the broadcasts, its modules import these."""
    imports = (
        "import sys, pkgutil, pushup.broadcast.memory, pushup.core, pushup.net, pushup.node\n"
        "for package in (pushup.core, pushup.net, pushup.node):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        __import__(found.name)\n"
        "print(*[module.__file__ for name, module in sys.modules.items() if name.startswith('pushup.broadcast')])"
    )
    done = subprocess.run([sys.executable, "-c", imports], cwd=ROOT, capture_output=True, text=True, check=True)
    run = {str(Path(file).relative_to(ROOT)) for file in done.stdout.split()}
    assert run == {path for path in LONE if path.startswith("pushup/broadcast")}


def test_old_results_are_listed(tmp_path: Path) -> None:
    """`report --check` names them and fails; a shortened run is no result."""
    code = digests(PLAN["designs"].measures)
    write(tmp_path, "designs-table-1", code=code, commit="c0ffee")
    assert old(tmp_path) == {}
    assert CliRunner().invoke(main, ["report", "--check", "--out", str(tmp_path)]).exit_code == 0
    write(tmp_path, "designs-table-2", code=dict.fromkeys(code, "0"), commit="c0ffee")
    Table("quick", "", ("a",), [(1,)]).write(tmp_path, {"command": "python -m loadtest designs --quick"})
    done = CliRunner().invoke(main, ["report", "--check", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output == "old: designs-table-2: loadtest/roussev changed since c0ffee\n"


def test_only_results_of_the_present_code_are_published(tmp_path: Path) -> None:
    """Of whichever commit, if what they measure has not changed since; what is not committed never."""
    docs, code = tmp_path / "docs", digests(PLAN["designs"].measures)
    write(docs / "results", "designs-table-2", commit="facade", code=code)
    write(tmp_path, "designs-table-1", commit="c0ffee", code=code)
    assert publish(tmp_path, docs)[0] == ["designs-table-1.json", "designs-table-1.csv"]
    write(tmp_path, "designs-table-1", commit="c0ffee", code=dict.fromkeys(code, "0"))
    with pytest.raises(NotOfThisCommit, match=r"designs-table-1 is of older code, .*: loadtest/roussev changed since"):
        publish(tmp_path, docs)
    write(tmp_path, "designs-table-1", commit="c0ffee, changed", code=code)
    with pytest.raises(NotOfThisCommit, match="not committed"):
        publish(tmp_path, docs)


def test_no_part_takes_longer_than_three_quarters_of_an_hour() -> None:
    """But for the soak and three browsers, which need an hour. Each says what it measures, in files that there are."""
    for name, plan in PLAN.items():
        assert plan.full <= LONGEST or name in ("soak", "browsers"), name
        assert plan.measures
        for path in plan.measures:
            assert (about.ROOT / path).exists(), path
