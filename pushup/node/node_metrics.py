"""What `/metrics` says about a node: its state, its held polls, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pushup.broadcast import Broadcast
from pushup.metrics import Metric, counters, gauge
from pushup.node.node import Node
from pushup.node.publishers import publisher_metrics


def node_metrics(node: Node[Any], broadcast: Broadcast) -> Iterator[Metric]:
    """The gauges of a node and of the broadcast that it follows."""
    state, polls, members = node.state, node.polls, node.members()
    others = sum(None not in (each.settings, node.settings) and each.settings != node.settings for each in members)
    yield gauge("ready", "1 if load balancers should send new clients here, else 0", node.why_not_ready() is None)
    yield gauge("nodes", "Nodes of the cluster that are known to be alive", len(members))
    yield gauge("nodes_with_other_settings", "Nodes whose settings differ from those of this one", others)
    yield gauge("held_polls", "Held polls, and event streams that wait for the next event", polls.count)
    yield gauge("held_bytes", "Bytes that count against held_limit_bytes", polls.bytes)
    yield gauge("awaited_channels", "Channels that do not exist and that polls wait for", polls.awaited_count)
    yield gauge("channels", "Open channels", len(state.channels))
    yield gauge("members", "Members of channels with presence", len(state.members))
    yield gauge("channels_limit", "Maximum number of open channels", state.limits.channels_limit)
    yield gauge("cached_messages", "Cached messages", state.message_count)
    yield gauge("cached_bytes", "Bytes that count against retention_bytes", state.cache.bytes)
    yield gauge("retention_bytes", "The limit retention_bytes", state.limits.retention_bytes)
    yield gauge("retention_seconds", "The limit retention_seconds", state.limits.retention_seconds)
    yield gauge("oldest_message_age_seconds", "Age of the oldest message", state.cache.age(broadcast.now()))
    yield from publisher_metrics(state, broadcast.now())
    yield gauge("webhooks_waiting", "Messages that wait for readers, or about which to call", len(state.webhooks))
    yield counters("webhooks", "Calls of webhook_url", "outcome", node.webhook_caller.counts)
    yield gauge("waiting_bytes", "Bytes that count against waiting_limit_bytes", broadcast.waiting_bytes)
