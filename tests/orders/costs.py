"""What several logs would gain, calculated from measured costs: `python -m tests.orders.costs` prints the tables.

Each input names its source: docs/lab/performance.md, its section, or docs/operate/settings.md. The tables are in
docs/internals/after-one-order.md.
"""

from __future__ import annotations

from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "after-one-order.md"

PUBLICATION_US = 24.4
"""Processor time of a publication, compiled, in the node that takes it ("Processor time")."""
PUBLICATION_INTERPRETED_US = 51.0
"""The same, interpreted."""
FOLLOW_US = 13.0
"""To read, decode and apply an entry of another node, in one process without sockets ("Where a
publication's time goes with workers")."""
NODE_SHARE, NODE_RATE, NODES = 0.17, 3_000, 4
"""What a node of four takes of a core at 3,000 publications a second with Redis, interpreted ("What Redis costs")."""
FOLLOW_TODAY_US = NODE_SHARE / NODE_RATE * 1e6 - PUBLICATION_INTERPRETED_US / NODES
"""So this is an entry today, with its wake-ups; a fourth of the publications is the node's own."""
CORE_SHARE = 0.5
"""How much of a core may be spent on this (docs/operate/capacity.md: leave half of it free). Deliveries come on top."""

PROCESS_MB = 50.0
"""An empty process ("Memory")."""
POLL_BYTES = 645
"""A held poll, compiled ("Memory")."""
MESSAGE_BYTES = 128 + 1024
"""A message of the experiments, and what settings.md counts extra for each."""
RETENTION_SECONDS = 300
RETENTION_BYTES = 268_435_456
"""The defaults of settings.md."""

LOGS = (1, 4, 16)


def publications(nodes: int, followed: float, follow_us: float) -> float:
    """How many a second all nodes together can take, if each follows this part of all entries."""
    return CORE_SHARE * 1e6 / (PUBLICATION_US / nodes + followed * follow_us)


def logs_followed(logs: int, channels: int) -> float:
    """How many logs a node follows whose clients follow so many channels, at random."""
    return logs * (1 - (1 - 1 / logs) ** channels)


def rates() -> str:
    """Publications a second, by the number of logs, and nodes."""
    rows = [
        "| nodes | logs | each node follows | following as today | batched | appends a second for each Redis |",
        "|---:|---:|---|---:|---:|---:|",
    ]
    for nodes in (8, 32):
        for logs in LOGS:
            for followed, words in ((1.0, "all"), (1 / logs, "one")):
                if logs > nodes / 2 or (logs == 1 and words == "one"):
                    continue
                today, batched = (publications(nodes, followed, us) for us in (FOLLOW_TODAY_US, FOLLOW_US))
                rows.append(f"| {nodes} | {logs} | {words} | {today:,.0f} | {batched:,.0f} | {batched / logs:,.0f} |")
    return "\n".join(rows)


def memory(rate: int = 10_000, polls: int = 100_000) -> str:
    """Memory of a node that follows one log, and how long its messages would fit."""
    rows = [
        "| logs | nodes | all messages of 300 s | polls | node | the default of 256 MiB holds |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for logs in LOGS:
        nodes = 2 * logs
        kept = rate / logs * MESSAGE_BYTES
        messages, held = kept * RETENTION_SECONDS / 1e6, polls / nodes * POLL_BYTES / 1e6
        rows.append(
            f"| {logs} | {nodes} | {messages:,.0f} MB | {held:,.0f} MB | {PROCESS_MB + messages + held:,.0f} MB "
            f"| {min(RETENTION_BYTES / kept, RETENTION_SECONDS):,.0f} s |"
        )
    return "\n".join(rows)


def unrouted() -> str:
    """How many logs a node follows if clients come to any node."""
    counts = (1, 3, 10, 30, 100)
    rows = [
        "| channels of a node's clients | " + " | ".join(f"{count}" for count in counts) + " |",
        "|---|" + "---:|" * len(counts),
    ]
    for logs in LOGS[1:]:
        cells = " | ".join(f"{logs_followed(logs, count):.1f}" for count in counts)
        rows.append(f"| logs followed, of {logs} | {cells} |")
    return "\n".join(rows)


TABLES = (rates, memory, unrouted)

if __name__ == "__main__":
    print("\n\n".join(table() for table in TABLES))
