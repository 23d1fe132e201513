"""Several worker processes behind the addresses of one server: `pushup serve --workers N`.

    parent: listens, owns the order (memory, journal), starts and watches the workers
       |  order: `pushup.broadcast.hub`      |  control: this package
    worker 1 ... worker N: each a whole server (`pushup.service`), on the same listening sockets

| file | what it does |
|---|---|
| `parent` | the parent as a service: starts, stops and reloads like a server of one process |
| `supervisor` | starts workers, replaces those that end or do not respond |
| `worker_process` | one worker's process, as the parent sees it |
| `worker` | what runs in a worker's process |
| `machine_queries` | questions about the whole machine: a worker asks the parent, and the parent all workers |
| `socket_transport` | the sockets between the processes |
| `control_protocol` | what parent and workers say to each other beside the order |
| `machine_metrics` | one metrics page of many: counters are added, gauges get a label |

With Redis there is no hub: each worker follows the log itself. Why it is built like this:
docs/internals/decisions/0018-workers.md.
"""
