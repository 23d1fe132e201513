"""The settings: from defaults, a TOML file, the environment and flags to checked values.

| file | what it does |
|---|---|
| `settings` | reads them from all places, and checks them; which of them can change while a server runs |
| `server` | the settings of the server as a whole; those of a part are in its module |
| `convert` | converts values: units, sizes, lists, tables |
| `digests` | by which the nodes of a cluster compare their settings |
| `channel_policies` | checks what is set for channels with some prefix |
"""

from __future__ import annotations

# Here, so that the command line can list them without Twisted.
LOG_LEVELS = ("debug", "info", "warn", "error")
LOG_FORMATS = ("text", "json")
