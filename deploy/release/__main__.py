"""Whether a release can be made of this checkout, and what to push: `python -m deploy.release`. It changes nothing."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime

from deploy.release.checks import CHECKS, NotReady, Release


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description=__doc__)
    names = [*CHECKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="make these checks; by default all")
    options = parser.parse_args()
    release, failed = Release(), 0
    for name in (name for name in names if name in options.only):
        try:
            found = CHECKS[name](release)
        except NotReady as problem:
            failed += 1
            found = f"NOT READY: {problem}"
        print(f"{name:10} {found}", flush=True)
    if release.figures:
        print(f"\n| measured on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores | |\n|---|---:|")
        print(*(f"| {what} | {figure} |" for what, figure in release.figures.items()), sep="\n")
    if failed:
        print(f"\n{failed} of {len(options.only)} checks failed. Mend these, and run this command again.")
        return 1
    left = [name for name in names if name not in options.only]
    if left:
        print(f"\nNot checked: {', '.join(left)}. To know whether a release can be made, run it without --only.")
        return 0
    tag = release.tag
    print(f"\nReady. This releases PushUp {release.version}:\n")
    print(f"    git tag -a {tag} -m 'PushUp {release.version}' && git push origin main {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
