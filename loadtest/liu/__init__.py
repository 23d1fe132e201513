"""Liu & Cui, "PushUp: A Scalable Event-driven Long-Polling Server", §4 (docs/lab/evaluation.md).

| file | contents |
|---|---|
| `push_or_pull` | §4.2, Tables 1 and 2, Figures 7 and 8: traffic and trip time of client pull and of long polling |
| `closing_connections` | §4.2 with a connection for each request, one case after the other |
| `packet_loss` | §4.2 while packets are lost |
| `papers_tables` | the values of Tables 1 and 2 |
| `threads_or_events` | §4.3, Figures 9 to 11: 500 to 16,000 connections, with a thread for each and with events |
| `thread_per_request` | the server with threads: PushUp, but for a thread for each held request |
| `range_operations` | §3.2: trees of 1,000 to 1,000,000 items |
| `nodes` | §4.4, Figures 12 and 13: one to four nodes behind HAProxy |
| `users` | locust users that pull, poll, follow streams and publish |
| `tally` | the paper's metrics (§4.1.1), as these users count them |
"""
