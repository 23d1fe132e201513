"""The operations on the log in Redis that are atomic: Lua scripts, the `.lua` files beside this one."""

from __future__ import annotations

import hashlib
from importlib.resources import files


class Script:
    """A Lua script, called by its SHA-1."""

    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath(f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


SCRIPTS = tuple(map(Script, ("append", "begin", "save", "load", "report", "switch", "vouch")))
"""Those that each connection loads into Redis."""

APPEND, BEGIN, SAVE, LOAD, REPORT, SWITCH, VOUCH = SCRIPTS
MARK, NEW_CLUSTER = Script("mark"), Script("new_cluster")
"""Sent in full: they are rarely needed."""
