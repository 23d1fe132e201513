"""`pushup serve --workers N`: what it costs, how evenly it shares, what it holds, and what is lost when processes die.

| file | contents |
|---|---|
| `experiment` | all of it, in the order of the tables in docs/lab/performance.md |
| `cost` | processor time of a delivery and of a publication, with 1, 2 and 4 workers; how connections are shared |
| `counts` | what each process does for a publication: wake-ups, system calls, bytes. An experiment of its own |
| `kills` | kill -9 of workers and of the parent, under load: is anything lost? |
| `many` | more held polls than one process has file descriptors |
| `crowd` | the clients of `many`: several processes of them |
| `replaced` | the longest turn of the reactor while a worker is replaced that has much to load |
| `timed_server`, `timed_worker_server` | the processes of `replaced`, which time their turns |
"""
