"""The workflows in .github/workflows, as far as they can be checked here; `make lint` checks their form."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit(workflow: Path) -> None:
    """With the version beside it; one version of each."""
    uses = re.findall(r"(?m)uses: +(?!\./)(.*)$", workflow.read_text())
    assert uses
    for line in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+(;.*)?", line), line


def test_an_action_has_one_commit_in_all_workflows() -> None:
    """So that an upgrade forgets none."""
    pinned = re.findall(r"uses: +([\w/-]+)@(\w+)", "".join(path.read_text() for path in WORKFLOWS))
    assert len(set(pinned)) == len({action for action, _ in pinned})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_git_trusts_the_checkout_in_a_container(workflow: Path) -> None:
    """There root runs git, and another user owns the files: git would refuse to list them."""
    for name, job in _jobs(workflow.name).items():
        if "container" in job:
            steps = [step.get("run") or step["uses"].partition("@")[0] for step in job["steps"]]
            after = steps.index("actions/checkout") + 1
            assert steps[after] == 'git config --global --add safe.directory "$GITHUB_WORKSPACE"', name


def test_nothing_is_published_before_everything_is_tested_and_built() -> None:
    """Each job with a right to write, other than that which pushes the parts of the image, waits for all that build."""
    jobs: dict[str, Any] = _jobs("release.yml")
    builds = {name for name, job in jobs.items() if not job.get("environment")} - {"attest", "image", "site"}
    assert set(jobs["attest"]["needs"]) == builds
    called = {name: Path(job["uses"]).name for name, job in jobs.items() if "uses" in job and name != "site"}
    assert called == {"tests": "ci.yml", "kind": "chart.yml"}
    assert called.keys() <= set(jobs["image"]["needs"])
    publish = {name for name, job in jobs.items() if job.get("environment")}
    assert {"pypi", "publish-npm", "publish-image", "publish-chart", "github"} == publish
    for name in publish - {"github"}:
        assert {"attest", "image"} <= set(jobs[name]["needs"]), name
    assert publish - {"github"} <= set(jobs["github"]["needs"])
    assert "github" in jobs["site"]["needs"]


def test_the_published_image_says_what_it_is() -> None:
    """Its build is given each argument of the Dockerfile, for the labels."""
    *_, build = _jobs("release.yml")["image"]["steps"]
    arguments = re.findall(r"(?m)^ARG (\w+)", (ROOT / "deploy/Dockerfile").read_text())
    assert {*re.findall(r'--build-arg "(\w+)=', build["run"])} == {*arguments}


def test_every_supported_python_is_built_and_tested() -> None:
    """The classifiers, cibuildwheel, the matrix of CI and the number of wheels that a release expects agree."""
    classifiers = PROJECT["project"]["classifiers"]
    name = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    versions = [found[1] for line in classifiers if (found := name.fullmatch(line))]
    assert _jobs("ci.yml")["ci"]["strategy"]["matrix"]["python"] == versions
    minors = [int(version.partition(".")[2]) for version in versions]
    assert PROJECT["tool"]["cibuildwheel"]["build"] == f"cp31[{minors[0] % 10}-{minors[-1] % 10}]-manylinux_*"
    machines = _jobs("release.yml")["wheels"]["strategy"]["matrix"]["runner"]
    expected = f'wc -l)" = {len(versions) * len(machines)} ]'
    assert expected in (ROOT / ".github/workflows/release.yml").read_text()


def _jobs(workflow: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / workflow).read_text())["jobs"]
    return jobs
