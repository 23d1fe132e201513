"""The papers' experiments, run on our server: `python -m loadtest EXPERIMENT [--quick]`.

| file | what |
|---|---|
| `blocked_client`, `blocked_client_server` | Hsu §5.2, Figure 15: a blocked link, with and without output buffer |
| `slow_backend`, `slow_authorizer` | Hsu §4.3: a slow backend, and the clients that do not need it |
| `journal`, `journal_one_each` | what it costs to write messages to disk first: in groups, or one by one |
| `kills` | kill -9 of a server with a journal, again and again under load: is anything lost? |
| `push_or_pull` | PushUp §4.2: network traffic and trip time of client pull and of long polling |
| `threads_or_events` | PushUp §4.3: 500 to 16,000 connections, with a thread for each and with events |
| `nodes` | PushUp §4.4: one to four nodes behind HAProxy |
| `redis_delay` | what it costs that the order is kept in Redis |
| `cluster_kills`, `cut_off` | faults of a cluster, again and again under load |
| `peers` | the same work on PushUp and on Nchan |
| `report` | one page of all results |
| `locustfile`, `users` | users of locust who pull, poll and publish; `counted_client`: their HTTP client |
| `tally` | what the paper measures, counted by those users |
| `swarm` | many subscribers at little cost, for what locust cannot carry |
| `designs` | Roussev & Wu: seven server designs and the event-driven one, and their theorems |
| `baselines/` | what PushUp is compared with: those designs, a server each, and a thread for each request |
| `structures/` | what passes clients on in them: buffer, queue, hash table, pipe |
| `probes` | how many slots of a hash table are looked at |
| `crowd` | the paper's client, many of them on an epoll loop |
| `witnesses` | publishers and readers who see what is lost while servers are harmed |
| `epoll_client` | clients on a bare epoll loop: many, cheap, measured at the socket |
| `servers` | servers in processes of their own, started and ended |
| `results` | tables and figures, for people and for programs |

Everything goes to loopback; every loop is bounded; every server that is started is ended, also on Ctrl-C.
"""
