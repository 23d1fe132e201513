"""Which `traceparent` is kept, and which is ignored (W3C Trace Context)."""

from __future__ import annotations

import pytest

from pushup.net.api.traceparent import traceparent_of
from pushup.net.requests_and_responses import Request
from tests.net.api.publishing_node import TRACE


def of(value: str | None) -> str:
    headers = {} if value is None else {b"traceparent": value.encode("latin-1")}
    return traceparent_of(Request(b"POST", b"/v1/messages", headers, keep_alive=True))


@pytest.mark.parametrize(
    "value",
    [
        TRACE,
        TRACE[:-2] + "00",
        TRACE[:-2] + "ff",
        "cc" + TRACE[2:],
        "00-00000000000000000000000000000001-0000000000000001-00",
    ],
)
def test_valid(value: str) -> None:
    assert of(value) == value


def test_of_a_later_version() -> None:
    """What is known of it is kept."""
    later = "cc" + TRACE[2:]
    assert of(f"{later}-what-the-future-will-be-like") == of(f"{later}-") == later


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        TRACE.upper(),
        TRACE + "-00",
        TRACE + "-",
        TRACE + ".",
        "cc" + TRACE[2:] + ".future",
        "ff" + TRACE[2:],
        "0" + TRACE[2:],
        TRACE[:-1],
        TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TRACE.replace("00f067aa0ba902b7", "0" * 16),
        TRACE.replace("4bf9", "4bg9"),
        TRACE.replace("-", "_"),
        f"{TRACE}, {TRACE}",
        f" {TRACE}",
        "\xff" * 55,
        "x" * 10_000,
    ],
)
def test_not_valid(value: str | None) -> None:
    assert of(value) == ""
