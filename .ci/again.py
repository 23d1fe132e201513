"""Run tests; run those that fail once more, alone, before they count as failed.

    python .ci/again.py pytest -n 3 -m processes

A test with real processes may fail because the machine was busy. If it passes alone it is reported as unstable, and its
first output stays above. A test that fails twice fails the run, and so do more than `UNSTABLE_LIMIT` failures.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

UNSTABLE_LIMIT = 3
"""With more failures than this the change is at fault, not the machine."""

CACHE = Path(".pytest_cache/again")
"""A cache of its own: pytest's usual one also remembers failures of earlier runs."""

RESULTS = Path(".pytest_cache/again.xml")

TESTS_FAILED = 1
"""The exit code of pytest when tests failed."""

CRASHED = b"crashed while running"
"""What pytest-xdist reports of a test that ended its worker. The tests of that worker were not run then."""

GROUP = re.compile(r"@[^\]]*$")
"""What pytest-xdist appends to the name of a test that has a group."""


def main(command: list[str]) -> int:
    """The exit code for this pytest command."""
    command = [*command, "-o", f"cache_dir={CACHE}"]
    code = subprocess.run([*command, "--cache-clear", f"--junitxml={RESULTS}"]).returncode
    if code != TESTS_FAILED or CRASHED in RESULTS.read_bytes():
        return code
    failed = [GROUP.sub("", test) for test in json.loads((CACHE / "v/cache/lastfailed").read_text())]
    if len(failed) > UNSTABLE_LIMIT:
        print(f"CI: {len(failed)} tests failed, more than {UNSTABLE_LIMIT}: they are not run again")
        return code
    broken = [test for test in failed if subprocess.run([*command, "-n", "0", test]).returncode]
    for test in failed:
        print(f"CI: {'failed twice' if test in broken else 'unstable: failed once, passed alone'}: {test}")
    return TESTS_FAILED if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
