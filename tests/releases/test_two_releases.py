"""Servers of one release are replaced by those of another and back, while clients use them; or they visibly refuse.

Each pair of releases goes through the same tests. What must happen follows from their formats and versions
(`Release.follows`): nothing is lost or repeated, and there is no gap; or the newer or older server does not start, says
why, and changes nothing, while the others go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.releases.release import Release, frozen, of_another_format, of_the_next_version, tree
from tests.releases.servers import Cluster, Machine, check_that_it_is, cluster_of, machine_of
from tests.server.server_process import wait_until

pytestmark = pytest.mark.processes


class Pair(NamedTuple):
    """The release that runs first, and the one that takes its place."""

    before: Release
    after: Release


PAIRS = ("frozen, tree", "frozen, next version", "other format, tree", "tree, other format")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    """All of them by name; servers that are started with their environments are of them."""
    directory = tmp_path_factory.mktemp("releases")
    found = {
        "frozen": frozen(directory / "frozen"),
        "tree": tree(),
        "next version": of_the_next_version(directory / "next"),
        "other format": of_another_format(directory / "other"),
    }
    for release in found.values():
        check_that_it_is(release, directory)
    return found


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, releases: dict[str, Release]) -> Pair:
    return Pair(*[releases[name] for name in request.param.split(", ")])


def test_a_cluster(pair: Pair, tmp_path: Path) -> None:
    """Three nodes are replaced one at a time, and then back, if that is possible."""
    before, after = pair
    both_ways = after.follows(before) and before.follows(after)
    nodes = 3 if both_ways else 2  # which is enough for the other cases, and quicker
    with cluster_of(before, nodes, tmp_path) as cluster:
        if both_ways:
            for release in (after, before):
                for place in range(nodes):
                    cluster.replace(place, release)
        elif after.follows(before):
            check_that_there_is_a_way_back_until_all_are_new(cluster, before, after)
        else:
            check_that_a_node_is_refused(cluster, before, after)


def check_that_there_is_a_way_back_until_all_are_new(cluster: Cluster, before: Release, after: Release) -> None:
    """When the last of two nodes is replaced, the state machine changes; a node of before is refused then."""
    cluster.replace(0, after)
    cluster.replace(0, before)
    cluster.replace(0, after)
    assert cluster.version(before) == before.version
    cluster.replace(1, after)
    wait_until(lambda: cluster.version(after) == after.version, "the state machine to change")
    check_that_a_node_is_refused(cluster, after, before)


def check_that_a_node_is_refused(cluster: Cluster, running: Release, refused: Release) -> None:
    """Beside nodes in use, which go on; and it goes on trying when it is alone: then nothing changes in Redis."""
    keys = cluster.keys()
    node = cluster.start_refused(refused, refused.reason_against(running))
    cluster.load.go_on()
    assert cluster.keys() <= keys
    cluster.stop_all()
    contents = cluster.contents()
    cluster.wait_for_attempts(2)
    cluster.check_that_it_is_not_ready(node)
    cluster.stop(node)
    assert cluster.contents() == contents
    cluster.check(cluster.start(running, 0))


def test_a_journal(pair: Pair, tmp_path: Path) -> None:
    """A server is replaced by one that uses the same file, and then back, if that is possible."""
    check_a_machine(pair, 1, tmp_path)


@pytest.mark.parametrize("pair", ["frozen, tree", "other format, tree"], indirect=True)
def test_a_journal_with_workers(pair: Pair, tmp_path: Path) -> None:
    """The same, and the state is handed to two workers."""
    check_a_machine(pair, 2, tmp_path)


def check_a_machine(pair: Pair, workers: int, directory: Path) -> None:
    running = pair.before
    with machine_of(running, directory, workers) as machine:
        for release in (pair.after, pair.before):
            if not release.follows(running):
                check_that_a_server_is_refused(machine, running, release)
                break
            machine.replace(release)
            running = release


def check_that_a_server_is_refused(machine: Machine, running: Release, refused: Release) -> None:
    """Beside one in use, which goes on, and when it is alone: it exits, and no file has changed."""
    machine.error_of(refused)
    machine.load.go_on()
    machine.stop()
    contents = machine.contents()
    said = machine.error_of(refused)
    assert all(part in said for part in refused.reason_against(running)), said
    assert machine.contents() == contents
    machine.check(machine.start(running))
