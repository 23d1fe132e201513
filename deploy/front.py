"""HAProxy's configuration files, for any number of nodes."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent

_NODE_LINE = re.compile(r"^(\s+(?:presetenv NODE|server node|server alive))([0-9]+)\b")


def front_configuration(file: str, nodes: int) -> str:
    """haproxy.cfg or haproxy-tcp.cfg, with the lines for `node1` repeated for each node.

    The file's lines for other nodes are left out. To run it, set NODE1, NODE2 ... in the environment.
    """
    lines = []
    for line in (HERE / file).read_text().splitlines(keepends=True):
        match = _NODE_LINE.match(line)
        if match is None:
            lines.append(line)
        elif match[2] == "1":
            lines += [_for_node(line, number) for number in range(1, nodes + 1)]
    return "".join(lines)


def _for_node(line: str, number: int) -> str:
    return re.sub(r"(NODE|node|alive)1\b", rf"\g<1>{number}", line)
