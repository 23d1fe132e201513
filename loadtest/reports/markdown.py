"""Tables and links in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.reports.results import Value, shown


def table(head: Sequence[str], rows: Sequence[Sequence[Value]], texts: int = 1) -> str:
    """A Markdown table. `texts`: how many columns on the left are text, and so aligned left."""
    rule = ["---" if number < texts else "---:" for number in range(len(head))]
    lines = [head, rule, *([shown(value) for value in row] for row in rows)]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in cells) for cells in lines)
