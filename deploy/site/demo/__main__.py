"""Record docs/demo.webp and docs/demo-still.webp anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from deploy.site.demo.recording import record

DOCS = Path(__file__).resolve().parents[3] / "docs"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m deploy.site.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS, help="the folder for the two files")
    parser.add_argument("--port", type=int, default=8080, help="where the server listens, which the animation shows")
    options = parser.parse_args()
    record(options.out, options.port)
