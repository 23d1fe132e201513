"""The settings: from defaults, a TOML file, the environment and flags to checked values.

| file | what it does |
|---|---|
| `settings` | reads them from all places, and checks them; which of them can change while a server runs |
| `server` | the settings of the server as a whole; those of a part are in its module |
| `convert` | converts values: units, sizes, lists, tables |
| `channel_policies` | checks what is set for channels with some prefix |
| `log_options` | the levels and formats of the log |
"""
