"""Writes the results in docs/internals/conformance.md: `PYTHONPATH=. python tests/conformance/report.py`.

Needs redis-server, and nginx with Nchan: Debian's packages nginx-light and libnginx-mod-nchan.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from conformance.nchan import Nchan
from conformance.options import Options
from conformance.pushup import PushUp
from conformance.registry import CHECKS, Check
from conformance.runner import Result, run, select
from pushup import __version__
from servers import CHECK_SECONDS, CONFIGURATIONS, ONLY, PATIENCE_SECONDS, SECONDS, started

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "internals" / "conformance.md"
BEGIN, END = "<!-- results, written by tests/conformance/report.py -->", "<!-- end of results -->"

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") or "nginx"
MODULES = "/usr/lib/nginx/modules"

ROUNDS = 5
"""How often the checks that are for every server are run: some faults show only sometimes."""

Rounds = list[list[Result]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    everywhere = [check for check in CHECKS.values() if not any(map(Nchan(Options(urls=("",))).why_not, check.needs))]
    servers: dict[str, Rounds] = {}
    with tempfile.TemporaryDirectory() as directory:
        for workers in (1, 2):
            with nchan(Path(directory) / f"nchan-{workers}", workers) as url:
                options = Options(urls=(url,), patience=PATIENCE_SECONDS, check_seconds=CHECK_SECONDS)
                servers[f"Nchan, {_count(workers, 'worker')}"] = [
                    run(everywhere, Nchan, options) for _ in range(rounds)
                ]
        with _pushup("memory", Path(directory) / "again") as options:
            servers["PushUp"] = [run(everywhere, PushUp, options, seconds=SECONDS) for _ in range(rounds)]
        whole: dict[str, list[Result]] = {}
        for name in CONFIGURATIONS:
            with _pushup(name, Path(directory) / name.replace(" ", "-")) as options:
                whole[name] = run(select(ONLY.get(name, ())), PushUp, options, seconds=SECONDS)
    text = "\n\n".join((BEGIN, _versions(rounds), _compared(everywhere, servers), _not_offered(), _own(whole), END))
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(BEGIN)] + text + page[page.index(END) + len(END) :])


@contextmanager
def nchan(directory: Path, workers: int = 1, port: int = 8081) -> Iterator[str]:
    """Run nginx with nginx.conf and this many workers."""
    directory.mkdir()
    text = (HERE / "nginx.conf").read_text().replace("load_module modules", f"load_module {MODULES}")
    text = re.sub(r"worker_processes \d+", f"worker_processes {workers}", text)
    (directory / "nginx.conf").write_text(text.replace("127.0.0.1:8081", f"127.0.0.1:{port}"))
    command = [NGINX, "-p", str(directory), "-e", "error.log", "-c", "nginx.conf"]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(1.0)
            if process.poll() is not None:
                raise RuntimeError(f"nginx did not start: {(directory / 'error.log').read_text()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def _pushup(configuration: str, directory: Path) -> Iterator[Options]:
    directory.mkdir()
    with started(configuration, directory) as options:
        yield options


def _versions(rounds: int) -> str:
    nginx = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True).stderr.strip().rpartition("/")[2]
    package = _said("dpkg-query", "--show", "--showformat=${Version}", "libnginx-mod-nchan")
    version = package.partition(":")[2].partition("+")[0]
    redis = _said("redis-server", "--version").split("v=")[1].split()[0]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: PushUp {__version__}, Redis {redis}; nginx {nginx} with Nchan {version} "
        f"(Debian's {package}) and `tests/conformance/nginx.conf`. {_count(rounds, 'round')}."
    )


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _compared(checks: Sequence[Check], servers: dict[str, Rounds]) -> str:
    names = sorted(servers, reverse=True)
    lines = [f"| promise | requirement | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for check in checks:
        cells = [_cell([r for results in servers[name] for r in results if r.check is check]) for name in names]
        lines.append(f"| {check.sentence} | {check.requirement} | {' | '.join(cells)} |")
    return "## Promises that any server can keep\n\n" + "\n".join(lines)


def _cell(results: list[Result]) -> str:
    if any(result.verdict not in ("passed", "failed") for result in results):
        raise RuntimeError(f"{results[0].check.name} was not run in each round")
    failed = sum(result.verdict == "failed" for result in results)
    if not failed:
        return "kept"
    return "**not kept**" if failed == len(results) else f"**not kept** in {failed} of {len(results)} rounds"


def _not_offered() -> str:
    adapter = Nchan(Options(urls=("",)))
    reasons: dict[str, int] = {}
    for check in CHECKS.values():
        reason = next((why for why in map(adapter.why_not, check.needs) if why), "")
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    rows = "\n".join(f"| {count} | {reason} |" for reason, count in reasons.items())
    return f"## Not applicable to Nchan\n\n| checks | reason |\n|---:|---|\n{rows}"


def _own(whole: dict[str, list[Result]]) -> str:
    lines = ["| PushUp with | passed | failed | not applicable |", "|---|---:|---:|---:|"]
    for name, results in whole.items():
        counts = [sum(r.verdict == verdict for r in results) for verdict in ("passed", "failed", "not applicable")]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    text = f"All {len(CHECKS)} checks; each is applicable in one of these configurations at least (`servers.py`)."
    return f"## The whole protocol\n\n{text}\n\n" + "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    main()
