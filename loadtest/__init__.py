"""The papers' experiments, run on our server: `python -m loadtest EXPERIMENT [--quick]`.

| file | contents |
|---|---|
| `blocked_client`, `blocked_client_server` | Hsu §5.2, Figure 15: a blocked link, with and without output buffer |
| `slow_backend`, `slow_authorizer` | Hsu §4.3: a slow backend, and the clients that do not need it |
| `journal`, `journal_one_each` | the cost of writing messages to disk first, in groups or one by one |
| `kills` | repeated kill -9 of a server with a journal, under load: is anything lost? |
| `stalls`, `stalls_client` | the longest turn of the reactor when a node has much to do at once |
| `stalls_server`, `stalls_probe` | the server of that experiment, which times its turns |
| `push_or_pull` | PushUp §4.2: network traffic and trip time of client pull and of long polling |
| `threads_or_events` | PushUp §4.3: 500 to 16,000 connections, with a thread for each and with events |
| `nodes` | PushUp §4.4: one to four nodes behind HAProxy |
| `redis_delay` | the cost of keeping the order in Redis |
| `cluster_kills/` | a thousand faults of a cluster under load, judged |
| `append_only` | what a Redis comes back with that has lost the end of its file, or only its last save |
| `peers` | the same work on PushUp and on Nchan |
| `far_away` | long polls and event streams at a round trip of 80 ms |
| `report` | one page with all results |
| `history/` | what clients were told, and whether that keeps the promises |
| `locustfile`, `users` | locust users that pull, poll and publish; `counted_client` is their HTTP client |
| `tally` | the paper's metrics, as those users count them |
| `swarm` | a lightweight load generator, for more subscribers than locust can run |
| `designs` | Roussev & Wu: seven server designs and the event-driven one, and their theorems |
| `echo/` | Libman & Gilbourd: reactor and proactor, emulated and true |
| `baselines/` | the servers PushUp is compared with: those designs, and one thread per request |
| `group/` | Mishra & Yang: a group communication service, event-based and thread-based |
| `structures/` | how those designs hand clients to threads: buffer, queue, hash table, pipe |
| `probes` | how many slots of a hash table are probed |
| `crowd` | many of Roussev & Wu's clients on one epoll loop |
| `witnesses` | publishers and readers that detect losses while servers fail |
| `epoll_client` | clients on a bare epoll loop: many, cheap, measured at the socket |
| `servers` | starts and stops servers in their own processes |
| `results` | tables and figures, for people and for programs |

All traffic stays on loopback, every loop is bounded, and every server is stopped at the end, even on Ctrl-C.
"""
