"""The generated parts of the documents, by name: each is Markdown made from the saved results.

A part of which nothing has been measured says so. Numbers of a paper stand beside ours where its text has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from loadtest.liu.nodes import WITH_A_CORE_EACH
from loadtest.liu.papers_tables import INTERVALS, TABLE_1, TABLE_2, Values
from loadtest.mishra import latency
from loadtest.reports.item_blocks import KINDS
from loadtest.reports.markdown import table
from loadtest.reports.results import Value, shown
from loadtest.reports.saved import NotMeasured, Row, Saved
from loadtest.roussev.designs import BUFFERED, MOST_CLIENTS

COST = "server's us a delivery"
NOT_MEASURED = "*Not measured yet.*"


class Block(NamedTuple):
    """A part of a document that shows these tables. `make` raises: NotMeasured."""

    tables: tuple[str, ...]
    make: Callable[[Saved], str]


def block(name: str, saved: Saved) -> str:
    """The part of this name, without an empty line around it. Raises: KeyError if there is none."""
    kind, space, of = name.partition(" ")
    if space:
        return KINDS[kind + space](of, saved)
    found = BLOCKS[name]
    try:
        text = found.make(saved)
    except NotMeasured:
        return NOT_MEASURED
    return f"{text}\n\n{_measured(saved, found.tables[0])}"


def tables_of_blocks() -> set[str]:
    """The names of all tables that some part shows."""
    return {table for one in BLOCKS.values() for table in one.tables}


def _measured(saved: Saved, name: str) -> str:
    """How a table was measured, in a line."""
    try:
        about = saved.table(name)["about"]
    except NotMeasured:  # a table with the paper's values only
        return NOT_MEASURED
    parts = [f"`{about['command']}`"]
    parts += [str(about[key]) for key in ("commit", "date", "machine", "load", "note") if key in about]
    parts += [f"{key}: {about[key]}" for key in ("load average", "disturbances") if key in about]
    parts += [f"Python {about['python']}"] if "python" in about else []
    parts += [f"{shown(round(about['seconds']))} s"] if "seconds" in about else []
    return f"*Measured with* {'; '.join(parts)}."


# PushUp.


def _by_interval(name: str, papers: Values, saved: Saved) -> str:
    """Tables 1 and 2: a row of the paper's values above each of ours."""
    rows: list[tuple[Value, ...]] = []
    last = 0
    for row in saved.rows(name):
        connections, method, *values = row.values()
        by_interval = zip(INTERVALS, papers[connections, method], strict=True)
        theirs = [f"{value:,}" for interval, value in by_interval if f"{interval:g} s" in row]
        rows.append(("" if connections == last else connections, f"{method}, paper", *theirs))
        rows.append(("", f"{method}, ours", *values))
        last = connections
    return table(("connections", "", *list(row)[2:]), rows, texts=2)


def _threads_or_events(name: str, saved: Saved) -> str:
    kinds = {row["server"]: saved.rows(name, server=row["server"]) for row in saved.rows(name)}
    head = ["connections"]
    for what in ("MB", "mean trip s (p99)", "received %", "us per delivery"):
        head += [f"{kind}: {what}" for kind in kinds]
    rows: list[tuple[Value, ...]] = []
    for same in zip(*kinds.values(), strict=True):
        cells: list[Value] = [same[0]["connections"]]
        cells += [one["memory MB"] for one in same]
        cells += [f"{shown(one['mean trip s'])} ({shown(one['p99 s'])}){_spread(one, 'mean trip s')}" for one in same]
        cells += [f"{shown(one['received %'])}{_spread(one, 'received %')}" for one in same]
        cells += [f"{shown(one[COST])}{_spread(one, COST)}" for one in same]
        rows.append(tuple(cells))
    return table(head, rows, texts=0)


def _packet_loss(saved: Saved) -> str:
    columns = (
        "connections are", "method", "publish interval s", "lost packets %", "mean trip s", "mean trip s, from to",
        "trip max s", "received %", "dropped a message", "sent again a message",
    )  # fmt: skip
    rows = sorted(saved.rows("packet-loss"), key=lambda row: [row[column] for column in columns[:4]])
    return table(columns, [tuple(row[column] for column in columns) for row in rows], texts=2)


def _spread(row: Row, column: str) -> str:
    """The least and the greatest value of the rounds, after a comma; nothing if they are the same, or not known."""
    least, _, greatest = str(row.get(f"{column}, from to", "")).partition(" ")
    return f", {least} to {greatest}" if least != greatest else ""


def _by_nodes(name: str, column: str, saved: Saved, factor: float = 1.0) -> str:
    """A row for each number of nodes, a column for each number of connections."""
    rows = saved.rows(name)
    numbers = sorted({row["connections"] for row in rows})
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["nodes"], {})[row["connections"]] = factor * row[column]
    cells = [(nodes, *(values.get(number, "-") for number in numbers)) for nodes, values in found.items()]
    return table(("nodes", *map(shown, numbers)), cells)


# Hsu.


def _blocked_client(saved: Saved) -> str:
    rows = saved.rows("blocked-client")
    lines = [(name, *(row[name] for row in rows)) for name in ("output buffer s", "plain writes s")]
    return table(("T s", *(shown(row["T s"]) for row in rows)), lines)


# Roussev.

DESIGNS = {
    "iterative": "iterative",
    "thread_per_client": "a thread per client",
    "accept_lock": "lock around accept",
    "shared_buffer": "shared buffer",
    "concurrent_queue": "concurrent queue",
    "hash_table": "hash table",
    "pipes": "pipes",
    "event_driven": "event-driven",
}


def _table_1(saved: Saved) -> str:
    by_design = {name: saved.rows("designs-table-1", design=name) for name in DESIGNS}

    def each(rows: Sequence[Row], column: str) -> str:
        return " / ".join(f"{row[column]:,.0f}" if row[column] != "-" else "-" for row in rows)

    rows = [
        (
            number, DESIGNS[name] + ("" if same[0]["requests"] == 2800 else f", {same[0]['requests']} requests"),
            same[0]["threads"], each(same, "at least ms"), each(same, "paper, 2,800 requests ms"),
            each(same, "took ms"), each(same, "p99 ms"), each(same, "server us a request"), same[0]["peak MB"],
        )
        for number, (name, same) in enumerate(by_design.items(), 1)
    ]  # fmt: skip
    head = (
        "#", "design", "threads", "at least ms", "paper ms", "ours ms", "p99 of a response ms", "server us per request",
        "peak MB",
    )  # fmt: skip
    return table(head, rows, texts=2)


def _table_2(saved: Saved) -> str:
    rows = saved.rows("designs-table-2", design="concurrent_queue")
    lines = (("at least ms", "at least ms"), ("paper ms", "paper, 2,800 requests ms"), ("ours ms", "took ms"),
             ("ours, p99 of a response ms", "p99 ms"))  # fmt: skip
    cells = [(name, *(float(row[column]) if row[column] != "-" else "" for row in rows)) for name, column in lines]
    return table(("threads", *(shown(row["threads"]) for row in rows)), cells)


def _other_designs(saved: Saved) -> str:
    rows = [row for row in saved.rows("designs-table-2") if row["design"] != "concurrent_queue"]
    if not rows:
        raise NotMeasured
    numbers = sorted({row["threads"] for row in rows})
    by = {(row["design"], row["threads"]): row["ratio"] for row in rows}
    names = dict.fromkeys(row["design"] for row in rows)
    cells = [(DESIGNS[name], *(f"{by[name, number]:.3f}" for number in numbers)) for name in names]
    return table(("threads", *map(shown, numbers)), cells)


def _most_clients(saved: Saved) -> str:
    rows = [
        (
            DESIGNS[row["design"]], row["threads"], float(row["at least ms"]), float(row["took ms"]),
            f"{row['p50 ms']:,.0f} / {row['p99 ms']:,.0f}", float(row["server us a request"]), float(row["peak MB"]),
        )
        for row in saved.rows("designs-most-clients", clients=MOST_CLIENTS)
    ]  # fmt: skip
    head = (
        "design",
        "threads",
        "at least ms",
        "took ms",
        "p50 / p99 of a response ms",
        "server us per request",
        "peak MB",
    )
    return table(head, rows)


def _by_clients(saved: Saved) -> str:
    rows = saved.rows("designs-most-clients")
    numbers = sorted({row["clients"] for row in rows})
    by = {(row["design"], row["clients"]): row["ratio"] for row in rows}
    names = dict.fromkeys(str(row["design"]) for row in rows)
    cells = [(DESIGNS[name], *(f"{by[name, number]:.3f}" for number in numbers)) for name in names]
    return table(("clients", *map(shown, numbers)), cells)


def _capacities(saved: Saved) -> str:
    rows = saved.rows("designs-capacities")
    numbers = sorted({row["capacity"] for row in rows})
    by = {(row["design"], row["capacity"]): float(row["took ms"]) for row in rows}
    cells: list[tuple[Value, ...]] = [(DESIGNS[name], *(by[name, number] for number in numbers)) for name in BUFFERED]
    return table(("places", *map(shown, numbers)), cells)


THEOREMS = {"1": "1: insert, 101 slots", "2": "2: search, 101 slots", "3": "3: find a free worker of 150"}


def _theorems(saved: Saved) -> str:
    rows: list[tuple[Value, ...]] = []
    for name, title in THEOREMS.items():
        same = saved.rows("designs-theorems", theorem=name)
        rows.append((f"{title}: at most", *(f"{row['at most']:.3f}" for row in same)))
        rows.append(("exactly", *(f"{row['exactly']:.3f}" for row in same)))
        rows.append(("measured", *(f"{row['measured']:.3f} ± {row['std. error']:.3f}" for row in same)))
    loads = [f"{row['load']:.2g}" for row in saved.rows("designs-theorems", theorem="1")]
    return table(("load, about", *loads), rows)


def _in_service(saved: Saved) -> str:
    rows = [
        (
            f"{row['operation']}, {row['how']}", f"{row['load']:.2f}", row["at most"], row["exactly"],
            f"{row['measured']:.3g} ± {row['std. error']:.1g}",
        )
        for row in saved.rows("designs-probes-in-service")
    ]  # fmt: skip
    return table(("", "load", "at most", "exactly", "measured"), rows)


# Libman and Mishra.


def _claims(name: str, saved: Saved) -> str:
    rows = [
        (row["claim"], f"{row['of']} / {row['against']}", row["measure"], row["paper"], row["ours"], row["lowest"],
         row["highest"])
        for row in saved.rows(name)
    ]  # fmt: skip
    return table(("claim", "compared", "measure", "paper", "ours", "lowest", "highest"), rows, texts=4)


def _group(name: str, papers: latency.Paper, saved: Saved) -> str:
    """Tables 1 to 3: the paper's values, with ours below each row if there are any."""
    head = ("semantics", "", *(f"{interval} ms" for interval in latency.INTERVALS_MS))
    try:
        ours = {(row["implementation"], row["semantics"]): row for row in saved.rows(name)}
    except NotMeasured:
        ours = {}
    rows: list[tuple[Value, ...]] = []
    for (driver, semantics), values in papers.items():
        rows.append((semantics.name, f"{driver}, paper", *values))
        row = ours.get((driver, semantics.name))
        if row is not None:
            rows.append(("", f"{driver}, ours", *(row[f"{interval} ms: ours"] for interval in latency.INTERVALS_MS)))
    return table(head, rows, texts=2)


def _as_saved(name: str, saved: Saved) -> str:
    rows = saved.rows(name)
    return table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def _waits(name: str, saved: Saved) -> str:
    """With events, at the shortest and the longest interval."""
    intervals = latency.INTERVALS_MS[0], latency.INTERVALS_MS[-1]
    rows = [
        {column: value for column, value in row.items() if column != "implementation"}
        for row in saved.rows(name, implementation="events")
        if row["interval ms"] in intervals
    ]
    return table(tuple(rows[0]), [tuple(row.values()) for row in rows], texts=1)


def _complexity(saved: Saved) -> str:
    rows = {row["implementation"]: row for row in saved.rows("group-complexity")}
    events, threads = rows["events"], rows["threads"]
    columns = [column for column in events if column != "implementation"]
    return table(("", "events", "threads"), [(column, events[column], threads[column]) for column in columns])


def _peers(saved: Saved) -> str:
    columns = (
        "work",
        "server",
        "unit",
        "cost",
        "range",
        "ratio to Nchan",
        "of it system",
        "trip p50 ms",
        "trip p99 ms",
    )
    rows = saved.rows("peers")
    measured = tuple(column for column in columns if column in rows[0])  # older results have fewer
    title = saved.table("peers")["title"]  # says whether PushUp was compiled
    return f"{title}.\n\n{table(measured, [tuple(row[column] for column in measured) for row in rows], texts=3)}"


BLOCKS: Mapping[str, Block] = {
    "traffic": Block(("traffic",), lambda saved: _by_interval("traffic", TABLE_1, saved)),
    "trip-time": Block(("trip-time",), lambda saved: _by_interval("trip-time", TABLE_2, saved)),
    "traffic-closing": Block(("traffic-closing",), lambda saved: _by_interval("traffic-closing", TABLE_1, saved)),
    "trip-time-closing": Block(("trip-time-closing",), lambda saved: _by_interval("trip-time-closing", TABLE_2, saved)),
    "packet-loss": Block(("packet-loss",), _packet_loss),
    "threads-or-events": Block(("threads-or-events",), lambda saved: _threads_or_events("threads-or-events", saved)),
    "threads-or-events-overload": Block(
        ("threads-or-events-overload",), lambda saved: _threads_or_events("threads-or-events-overload", saved)
    ),
    "nodes-trip-time": Block(("nodes",), lambda saved: _by_nodes("nodes", "mean trip s", saved, 1e3)),
    "nodes-cost": Block(("nodes",), lambda saved: _by_nodes("nodes", "nodes us per delivery", saved)),
    "nodes-a-core-each": Block(
        ("nodes-a-core-each",), lambda saved: _by_nodes("nodes-a-core-each", WITH_A_CORE_EACH, saved)
    ),
    "shares-trip-time": Block(
        ("nodes-with-shares",), lambda saved: _by_nodes("nodes-with-shares", "mean trip s", saved)
    ),
    "shares-received": Block(("nodes-with-shares",), lambda saved: _by_nodes("nodes-with-shares", "received %", saved)),
    "shares-deliveries": Block(
        ("nodes-with-shares",), lambda saved: _by_nodes("nodes-with-shares", "deliveries a second", saved)
    ),
    "blocked-client": Block(("blocked-client",), _blocked_client),
    "growing-output": Block(("growing-output",), lambda saved: _as_saved("growing-output", saved)),
    "blocked-client-threshold": Block(
        ("blocked-client-threshold",), lambda saved: _as_saved("blocked-client-threshold", saved)
    ),
    **{
        name: Block((name,), partial(_as_saved, name))
        for name in (
            "nodes-full-core",
            "slow-backend-delays",
            "slow-backend-polls",
            "service-requests",
            "recorded-game",
            "idle-connections",
            "range-operations",
        )
    },
    "peers": Block(("peers",), _peers),
    "designs-table-1": Block(("designs-table-1",), _table_1),
    "designs-table-2": Block(("designs-table-2",), _table_2),
    "designs-others": Block(("designs-table-2",), _other_designs),
    "designs-most-clients": Block(("designs-most-clients",), _most_clients),
    "designs-clients": Block(("designs-most-clients",), _by_clients),
    "designs-capacities": Block(("designs-capacities",), _capacities),
    "designs-theorems": Block(("designs-theorems",), _theorems),
    "designs-in-service": Block(("designs-probes-in-service",), _in_service),
    "echo-claims": Block(("echo-claims",), lambda saved: _claims("echo-claims", saved)),
    "echo-native-claims": Block(("echo-native-claims",), lambda saved: _claims("echo-native-claims", saved)),
    "group-delivery": Block(("group-delivery",), lambda saved: _group("group-delivery", latency.TABLE_1, saved)),
    "group-stability": Block(("group-stability",), lambda saved: _group("group-stability", latency.TABLE_2, saved)),
    "group-messages": Block(("group-messages",), lambda saved: _group("group-messages", latency.TABLE_3, saved)),
    **{name: Block((name,), partial(_waits, name)) for name in ("group-delivery-waits", "group-stability-waits")},
    "group-trace": Block(("group-trace",), partial(_as_saved, "group-trace")),
    "group-saturation": Block(("group-saturation",), lambda saved: _as_saved("group-saturation", saved)),
    "group-micro-costs": Block(("group-micro-costs",), lambda saved: _as_saved("group-micro-costs", saved)),
    "group-complexity": Block(("group-complexity",), _complexity),
}
