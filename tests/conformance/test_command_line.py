"""The command line of the suite: what it prints and writes, and its exit status."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance.registry import CHECKS
from faults import FAULTS
from spoiled import spoiled
from tests.server.server_process import running

HERE = Path(__file__).parent


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False)


def test_a_good_server_passes(tmp_path: Path) -> None:
    """The exit status is 0, the last line counts, and the XML has a case for each check."""
    with running(tmp_path / "server.log", ()) as server:
        run = conformance(
            "--run", server.url, "--only", "operations/*", "--only", "access/*", "--junit", str(tmp_path / "x")
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "not applicable, 4: the server has no publish keys (--publish-key KEY)" in run.stdout
    assert run.stdout.splitlines()[-1] == "9 passed, 0 failed (0 MUST, 0 SHOULD), 11 not applicable"
    suite = ET.parse(tmp_path / "x").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("20", "0", "11")
    (case,) = suite.findall("testcase[@name='is-alive']")
    assert [p.get("value") for p in case.iter("property")] == [
        "MUST",
        "OPS-1",
        "/healthz says that the server is alive.",
    ]


def test_a_bad_server_fails(tmp_path: Path) -> None:
    """The exit status is 1; text and XML say what was expected and what came."""
    with (
        running(tmp_path / "server.log", ()) as server,
        spoiled(server.url, FAULTS["loses the last message of an answer"]) as url,
    ):
        run = conformance("--run", url, "--only", "cursors/include-what-came", "--junit", str(tmp_path / "x"))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "FAILED  cursors/include-what-came (MUST, CUR-3)" in run.stdout
    assert "expected the messages to be [1], and it was []" in run.stdout
    (failure,) = ET.parse(tmp_path / "x").getroot().iter("failure")
    assert failure.get("message") == "expected the messages to be [1], and it was []"


def test_a_should_counts_if_asked(tmp_path: Path) -> None:
    """A SHOULD that fails is shown; the exit status is 1 with --should alone."""
    with running(tmp_path / "server.log", ()) as server, spoiled(server.url, FAULTS["names no field"]) as url:
        runs = [conformance("--run", url, "--only", "errors/name-the-field", *more) for more in ((), ("--should",))]
    assert [run.returncode for run in runs] == [0, 1]
    assert "0 passed, 1 failed (0 MUST, 1 SHOULD)" in runs[0].stdout


def test_no_server_fails() -> None:
    """Where nothing listens, each check fails with a sentence."""
    run = conformance("--run", "http://127.0.0.1:1", "--only", "operations/is-alive")
    assert run.returncode == 1
    assert "expected a connection, and there was none" in run.stdout


def test_the_time_limit() -> None:
    """Checks that do not begin in time are not run, which is neither success nor failure."""
    run = conformance("--run", "http://127.0.0.1:1", "--only", "operations/*", "--seconds", "0")
    assert run.returncode == 2
    assert "NOT RUN  operations/is-alive" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --run URL, or --list"),
        (("--run", "127.0.0.1:8080"), "is not a URL such as"),
        (("--run", "http://127.0.0.1:1", "--only", "nothing/*"), "no check is called nothing/*"),
        (("--run", "http://127.0.0.1:1", "--limit", "size=5"), "write NAME=VALUE"),
        (("--run", "http://127.0.0.1:1", "--credentials", "secret"), "write 'Name: value'"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], said: str) -> None:
    """The exit status is 2, and the error says what to write."""
    run = conformance(*arguments)
    assert run.returncode == 2
    assert said in run.stderr


def test_the_list() -> None:
    """It has every check with its sentence."""
    run = conformance("--list")
    assert run.returncode == 0
    for check in CHECKS.values():
        assert f"{check.name}  {check.level} {check.requirement}\n    {check.sentence}\n" in run.stdout


@pytest.mark.long
def test_it_can_be_installed(tmp_path: Path) -> None:
    """In an environment of its own, without the checkout."""
    source = tmp_path / "source"
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__"))  # building leaves files there
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(source)], check=True, timeout=300)
    run = subprocess.run(
        [python, "-m", "conformance", "--list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.count("\n") == 2 * len(CHECKS)
