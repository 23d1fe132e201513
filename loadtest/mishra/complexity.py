"""The comparison of complexity (§5.1), counted in the source of the two drivers; all else is the same for both.

The paper only says that the event-based implementation was simpler. Counted here: lines of code without comments and
docstrings; threads; synchronization objects, and the places that use them; places where control waits; and in how many
states the whole can be. A thread waits for its event, or for the semaphore, or runs, which at most one does; the loop
waits or runs.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import NamedTuple

from loadtest.mishra import event_based, thread_based
from loadtest.mishra.core.settings import Timeout
from loadtest.reports.results import Table, Value

SYNCHRONIZATION = frozenset({"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"})
USES = frozenset({"acquire", "release", "wait", "notify", "notify_all", "set", "sched_yield", "sched_setscheduler"})
WAITS = frozenset({"wait", "recv", "recvfrom", "acquire", "select", "join"})

NO_CODE = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
})  # fmt: skip

THREADS = 2 + len(Timeout)
"""For clients, for members, and for each timeout (§3)."""


class Counted(NamedTuple):
    """Of one source file. `waits`: places where control can wait, a `with` on a mutex or semaphore among them."""

    lines: int
    functions: int
    objects: int
    uses: int
    waits: int


def count(source: str) -> Counted:
    tree = ast.parse(source)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [func.attr for func in calls if isinstance(func, ast.Attribute)]
    withs = sum(isinstance(node, ast.With) for node in ast.walk(tree))
    threaded = any(name in SYNCHRONIZATION for name in names)
    return Counted(
        lines=len(_code_lines(source, tree)),
        functions=sum(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)),
        objects=sum(name in SYNCHRONIZATION for name in names),
        uses=sum(name in USES for name in names) + withs if threaded else 0,
        waits=sum(name in WAITS for name in names) + withs if threaded else sum(name == "select" for name in names),
    )


def states(threads: int) -> int:
    """In how many states this many threads can be, each waiting for its event or for the semaphore, or one running."""
    return 2**threads + threads * 2 ** (threads - 1) if threads > 1 else 2


def measure() -> Table:
    rows: list[tuple[Value, ...]] = []
    for name, module, threads in (("events", event_based, 1), ("threads", thread_based, THREADS)):
        counted = count(Path(module.__file__ or "").read_text())
        at_run_time = 2 * len(Timeout) + 1 if threads > 1 else 0
        rows.append((
            name, counted.lines, counted.functions, threads, counted.objects, at_run_time, counted.uses, counted.waits,
            states(threads),
        ))  # fmt: skip
    columns = (
        "implementation", "lines of code", "functions", "threads", "synchronization objects in the code",
        "in a process", "places that use them", "places that wait", "states of control",
    )  # fmt: skip
    return Table("group-complexity", "The complexity of the two implementations (§5.1)", columns, rows)


def _code_lines(source: str, tree: ast.Module) -> set[int]:
    """The lines with something other than white space, comments, docstrings and other bare strings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_text(node)]
    return lines - {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
