"""A member's process: `python -m loadtest.mishra.process '{"member": 0, ...}'`; `team` starts it."""

from __future__ import annotations

import select
import socket
import sys
from typing import Any

import msgspec

from loadtest.mishra import event_based, thread_based
from loadtest.mishra.core.settings import Settings
from loadtest.mishra.service import Service
from loadtest.mishra.trace import Trace


class Task(msgspec.Struct, frozen=True):
    """What a process is to be. `messages` and `clients`: file numbers of its sockets, which are bound already."""

    member: int
    driver: str
    priorities: bool
    peers: list[tuple[str, int]]
    messages: int
    clients: int
    settings: Settings
    traced: bool


def main(task: Task) -> None:
    messages, clients = (socket.socket(fileno=number) for number in (task.messages, task.clients))
    service = Service(task.member, peers=task.peers, messages=messages, clients=clients, settings=task.settings)
    if task.traced:
        Trace(service)
    if task.driver == "events":
        _count_selects(service)
        event_based.run(service, priority=task.priorities)
    else:
        thread_based.run(service, priorities=task.priorities)


def _count_selects(service: Service) -> None:
    """Here and not in the loop, whose lines are counted."""
    wait = select.select

    def counted(*arguments: Any) -> Any:
        service.selects += 1
        return wait(*arguments)

    select.select = counted


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1].encode(), type=Task))
