"""Load, and the servers that it is put on.

| file | contents |
|---|---|
| `swarm` | many long-polling clients and their publishers in one process, for more than locust can run |
| `epoll_client` | clients on a bare epoll loop: many, cheap, measured at the socket |
| `counted_client` | the HTTP client of locust's users, which counts its bytes |
| `witnesses` | publishers and readers that detect losses while servers fail |
| `shares` | gives processes a share of a processor |
| `lossy_network` | a network that loses packets |
| `programs` | compiles programs in C |
| `servers` | starts and stops servers in their own processes, and measures them |
"""
