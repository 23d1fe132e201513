"""`python -m tests.group --seeds 500 [--first 0]`: simulate teams with all faults, and tell which promises break."""

from __future__ import annotations

import sys
from collections import Counter

import click

from tests.group.simulate import simulate
from tests.group.world import BrokenPromise


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=100, show_default=True, help="How many teams.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
def main(seeds: int, first: int) -> None:
    """Each seed is a team of three or five, three seconds with all faults, and three without."""
    seen: Counter[str] = Counter()
    broken = 0
    for seed in range(first, first + seeds):
        try:
            seen += simulate(seed)
        except BrokenPromise as error:
            broken += 1
            click.echo(f"seed {seed}: {error}")
    click.echo(", ".join(f"{count:,} {what}" for what, count in sorted(seen.items())))
    click.echo(f"{broken} of {seeds} teams broke a promise")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
