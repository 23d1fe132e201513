"""How long things may have been kept at least, by all limits that may have been in force.

Policies for channels (`Limits.channels`) are looked up here again, so that a mistake in how a server does it shows.
"""

from __future__ import annotations

from loadtest.kit.values import ChannelPolicy, Limits


class Assumed:
    """All limits that may have been in force. Of several values, the smallest counts."""

    def __init__(self, limits: Limits) -> None:
        self._all = [limits]
        self._seconds: dict[tuple[str, ...], float] = {}

    def add(self, limits: Limits) -> None:
        """From now on these may be in force as well."""
        self._all.append(limits)
        self._seconds.clear()

    @property
    def keys_limit(self) -> int:
        return min(limits.keys_limit for limits in self._all)

    @property
    def key_seconds(self) -> float:
        """How long a key is remembered."""
        return min(limits.retention_seconds for limits in self._all)

    @property
    def channels_limit(self) -> int:
        return min(limits.channels_limit for limits in self._all)

    @property
    def channel_ttl_seconds(self) -> float:
        """How long any channel stays open."""
        times = [limits.channel_ttl_seconds for limits in self._all]
        times += [policy.channel_ttl_seconds for policy in self._policies if policy.channel_ttl_seconds is not None]
        return min(times)

    @property
    def closed_seconds(self) -> float:
        """How long any closed channel is remembered."""
        times = [limits.retention_seconds for limits in self._all]
        times += [policy.retention_seconds for policy in self._policies if policy.retention_seconds is not None]
        return min(times)

    @property
    def _policies(self) -> list[ChannelPolicy]:
        return [policy for limits in self._all for policy in limits.channels]

    def message_seconds(self, channels: tuple[str, ...]) -> float:
        """How long a message on these channels is kept.

        It belongs where it is kept longest when it is published, and stays there when limits change.
        """
        known = self._seconds.get(channels)
        if known is None:
            prefixes = {prefix for limits in self._all for prefix in _longest(limits, channels)}
            times = [_retention(limits, prefix)[1] for limits in self._all for prefix in prefixes]
            known = self._seconds[channels] = min(times)
        return known


def _retention(limits: Limits, name: str) -> tuple[str, float]:
    """The prefix of the policy for this name, and how long messages are kept; the prefix is empty if there is none."""
    fitting = [policy for policy in limits.channels if name.startswith(policy.prefix)]
    policy = max(fitting, key=lambda policy: len(policy.prefix), default=ChannelPolicy(prefix=""))
    seconds = policy.retention_seconds
    return policy.prefix, limits.retention_seconds if seconds is None else seconds


def _longest(limits: Limits, channels: tuple[str, ...]) -> set[str]:
    """The prefixes of the policies by which these channels keep messages longest; several if they are equal."""
    found = [_retention(limits, channel) for channel in channels]
    most = max(seconds for _, seconds in found)
    return {prefix for prefix, seconds in found if seconds == most}
