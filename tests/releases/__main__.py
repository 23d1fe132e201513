"""Freeze a release for the tests of two releases: `python -m tests.releases freeze [REVISION]`."""

from __future__ import annotations

import argparse
import sys

from tests.releases.artifact import CannotFreeze, freeze


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    parser.add_argument("command", choices=["freeze"], help="make tests/releases/frozen.zip and frozen.toml")
    parser.add_argument("revision", nargs="?", help="of git, such as v0.1.0; by default the current commit")
    options = parser.parse_args()
    try:
        print(freeze(options.revision))
    except CannotFreeze as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
