"""A worker's process before it serves: the sockets that it was given, and a parent that is gone."""

from __future__ import annotations

import socket

from pushup.cli.worker_command import sockets
from pushup.workers.worker import Worker


def test_a_parent_that_ends_before_it_wants_anything() -> None:
    """Nobody is served yet: it ends as well, without an error."""
    parents, its = socket.socketpair()
    parents.close()
    with its:
        Worker(1, [its], [], None).run()


def test_programs_that_the_authorizer_starts_do_not_get_its_sockets() -> None:
    """Or the links would stay open while they run: the parent would not notice that the worker has died."""
    parents, its = socket.socketpair()
    its.set_inheritable(True)  # as `pass_fds` does
    with parents:
        (given,) = sockets(str(its.detach()))
        with given:
            assert not given.get_inheritable()
