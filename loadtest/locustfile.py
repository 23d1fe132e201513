"""Client pull, long polling, event streams and a publisher for locust.

Run: `locust -f loadtest/locustfile.py --host http://127.0.0.1:8080`

locust's web page is at http://127.0.0.1:8089. The paper's metrics (network traffic, mean publish trip time, received
share; with --server-pid also memory and processor time) are at http://127.0.0.1:8089/measured, and are printed at the
end. To run only some kinds of users, name them: `locust -f ... LongPoll Publisher`.

Sizes in locust's statistics are bytes sent and received; a poll's response time is how long it was held.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.liu.tally import Tallies
from loadtest.liu.users import ClientPull, EventStream, LongPoll, Publisher, Subscriber
from loadtest.reports.results import Table

__all__ = ["ClientPull", "EventStream", "LongPoll", "Publisher"]  # locust takes the users that it finds here


@events.init_command_line_parser.add_listener
def _arguments(parser: LocustArgumentParser) -> None:
    """Command-line arguments of these users; each can also be set by an environment variable."""
    for name, default, text in (
        ("pull-interval", 1.0, "Seconds between two requests of a ClientPull user"),
        ("poll-timeout", 50.0, "Seconds that LongPoll users ask the server to hold a poll"),
        ("close-connections", 0, "1: subscribers connect anew for each request, as in the paper"),
        ("publish-intervals", "1", "Seconds between two messages; separate several intervals, run in turn, by commas"),
        ("messages", 0, "Number of messages at each publish interval; 0: publish until stopped"),
        ("begin-at", 0.0, "When to start publishing, in seconds since the epoch; 0: immediately"),
        ("channels", 1, "Number of channels; subscribers are spread over them"),
        ("channels-each", 1, "Number of channels each subscriber listens to"),
        ("channel-name", f"locust-{os.getpid()}", "Prefix of the channels' names; a number follows it"),
        ("payload-bytes", 128, "Size of a message in bytes"),
        ("publish-from", "", "Own address that publishers connect from"),
        ("publish-key", "", "Publish key, if the server requires one"),
        ("server-pid", 0, "Process id of the server; set it to measure the server's memory and processor time"),
        ("measured-file", "", "JSON file to write the measurements to"),
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
        tallies.clear()  # several tests can be run from the web page

    @environment.events.quitting.add_listener
    def end(**_: Any) -> None:
        if options.measured_file:
            tallies.write(Path(options.measured_file))
        click.echo(_shown(tallies))


_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def _shown(tallies: Tallies) -> str:
    """The paper's metrics as a table, a column per publish interval; before the first has ended, its values so far."""
    (name, *intervals), *rows = zip(
        tallies.all()[0].summary(), *(tally.summary().values() for tally in tallies.all()), strict=True
    )
    columns = (str(name), *(f"{interval:g}" for interval in intervals))
    return Table("measured", "Measured (PushUp §4.1.1)", columns, rows).text() + "\n"
