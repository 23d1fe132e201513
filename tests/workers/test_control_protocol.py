"""What the parent and its workers say to each other beside the order, and how the end of a process is told."""

from __future__ import annotations

import socket
from typing import cast

import pytest
from msgspec import DecodeError, Raw, structs

from pushup.core.limits import ChannelPolicy
from pushup.settings.settings import Settings
from pushup.transport.framed_link import LENGTH_BYTES, framed
from pushup.workers.control_protocol import (
    Answer,
    Answers,
    Begin,
    Question,
    Reload,
    Sign,
    Stop,
    ToParent,
    ToWorker,
    frame,
    read_begin,
    read_by_parent,
    read_by_worker,
)
from pushup.workers.worker_process import told


def changed() -> Settings:
    """Settings that are not the defaults, of several types."""
    settings = Settings()
    policy = ChannelPolicy(prefix="é", retention_seconds=2.5, share=3.0)
    return structs.replace(
        settings,
        server=structs.replace(settings.server, listen=("[::1]:80", "unix:/a"), publish_keys=("k",), workers=3),
        queue=structs.replace(settings.queue, retention_seconds=2.5, strict_channels=True, channels=(policy,)),
    )


@pytest.mark.parametrize(
    "message",
    [
        Question(1),
        Question(2, ("a", "é")),
        Question(4, (), is_out=False),
        Answer(3, Raw(b"[1,2]")),
        Sign(None),
        Sign("no"),
    ],
)
def test_what_a_worker_says(message: ToParent) -> None:
    """Arrives as it was."""
    assert read_by_parent(frame(message)[LENGTH_BYTES:]) == message


@pytest.mark.parametrize(
    "message",
    [
        Begin(changed(), "a key"),
        Reload(changed()),
        Stop(),
        Question(1, ()),
        Answers(2, {"1": Raw(b"[]"), "parent": Raw(b"{}")}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_the_parent_says(message: ToWorker) -> None:
    """Arrives as it was, with all settings."""
    assert read_by_worker(frame(message)[LENGTH_BYTES:]) == message


@pytest.mark.parametrize("nonsense", [b"", b"{}", b'{"type":"nobody"}', b'{"type":"answer"}'])
def test_nonsense_is_an_error(nonsense: bytes) -> None:
    """For both sides."""
    for read in (read_by_parent, read_by_worker):
        with pytest.raises(DecodeError):
            read(nonsense)


class Sock:
    """A blocking socket that gives its data in small parts, and then ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def recv(self, size: int) -> bytes:
        some, self.data = self.data[: min(size, 3)], self.data[min(size, 3) :]
        return some


def begin_of(data: bytes) -> tuple[Begin, bytes]:
    """What is read, and what was left for others."""
    sock = Sock(data)
    return read_begin(cast(socket.socket, sock)), sock.data


def test_the_first_frame_is_read_alone() -> None:
    """Whatever comes behind it stays in the socket."""
    begin = Begin(changed(), "a key")
    assert begin_of(frame(begin) + frame(Stop())) == (begin, frame(Stop()))


def test_a_parent_that_ends_before_the_first_frame() -> None:
    """Is an error, wherever it ends."""
    whole = frame(Begin(Settings(), ""))
    for size in (0, 1, LENGTH_BYTES, LENGTH_BYTES + 1, len(whole) - 1):
        with pytest.raises(EOFError):
            begin_of(whole[:size])
    with pytest.raises(DecodeError):
        begin_of(framed(b"nonsense"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, "exit status 0"), (3, "exit status 3"), (-9, "SIGKILL"), (-6, "SIGABRT"), (-250, "signal 250")],
)
def test_the_end_of_a_process_in_words(status: int, expected: str) -> None:
    """Its exit status, or the signal's name if it has one."""
    assert told(status) == expected
