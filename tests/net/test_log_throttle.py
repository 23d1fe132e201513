"""Rate limiting of log lines."""

from __future__ import annotations

from pushup.net.log_throttle import LOG_SECONDS, LogThrottle


def test_one_event_of_a_kind_passes_per_interval() -> None:
    """The next one comes with the number of events since the last; each kind is counted separately."""
    now = 1000.0
    rarely = LogThrottle(lambda: now)
    assert [rarely.passes(kind) for kind in "aabab"] == [1, 0, 1, 0, 0]
    now += LOG_SECONDS - 1
    assert rarely.passes("a") == 0
    now += 1
    assert [rarely.passes(kind) for kind in "aaab"] == [4, 0, 0, 2]
