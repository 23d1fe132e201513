"""The command line: `python -m conformance --run http://127.0.0.1:8080`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance import reports
from conformance.adapter import Adapter
from conformance.nchan import Nchan
from conformance.options import LIMITS, Options
from conformance.pushup import PushUp
from conformance.runner import WORKERS, run, select
from conformance.wire import Address

ADAPTERS: dict[str, Callable[[Options], Adapter]] = {"pushup": PushUp, "nchan": Nchan}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every MUST is kept, 1 if one is not, 2 if the checks could not be run."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        checks = select(given.only)
        if given.list:
            for check in checks:
                print(f"{check.name}  {check.level} {check.requirement}\n    {check.sentence}")
            return 0
        if not given.run:
            parser.error("give --run URL, or --list")
        options = _options(given)
    except ValueError as error:
        parser.error(str(error))
    results = run(checks, ADAPTERS[given.adapter], options, seconds=given.seconds, workers=given.workers)
    print(reports.text(results, verbose=given.verbose))
    if given.junit:
        Path(given.junit).write_bytes(reports.junit(results, f"conformance of {given.run} ({given.adapter})"))
    if any(result.verdict == "not run" for result in results):
        return 2
    strict = given.should
    return int(any(r.verdict == "failed" and (strict or r.check.level == "MUST") for r in results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    add = parser.add_argument
    add("--run", metavar="URL", help="check the server at this URL")
    add("--second", metavar="URL", help="another node of the same service")
    add("--list", action="store_true", help="list the checks")
    add("--only", metavar="NAME", action="append", default=[], help="only these checks; * stands for anything")
    add("--adapter", choices=sorted(ADAPTERS), default="pushup", help="the kind of server (pushup)")
    add("--publish-key", metavar="KEY", default="", help="a publish key of the server")
    add("--origin", metavar="ORIGIN", default="", help="an origin that the server allows (CORS)")
    add(
        "--credentials",
        metavar="'NAME: VALUE'",
        action="append",
        default=[],
        help="a header field that authorizes polls",
    )
    add(
        "--token",
        metavar=("ISSUER", "AUDIENCE", "SECRET"),
        nargs=3,
        default=("", "", ""),
        help="whose signed tokens the server takes, and the secret that signs them (HS256)",
    )
    add("--url-tickets", action="store_true", help="it issues URL tickets for them")
    add("--webhooks", action="store_true", help="it calls an application about messages that were not read")
    add("--presence", metavar="PREFIX", default="", help="channels whose names begin so have presence")
    add("--strict", action="store_true", help="channels have to be created before they are used")
    add("--several-nodes", action="store_true", help="URL leads to several nodes: a load balancer, or workers")
    add(
        "--limit", metavar="NAME=VALUE", action="append", default=[], help=f"a limit of the server: {', '.join(LIMITS)}"
    )
    add(
        "--patience", metavar="SECONDS", type=float, default=5.0, help="how long to wait for what must come at once (5)"
    )
    add("--seconds", type=float, default=60.0, help="begin no check after this time (60)")
    add("--workers", type=int, default=WORKERS, help=f"checks at a time ({WORKERS})")
    add("--should", action="store_true", help="exit with 1 if a SHOULD fails, too")
    add("--junit", metavar="FILE", help="write the results as JUnit XML")
    add("--verbose", action="store_true", help="show what passed, and each check that is not applicable")
    return parser


def _options(given: argparse.Namespace) -> Options:
    """Raises: ValueError."""
    limits = dict(LIMITS)
    for text in given.limit:
        name, _, value = text.partition("=")
        if name not in limits or not value.isdigit():
            raise ValueError(f"--limit {text}: write NAME=VALUE, with one of {', '.join(LIMITS)}")
        limits[name] = int(value)
    credentials = []
    for text in given.credentials:
        name, colon, value = text.partition(":")
        if not colon:
            raise ValueError(f"--credentials {text}: write 'Name: value'")
        credentials.append((name.strip(), value.strip()))
    urls = (given.run, given.second) if given.second else (given.run,)
    for url in urls:
        Address.of(url)
    return Options(
        urls=urls,
        publish_key=given.publish_key,
        origin=given.origin,
        credentials=tuple(credentials),
        token=tuple(given.token),
        url_tickets=given.url_tickets,
        webhooks=given.webhooks,
        presence=given.presence,
        strict=given.strict,
        several_nodes=given.several_nodes,
        limits=limits,
        patience=given.patience,
    )


if __name__ == "__main__":
    sys.exit(main())
