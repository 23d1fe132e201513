"""Build the documentation as a site, and perhaps put it beside the versions that are published already."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.site.build import DEVELOPMENT, SiteFailed, build, publish
from deploy.site.pages import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.site", description=__doc__)
    parser.add_argument("--version", default=DEVELOPMENT, help="a release, such as 1.2.3; by default main")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="the folder of all versions")
    options = parser.parse_args()
    out = ROOT / "build" / "site"
    try:
        build(out, options.version)
    except SiteFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    if options.into is not None:
        publish(out, options.into, options.version)
    print(f"Open {(options.into or out) / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
