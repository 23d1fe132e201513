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
from loadtest.reports.saved import NotMeasured, Row, Saved, some
from loadtest.roussev.designs import MOST_CLIENTS

COST = "server's us a delivery"
NOT_MEASURED = "*Not measured yet.*"


class Block(NamedTuple):
    """A part of a document that shows this table. `make` raises: NotMeasured."""

    table: str
    make: Callable[[str, Saved], str]


def block(name: str, saved: Saved) -> str:
    """The part of this name, without an empty line around it. Raises: KeyError if there is none."""
    kind, space, of = name.partition(" ")
    if space:
        return KINDS[kind + space](of, saved)
    found = BLOCKS[name]
    try:
        text = found.make(found.table, saved)
    except NotMeasured:
        return NOT_MEASURED
    return f"{text}\n\n{_measured(saved, found.table)}"


def tables_of_blocks() -> set[str]:
    """The names of all tables that some part shows."""
    return {one.table for one in BLOCKS.values()}


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


def _by_interval(papers: Values, name: str, saved: Saved) -> str:
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


def _packet_loss(name: str, saved: Saved) -> str:
    columns = (
        "connections are", "method", "publish interval s", "lost packets %", "mean trip s", "mean trip s, from to",
        "trip max s", "received %", "dropped a message", "sent again a message",
    )  # fmt: skip
    rows = sorted(saved.rows(name), key=lambda row: [row[column] for column in columns[:4]])
    return table(columns, [tuple(row[column] for column in columns) for row in rows], texts=2)


def _spread(row: Row, column: str) -> str:
    """The least and the greatest value of the rounds, after a comma; nothing if they are the same, or not known."""
    least, _, greatest = str(row.get(f"{column}, from to", "")).partition(" ")
    return f", {least} to {greatest}" if least != greatest else ""


def _by_nodes(column: str, name: str, saved: Saved, factor: float = 1.0) -> str:
    """A row for each number of nodes, a column for each number of connections."""
    return _grid("nodes", saved.rows(name), "nodes", "connections", lambda row: factor * row[column])


def _grid(corner: str, rows: Sequence[Row], down: str, across: str, cell: Callable[[Row], Value]) -> str:
    """A cell for each value of one column and each of another."""
    numbers = sorted({row[across] for row in rows})
    found: dict[str, dict[int, Value]] = {}
    for row in rows:
        found.setdefault(row[down], {})[row[across]] = cell(row)
    lines = [(DESIGNS.get(key, key), *(cells.get(one, "-") for one in numbers)) for key, cells in found.items()]
    return table((corner, *map(shown, numbers)), lines)


# Hsu.


def _blocked_client(name: str, saved: Saved) -> str:
    rows = saved.rows(name)
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


def _table_1(name: str, saved: Saved) -> str:
    by_design = {design: saved.rows(name, design=design) for design in DESIGNS}

    def each(rows: Sequence[Row], column: str) -> str:
        return " / ".join(f"{row[column]:,.0f}" if row[column] != "-" else "-" for row in rows)

    rows = [
        (
            number, DESIGNS[design] + ("" if same[0]["requests"] == 2800 else f", {same[0]['requests']} requests"),
            same[0]["threads"], each(same, "at least ms"), each(same, "paper, 2,800 requests ms"),
            each(same, "took ms"), each(same, "p99 ms"), each(same, "server us a request"), same[0]["peak MB"],
        )
        for number, (design, same) in enumerate(by_design.items(), 1)
    ]  # fmt: skip
    head = (
        "#", "design", "threads", "at least ms", "paper ms", "ours ms", "p99 of a response ms", "server us per request",
        "peak MB",
    )  # fmt: skip
    return table(head, rows, texts=2)


def _table_2(name: str, saved: Saved) -> str:
    rows = saved.rows(name, design="concurrent_queue")
    lines = (("at least ms", "at least ms"), ("paper ms", "paper, 2,800 requests ms"), ("ours ms", "took ms"),
             ("ours, p99 of a response ms", "p99 ms"))  # fmt: skip
    cells = [(name, *(float(row[column]) if row[column] != "-" else "" for row in rows)) for name, column in lines]
    return table(("threads", *(shown(row["threads"]) for row in rows)), cells)


def _other_designs(name: str, saved: Saved) -> str:
    rows = some([row for row in saved.rows(name) if row["design"] != "concurrent_queue"])
    return _grid("threads", rows, "design", "threads", lambda row: f"{row['ratio']:.3f}")


def _most_clients(name: str, saved: Saved) -> str:
    rows = [
        (
            DESIGNS[row["design"]], row["threads"], float(row["at least ms"]), float(row["took ms"]),
            f"{row['p50 ms']:,.0f} / {row['p99 ms']:,.0f}", float(row["server us a request"]), float(row["peak MB"]),
        )
        for row in saved.rows(name, clients=MOST_CLIENTS)
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


def _by_clients(name: str, saved: Saved) -> str:
    return _grid("clients", saved.rows(name), "design", "clients", lambda row: f"{row['ratio']:.3f}")


def _capacities(name: str, saved: Saved) -> str:
    return _grid("places", saved.rows(name), "design", "capacity", lambda row: float(row["took ms"]))


THEOREMS = {"1": "1: insert, 101 slots", "2": "2: search, 101 slots", "3": "3: find a free worker of 150"}


def _theorems(name: str, saved: Saved) -> str:
    rows: list[tuple[Value, ...]] = []
    for theorem, title in THEOREMS.items():
        same = saved.rows(name, theorem=theorem)
        rows.append((f"{title}: at most", *(f"{row['at most']:.3f}" for row in same)))
        rows.append(("exactly", *(f"{row['exactly']:.3f}" for row in same)))
        rows.append(("measured", *(f"{row['measured']:.3f} ± {row['std. error']:.3f}" for row in same)))
    loads = [f"{row['load']:.2g}" for row in saved.rows(name, theorem="1")]
    return table(("load, about", *loads), rows)


def _in_service(name: str, saved: Saved) -> str:
    rows = [
        (
            f"{row['operation']}, {row['how']}", f"{row['load']:.2f}", row["at most"], row["exactly"],
            f"{row['measured']:.3g} ± {row['std. error']:.1g}",
        )
        for row in saved.rows(name)
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


def _group(papers: latency.Paper, name: str, saved: Saved) -> str:
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


def _complexity(name: str, saved: Saved) -> str:
    rows = {row["implementation"]: row for row in saved.rows(name)}
    events, threads = rows["events"], rows["threads"]
    columns = [column for column in events if column != "implementation"]
    return table(("", "events", "threads"), [(column, events[column], threads[column]) for column in columns])


def _peers(name: str, saved: Saved) -> str:
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
    rows = saved.rows(name)
    measured = tuple(column for column in columns if column in rows[0])  # older results have fewer
    title = saved.table(name)["title"]  # says whether PushUp was compiled
    return f"{title}.\n\n{table(measured, [tuple(row[column] for column in measured) for row in rows], texts=3)}"


BLOCKS: Mapping[str, Block] = {
    **{
        name: Block(name, make)
        for make, names in (
            (partial(_by_interval, TABLE_1), ("traffic", "traffic-closing")),
            (partial(_by_interval, TABLE_2), ("trip-time", "trip-time-closing")),
            (_packet_loss, ("packet-loss",)),
            (_threads_or_events, ("threads-or-events", "threads-or-events-overload")),
            (partial(_by_nodes, WITH_A_CORE_EACH), ("nodes-a-core-each",)),
            (_blocked_client, ("blocked-client",)),
            (_peers, ("peers",)),
            (_table_1, ("designs-table-1",)),
            (_table_2, ("designs-table-2",)),
            (_most_clients, ("designs-most-clients",)),
            (_capacities, ("designs-capacities",)),
            (_theorems, ("designs-theorems",)),
            (_claims, ("echo-claims", "echo-native-claims")),
            (partial(_group, latency.TABLE_1), ("group-delivery",)),
            (partial(_group, latency.TABLE_2), ("group-stability",)),
            (partial(_group, latency.TABLE_3), ("group-messages",)),
            (_waits, ("group-delivery-waits", "group-stability-waits")),
            (_complexity, ("group-complexity",)),
            (_as_saved, (
                "growing-output", "blocked-client-threshold", "nodes-full-core", "slow-backend-delays",
                "slow-backend-polls", "service-requests", "recorded-game", "idle-connections", "range-operations",
                "group-trace", "group-saturation", "group-micro-costs",
            )),
        )
        for name in names
    },
    "nodes-trip-time": Block("nodes", partial(_by_nodes, "mean trip s", factor=1e3)),
    "nodes-cost": Block("nodes", partial(_by_nodes, "nodes us per delivery")),
    "shares-trip-time": Block("nodes-with-shares", partial(_by_nodes, "mean trip s")),
    "shares-received": Block("nodes-with-shares", partial(_by_nodes, "received %")),
    "shares-deliveries": Block("nodes-with-shares", partial(_by_nodes, "deliveries a second")),
    "designs-others": Block("designs-table-2", _other_designs),
    "designs-clients": Block("designs-most-clients", _by_clients),
    "designs-in-service": Block("designs-probes-in-service", _in_service),
}  # fmt: skip
