"""What clients of a cluster did and were told, and whether that keeps PushUp's promises.

A history comes from a simulated cluster (docs/internals/simulation.md) or from real servers.
docs/internals/histories.md describes the format. `python -m loadtest judge FILE` judges one.

| file | contents |
|---|---|
| `events` | the events of a history |
| `file` | a history as JSON Lines: written, and read |
| `checker` | what the events must be like if all promises are kept |
| `assumed` | how long things may have been kept at least, by the limits |
| `clients` | what it knows of each publication, and of each subscriber |
| `forgetting` | which gaps may be false because a channel may have been forgotten |
| `order` | places in the order of everything |
| `verdict` | the first broken promise of a history, and what it contains |
"""
