"""What a program has seen that follows a channel by the Python client: a real server does not call about that."""

from __future__ import annotations

import threading
from typing import Any

from pushup.client import Client
from tests.server.command_line import run
from tests.server.conftest import Serve
from tests.server.server_process import wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer
from tests.server.webhook_receiver import PUBLISH_KEY, webhook_receiver


def test_a_program_that_follows_a_stream(serve: Serve) -> None:
    """What it was given, it has seen; what it does not take any more, and what others were to see, is told."""
    issuer = TokenIssuer(600, poll=["jobs"])
    with (
        webhook_receiver() as application,
        serve(**application.settings, **SETTINGS) as server,
        Client(server.url, PUBLISH_KEY) as publisher,
        Client(server.url, token=issuer.token) as worker,
    ):
        items = worker.follow("jobs", publisher.cursor())
        taken: list[Any] = []
        goes_on, ends = threading.Event(), threading.Event()

        def work() -> None:
            for item in items:
                taken.append(item)
                if len(taken) == 2:
                    goes_on.wait()
            ends.set()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            publisher.publish("jobs", 1, unread_after=60, unread_for=["7"])
            wait_until(lambda: len(taken) == 1 and server.metric("webhooks_waiting") == 0, "that it is seen")
            flags = ("--unread-after", "0.5", "--for", "7", "--for", "bob", "--key", PUBLISH_KEY)
            ended = run("publish", "jobs", "-d", "2", *flags, PUSHUP_URL=server.url)  # it works on this for too long
            assert ended.returncode == 0, ended.stderr
            wait_until(lambda: len(application.calls) == 1, "a call")
            goes_on.set()
            # A program that follows a stream says once a second what it has.
            publisher.publish_many([{"channels": ["jobs"], "data": 3, "unread_after": 4, "for": ["bob", "7"]}])
            wait_until(lambda: len(application.calls) == 2, "a call")
        finally:
            goes_on.set()
            worker.stop()
            thread.join()
        assert ends.is_set()
        assert application.unread == [(2, ["7", "bob"]), (3, ["bob"])]
        wait_until(lambda: server.metric("webhooks_waiting") == 0, "that nothing waits")
