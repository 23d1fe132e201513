"""A model of a cluster with several logs instead of one order; see docs/internals/after-one-order.md. Not product code.

| file | what it defines |
|---|---|
| `model` | logs, the servers that store them, and nodes that follow some of them |
| `world` | one run by a seed: publishers, subscribers, faults, splits; and the end, when everything must be well |
| `checker` | what was promised, judged from what publishers and subscribers were told |
| `bugs` | bugs to plant in the model, which the checker must find |
| `one_number` | nodes with the other cursor, one number for all logs |
| `costs` | publications a second and memory, calculated from measured costs |

`python -m tests.orders --seeds 20000` runs many seeds; `python -m tests.orders.costs` prints the calculation.
"""
