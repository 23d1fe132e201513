"""Renew what a change has changed: `costs.toml`, and the table of paths in docs/internals/architecture.md.

Prints the old numbers and the new ones.
"""

from __future__ import annotations

import argparse
import sys

from tests.costs import numbers
from tests.costs.paths import DOCUMENT, PATHS, filled
from tests.simulation.seeds import keep_quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog=numbers.COMMAND, description=__doc__)
    parser.add_argument("--files", action="store_true", help="only list the files of each path")
    options = parser.parse_args()
    keep_quiet()
    paths = {name: path() for name, path in PATHS.items()}
    if options.files:
        for name, work in paths.items():
            print(f"{name}: {len(work.files)} files", *work.files, "", sep="\n  ")
        return 0
    recorded = numbers.read() if numbers.FILE.exists() else None
    now = numbers.measure()
    print(*numbers.table(recorded, now), sep="\n")
    numbers.write(now)
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
