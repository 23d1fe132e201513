"""Results as text, and as JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from conformance.runner import Result


def text(results: Sequence[Result], *, verbose: bool = False) -> str:
    """What failed and why, what was not applicable and why, and how many there were of each."""
    lines = []
    for result in results:
        check = result.check
        if result.verdict == "passed" and not verbose:
            continue
        if result.verdict == "not applicable" and not verbose:
            continue
        lines.append(f"{result.verdict.upper()}  {check.name} ({check.level}, {check.requirement}): {check.sentence}")
        if result.reason:
            lines.append("        " + result.reason.strip().replace("\n", "\n        "))
    reasons = Counter(r.reason for r in results if r.verdict == "not applicable")
    lines += [f"not applicable, {count}: {reason}" for reason, count in reasons.items()]
    counts = Counter(r.verdict for r in results)
    failed = Counter(r.check.level for r in results if r.verdict == "failed")
    lines.append(
        f"{counts['passed']} passed, {counts['failed']} failed ({failed['MUST']} MUST, {failed['SHOULD']} SHOULD), "
        f"{counts['not applicable']} not applicable" + (f", {counts['not run']} not run" if counts["not run"] else "")
    )
    return "\n".join(lines)


def junit(results: Sequence[Result], name: str) -> bytes:
    """One test case for each check."""
    counts = Counter(r.verdict for r in results)
    suite = ET.Element(
        "testsuite",
        name=name,
        tests=str(len(results)),
        failures=str(counts["failed"]),
        errors=str(counts["not run"]),
        skipped=str(counts["not applicable"]),
        time=f"{sum(r.seconds for r in results):.3f}",
    )
    kinds = {"failed": "failure", "not run": "error", "not applicable": "skipped"}
    for result in results:
        group, _, short = result.check.name.partition("/")
        case = ET.SubElement(
            suite, "testcase", classname=f"conformance.{group}", name=short, time=f"{result.seconds:.3f}"
        )
        properties = ET.SubElement(case, "properties")
        for key in ("level", "requirement", "sentence"):
            ET.SubElement(properties, "property", name=key, value=getattr(result.check, key))
        if result.verdict in kinds:
            ET.SubElement(case, kinds[result.verdict], message=_clean(result.reason))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def _clean(text: str) -> str:
    """Without characters that XML does not have."""
    return "".join(c if c in "\t\n" or ord(c) >= 32 else "?" for c in text)
