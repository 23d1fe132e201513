"""The release command, in a clone of this repository: what it finds, and what it says of each thing that is missing.

Its longer checks (artifacts, image, chart ...) are commands that have tests of their own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.release import checks
from deploy.release.checks import CHECKS, NotReady, Release, changelog, tree, version
from deploy.release.constraints import requirements

ROOT = Path(__file__).parents[2]

FILES = ("pushup/__init__.py", "docs/changelog.md")
"""All that these checks read."""


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """A repository on main with the files of a release that can be made: 0.2.0, today; run git in it."""

    def run(*arguments: str) -> str:
        who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    change(tmp_path, FILES[0], '__version__ = "0.1.0"', '__version__ = "0.2.0"')
    change(tmp_path, FILES[1], "## [Unreleased]", f"## [0.2.0] - {datetime.now(UTC):%Y-%m-%d}")
    run("init", "--quiet", "--initial-branch", "main")
    commit(run)
    run("tag", "v0.1.0")
    return run


def change(root: Path, name: str, old: str, new: str) -> None:
    path = root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def commit(git: Callable[..., str]) -> None:
    git("add", "--all")
    git("commit", "--quiet", "--message", "Change something")


def test_a_release_that_can_be_made(git: Callable[..., str], tmp_path: Path) -> None:
    release = Release(tmp_path)
    assert tree(release) == "clean, " + git("rev-parse", "--short=12", "HEAD").strip()
    assert version(release) == "0.2.0"
    assert changelog(release).startswith("## [0.2.0] - 20")


def test_what_is_not_committed(git: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    with pytest.raises(NotReady, match=r"commit or remove:\n\?\? new$"):
        tree(Release(tmp_path))


def test_another_branch(git: Callable[..., str], tmp_path: Path) -> None:
    git("checkout", "--quiet", "-b", "mine")
    with pytest.raises(NotReady, match="branch mine; releases are made from main"):
        tree(Release(tmp_path))


@pytest.mark.parametrize(
    ("new", "why"),
    [("0.1.0", "not later than 0.1.0"), ("0.0.9", "not later than 0.1.0"), ("0.2.0rc1", "not a final version")],
)
def test_a_version_that_is_not_next(git: Callable[..., str], tmp_path: Path, new: str, why: str) -> None:
    change(tmp_path, FILES[0], '"0.2.0"', f'"{new}"')
    with pytest.raises(NotReady, match=why):
        version(Release(tmp_path))


def test_versions_are_compared_as_numbers(git: Callable[..., str], tmp_path: Path) -> None:
    git("tag", "v0.10.0")
    with pytest.raises(NotReady, match=r"0\.2\.0 is not later than 0\.10\.0"):
        version(Release(tmp_path))


def test_a_changelog_of_another_day(git: Callable[..., str], tmp_path: Path) -> None:
    change(tmp_path, FILES[1], "## [0.2.0] - 2", "## [0.2.0] - 1")
    with pytest.raises(NotReady, match=r"has no `## \[0\.2\.0\] - 2.*rename `## \[Unreleased\]`"):
        changelog(Release(tmp_path))


def test_changes_that_belong_to_no_version(git: Callable[..., str], tmp_path: Path) -> None:
    change(tmp_path, FILES[1], "## [0.2.0]", "## [Unreleased]\n\n- More.\n\n## [0.2.0]")
    with pytest.raises(NotReady, match="put them under the new version"):
        changelog(Release(tmp_path))


def test_no_word_on_upgrading(git: Callable[..., str], tmp_path: Path) -> None:
    change(tmp_path, FILES[1], "### Upgrading", "### More")
    with pytest.raises(NotReady, match=r"0\.2\.0 has no `### Upgrading`"):
        changelog(Release(tmp_path))


def test_old_results() -> None:
    """They are listed, and prevent a release."""

    class OldResults(Release):
        def run(self, *command: str) -> str:
            raise NotReady(f"{' '.join(command[1:])}: traffic is old")

    with pytest.raises(NotReady, match="-m loadtest report --check --out docs/lab/results: traffic is old"):
        CHECKS["results"](OldResults())


def test_a_command_that_fails(tmp_path: Path, git: Callable[..., str]) -> None:
    """The check says what was run, and how it ended."""
    (tmp_path / "Makefile").write_text("chart:\n\t@echo values.yaml has no image; exit 3\n")
    with pytest.raises(NotReady, match=r"(?s)`make chart` failed with 2:\n.*values\.yaml has no image"):
        CHECKS["chart"](Release(tmp_path))


def test_a_command_that_this_machine_does_not_have(
    tmp_path: Path, git: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one of the things to mend, as any other."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReady, match="this machine has no make; install it"):
        CHECKS["chart"](Release(tmp_path))


def test_a_command_that_hangs(tmp_path: Path, git: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other checks are made, too."""
    monkeypatch.setattr(checks, "SECONDS", 0.1)
    with pytest.raises(NotReady, match=r"`sleep 60` has not ended within 0\.1 s"):
        Release(tmp_path).run("sleep", "60")


def test_warnings_are_not_part_of_what_a_command_prints(tmp_path: Path, git: Callable[..., str]) -> None:
    """Docker warns of the machine before it says the name of a container."""
    assert Release(tmp_path).run("sh", "-c", "echo careful >&2; echo 0123abc") == "0123abc"
    with pytest.raises(NotReady, match=r"failed with 1:\nfirst\ncareful\n$"):
        Release(tmp_path).run("sh", "-c", "echo first; echo careful >&2; exit 1")


def test_what_is_built_is_measured(tmp_path: Path, git: Callable[..., str]) -> None:
    """Only what has this version."""
    (tmp_path / "Makefile").write_text("chart:\n\thead -c 30000 /dev/zero > build/chart/pushup-0.2.0.tgz\n")
    (tmp_path / "build/chart").mkdir(parents=True)
    (tmp_path / "build/chart/pushup-0.1.0.tgz").write_bytes(bytes(50_000))
    release = Release(tmp_path)
    CHECKS["chart"](release)
    assert release.figures == {"Helm chart": "30.0 kB"}


def test_the_hashes_are_those_of_wheels_that_builds_use() -> None:
    """CPython 3.11 and later on Linux with glibc, on two machines; no sdist."""
    taken = [
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "cp315-cp315-manylinux_2_28_aarch64",
        "cp39-abi3-manylinux_2_28_x86_64", "cp315-abi3.abi3t-manylinux_2_17_aarch64", "py3-none-any",
        "py2.py3-none-any", "py3-none-manylinux_2_28_x86_64",
    ]  # fmt: skip
    left = [
        "cp310-cp310-manylinux_2_28_x86_64", "cp314-cp314t-manylinux_2_28_x86_64", "cp312-cp312-musllinux_1_2_x86_64",
        "cp312-cp312-macosx_11_0_arm64", "cp312-cp312-win_amd64", "cp312-cp312-manylinux_2_28_i686",
        "cp312-cp312-manylinux_2_31_riscv64", "pp311-pypy311_pp73-manylinux_2_28_x86_64", "py2-none-any",
    ]  # fmt: skip
    wheels = [
        {"url": f"https://index.example/a/some_package-1.0-{tags}.whl", "hashes": {"sha256": f"{number:02}"}}
        for number, tags in enumerate(taken + left)
    ]
    marker = {"marker": "sys_platform == 'linux'"}
    package = {"name": "some-package", "version": "1.0", "sdist": {"hashes": {"sha256": "99"}}, "wheels": wheels}
    [first, *hashes] = "\n".join(requirements({"packages": [package | marker]})).split(" \\\n    ")
    assert first == "some-package==1.0 ; sys_platform == 'linux'"
    assert hashes == [f"--hash=sha256:{number:02}" for number in range(len(taken))]


def test_the_command_on_this_checkout() -> None:
    """A dry run: whatever state this checkout is in, each check says so, and the exit status agrees."""
    command = [sys.executable, "-m", "deploy.release", "--only", "tree", "version", "changelog"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert re.findall(r"(?m)^(tree|version|changelog) ", done.stdout) == ["tree", "version", "changelog"]
    assert done.returncode == (1 if "NOT READY" in done.stdout else 0)
