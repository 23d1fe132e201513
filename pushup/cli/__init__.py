"""The command line. `pushup.cli:main` is its entry point.

| file | what |
|---|---|
| `commands.py` | the `pushup` command, with its subcommands |
| `client_commands.py` | `publish`, `poll` and `channel`: they use the Python client, and import no part of the server |
| `server_commands.py` | `serve`, `check-config` and `new-cluster`: their flags; they import the server when they run |
| `new_cluster.py` | gives a copied log in Redis the name of a cluster of its own |
| `worker_command.py` | runs a worker, for the parent process of several |
| `serving.py` | runs a server: signals, reloading, the greeting |
"""

from pushup.cli.commands import main

__all__ = ["main"]
