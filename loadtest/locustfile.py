"""Client pull, long polling and a publisher for locust: `locust -f loadtest/locustfile.py --host http://127.0.0.1:8080`.

Its web page is at http://127.0.0.1:8089, and what the paper measures (network traffic, mean publish trip time, received
share; with --server-pid memory and processor time, too) at http://127.0.0.1:8089/measured, and printed at the end. Name
the users that you want, else there are some of each: `locust -f loadtest/locustfile.py LongPoll Publisher`.

Sizes in locust's statistics are bytes on the wire, both ways; a poll's time is how long it was held.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.results import Table
from loadtest.tally import Tallies
from loadtest.users import ClientPull, LongPoll, Publisher, Subscriber

__all__ = ["ClientPull", "LongPoll", "Publisher"]  # locust takes the users that it finds here


@events.init_command_line_parser.add_listener
def _arguments(parser: LocustArgumentParser) -> None:
    """Arguments of these users; each can be given as a variable of the environment, too."""
    for name, default, text in (
        ("pull-interval", 1.0, "ClientPull asks this often"),
        ("poll-timeout", 50.0, "LongPoll asks to be held so long"),
        ("publish-intervals", "1", "Publisher publishes this often; several, with commas: one after the other"),
        ("messages", 0, "So many messages at each publish interval, and then the end; 0: without end"),
        ("begin-at", 0.0, "Publish from this time on, in seconds since the epoch; 0: at once"),
        ("channels", 1, "So many channels; subscribers are spread over them"),
        ("channels-each", 1, "A subscriber listens to so many of them"),
        ("channel-name", f"locust-{os.getpid()}", "What channels are called, with a number behind it"),
        ("payload-bytes", 128, "The size of a message"),
        ("publish-key", "", "The key to publish with, where the server wants one"),
        ("server-pid", 0, "The server's process, for its memory and processor time"),
        ("measured-file", "", "Where to write what was measured, as JSON"),
    ):
        parser.add_argument(
            f"--{name}",
            type=type(default),
            default=default,
            env_var=f"LOCUST_{name.upper().replace('-', '_')}",
            help=text,
            is_secret=name == "publish-key",
        )


@events.init.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    options = environment.parsed_options
    assert options is not None
    tallies = Tallies(options.server_pid)
    Subscriber.tallies = Publisher.tallies = tallies
    if environment.web_ui is not None and environment.web_ui.app is not None:
        environment.web_ui.app.add_url_rule("/measured", "measured", lambda: (_shown(tallies), 200, _TEXT))

    @environment.events.test_start.add_listener
    def start(**_: Any) -> None:
        tallies.clear()  # on the web page one test follows the other

    @environment.events.quitting.add_listener
    def end(**_: Any) -> None:
        if options.measured_file:
            tallies.write(Path(options.measured_file))
        click.echo(_shown(tallies))


_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def _shown(tallies: Tallies) -> str:
    """What the paper measures, as a table; of the publish interval of now, until the first is through."""
    (name, *intervals), *rows = zip(
        tallies.all()[0].summary(), *(tally.summary().values() for tally in tallies.all()), strict=True
    )
    columns = (str(name), *(f"{interval:g}" for interval in intervals))
    return Table("measured", "Measured (PushUp §4.1.1)", columns, rows).text() + "\n"
